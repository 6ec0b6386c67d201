"""From a mismatch to what is said about it: the failing tiles run again, explained, and one of them shrunk.

Whatever goes wrong in here is told beside the mismatch, and never in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from pto_gpu.campaign import run
from pto_gpu.campaign.compare import Comparison, Mismatch
from pto_gpu.campaign.explain.evidence import Evidence
from pto_gpu.campaign.explain.search import SECONDS as EXPLAIN_SECONDS
from pto_gpu.campaign.explain.search import Explanation, explain
from pto_gpu.campaign.explain.shrink import SECONDS as SHRINK_SECONDS
from pto_gpu.campaign.explain.shrink import Shrunk, shrink
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.campaign.tiles.storage import Buffers, block_tiles, plan_of
from pto_gpu.cores import available_cores
from pto_gpu.errors import first_line
from pto_gpu.tilebuf import TileBuf

_T = TypeVar("_T")
#: Of waves that take longer than this, only some tiles are run again.
_SLOW_SECONDS: Final = 1.0
_LEAST_TILES: Final = 8
#: Where the campaign took long, looking for a cause and shrinking may each take half of that, up to this.
_MOST_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a mismatch. ``notes``: what else must be said, and what could not be done."""

    explanation: Explanation | None = None
    mismatches: Sequence[Mismatch] = ()
    shrunk: Shrunk | None = None
    notes: Sequence[str] = field(default_factory=list)


def diagnose(result: Result, execute: run.Execute | None = None) -> Diagnosis | None:
    """Explain and shrink what a campaign found; None if no result differs.

    ``execute``: what the campaign was run with, in place of a backend. Takes a few seconds, or a few calls of it.
    """
    failure = result.first_failure
    if failure is None:
        return None
    campaign, tested = result.campaign, execute or run.backend_execute(result.campaign.options)
    notes: list[str] = []
    evidence = _guarded(notes, "not explained", lambda: _run_again(result, tested, failure, notes))
    patience = min(result.seconds / 2, _MOST_SECONDS)
    explanation = None
    if evidence:
        batches, elements = [e for e, _ in evidence], sum(wrong for _, wrong in evidence)
        seconds = max(EXPLAIN_SECONDS, patience)
        explanation = _guarded(notes, "not explained", lambda: explain(batches, elements, seconds))
    expect, seconds = run.backend_execute(campaign.expected_options), max(SHRINK_SECONDS, patience)
    shrunk = _guarded(notes, "not shrunk", lambda: shrink(failure, tested, expect, seconds=seconds))
    return Diagnosis(explanation, result.mismatches, shrunk, notes)


def diagnose_evidence(evidence: Evidence | None, comparison: Comparison) -> Diagnosis | None:
    """Explain results that cannot be had again: of a dump, or stored; None if there are none."""
    if evidence is None:
        return None
    notes: list[str] = []
    explanation = _guarded(notes, "not explained", lambda: explain([evidence], comparison.elements))
    return Diagnosis(explanation, comparison.mismatches, None, notes)


def evidence_of(tile: SavedTile, seen: Mapping[str, TileBuf]) -> Evidence:
    """One saved tile, and the tiles after a run on it."""
    found = np.zeros(1, np.int64)
    how: dict[str, Any] = {"whole": tile.outside != "ignore", "tolerance": tile.tolerance}
    return Evidence.of(tile.instruction, tile.options, tile.tiles(), seen, found, **how)


def _guarded(notes: list[str], what: str, do: Callable[[], _T]) -> _T | None:
    try:
        return do()
    except Exception as error:  # the mismatch has to be reported, whatever happens here
        notes.append(f"{what}: {type(error).__name__}: {first_line(error)}")
        return None


# -- a campaign's tiles again -------------------------------------------------------------------------------


#: Evidence, and how many of its elements are wrong.
_Found = tuple[Evidence, int]


def _run_again(result: Result, tested: run.Execute, failure: SavedTile, notes: list[str]) -> list[_Found]:
    """The waves of the first failing tile and of its neighbour in other storage."""
    waves = _waves(result, failure.tile)
    found = _waves_again(result.campaign, tested, waves, notes)
    if result.campaign.against != "numpy":
        found = _the_wrong_side(result, found, waves, notes)
    if not any(wrong for _, wrong in found):
        notes.append(f"tile {failure.tile} was equal when its wave was run again: explained by what was seen before")
        evidence = evidence_of(failure, failure.seen_tiles())
        return [(evidence, evidence.elements(evidence.reference()))]
    return found


def _the_wrong_side(
    result: Result, found: list[_Found], waves: list[tuple[int, int]], notes: list[str]
) -> list[_Found]:
    """Of two sides, the results of the one that differs from the reference."""
    campaign, tested, other = result.campaign, result.backend, result.campaign.against
    expect = run.backend_execute(campaign.expected_options)
    others = [_wave_again(campaign, expect, *wave) for wave in waves]
    tested_fails, other_fails = (any(wrong for _, wrong in side) for side in (found, others))
    if tested_fails and other_fails:
        notes.append(f"neither {tested} nor {other} agrees with the reference: the cause is that of {tested}")
    elif tested_fails or other_fails:
        wrong, right = (tested, other) if tested_fails else (other, tested)
        notes.append(f"{right} agrees with the reference: the cause is that of {wrong}")
    return others if other_fails and not tested_fails else found


def _waves(result: Result, tile: int) -> list[tuple[int, int]]:
    """First tile and tiles of the wave that holds ``tile``, and of the nearest one that lies otherwise in memory."""
    campaign = result.campaign
    step = block_tiles(campaign.grid)
    workers = campaign.workers or available_cores()
    quick = max(_LEAST_TILES, int(_SLOW_SECONDS * result.tiles / max(result.seconds * workers, 1e-6)))
    here = tile // step * step
    end = min(here + step, campaign.tiles)
    if quick < step:  # the failing tile and its neighbours
        first = max(here, min(tile, end - quick))
        return [(first, min(quick, end - first))]
    plan = plan_of(here, campaign.grid)
    near = [n for n in (here + step, here - step) if 0 <= n < campaign.tiles and plan_of(n, campaign.grid) != plan]
    return [(first, min(step, campaign.tiles - first)) for first in (here, *near[:1])]


def _waves_again(
    campaign: Campaign, tested: run.Execute, waves: list[tuple[int, int]], notes: list[str]
) -> list[_Found]:
    """The waves again; without a neighbour that raises, which says nothing about the first one."""
    here, *near = waves
    found = [_wave_again(campaign, tested, *here)]
    for first, tiles in near:
        what = f"tiles {first} to {first + tiles - 1} left out of the explanation"
        again = _guarded(notes, what, partial(_wave_again, campaign, tested, first, tiles))
        found += [again] if again else []
    return found


def _wave_again(campaign: Campaign, execute: run.Execute, first: int, tiles: int) -> _Found:
    allocate = Buffers().tiles
    drawn = draw(campaign, first, tiles, allocate)
    before, seen = (drawn.poisoned_dsts(allocate, whose) for whose in ("before", "seen"))
    execute(run.call_of(campaign, {**seen, **drawn.sources}))
    evidence = Evidence.of(campaign.record, campaign.options, {**before, **drawn.sources}, seen, np.empty(0, np.int64))
    masks = evidence.different(evidence.reference()).values()
    failing = np.logical_or.reduce([mask.any(axis=(1, 2)) for mask in masks])
    wrong = sum(int(np.count_nonzero(mask)) for mask in masks)
    return replace(evidence, failing=np.nonzero(failing)[0]), wrong
