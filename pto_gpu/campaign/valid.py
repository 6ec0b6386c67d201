"""The valid regions of a campaign's tiles.

Stream ``VALID`` of the recipe in :mod:`pto_gpu.campaign.generate`: the counter is (block, tile low, tile high,
256 * VALID), so a region depends on seed, tile number, shape and element size only. Block 0 draws dst's region
(for the ``rows`` pattern src's): w0 picks the kind, w1 and w2 the counts, w3 the rest. Block 1 draws, for the
partial patterns, the region of the source that does not define dst: w0 picks the kind, w1 and w2 the counts,
and the lowest bit of w3 says which of the two sources it is. Block 2, only where the campaign computes undefined
regions: w0 below 2**29 makes all three regions of the tile arbitrary, from the halves of w1, w2 and w3.
A word w makes a count of 0 to n as ``(w * (n + 1)) >> 32``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pto_gpu.campaign.compiled import row_words
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction, Kind
from pto_gpu.regions import Region
from pto_gpu.types import BLOCK_BYTES

VALID: Final = 3

# Weights of each table add up to 64.
_MAIN: Final = {
    "full": 18,
    "random": 20,
    "one row": 6,
    "one column": 6,
    "one off a 32-byte edge": 10,
    "empty": 4,
}
_OTHER: Final = {
    "other equal": 20,
    "other shorter in rows": 11,
    "other shorter in columns": 11,
    "other shorter in both": 11,
    "other inside": 7,
    "other empty": 4,
}
_OTHER_ANY: Final = {
    "other equal": 14,
    "other shorter in rows": 8,
    "other shorter in columns": 8,
    "other shorter in both": 8,
    "other empty": 4,
    "other longer in rows": 6,
    "other longer in columns": 6,
    "other longer in both": 6,
    "other anywhere": 4,
}
_OPEN = "undefined by the page"


class DrawnRegions(NamedTuple):
    """Valid regions of some tiles, for each operand, and how many tiles had each kind."""

    regions: dict[str, Region]
    kinds: dict[str, int]


def draw_regions(
    instruction: Instruction, shape: tuple[int, int], itemsize: int, seed: int, first_tile: int, n: int, undefined: str
) -> DrawnRegions:
    """The valid regions of ``n`` tiles of the logical ``shape`` (rows, cols) from ``first_tile`` onwards."""
    words = np.empty((n, 3, 4), np.uint32)
    row_words(words, np.uint64(seed), np.uint64(first_tile), np.uint64(256 * VALID))
    pattern = instruction.valid_pattern
    main, kinds = _main(words[:, 0], shape, BLOCK_BYTES // itemsize, may_be_empty=pattern != "rows")
    if pattern == "rows":
        return DrawnRegions(_by_role(instruction, Region(main.rows, 1), [main]), kinds)
    if pattern == "same":
        return DrawnRegions(_by_role(instruction, main, [main]), kinds)
    table = _OTHER_ANY if pattern == "partial_any" else _OTHER
    other, other_kinds = _other(words[:, 1], main, shape, table)
    swap = (words[:, 1, 3] & 1).astype(bool)
    dst, first, second = main, _where(swap, other, main), _where(swap, main, other)
    if undefined == "zero":
        dst, first, second, other_kinds = _open(words[:, 2], shape, (dst, first, second), other_kinds)
    return DrawnRegions(_by_role(instruction, dst, [first, second]), {**kinds, **other_kinds})


def _by_role(instruction: Instruction, dst: Region, sources: list[Region]) -> dict[str, Region]:
    """An index tile has the region of its value tile, which stands at the same place."""
    regions = {o.name: dst for o in instruction.dsts}
    for kind in Kind:
        operands = [o for o in instruction.sources if o.kind is kind]
        for place, operand in enumerate(operands):
            regions[operand.name] = sources[min(place, len(sources) - 1)]
    return regions


def _count(word: NumPyArray, limit: NumPyArray | int) -> NumPyArray:
    """Counts of 0 to ``limit`` from words of 32 bits."""
    product = word.astype(np.uint64) * (np.asarray(limit, np.int64) + 1).astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int32)


def _kinds(word: NumPyArray, table: dict[str, int]) -> tuple[NumPyArray, dict[str, int]]:
    """The place in ``table`` of each tile's kind, and how many tiles have it."""
    slots = np.repeat(np.arange(len(table)), list(table.values()))
    chosen = slots[word & 63]
    return chosen, dict(zip(table, np.bincount(chosen, minlength=len(table)).tolist(), strict=True))


def _region(rows: NumPyArray, cols: NumPyArray) -> Region:
    return Region(np.asarray(rows, np.int32), np.asarray(cols, np.int32))


def _where(mask: NumPyArray, a: Region, b: Region) -> Region:
    return _region(np.where(mask, a.rows, b.rows), np.where(mask, a.cols, b.cols))


def _main(words: NumPyArray, shape: tuple[int, int], step: int, *, may_be_empty: bool) -> tuple[Region, dict[str, int]]:
    rows, cols = shape
    table = dict(_MAIN)
    if not may_be_empty:
        table["random"] += table.pop("empty")
    chosen, kinds = _kinds(words[:, 0], table)
    names = list(table)
    random_rows, random_cols = 1 + _count(words[:, 1], rows - 1), 1 + _count(words[:, 2], cols - 1)
    edges = 1 + _count(words[:, 2], max(cols // step - 1, 0))
    off_edge = np.clip(edges * step + np.where(words[:, 3] & 1, 1, -1), 1, cols)
    nothing = words[:, 3] % 3  # 0: no row, 1: no column, 2: neither
    none = np.zeros_like(random_rows)
    choices = {
        "full": (np.full_like(random_rows, rows), np.full_like(random_rows, cols)),
        "random": (random_rows, random_cols),
        "one row": (none + 1, random_cols),
        "one column": (random_rows, none + 1),
        "one off a 32-byte edge": (random_rows, off_edge),
        "empty": (np.where(nothing == 1, random_rows, 0), np.where(nothing == 0, random_cols, 0)),
    }
    return _choose(chosen, [choices[name] for name in names]), kinds


def _choose(chosen: NumPyArray, choices: list[tuple[NumPyArray, NumPyArray]]) -> Region:
    return _region(np.choose(chosen, [r for r, _ in choices]), np.choose(chosen, [c for _, c in choices]))


def _other(
    words: NumPyArray, main: Region, shape: tuple[int, int], table: dict[str, int]
) -> tuple[Region, dict[str, int]]:
    rows, cols = shape
    chosen, kinds = _kinds(words[:, 0], table)
    row, col = words[:, 1], words[:, 2]
    fewer_rows, fewer_cols = _count(row, np.maximum(main.rows - 1, 0)), _count(col, np.maximum(main.cols - 1, 0))
    more_rows, more_cols = (
        np.minimum(main.rows + 1 + _count(row, rows), rows),
        np.minimum(main.cols + 1 + _count(col, cols), cols),
    )
    choices = {
        "other equal": (main.rows, main.cols),
        "other shorter in rows": (fewer_rows, main.cols),
        "other shorter in columns": (main.rows, fewer_cols),
        "other shorter in both": (fewer_rows, fewer_cols),
        "other inside": (_count(row, main.rows), _count(col, main.cols)),
        "other empty": (np.where(row & 1, 0, main.rows), np.where(row & 1, main.cols, 0)),
        "other longer in rows": (more_rows, main.cols),
        "other longer in columns": (main.rows, more_cols),
        "other longer in both": (more_rows, more_cols),
        "other anywhere": (_count(row, rows), _count(col, cols)),
    }
    return _choose(chosen, [choices[name] for name in table]), kinds


def _open(
    words: NumPyArray, shape: tuple[int, int], regions: tuple[Region, Region, Region], kinds: dict[str, int]
) -> tuple[Region, Region, Region, dict[str, int]]:
    """One tile in eight with three arbitrary regions."""
    here = words[:, 0] < 1 << 29
    result = []
    for i, region in enumerate(regions, 1):
        low, high = words[:, i] << np.uint32(16), words[:, i] & np.uint32(0xFFFF0000)
        result.append(_where(here, _region(_count(low, shape[0]), _count(high, shape[1])), region))
    return result[0], result[1], result[2], {**kinds, _OPEN: int(here.sum())}
