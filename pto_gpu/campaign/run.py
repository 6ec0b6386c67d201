"""Running a campaign: waves of tiles are drawn, executed, and compared with the reference."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pto_gpu import backends, intrinsics
from pto_gpu.backends.cpu.pool import available_cores
from pto_gpu.campaign.categories import tables
from pto_gpu.campaign.compare import SHOWN, Comparison, Mismatch, compare
from pto_gpu.campaign.generate import draw_elements
from pto_gpu.campaign.saved import SavedTile
from pto_gpu.campaign.storage import (
    Allocate,
    Buffers,
    Slot,
    bits,
    block_tiles,
    logical_view,
    new_tiles,
    plan_of,
    poison,
    slots,
    with_region,
)
from pto_gpu.campaign.valid import Drawn, draw_regions
from pto_gpu.defaults import Options, current_options
from pto_gpu.errors import BackendError, ConstraintError, TypeMismatch
from pto_gpu.isa import instruction as instruction_called
from pto_gpu.isa.record import Call, Instruction, Kind, Role
from pto_gpu.numerics import Numerics
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ELEMENT_TYPES, count, resolve_element_type, smallest_row_multiple

#: Tiles of a campaign that nobody chose a number for.
DEFAULT_TILES: Final = 300_000
DEFAULT_SEED: Final = 20_250_101
DEFAULT_ROWS: Final = 16

Execute = Callable[[Call], None]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Campaign:
    """One instruction with one choice of element types, over ``tiles`` random tiles.

    ``instruction``: a name. ``dtypes``: the element type of the values, and of the indices if it has any.
    ``shape``: logical rows and columns; default 16x16, or more columns where a row would not fill 32 bytes.
    ``seed``: 0 to 2**64 - 1. ``workers``: threads; default every core this process may use.

    Raises ConstraintError, TypeMismatch or LayoutError for a choice that cannot be run.
    """

    instruction: str
    dtypes: tuple[str, ...]
    shape: tuple[int, int] | None = None
    tiles: int = DEFAULT_TILES
    seed: int = DEFAULT_SEED
    target: str = "a5"
    numerics: str | Numerics = "isa"
    undefined: str = "error"
    backend: str = "auto"
    workers: int | None = None

    def __post_init__(self) -> None:
        record = self.record
        dtypes = tuple(resolve_element_type(t).name for t in self.dtypes)
        object.__setattr__(self, "dtypes", dtypes)
        allowed = record.element_types[self.options.target.name]
        if dtypes not in allowed:
            raise TypeMismatch(
                f"{record.name}: element type {'/'.join(dtypes)} is not supported on {self.target}: "
                f"allowed {', '.join('/'.join(s) for s in allowed)}"
            )
        if self.shape is None:
            cols = smallest_row_multiple(ELEMENT_TYPES[dtypes[0]], DEFAULT_ROWS)
            object.__setattr__(self, "shape", (DEFAULT_ROWS, cols))
        slots(record, dtypes, self.grid, "packed")  # refuses a shape that no tile can have
        if count(self.tiles, "tiles") < 1:
            raise ConstraintError(f"tiles={self.tiles} must be at least 1: no tile compared is no success")
        if not 0 <= count(self.seed, "seed") < 1 << 64:
            raise ConstraintError(f"seed={self.seed} is out of range: allowed 0 to 2**64 - 1")
        if self.workers is not None and count(self.workers, "workers") < 1:
            raise ConstraintError(f"workers={self.workers} must be at least 1")

    @property
    def record(self) -> Instruction:
        """The record of the instruction."""
        return instruction_called(self.instruction)

    @property
    def grid(self) -> tuple[int, int]:
        """The logical shape, never None once constructed."""
        return self.shape or (0, 0)

    @property
    def options(self) -> Options:
        """The options that the backend under test is called with."""
        return current_options().override(self.target, self.backend, self.numerics, self.undefined, 1)

    @property
    def label(self) -> str:
        """``TPARTMIN f32 16x16``."""
        return f"{self.record.name} {'/'.join(self.dtypes)} {self.grid[0]}x{self.grid[1]}"


@dataclass(frozen=True)
class Crash:
    """The backend under test raised, instead of computing tiles ``first`` to ``last``."""

    first: int
    last: int
    error: str


@dataclass
class Result:
    """What a campaign found. ``tiles``: compared so far; all counts are about those."""

    campaign: Campaign
    backend: str
    tiles: int = 0
    mismatched_elements: int = 0
    mismatched_tiles: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    categories: Counter[str] = field(default_factory=Counter)
    first_failure: SavedTile | None = None
    crash: Crash | None = None
    valid_kinds: Counter[str] = field(default_factory=Counter)
    operand_kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def equal(self) -> bool:
        """Whether every tile of the campaign was compared, and no bit differed."""
        return self.tiles == self.campaign.tiles and not self.mismatched_elements and self.crash is None

    def add(self, wave: _Wave) -> None:
        """Take in the next wave, in tile order."""
        if wave.crash is not None:
            self.crash = self.crash or wave.crash
            return
        self.tiles += wave.tiles
        self.mismatched_elements += wave.mismatched_elements
        self.mismatched_tiles += wave.mismatched_tiles
        self.categories.update(wave.categories)
        self.mismatches += wave.mismatches[: SHOWN - len(self.mismatches)]
        self.first_failure = self.first_failure or wave.first_failure
        self.valid_kinds.update(wave.valid_kinds)
        self.operand_kinds.update(wave.operand_kinds)


@dataclass
class _Wave:
    tiles: int
    mismatched_elements: int = 0
    mismatched_tiles: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    first_failure: SavedTile | None = None
    crash: Crash | None = None
    valid_kinds: Mapping[str, int] = field(default_factory=dict)
    operand_kinds: Mapping[str, int] = field(default_factory=dict)


def run_campaign(campaign: Campaign, execute: Execute | None = None, progress: Progress | None = None) -> Result:
    """Run ``campaign``; memory does not grow with its number of tiles.

    ``execute`` takes the place of the backend under test: it gets a checked :class:`~pto_gpu.isa.record.Call`
    and writes its dst tiles, from several threads at once. ``progress`` is told the tiles done so far.
    Ctrl-C ends the run; the result then has ``interrupted`` set and holds the waves that were done.
    """
    start = time.perf_counter()
    backend = _backend_name(campaign.backend) if execute is None else "execute"
    result = Result(campaign, backend)
    workers = campaign.workers or available_cores()
    step = block_tiles(campaign.grid)
    starts = iter(range(0, campaign.tiles, step))
    run = execute or backend_execute(campaign.options.override(backend=backend))
    pending: deque[Future[_Wave]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="campaign")
    try:
        while True:
            while len(pending) < 2 * workers and (first := next(starts, None)) is not None:
                pending.append(pool.submit(_wave, campaign, run, first, min(step, campaign.tiles - first)))
            if not pending:
                break
            result.add(pending.popleft().result())
            if result.crash:
                break
            if progress:
                progress(result.tiles)
    except KeyboardInterrupt:
        result.interrupted = True
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    result.seconds = time.perf_counter() - start
    return result


def _backend_name(name: str) -> str:
    if name != "auto":
        return name
    return "cpu"


def backend_execute(options: Options) -> Execute:
    """A call on the backend of ``options``, checked first; for ``triton`` the tiles go to the GPU and back."""
    on_gpu = options.backend == "triton" and _has_gpu()

    def execute(call: Call) -> None:
        tiles = dict(call.tiles)
        if on_gpu:
            tiles = {name: _to_gpu(tile) for name, tile in tiles.items()}
        intrinsics.execute(call.instruction, tiles, options)
        if on_gpu:
            for operand in call.instruction.dsts:
                call.tiles[operand.name].torch().copy_(tiles[operand.name].torch())

    return execute


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _to_gpu(tile: TileBuf) -> TileBuf:
    return TileBuf.from_array(tile.torch().cuda(), tile.type, *tile.region)


# -- one wave -------------------------------------------------------------------------------------------


@dataclass
class _Drawn:
    sources: dict[str, TileBuf]
    slots: list[Slot]
    regions: dict[str, Region]
    valid_kinds: Mapping[str, int]
    operand_kinds: Mapping[str, int]


_buffers = Buffers()


def draw(campaign: Campaign, first: int, n: int, allocate: Allocate = new_tiles) -> _Drawn:
    """Tiles ``first`` to ``first + n - 1``, which must lie in one block."""
    record, shape = campaign.record, campaign.grid
    itemsize = ELEMENT_TYPES[campaign.dtypes[0]].itemsize
    drawn: Drawn = draw_regions(record, shape, itemsize, campaign.seed, first, n, campaign.undefined)
    placed = slots(record, campaign.dtypes, shape, plan_of(first, shape))
    sources: dict[str, TileBuf] = {}
    kinds: Counter[str] = Counter()
    for slot in placed:
        name = slot.operand.name
        if slot.operand.role is not Role.SRC:
            continue
        how = record.draws[name]
        partner = bits(sources[how.like].data) if how.like else None
        table = tables(slot.logical.dtype, how.pattern, how.like is not None)
        tiles = allocate(name, slot.storage, n)
        region = drawn.regions[name]
        cols = np.broadcast_to(np.asarray(region.cols, np.int32), (n,))
        profiles = draw_elements(bits(tiles.data), shape, campaign.seed, first, slot.place, table, partner, cols)
        sources[name] = with_region(tiles, region)
        if slot.operand.kind is Kind.VALUE and not table.by_row:
            found = np.bincount(profiles, minlength=len(table.profiles)).tolist()
            kinds.update({p: c for p, c in zip(table.profiles, found, strict=True) if c})
    return _Drawn(sources, placed, drawn.regions, drawn.kinds, kinds)


def _poisoned_dsts(drawn: _Drawn, n: int, whose: str) -> dict[str, TileBuf]:
    return {
        name: with_region(poison(_buffers.tiles(f"{whose} {name}", slot.storage, n)), drawn.regions[name])
        for slot in drawn.slots
        if slot.operand.role is Role.DST
        for name in (slot.operand.name,)
    }


def _wave(campaign: Campaign, execute: Execute, first: int, n: int) -> _Wave:
    record, options = campaign.record, campaign.options
    drawn = draw(campaign, first, n, _buffers.tiles)
    expected, seen = _poisoned_dsts(drawn, n, "expected"), _poisoned_dsts(drawn, n, "seen")
    logical = {}
    for slot in drawn.slots:
        name = slot.operand.name
        tiles = expected[name] if name in expected else drawn.sources[name]
        logical[name] = logical_view(tiles, slot.logical, drawn.regions[name])
    settings: tuple[Any, ...] = (options.numerics, options.undefined, options.target.name, 1)
    backends.load("numpy").run(Call(record, logical, *settings))
    tested = {o.name: {**seen, **drawn.sources}[o.name] for o in record.operands if o.role is not Role.TMP}
    try:
        execute(Call(record, tested, *settings))
    except BackendError:
        raise
    except Exception as error:
        return _Wave(n, crash=Crash(first, first + n - 1, f"{type(error).__name__}: {error}"))
    found = compare(record, drawn.sources, seen, expected, first)
    wave = _Wave(n, found.elements, len(found.tiles), found.mismatches, found.categories)
    wave.valid_kinds, wave.operand_kinds = drawn.valid_kinds, drawn.operand_kinds
    if found.elements:
        wave.first_failure = _saved(campaign, options, tested, seen, expected, int(found.tiles[0]), first)
    return wave


def _saved(
    campaign: Campaign,
    options: Options,
    tiles: Mapping[str, TileBuf],
    seen: Mapping[str, TileBuf],
    expected: Mapping[str, TileBuf],
    tile: int,
    first: int,
) -> SavedTile:
    def one(of: Mapping[str, TileBuf]) -> dict[str, Any]:
        return {name: bits(t.data)[tile - first].copy() for name, t in of.items()}

    before = {name: poison(TileBuf.empty(t.type, 1)) for name, t in seen.items()}
    arrays = {
        name: bits(before[name].data)[0] if name in before else bits(t.data)[tile - first].copy()
        for name, t in tiles.items()
    }
    return SavedTile(
        instruction=campaign.record,
        types={name: t.type for name, t in tiles.items()},
        valid={name: t.region.of_tile(tile - first) for name, t in tiles.items()},
        arrays=arrays,
        seen=one(seen),
        expected=one(expected),
        numerics=options.numerics,
        undefined=options.undefined,
        target=options.target.name,
        backend=campaign.backend,
        seed=campaign.seed,
        tile=tile,
    )


def replay(saved: SavedTile, backend: str | None = None) -> tuple[Comparison, str]:
    """Run a saved failure on ``backend`` (default the one it failed on) and compare; also says which it was."""
    name = _backend_name(backend or saved.backend)
    options = current_options().override(saved.target, name, saved.numerics, saved.undefined, 1)
    expected = saved.run_reference()
    call = saved.call()
    backend_execute(options)(call)
    record = saved.instruction
    return compare(record, call.tiles, call.tiles, expected, saved.tile), name
