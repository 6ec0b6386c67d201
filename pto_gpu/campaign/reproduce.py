"""A failure once more: a tile that raises, found among those that crashed, and a saved tile run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pto_gpu import backends
from pto_gpu.campaign import run
from pto_gpu.campaign.compare import Comparison, compare
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Crash, Result
from pto_gpu.campaign.settings import Campaign, resolve_backend
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.campaign.tiles.storage import Buffers
from pto_gpu.errors import BackendError
from pto_gpu.tilebuf import TileBuf

#: What an error of an accelerator has in its text, whoever reports it.
_DEVICE_ERROR: Final = re.compile(r"cuda|\bhip\b|accelerator", re.IGNORECASE)


def crashed_tile(result: Result, execute: run.Execute | None = None) -> SavedTile | None:
    """A tile of those that crashed, for :func:`replay`; None where none did. It has no result: dst is as before.

    It raises the same alone if one is found that does; else it is the first of the fewest found to raise together.
    ``execute``: what the campaign was run with, in place of a backend.
    """
    if result.crash is None:
        return None
    campaign, crash = result.campaign, result.crash
    if not _on_a_device(campaign, execute, crash):
        crash = _fewest_that_raise(campaign, execute or run.backend_execute(campaign.options), crash)
    drawn = draw(campaign, crash.first, 1)
    expected, seen = (drawn.poisoned_dsts(Buffers().tiles, whose) for whose in ("expected", "seen"))
    backends.load("numpy").run(run.call_of(campaign, drawn.logical({**expected, **drawn.sources})))
    tile = run.saved_tile(campaign, run.label_of(execute), {**seen, **drawn.sources}, expected, 0, crash.first)
    return replace(tile, error=crash.error, together=crash.last - crash.first + 1)


def _on_a_device(campaign: Campaign, execute: run.Execute | None, crash: Crash) -> bool:
    """Whether an accelerator may be in error: in this process, all that is run on it from now on raises."""
    ours = execute is None and campaign.backend == "triton" and backends.gpu() is not None
    return ours or _DEVICE_ERROR.search(crash.error) is not None


def _fewest_that_raise(campaign: Campaign, execute: run.Execute, crash: Crash) -> Crash:
    """Halve the tiles of ``crash`` as long as a half raises the same: down to one, if a tile does so alone."""
    while crash.first < crash.last:
        middle = (crash.first + crash.last) // 2
        halves = (_raised_on(campaign, execute, *half) for half in ((crash.first, middle), (middle + 1, crash.last)))
        smaller = next((half for half in halves if half and _words(half) == _words(crash)), None)
        if smaller is None:
            break
        crash = smaller
    return crash


def _words(crash: Crash) -> str:
    """The error without its numbers, which are those of other tiles."""
    return re.sub(r"\d+", "", crash.error)


def _raised_on(campaign: Campaign, execute: run.Execute, first: int, last: int) -> Crash | None:
    drawn = draw(campaign, first, last - first + 1)
    tiles = {**drawn.poisoned_dsts(Buffers().tiles, "seen"), **drawn.sources}
    try:
        raised = run.raised_by(execute, run.call_of(campaign, tiles))
    except (BackendError, MemoryError):  # the crash has to be reported, whatever happens here
        return None
    return None if raised is None else Crash(first, last, raised)


class Replayed(NamedTuple):
    """A saved failure again. ``name``: what ran on it, None for a stored result; ``seen``: the tiles after it.

    ``raised``: what was raised instead, and left nothing to compare.
    """

    comparison: Comparison
    name: str | None
    seen: Mapping[str, TileBuf]
    raised: str | None = None


def replay(saved: SavedTile, backend: str | None = None, execute: run.Execute | None = None) -> Replayed:
    """Run a saved failure on ``execute`` or ``backend`` (default the one it failed on) and compare.

    A tile of a dump, or of somebody's own implementation, failed on no backend of ours: unless one is named, the stored
    result is compared.
    """
    expected = saved.run_expected()
    if backend is None and execute is None and (saved.outside is not None or saved.implementation is not None):
        seen = saved.seen_tiles()
        allowed: dict[str, Any] = {"outside": saved.outside != "ignore", "tolerance": saved.tolerance}
        return Replayed(compare(saved.instruction, seen, seen, expected, saved.tile, **allowed), None, seen)
    options = saved.options.override(backend=resolve_backend(saved.backend if backend is None else backend))
    call = saved.call()
    name = run.label_of(execute) or options.backend
    if (raised := run.raised_by(execute or run.backend_execute(options), call)) is not None:
        return Replayed(Comparison(), name, call.tiles, raised)
    return Replayed(compare(saved.instruction, call.tiles, call.tiles, expected, saved.tile), name, call.tiles)
