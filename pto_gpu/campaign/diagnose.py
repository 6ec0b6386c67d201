"""From a mismatch to what is said about it: the failing tiles run again, explained, and one of them shrunk.

Whatever goes wrong in here is told beside the mismatch, and never in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from pto_gpu.campaign import run
from pto_gpu.campaign.compare import Comparison, Mismatch
from pto_gpu.campaign.draw import draw
from pto_gpu.campaign.evidence import Evidence
from pto_gpu.campaign.explain import Explanation, explain
from pto_gpu.campaign.npz import first_line
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.saved import SavedTile
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.shrink import Shrunk, shrink
from pto_gpu.campaign.storage import Buffers, block_tiles, plan_of
from pto_gpu.tilebuf import TileBuf

_T = TypeVar("_T")


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
    evidence = _guarded(notes, "not explained", lambda: _run_again(campaign, tested, failure, notes))
    explanation = _guarded(notes, "not explained", lambda: explain(evidence)) if evidence else None
    expect = run.backend_execute(campaign.expected_options)
    shrunk = _guarded(notes, "not shrunk", lambda: shrink(failure, tested, expect))
    return Diagnosis(explanation, result.mismatches, shrunk, notes)


def diagnose_evidence(evidence: Evidence | None, comparison: Comparison) -> Diagnosis | None:
    """Explain results that cannot be had again: of a dump, or stored; None if there are none."""
    if evidence is None:
        return None
    notes: list[str] = []
    explanation = _guarded(notes, "not explained", lambda: explain([evidence]))
    return Diagnosis(explanation, comparison.mismatches, None, notes)


def evidence_of(tile: SavedTile, seen: Mapping[str, TileBuf]) -> Evidence:
    """One saved tile, and the tiles after a run on it."""
    found = np.zeros(1, np.int64)
    return Evidence.of(tile.instruction, tile.options, tile.tiles(), seen, found, whole=tile.outside != "ignore")


def _guarded(notes: list[str], what: str, do: Callable[[], _T]) -> _T | None:
    try:
        return do()
    except Exception as error:  # the mismatch has to be reported, whatever happens here
        notes.append(f"{what}: {type(error).__name__}: {first_line(error)}")
        return None


# -- a campaign's tiles again -------------------------------------------------------------------------------


def _run_again(campaign: Campaign, tested: run.Execute, failure: SavedTile, notes: list[str]) -> list[Evidence]:
    """The waves of the first failing tile and of its neighbour in other storage, one with a failing tile first."""
    firsts = _waves(campaign, failure.tile)
    evidence = [_wave_again(campaign, tested, first) for first in firsts]
    if campaign.against != "numpy":
        evidence = _the_wrong_side(campaign, evidence, firsts, notes)
    if not any(len(e.failing) for e in evidence):
        notes.append(f"tile {failure.tile} was equal when its wave was run again: explained by what was seen before")
        return [evidence_of(failure, failure.seen_tiles())]
    return sorted(evidence, key=lambda e: not len(e.failing))


def _the_wrong_side(
    campaign: Campaign, evidence: list[Evidence], firsts: list[int], notes: list[str]
) -> list[Evidence]:
    """Of two backends, the results of the one that differs from the reference."""
    tested, other = campaign.backend, campaign.against
    others = [_wave_again(campaign, run.backend_execute(campaign.expected_options), first) for first in firsts]
    tested_fails, other_fails = (any(len(e.failing) for e in side) for side in (evidence, others))
    if tested_fails and other_fails:
        notes.append(f"neither {tested} nor {other} agrees with the reference: the cause is that of {tested}")
    elif tested_fails or other_fails:
        wrong, right = (tested, other) if tested_fails else (other, tested)
        notes.append(f"{right} agrees with the reference: the cause is that of {wrong}")
    return others if other_fails and not tested_fails else evidence


def _waves(campaign: Campaign, tile: int) -> list[int]:
    """The first tiles of the wave that holds ``tile``, and of the nearest wave whose tiles lie otherwise in memory."""
    step = block_tiles(campaign.grid)
    here = tile // step * step
    plan = plan_of(here, campaign.grid)
    near = [n for n in (here + step, here - step) if 0 <= n < campaign.tiles and plan_of(n, campaign.grid) != plan]
    return [here, *near[:1]]


def _wave_again(campaign: Campaign, execute: run.Execute, first: int) -> Evidence:
    allocate = Buffers().tiles
    drawn = draw(campaign, first, min(block_tiles(campaign.grid), campaign.tiles - first), allocate)
    before, seen = (drawn.poisoned_dsts(allocate, whose) for whose in ("before", "seen"))
    execute(run.call_of(campaign, {**seen, **drawn.sources}))
    evidence = Evidence.of(campaign.record, campaign.options, {**before, **drawn.sources}, seen, np.empty(0, np.int64))
    wrong = evidence.different(evidence.reference())
    failing = np.logical_or.reduce([mask.any(axis=(1, 2)) for mask in wrong.values()])
    return replace(evidence, failing=np.nonzero(failing)[0])
