"""A failing tile made as small and simple as it can be while it still fails.

Rows and columns are removed from all operands alike (delta debugging), single sources get smaller valid regions,
capacities go down to what the regions need, elements become simple numbers. Candidates are run many in one call; what
is kept has failed in a batch of one, as ``pto-gpu replay`` runs it, with a difference of the same category as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from pto_gpu.campaign.compare import OUTSIDE, Comparison
from pto_gpu.campaign.explain.fault import sides
from pto_gpu.campaign.explain.simpler import filled_outside, simpler_elements
from pto_gpu.campaign.explain.trial import Candidate, Trial
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.run import Execute
from pto_gpu.isa.record import Role, ValidPattern
from pto_gpu.types import TileBufType, smallest_row_multiple

#: Calls of the implementation, and seconds, that shrinking may take.
CALLS: Final = 500
SECONDS: Final = 4.0
#: Rounds over all the steps: one step may make room for another.
_ROUNDS: Final = 4
#: Parts that lines are removed in, and candidates that are run in one call.
_CHUNKS: Final = 64
_AT_ONCE: Final = 32


@dataclass(frozen=True)
class Shrunk:
    """The smaller tile and how it differs, or ``why_not``. ``flaky``: it fails in some runs only."""

    tile: SavedTile | None
    comparison: Comparison | None
    calls: int
    why_not: str | None = None
    flaky: bool = False


def shrink(tile: SavedTile, execute: Execute, expect: Execute, calls: int = CALLS, seconds: float = SECONDS) -> Shrunk:
    """Shrink ``tile``, on which ``execute`` gave something else than ``expect``."""
    trial = Trial(tile, execute, expect, calls, seconds)
    if not trial.start():
        return Shrunk(None, None, trial.calls, trial.why_not)
    for _ in range(_ROUNDS):
        before = trial.accepted
        for axis in (0, 1):
            _remove_lines(trial, axis)
        _shrink_sources(trial)
        if trial.accepted == before:
            break
    _towards_origin(trial)
    trial.capacity_matters = False
    _smaller_types(trial)
    filled_outside(trial)
    simpler_elements(trial)
    comparison = trial.found.comparison if trial.found else None
    return Shrunk(trial.saved(), comparison, trial.calls, flaky=trial.flaky)


# -- rows and columns ---------------------------------------------------------------------------------------


def _extent(trial: Trial, axis: int) -> int:
    return max(trial.best.valid[name][axis] for name in _lined(trial, axis))


def _lined(trial: Trial, axis: int) -> list[str]:
    """The operands that lose a row or column together: columns of a reduction's dst are not those of its source."""
    record = trial.tile.instruction
    reduced = axis == 1 and record.valid_pattern is ValidPattern.ROWS
    return [o.name for o in record.operands if o.name in trial.best.types and not (reduced and o.role is Role.DST)]


def _without(trial: Trial, axis: int, lines: tuple[int, ...]) -> Candidate:
    """The best candidate without some rows or columns; what follows moves up, also outside the valid region."""
    best, gone = trial.best, np.asarray(lines, np.int64)
    valid, arrays = dict(best.valid), dict(best.arrays)
    for name in _lined(trial, axis):
        extent = arrays[name].shape[axis]
        kept = np.setdiff1d(np.arange(extent), gone)
        kept = np.concatenate([kept, np.full(extent - len(kept), extent - 1)])
        arrays[name] = arrays[name].take(kept, axis=axis)
        counts = list(valid[name])
        counts[axis] -= int((gone < counts[axis]).sum())
        valid[name] = (counts[0], counts[1])
    return Candidate(best.types, valid, arrays)


def _remove_lines(trial: Trial, axis: int) -> None:
    """Remove as many rows (axis 0) or columns (axis 1) as can be removed."""
    while (extent := _extent(trial, axis)) and not trial.over:
        if not (_remove_most(trial, axis, extent) or _remove_some(trial, axis, extent)):
            return
        _smaller_types(trial)  # the next runs take less time


def _remove_most(trial: Trial, axis: int, extent: int) -> bool:
    """Remove all lines, or all but a part, or a large part."""
    everything = tuple(range(extent))
    chunks = [tuple(c) for parts in _granularities(extent) for c in _chunks(extent, parts)]
    alone = [tuple(i for i in everything if i not in c) for c in map(set, chunks)]
    large = [r for r in dict.fromkeys([everything, *alone, *chunks]) if len(r) > max(1, extent // _CHUNKS)]
    large.sort(key=len, reverse=True)
    groups = (large[start : start + _AT_ONCE] for start in range(0, len(large), _AT_ONCE))
    return any(trial.accept([_without(trial, axis, lines) for lines in group]) for group in groups)


def _remove_some(trial: Trial, axis: int, extent: int) -> bool:
    """Remove small parts: all that can be removed each on its own, or one of them."""
    parts = list(_chunks(extent, min(extent, _CHUNKS)))
    candidates = [_without(trial, axis, tuple(part)) for part in parts]
    fails = trial.fails(candidates)
    union = tuple(line for part, failed in zip(parts, fails, strict=True) if failed for line in part)
    alone = [c for c, failed in zip(candidates, fails, strict=True) if failed]
    return bool(alone) and (trial.accept([_without(trial, axis, union)]) or trial.accept(alone))


def _granularities(extent: int) -> Iterator[int]:
    parts = 2
    while parts < min(extent, _CHUNKS):
        yield parts
        parts *= 2
    yield min(extent, _CHUNKS)


def _chunks(extent: int, parts: int) -> Iterator[range]:
    edges = [extent * p // parts for p in range(parts + 1)]
    yield from (range(a, b) for a, b in pairwise(edges) if a < b)


def _shrink_sources(trial: Trial) -> None:
    """Give the sources of one side a smaller valid region, where the rules let them."""
    for side in sides(trial.tile.instruction):
        while not trial.over:
            rows, cols = trial.best.valid[side[0]]
            smaller = [(0, 0), (0, cols), (rows, 0), (1, 1), (1, cols), (rows, 1), (rows - 1, cols), (rows, cols - 1)]
            candidates = [
                replace(trial.best, valid={**trial.best.valid, **dict.fromkeys(side, region)})
                for region in dict.fromkeys(smaller)
                if 0 <= region[0] <= rows and 0 <= region[1] <= cols and region != (rows, cols)
            ]
            if not trial.accept(candidates):
                break


def _towards_origin(trial: Trial) -> None:
    """Exchange the row and the column of the first difference with earlier ones, as long as it moves."""
    for axis in (0, 1):
        while not trial.over:
            place = _place(trial.found.comparison if trial.found else None)
            candidates = [_exchanged(trial, axis, place[axis], other) for other in range(place[axis])]
            if not trial.accept(candidates, partial(_nearer, place)):
                break


def _nearer(place: tuple[int, int], found: Comparison) -> bool:
    return sum(_place(found)) < sum(place)


def _place(found: Comparison | None) -> tuple[int, int]:
    """Row and column of the first difference that is not outside the valid region, if there is one."""
    mismatches = found.mismatches if found else ()
    first = next((m for m in mismatches if m.category != OUTSIDE), None)
    return (first.row, first.col) if first else (0, 0)


def _exchanged(trial: Trial, axis: int, one: int, other: int) -> Candidate:
    arrays = dict(trial.best.arrays)
    for name in _lined(trial, axis):
        order = np.arange(arrays[name].shape[axis])
        if max(one, other) < len(order):
            order[[one, other]] = order[[other, one]]
        arrays[name] = arrays[name].take(order, axis=axis)
    return replace(trial.best, arrays=arrays)


# -- capacities ---------------------------------------------------------------------------------------------


def _smaller_types(trial: Trial) -> None:
    """Take the smallest capacities that hold the valid regions; or only the fewest rows, or columns."""
    if trial.capacity_matters:
        return
    for rows, cols in ((True, True), (True, False), (False, True)):
        candidate = _cut(trial.best, rows=rows, cols=cols)
        if candidate.types == trial.best.types or trial.accept([candidate]):
            return
    trial.capacity_matters = True


def _cut(best: Candidate, *, rows: bool, cols: bool) -> Candidate:
    types, arrays = {}, {}
    for name, ty in best.types.items():
        types[name] = _least_type(ty, best.valid[name], rows=rows, cols=cols)
        arrays[name] = best.arrays[name][: types[name].rows, : types[name].cols].copy()
    return Candidate(types, best.valid, arrays)


def _least_type(ty: TileBufType, valid: tuple[int, int], *, rows: bool, cols: bool) -> TileBufType:
    height, width = max(valid[0], 1), max(valid[1], 1)
    if ty.blayout == "row_major":
        width = smallest_row_multiple(ty.element, width)
    else:
        height = smallest_row_multiple(ty.element, height)
    height, width = height if rows else ty.rows, width if cols else ty.cols
    return replace(ty, rows=height, cols=width, v_row=height, v_col=width)
