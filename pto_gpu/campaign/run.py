"""Running a campaign: waves of tiles are drawn, executed, and compared with what is expected."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from pto_gpu import backends, intrinsics
from pto_gpu.campaign import THREADS
from pto_gpu.campaign.compare import compare
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Crash, Result, Wave
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import Drawn, draw
from pto_gpu.campaign.tiles.storage import POISON_BYTE, Buffers, block_tiles
from pto_gpu.cores import available_cores
from pto_gpu.defaults import Options
from pto_gpu.errors import BackendError
from pto_gpu.isa.record import Call
from pto_gpu.tilebuf import TileBuf

if TYPE_CHECKING:
    from pto_gpu.campaign.journal import CampaignJournal

Execute = Callable[[Call], None]
Progress = Callable[[int], None]

_buffers = Buffers()


def run_campaign(
    campaign: Campaign,
    execute: Execute | None = None,
    progress: Progress | None = None,
    *,
    span: tuple[int, int] | None = None,
    journal: CampaignJournal | None = None,
) -> Result:
    """Run ``campaign``; memory does not grow with its number of tiles.

    ``execute`` takes the place of the backend under test: it gets a :class:`~pto_gpu.isa.record.Call` that no rule
    refuses and writes its dst tiles, from several threads at once; an :class:`~pto_gpu.campaign.against.Implementation`
    makes one of a function on NumPy arrays. ``progress`` is told the tiles done so far.
    ``span``: run the tiles from the first up to the second number only, which start at a block of tiles.
    ``journal``: what it holds is taken as done, and every wave is stored in it.
    Ctrl-C ends the run; the result then has ``interrupted`` set and holds the waves that were done. Where the backend
    is ``triton``, compared with the reference on random tiles, and there is a GPU, all of it runs there
    (:mod:`pto_gpu.campaign.device`).
    """
    random = campaign.against == "numpy" and not campaign.exhaustive
    if execute is None and campaign.backend == "triton" and random and (gpu := backends.gpu()):
        from pto_gpu.campaign.device import run_on_device

        return run_on_device(campaign, progress=progress, device=gpu, span=span, journal=journal)
    result = Result(campaign, label_of(execute) or campaign.backend)
    first, end = (0, campaign.tiles) if span is None else span
    try:
        first = take_journal(result, journal, first)
        with closing(_waves(campaign, execute or backend_execute(campaign.options), first, end)) as waves:
            collect(result, waves, progress, journal)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def label_of(execute: Execute | None) -> str | None:
    """What reports call what is under test in place of a backend; None where nothing is."""
    return None if execute is None else getattr(execute, "label", "execute")


def take_journal(result: Result, journal: CampaignJournal | None, first: int) -> int:
    """Take in what ``journal`` has of the tiles from ``first`` onwards; returns the first tile that it lacks."""
    for wave, seconds in journal.waves(first) if journal else ():
        result.add(wave)
        result.seconds += seconds
        first = wave.first + wave.tiles
    return first


def collect(result: Result, waves: Iterator[Wave], progress: Progress | None, journal: CampaignJournal | None) -> None:
    """Take in ``waves`` up to the first crash."""
    before = time.perf_counter()
    for wave in waves:
        now = time.perf_counter()
        if journal and wave.crash is None:  # tiles that crashed are to be run again
            journal.add(wave, now - before)
        result.add(wave)
        result.seconds += now - before
        before = now
        if result.crash:
            return
        if progress:
            progress(result.tiles)


def _waves(campaign: Campaign, execute: Execute, first: int, end: int) -> Generator[Wave]:
    """The waves of tiles ``first`` up to ``end``, in order, worked on by the threads of the campaign."""
    workers = campaign.workers or available_cores()
    step = block_tiles(campaign.grid)
    starts = iter(range(first, end, step))
    pending: deque[Future[Wave]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix=THREADS)
    wait = True
    try:
        while True:
            while len(pending) < 2 * workers and (start := next(starts, None)) is not None:
                pending.append(pool.submit(_wave, campaign, execute, start, min(step, end - start)))
            if not pending:
                return
            yield pending.popleft().result()
    except KeyboardInterrupt:
        wait = False  # what is under test may hang
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def backend_execute(options: Options) -> Execute:
    """A call on the backend of ``options``, checked first; for ``triton`` the tiles go to the GPU and back."""
    gpu = backends.gpu() if options.backend == "triton" else None

    def execute(call: Call) -> None:
        tiles = dict(call.tiles)
        if gpu is not None:
            tiles = {name: _to_gpu(tile, gpu) for name, tile in tiles.items()}
        intrinsics.execute(call.instruction, tiles, options)
        if gpu is not None:
            for operand in call.instruction.dsts:
                call.tiles[operand.name].torch().copy_(tiles[operand.name].torch())

    return execute


def _to_gpu(tile: TileBuf, gpu: str) -> TileBuf:
    return TileBuf.from_array(tile.torch().to(gpu), tile.type, *tile.region)


def _wave(campaign: Campaign, execute: Execute, first: int, n: int) -> Wave:
    drawn = draw(campaign, first, n, _buffers.tiles)
    expected, seen = (drawn.poisoned_dsts(_buffers.tiles, whose) for whose in ("expected", "seen"))
    _expect(campaign, drawn, expected)
    tested = {**seen, **drawn.sources}
    if (raised := raised_by(execute, call_of(campaign, tested))) is not None:
        return Wave(first, 0, crash=Crash(first, first + n - 1, raised))
    found = compare(campaign.record, drawn.sources, seen, expected, first)
    failure = None
    if found.elements:
        place = int(found.tiles[0]) - first
        failure = saved_tile(campaign, getattr(execute, "label", None), tested, expected, place, first)
    return Wave(
        first=first,
        tiles=n,
        mismatched_elements=found.elements,
        mismatched_tiles=len(found.tiles),
        mismatches=found.mismatches,
        categories=found.categories,
        first_failure=failure,
        valid_kinds=drawn.valid_kinds,
        operand_kinds=drawn.operand_kinds,
    )


def raised_by(execute: Execute, call: Call) -> str | None:
    """Run ``call``; what was raised instead of computing it, or None. An error that says why it cannot run goes on."""
    try:
        execute(call)
    except (BackendError, MemoryError):
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def saved_tile(
    campaign: Campaign,
    implementation: str | None,
    tested: Mapping[str, TileBuf],
    expected: Mapping[str, TileBuf],
    place: int,
    first: int,
) -> SavedTile:
    """The tile at ``place`` of a batch that starts at tile ``first``, after ``implementation`` or the backend ran."""
    return SavedTile.of(
        campaign.record,
        campaign.options,
        tested,
        expected,
        place,
        before=POISON_BYTE,
        origin=campaign.origin,
        first_tile=first,
        against=campaign.against,
        implementation=implementation,
    )


def call_of(campaign: Campaign, tiles: Mapping[str, TileBuf]) -> Call:
    """The call of a campaign on ``tiles``."""
    options = campaign.options
    return Call(campaign.record, tiles, options.numerics, options.undefined, options.target.name, 1)


def _expect(campaign: Campaign, drawn: Drawn, expected: Mapping[str, TileBuf]) -> None:
    """Fill the dst tiles ``expected``."""
    tiles = {**expected, **drawn.sources}
    if campaign.against != "numpy":
        backend_execute(campaign.expected_options)(call_of(campaign, tiles))
        return
    # Not checked: the call of the side under test has the same types and regions.
    backends.load("numpy").run(call_of(campaign, drawn.logical(tiles)))
