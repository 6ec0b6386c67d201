"""Trying candidates for a smaller failing tile: many in one call, and what is kept in a call of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from pto_gpu.campaign.compare import Comparison, compare
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.run import Execute
from pto_gpu.campaign.tiles.storage import bits
from pto_gpu.checks import check_regions, check_types
from pto_gpu.errors import PtoError, first_line
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Call
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import TileBufType

#: Valid rows and columns of each operand: of every candidate alike, or an array with one of each.
_Regions = Mapping[str, Sequence[object]]
#: Elements of all operands in one call.
_BATCH_ELEMENTS: Final = 1 << 21
#: Runs that tell a tile that fails every time from one that fails now and then, or never alone.
_SURE: Final = 3
_PATIENT: Final = 12
#: A tile that takes longer than this, and fails, is run once.
_SLOW_SECONDS: Final = 0.3


@dataclass(frozen=True)
class Candidate:
    """One tile of each operand: type, valid region, bits before the run ``[rows, cols]``."""

    types: Mapping[str, TileBufType]
    valid: Mapping[str, tuple[int, int]]
    arrays: Mapping[str, NumPyArray]


class Found(NamedTuple):
    """How a candidate failed alone. ``seen``, ``expected``: the bits of each dst ``[rows, cols]``."""

    comparison: Comparison
    seen: Mapping[str, NumPyArray]
    expected: Mapping[str, NumPyArray]


class Trial:
    """The best candidate so far, and what running others on the implementation under test costs."""

    def __init__(self, tile: SavedTile, execute: Execute, expect: Execute, calls: int, seconds: float) -> None:
        """``execute`` is under test, ``expect`` says what is right."""
        self.tile, self.execute, self.expect = tile, execute, expect
        self.best = Candidate(tile.types, tile.valid, tile.arrays)
        self.calls = self.accepted = 0
        self.found: Found | None = None
        self.flaky = self.capacity_matters = False
        self.why_not = ""
        self._most, self._end = calls, time.monotonic() + seconds
        self._category = self._raised = ""

    @property
    def over(self) -> bool:
        """Whether calls or time are used up."""
        return self.calls >= self._most or time.monotonic() > self._end

    def start(self) -> bool:
        """Run the tile alone; False, and ``why_not``, if it cannot be shrunk."""
        start = time.monotonic()
        outcomes = [self._alone(self.best)]
        slow = time.monotonic() - start > _SLOW_SECONDS and outcomes[0] is not None
        while not slow and len(outcomes) < (_SURE if all(outcomes) else _PATIENT) and not self.over:
            outcomes.append(self._alone(self.best))
        failed = [found for found in outcomes if found is not None]
        if not failed:
            self.why_not = self._reason(len(outcomes))
            return False
        self.flaky = len(failed) < len(outcomes)
        self.found = failed[-1]
        self._category = self.found.comparison.categories.most_common(1)[0][0]
        return True

    def _reason(self, runs: int) -> str:
        """Why the tile, which failed in its batch, does not fail alone."""
        if self._raised:
            return f"run alone, the tile makes the implementation raise {self._raised}"
        if self._batch([self.best]):
            return "the tile fails only where every tile of a batch is given a valid region of its own"
        times = "once" if runs == 1 else f"{runs} times"
        rare = ", or is rare" if runs > 1 else ""
        return f"the tile did not fail alone, run {times}: the failure depends on the rest of its batch{rare}"

    def fails(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Which of the candidates, all of the same types, fail when they are run in one batch."""
        allowed = [c for c in candidates if self._allowed(c)]
        elements = sum(t.rows * t.cols for t in self.best.types.values())
        step = max(1, _BATCH_ELEMENTS // elements)
        failing: set[int] = set()
        for start in range(0, len(allowed), step):
            for _ in range(_PATIENT if self.flaky else 1):
                if self.over:
                    break
                failing.update(id(c) for c in self._batch(allowed[start : start + step]))
        return [id(c) in failing for c in candidates]

    def accept(
        self, candidates: Sequence[Candidate], better: Callable[[Comparison], bool] = lambda found: True
    ) -> bool:
        """Make the first candidate that fails, alone and in the same way, the best one."""
        if len(candidates) > 1:
            candidates = [c for c, failed in zip(candidates, self.fails(candidates), strict=True) if failed]
        for candidate in candidates:
            if not self._allowed(candidate):
                continue
            for _ in range(_PATIENT if self.flaky else 1):
                if self.over:
                    return False
                found = self._alone(candidate)
                if found and self._category in found.comparison.categories and better(found.comparison):
                    self.best, self.found = candidate, found
                    self.accepted += 1
                    return True
        return False

    def saved(self) -> SavedTile | None:
        """The best candidate, with what was seen and expected when it failed; None before it has."""
        if self.found is None:
            return None
        return replace(
            self.tile,
            types=self.best.types,
            valid=self.best.valid,
            arrays=self.best.arrays,
            seen=self.found.seen,
            expected=self.found.expected,
            origin=f"{self.tile.origin}_shrunk",
        )

    def _allowed(self, candidate: Candidate) -> bool:
        tile = self.tile
        regions = {name: Region(*valid) for name, valid in candidate.valid.items()}
        try:
            check_types(tile.instruction, candidate.types, tile.target)
            check_regions(tile.instruction, regions, candidate.types, tile.target, tile.undefined, 1)
        except PtoError:
            return False
        return True

    def _batch(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that fail in one batch; a batch on which the implementation raises is tried in halves."""
        regions = {
            name: [np.array([c.valid[name][axis] for c in candidates], np.int32) for axis in (0, 1)]
            for name in self.best.types
        }
        seen = self._seen(candidates, regions)
        if seen is None:
            if len(candidates) == 1 or self.over:
                return []
            half = len(candidates) // 2
            return self._batch(candidates[:half]) + self._batch(candidates[half:])
        expected = self._after(self.expect, candidates, regions)
        wrong = np.zeros(len(candidates), bool)
        for dst in self.tile.instruction.dsts:
            wrong |= (bits(seen[dst.name].data) != bits(expected[dst.name].data)).any(axis=(1, 2))
        return [candidates[i] for i in np.nonzero(wrong)[0].tolist() if self._alike(_one(seen, i), _one(expected, i))]

    def _alike(self, seen: Mapping[str, TileBuf], expected: Mapping[str, TileBuf]) -> bool:
        """Whether one tile differs in the same way as the tile to be shrunk, or at all before that is known."""
        return not self._category or self._category in compare(self.tile.instruction, seen, seen, expected).categories

    def _alone(self, candidate: Candidate) -> Found | None:
        """The differences of a batch of one, with uniform valid regions; None if there are none."""
        seen = self._seen([candidate], candidate.valid)
        if seen is None:
            return None
        expected = self._after(self.expect, [candidate], candidate.valid)
        comparison = compare(self.tile.instruction, seen, seen, expected, self.tile.tile)
        if not comparison.elements:
            return None
        dsts = [o.name for o in self.tile.instruction.dsts]
        return Found(comparison, *({name: bits(t[name].data)[0] for name in dsts} for t in (seen, expected)))

    def _seen(self, candidates: Sequence[Candidate], regions: _Regions) -> dict[str, TileBuf] | None:
        """The tiles after the implementation under test ran; None if it raised."""
        self.calls += 1
        try:
            return self._after(self.execute, candidates, regions)
        except Exception as error:  # of somebody's code; what the side that is right raises is a fault of ours
            self._raised = f"{type(error).__name__}: {first_line(error)}"
            return None

    def _after(self, run: Execute, candidates: Sequence[Candidate], regions: _Regions) -> dict[str, TileBuf]:
        """New tiles of the candidates, after ``run``."""
        tiles = {}
        for name, ty in candidates[0].types.items():
            data = TileBuf.empty(ty, len(candidates))
            bits(data.data)[...] = np.stack([c.arrays[name] for c in candidates])
            tiles[name] = data.with_valid(*regions[name])
        tile = self.tile
        run(Call(tile.instruction, tiles, tile.numerics, tile.undefined, tile.target, 1))
        return tiles


def _one(tiles: Mapping[str, TileBuf], place: int) -> dict[str, TileBuf]:
    return {
        name: TileBuf.from_array(t.data[place : place + 1], t.type, *t.region.of_tile(place))
        for name, t in tiles.items()
    }
