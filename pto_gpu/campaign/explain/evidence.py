"""Tiles with what an implementation made of them: what explanations are tried on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pto_gpu import backends
from pto_gpu.campaign.tiles.storage import bits, inside, per_tile
from pto_gpu.campaign.ulp import EXACT, Tolerance
from pto_gpu.defaults import Options
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Call, Instruction, Kind, Operand, Role
from pto_gpu.numerics import Numerics
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import smallest_row_multiple

#: Differing tiles, and as many equal ones, that causes are tried on.
SAMPLED: Final = 32
#: Elements of the largest operand that are worked on at once.
_BLOCK_ELEMENTS: Final = 1 << 20
#: The bits of each dst after a run, ``[batch, rows, cols]``.
Results = Mapping[str, NumPyArray]


@dataclass(frozen=True)
class Evidence:
    """A batch of tiles, and the results that somebody got. ``failing``: places of the tiles that differ, int64[n].

    ``before``: every operand but tmp, dst as it was before the run. ``seen``: the bits of each dst after it.
    ``whole``: whether elements of dst outside its valid region count. ``tolerance``: what counts as equal inside it.
    ``origin``: the batch that these tiles were taken from, and their places in it; None for the batch itself.
    """

    instruction: Instruction
    rules: Numerics
    undefined: str
    target: str
    before: Mapping[str, TileBuf]
    seen: Results
    failing: NumPyArray
    whole: bool = True
    tolerance: Tolerance = EXACT
    origin: tuple[Evidence, NumPyArray] | None = None

    @classmethod
    def of(
        cls,
        instruction: Instruction,
        options: Options,
        before: Mapping[str, TileBuf],
        seen: Mapping[str, TileBuf],
        failing: NumPyArray,
        *,
        whole: bool = True,
        tolerance: Tolerance = EXACT,
    ) -> Evidence:
        """Evidence of the tiles themselves, not copied; operands may come in any order."""
        ordered = {o.name: before[o.name] for o in operands_of(instruction)}
        results = {o.name: bits(seen[o.name].data) for o in instruction.dsts}
        how = (options.numerics, options.undefined, options.target.name)
        return cls(instruction, *how, ordered, results, failing, whole, tolerance)

    @property
    def batch(self) -> int:
        """Tiles in the batch."""
        return self.before[self.instruction.dsts[0].name].batch

    @property
    def batch_of_all(self) -> Evidence:
        """The batch that the tiles were run in."""
        return self.origin[0] if self.origin else self

    @property
    def places(self) -> NumPyArray:
        """Where the tiles are in the batch that they were run in, int64[batch]."""
        return self.origin[1] if self.origin else np.arange(self.batch)

    def under(self, rules: Numerics) -> Evidence:
        """The same tiles, with another rule set for the reference."""
        return replace(self, rules=rules)

    def part(self, places: NumPyArray) -> Evidence:
        """A copy of some of the tiles, in that order; ``places`` int64[n]."""
        before = {name: _taken(tiles, places) for name, tiles in self.before.items()}
        seen = {name: array[places] for name, array in self.seen.items()}
        failing = np.nonzero(np.isin(places, self.failing))[0]
        origin = (self.batch_of_all, self.places[places])
        return replace(self, before=before, seen=seen, failing=failing, origin=origin)

    def sample(self, limit: int = SAMPLED) -> Evidence:
        """At most ``limit`` failing tiles, from all over the batch, and as many others; few if tiles are large."""
        limit = max(1, min(limit, _BLOCK_ELEMENTS // self._tile_elements()))
        others = np.setdiff1d(np.arange(self.batch), self.failing)
        chosen = [places[:: max(1, -(-len(places) // limit))] for places in (self.failing, others)]
        return self.part(np.concatenate(chosen))

    def head(self) -> Evidence:
        """The failing tile with the smallest valid regions: one tile tells most wrong explanations."""
        reach = [np.maximum.reduce([per_tile(t)[axis] for t in self.before.values()]) for axis in (0, 1)]
        return self.part(self.failing[[np.argmin((reach[0] * reach[1])[self.failing])]])

    def blocks(self) -> Iterator[Evidence]:
        """All of the tiles, a block after the other."""
        step = max(1, _BLOCK_ELEMENTS // self._tile_elements())
        for start in range(0, self.batch, step):
            yield self.part(np.arange(start, min(start + step, self.batch)))

    def _tile_elements(self) -> int:
        return max(t.type.rows * t.type.cols for t in self.before.values())

    def reference(self, tiles: Mapping[str, TileBuf] | None = None) -> dict[str, NumPyArray]:
        """What the reference makes of the tiles; ``tiles`` takes the place of some operands."""
        given = self.fresh(tiles or {})
        # Not checked: a wrong implementation may have done what the rules refuse.
        call = Call(self.instruction, _as_far_as_valid(given), self.rules, self.undefined, self.target, 1)
        backends.load("numpy").run(call)
        return {o.name: bits(given[o.name].data) for o in self.instruction.dsts}

    def fresh(self, tiles: Mapping[str, TileBuf]) -> dict[str, TileBuf]:
        """The operands, or ``tiles`` in the place of some, with dst in memory of its own."""
        given = {**self.before, **tiles}
        for operand in self.instruction.dsts:
            dst = given[operand.name]
            given[operand.name] = TileBuf.from_array(dst.data.copy(), dst.type, *dst.region)
        return given

    def different(self, results: Results) -> dict[str, NumPyArray]:
        """bool[batch, rows, cols] for each dst: the elements in which ``results`` are not what was seen."""
        return {name: self._different(name, seen, results[name]) for name, seen in self.seen.items()}

    def _different(self, name: str, seen: NumPyArray, result: NumPyArray) -> NumPyArray:
        found: NumPyArray = result != seen
        if self.whole and self.tolerance.exact:
            return found
        tiles = self.before[name]
        where = inside(tiles)
        if not self.tolerance.exact and self.instruction.by_name[name].kind is Kind.VALUE:
            found &= ~(where & self.tolerance.accepts(seen, result, tiles.type.element))
        return found if self.whole else found & where

    def equals(self, results: Results) -> bool:
        """Whether ``results`` are what was seen, in every element that counts."""
        return not self.elements(results)

    def elements(self, results: Results) -> int:
        """Elements in which ``results`` are not what was seen."""
        return sum(int(np.count_nonzero(mask)) for mask in self.different(results).values())


def operands_of(instruction: Instruction) -> list[Operand]:
    """The operands without tmp, in C++ order."""
    return [o for o in instruction.operands if o.role is not Role.TMP]


def _taken(tiles: TileBuf, places: NumPyArray) -> TileBuf:
    regions = (np.broadcast_to(np.asarray(n, np.int32), (tiles.batch,))[places] for n in tiles.region)
    return TileBuf.from_array(tiles.data[places], tiles.type, *regions)


def _as_far_as_valid(tiles: Mapping[str, TileBuf]) -> dict[str, TileBuf]:
    """Views without what is outside the valid regions of all operands in all tiles, for it costs time."""
    regions = [per_tile(t) for t in tiles.values()]
    rows, cols = (max(int(region[axis].max(initial=1)) for region in regions) for axis in (0, 1))
    result = {}
    for name, t in tiles.items():
        ty = t.type
        height, width = rows, smallest_row_multiple(ty.element, cols)
        if ty.blayout == "col_major":
            height, width = smallest_row_multiple(ty.element, rows), cols
        height, width = min(height, ty.rows), min(width, ty.cols)
        cut = replace(ty, rows=height, cols=width, v_row=height, v_col=width)
        result[name] = TileBuf.from_array(t.data[:, :height, :width], cut, *t.region)
    return result


def value_dsts(e: Evidence) -> list[str]:
    """The destinations that hold values of a floating-point type."""
    return [o.name for o in e.instruction.dsts if o.kind is Kind.VALUE and e.before[o.name].type.element.is_float]


def like(tiles: TileBuf, data: Any) -> TileBuf:
    """Tiles of the same type and regions with other elements."""
    return TileBuf.from_array(data, tiles.type, *tiles.region)
