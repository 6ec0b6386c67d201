"""Bitwise comparison of every byte of dst, and what kind of difference it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pto_gpu.campaign.tiles.storage import bits, inside
from pto_gpu.campaign.ulp import EXACT, Tolerance
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Family, Instruction, Kind, Operand
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ELEMENT_TYPES

#: Mismatches that are kept.
SHOWN: Final = 20
#: Mismatches of one wave that are put into categories.
SAMPLED: Final = 256
_PER_TILE: Final = 8
NAN, TIE, SIGNED_ZERO, OUTSIDE, INDEX, VALUE = (
    "NaN",
    "tie",
    "signed zero",
    "outside the valid region",
    "index",
    "value",
)


@dataclass(frozen=True)
class Input:
    """A source where a mismatch is: the bits of its element there (of the row's, for a reduction), if valid."""

    name: str
    dtype: str
    bits: tuple[int, ...]
    valid: bool


@dataclass(frozen=True)
class Mismatch:
    """One element of dst that is not what the reference says; ``seen`` and ``expected`` are bits.

    ``valid_regions``: rows and columns of each operand, destinations first.
    """

    tile: int
    operand: str
    dtype: str
    row: int
    col: int
    category: str
    seen: int
    expected: int
    inputs: tuple[Input, ...]
    valid_regions: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Comparison:
    """What comparing some tiles gave.

    ``tiles``: numbers of those that differ, in order. ``mismatches``: the first :data:`SHOWN` elements, by tile.
    ``categories``: how often each category occurs in a sample of up to :data:`SAMPLED` elements from all over.
    ``tolerated``: elements that differ by no more than was allowed; they count as equal. ``farthest``: the largest
    distance in ULP of a value that is not the same bits, where a distance was allowed.
    """

    elements: int = 0
    tiles: NumPyArray = field(default_factory=lambda: np.empty(0, np.int64))
    mismatches: tuple[Mismatch, ...] = ()
    categories: Counter[str] = field(default_factory=Counter)
    tolerated: int = 0
    farthest: int = 0


@dataclass(frozen=True)
class _Side:
    """One dst where it differs: ``differs`` bool[batch, rows, cols]; the counts are as in a comparison."""

    operand: Operand
    differs: NumPyArray
    tolerated: int
    farthest: int


def compare(
    instruction: Instruction,
    sources: Mapping[str, TileBuf],
    seen: Mapping[str, TileBuf],
    expected: Mapping[str, TileBuf],
    first_tile: int = 0,
    *,
    outside: bool = True,
    tolerance: Tolerance = EXACT,
) -> Comparison:
    """Compare the dst tiles ``seen`` with ``expected``; ``outside``: also the elements outside the valid region.

    ``tolerance`` is for values inside the valid region.
    """
    sides = [
        side
        for operand in instruction.dsts
        if (side := _side(operand, seen[operand.name], expected[operand.name], outside, tolerance)) is not None
    ]
    tolerated, farthest = sum(s.tolerated for s in sides), max((s.farthest for s in sides), default=0)
    elements = sum(int(np.count_nonzero(side.differs)) for side in sides)
    if not elements:
        return Comparison(tolerated=tolerated, farthest=farthest)
    tiles = np.unique(np.concatenate([np.nonzero(side.differs.any(axis=(1, 2)))[0] for side in sides]))

    def described(places: list[tuple[int, int, int, int]]) -> list[Mismatch]:
        return [
            _mismatch(instruction, sides[order].operand, sources, seen, expected, (tile, row, col), first_tile)
            for tile, order, row, col in places
        ]

    chosen = tiles[:: -(-len(tiles) // (SAMPLED // _PER_TILE))]
    sample = [place for tile in chosen.tolist() for place in _places(sides, tile, _PER_TILE, spread=True)]
    shown = [place for tile in tiles[:SHOWN].tolist() for place in _places(sides, tile, SHOWN, spread=False)][:SHOWN]
    categories = Counter(m.category for m in described(sample))
    return Comparison(elements, tiles + first_tile, tuple(described(shown)), categories, tolerated, farthest)


def _side(operand: Operand, seen: TileBuf, expected: TileBuf, outside: bool, tolerance: Tolerance) -> _Side | None:
    """Where one dst differs; None if no bit does."""
    a, b = bits(seen.data), bits(expected.data)
    if np.array_equal(a, b):
        return None
    differs: NumPyArray = a != b
    if not outside:
        differs &= inside(seen)
    if operand.kind is not Kind.VALUE or tolerance.exact:
        return _Side(operand, differs, 0, 0)
    near, element = differs & inside(seen), seen.type.element
    farthest = tolerance.farthest(a[near], b[near], element)
    near[near] = tolerance.accepts(a[near], b[near], element)
    return _Side(operand, differs & ~near, int(np.count_nonzero(near)), farthest)


def _places(sides: list[_Side], tile: int, limit: int, *, spread: bool) -> list[tuple[int, int, int, int]]:
    """Up to ``limit`` places (tile, which dst, row, column) of one tile: from all over it, or the first ones."""
    found = []
    for order, side in enumerate(sides):
        rows, cols = np.nonzero(side.differs[tile])
        step = max(1, len(rows) // limit) if spread else 1
        found += [(tile, order, r, c) for r, c in zip(rows[::step].tolist(), cols[::step].tolist(), strict=True)]
    return found[:limit]


def _mismatch(
    instruction: Instruction,
    operand: Operand,
    sources: Mapping[str, TileBuf],
    seen: Mapping[str, TileBuf],
    expected: Mapping[str, TileBuf],
    place: tuple[int, int, int],
    first_tile: int,
) -> Mismatch:
    tile, row, col = place
    regions = {o.name: seen[o.name].region.of_tile(tile) for o in instruction.dsts}
    regions.update({o.name: sources[o.name].region.of_tile(tile) for o in instruction.sources})
    rows, cols = regions[operand.name]
    inputs = tuple(_input(instruction, o, sources[o.name], place) for o in instruction.sources)
    got, want = (int(bits(x[operand.name].data)[place]) for x in (seen, expected))
    dtype = seen[operand.name].type.dtype
    category = OUTSIDE if row >= rows or col >= cols else _category(instruction, operand, dtype, inputs, got, want)
    return Mismatch(first_tile + tile, operand.name, dtype, row, col, category, got, want, inputs, regions)


def _input(instruction: Instruction, operand: Operand, tiles: TileBuf, place: tuple[int, int, int]) -> Input:
    tile, row, col = place
    rows, cols = tiles.region.of_tile(tile)
    data = bits(tiles.data)[tile]
    if instruction.family is Family.ROW_REDUCE:
        values = data[row, :cols] if row < rows else data[:0, 0]
        return Input(operand.name, tiles.type.dtype, tuple(values.tolist()), row < rows)
    inside = row < rows and col < cols
    held = row < data.shape[0] and col < data.shape[1]
    return Input(operand.name, tiles.type.dtype, (int(data[row, col]),) if held else (), inside)


def value_of(pattern: int, dtype: str) -> float | int:
    """The value of a bit pattern."""
    element = ELEMENT_TYPES[dtype]
    value = np.array(pattern, element.bits_dtype).view(element.numpy)
    with np.errstate(invalid="ignore"):
        return float(value.astype(np.float64)) if element.is_float else int(value)


def _category(
    instruction: Instruction, operand: Operand, dtype: str, inputs: tuple[Input, ...], seen: int, expected: int
) -> str:
    values = [i for i in inputs if i.valid and instruction.by_name[i.name].kind is Kind.VALUE]
    numbers = [value_of(b, i.dtype) for i in values for b in i.bits]
    results = [value_of(b, dtype) for b in (seen, expected)]
    if any(n != n for n in (*numbers, *results)):
        return NAN
    if "tie" in instruction.rules_used and len(numbers) == 2 and numbers[0] == numbers[1]:
        return TIE
    if operand.kind is Kind.INDEX:
        return INDEX
    return SIGNED_ZERO if results[0] == results[1] else VALUE
