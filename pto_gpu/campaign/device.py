"""A campaign on a GPU: tiles are drawn, executed and compared there, and only tiles that differ come back.

What it finds is what the same campaign finds on the host: the same tiles, compared in every byte with the reference
formula (on torch tensors), and described by the same code from the bytes that came back.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from pto_gpu import backends
from pto_gpu.backends.numpy import evaluate
from pto_gpu.campaign.compare import SHOWN, Comparison, compare
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Crash, Result, Wave
from pto_gpu.campaign.run import Execute, Progress, collect, label_of, take_journal
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.device_draw import DeviceBuffers, DeviceDrawn, Held, Part, draw_on_device, parts
from pto_gpu.campaign.tiles.storage import PLANS, POISON_BYTE, block_tiles, slots
from pto_gpu.checks import check_types
from pto_gpu.errors import BackendError, first_line
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Call, Role
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.torch_arrays import TORCH
from pto_gpu.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from pto_gpu.campaign.journal import CampaignJournal

#: Elements of one operand in a wave, where the memory allows it: large, for every wave costs hundreds of launches.
WAVE_ELEMENTS: Final = 1 << 27
#: Elements that the reference works on at once: its temporaries are what takes memory.
REFERENCE_ELEMENTS: Final = 1 << 24
#: Bytes that the temporaries for an element of the reference take at most: a dozen, of 8 bytes for integers.
_TEMPORARY_BYTES: Final = 96
#: The same for the valid regions of a tile.
_REGION_BYTES: Final = 512
#: How a plain RuntimeError begins that torch, or the launcher of Triton, makes of an error of CUDA or HIP.
_DEVICE_ERRORS: Final = ("CUDA error", "CUDA driver error", "HIP error", "Triton Error [")


def run_on_device(
    campaign: Campaign,
    execute: Execute | None = None,
    progress: Progress | None = None,
    device: str = "cuda",
    wave: int | None = None,
    span: tuple[int, int] | None = None,
    journal: CampaignJournal | None = None,
) -> Result:
    """Run ``campaign`` on ``device``; the result is that of a campaign on the host, whatever the size of a wave.

    ``progress``, ``span`` and ``journal`` are those of :func:`~pto_gpu.campaign.run.run_campaign`, the other arguments
    those of :func:`device_waves`. ``campaign.workers`` means nothing here.
    """
    result = Result(campaign, label_of(execute) or campaign.backend)
    first, end = (0, campaign.tiles) if span is None else span
    try:
        first = take_journal(result, journal, first)
        with contextlib.closing(device_waves(campaign, first, end, execute, device, wave)) as waves:
            collect(result, waves, progress, journal)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def device_waves(
    campaign: Campaign,
    first: int,
    end: int,
    execute: Execute | None = None,
    device: str = "cuda",
    wave: int | None = None,
) -> Generator[Wave]:
    """What the tiles ``first`` up to ``end`` gave, wave by wave in order; a crash is the last one.

    ``execute`` takes the place of the Triton backend: it gets a call whose valid counts may be tensors on the device.
    ``wave``: tiles of one wave; default what the memory allows. ``device`` may be ``"cpu"`` where the kernels are
    interpreted. Raises BackendError where the memory does not even hold a wave of few tiles; an error of the device is
    a crash, whatever reports it.
    """
    where = torch.device(device)
    waves = _Waves(campaign, execute or _checked_backend(), where, wave)
    done = first
    try:
        with contextlib.nullcontext() if where.type == "cpu" else torch.cuda.device(where):
            for found in waves.run(first, end):
                yield found
                if found.crash is not None:
                    return
                done += found.tiles
    except torch.OutOfMemoryError as error:
        raise BackendError(f"no memory for a wave of tiles on {device}: {str(error).splitlines()[0]}") from None
    except RuntimeError as error:  # a kernel that went wrong shows in whatever comes after it, up to two waves later
        if not _is_of_the_device(error):
            raise
        last = min(done + 2 * waves.tiles, end) - 1
        yield Wave(done, 0, crash=Crash(done, last, f"{type(error).__name__}: {first_line(error)}"))


def _is_of_the_device(error: RuntimeError) -> bool:
    """Whether the accelerator reports ``error``, rather than code of ours."""
    return isinstance(error, torch.AcceleratorError) or str(error).startswith(_DEVICE_ERRORS)


def _checked_backend() -> Execute:
    """The Triton backend behind the checks on types; that no drawn region is refused needs no check at run time."""
    backend = backends.load("triton")

    def execute(call: Call) -> None:
        check_types(call.instruction, {name: tile.type for name, tile in call.tiles.items()}, call.target)
        problem = backend.unsupported(call)
        if problem:
            raise BackendError(f"{call.instruction.name}: backend triton: {problem}")
        backend.run(call)

    return execute


@dataclass
class _Flight:
    """A part that was launched. ``found`` on the host: tiles that differ, then the counts that ``drawn`` names."""

    part: Part
    drawn: DeviceDrawn
    seen: Mapping[str, Held]
    expected: Mapping[str, Held]
    differs: torch.Tensor
    found: torch.Tensor
    arrived: torch.cuda.Event | None
    crash: str | None = None


@dataclass
class _Piece:
    """What a part of a wave gave, ordered by ``first``, a tile number: a comparison of tiles that differ, or counts."""

    first: int
    found: Comparison | None = None
    failure: SavedTile | None = None
    valid_kinds: Mapping[str, int] = field(default_factory=dict)
    operand_kinds: Mapping[str, int] = field(default_factory=dict)
    crash: Crash | None = None


class _Waves:
    """Runs the waves of one campaign; each is launched as one part for each storage plan."""

    def __init__(self, campaign: Campaign, execute: Execute, device: torch.device, wave: int | None) -> None:
        self.campaign = campaign
        self.execute = execute
        self.device = device
        self.tiles = wave or _wave_tiles(campaign, device)
        self.buffers = DeviceBuffers(device)

    def run(self, first: int, end: int) -> Iterator[Wave]:
        """The waves in order. A part waits for the last one of its own plan, whose memory it takes."""
        flying: deque[tuple[_Flight, int, int]] = deque()
        landed: list[_Piece] = []

        def land() -> Iterator[Wave]:
            flight, start, tiles = flying.popleft()
            landed.extend(self._finish(flight))
            if tiles or landed[-1].crash is not None:
                yield _merged(start, tiles, landed)
                landed.clear()

        for start in range(first, end, self.tiles):
            tiles = min(self.tiles, end - start)
            whole = list(parts(start, tiles, self.campaign.grid))
            for part in whole:
                while any(flight.part.plan == part.plan for flight, _, _ in flying):
                    yield from land()
                last = part is whole[-1]  # which lands the wave
                flying.append((self._launch(part), start, tiles if last else 0))
        while flying:
            yield from land()

    def _launch(self, part: Part) -> _Flight:
        """Enqueue everything for a part, without waiting for any of it."""
        campaign, options = self.campaign, self.campaign.options
        drawn = draw_on_device(campaign, part, self.buffers)
        expected, seen = drawn.poisoned_dsts("expected"), drawn.poisoned_dsts("seen")
        self._reference(drawn, expected)
        tiles = {name: held.tiles(drawn.regions[name]) for name, held in {**seen, **drawn.sources}.items()}
        crash = None
        try:
            self.execute(Call(campaign.record, tiles, options.numerics, options.undefined, options.target.name, 1))
        except (BackendError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            crash = f"{type(error).__name__}: {error}"
        differs = torch.zeros(part.n, dtype=torch.bool, device=self.device)
        for name, held in seen.items():
            differs |= (held.words != expected[name].words).any(dim=1)
        counts = [differs.sum(), *drawn.valid_kinds.values(), *(count for _, count in drawn.operand_kinds)]
        found, arrived = _to_host(torch.stack(counts))
        return _Flight(part, drawn, seen, expected, differs, found, arrived, crash)

    def _reference(self, drawn: DeviceDrawn, expected: Mapping[str, Held]) -> None:
        """The formula into ``expected``, in pieces."""
        campaign = self.campaign
        rows, cols = campaign.grid
        arrays = drawn.logical({**expected, **drawn.sources})
        element = ELEMENT_TYPES[campaign.dtypes[0]]
        step = max(1, REFERENCE_ELEMENTS // (rows * cols))
        for start in range(0, next(iter(arrays.values())).shape[0], step):
            piece = slice(start, start + step)
            evaluate(
                TORCH,
                campaign.record,
                campaign.options.numerics,
                element,
                {name: x[piece] for name, x in arrays.items()},
                {name: _of_tiles(region, piece) for name, region in drawn.regions.items()},
            )

    def _finish(self, flight: _Flight) -> list[_Piece]:
        """Wait for a part, and look at its tiles that differ."""
        part, drawn = flight.part, flight.drawn
        if flight.arrived is not None:
            flight.arrived.synchronize()
        if flight.crash is not None:
            first, last = part.numbers(np.array([0, part.n - 1])).tolist()
            return [_Piece(first, crash=Crash(first, last, flight.crash))]
        differing, *counts = flight.found.tolist()
        kinds = len(drawn.valid_kinds)
        operand_kinds: Counter[str] = Counter()
        for (name, _), count in zip(drawn.operand_kinds, counts[kinds:], strict=True):
            operand_kinds.update({name: count} if count else {})
        valid_kinds = dict(zip(drawn.valid_kinds, counts[:kinds], strict=True))
        pieces = [_Piece(part.first, valid_kinds=valid_kinds, operand_kinds=operand_kinds)]
        if differing:
            local = flight.differs.nonzero()[:, 0].cpu().numpy()
            blocks = part.numbers(local) // part.run
            pieces += [_described(self.campaign, flight, local[blocks == b]) for b in np.unique(blocks)]
        return pieces


def _merged(first: int, tiles: int, pieces: list[_Piece]) -> Wave:
    """The wave of ``tiles`` tiles from ``first`` that ``pieces`` make up; of a crash there is nothing else to say."""
    crash = next((piece.crash for piece in pieces if piece.crash is not None), None)
    if crash is not None:
        return Wave(first, 0, crash=crash)
    pieces = sorted(pieces, key=lambda piece: piece.first)
    found = [piece.found for piece in pieces if piece.found is not None]
    return Wave(
        first=first,
        tiles=tiles,
        mismatched_elements=sum(f.elements for f in found),
        mismatched_tiles=sum(len(f.tiles) for f in found),
        mismatches=tuple(m for f in found for m in f.mismatches)[:SHOWN],
        categories=_total(f.categories for f in found),
        first_failure=next((piece.failure for piece in pieces if piece.failure is not None), None),
        valid_kinds=_total(piece.valid_kinds for piece in pieces),
        operand_kinds=_total(piece.operand_kinds for piece in pieces),
    )


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for some in counts:
        total.update(some)
    return total


def _described(campaign: Campaign, flight: _Flight, chosen: NumPyArray) -> _Piece:
    """What :mod:`pto_gpu.campaign.compare` says of the tiles at the places ``chosen`` of a block, which all differ."""
    record, numbers = campaign.record, flight.part.numbers(chosen)
    index = torch.from_numpy(chosen).to(flight.differs.device)
    regions = {name: _on_host(_of_tiles(region, index)) for name, region in flight.drawn.regions.items()}

    def fetched(group: Mapping[str, Held]) -> dict[str, TileBuf]:
        return {name: _fetched(held, index, regions[name]) for name, held in group.items()}

    sources, seen, expected = (fetched(g) for g in (flight.drawn.sources, flight.seen, flight.expected))
    found = compare(record, sources, seen, expected)
    first = int(numbers[0])
    failure = SavedTile.of(
        record,
        campaign.options,
        {**seen, **sources},
        expected,
        int(found.tiles[0]),
        before=POISON_BYTE,
        origin=campaign.origin,
        against=campaign.against,
        first_tile=first,
    )
    mismatches = tuple(replace(m, tile=int(numbers[m.tile])) for m in found.mismatches)
    return _Piece(first, replace(found, tiles=numbers, mismatches=mismatches), failure)


def _fetched(held: Held, index: torch.Tensor, region: Region) -> TileBuf:
    """Some tiles in host memory."""
    ty = held.type
    flat = held.words[index].cpu().numpy().view(ty.element.bits_dtype).view(ty.element.numpy)
    across = ty.blayout == "col_major"
    data = flat.reshape(-1, ty.cols, ty.rows).swapaxes(1, 2) if across else flat.reshape(-1, ty.rows, ty.cols)
    return TileBuf.from_array(data, ty, *region)


def _of_tiles(region: Region, which: Any) -> Region:
    """The regions of some tiles of a batch."""
    rows, cols = (n if isinstance(n, int) else n[which] for n in region)
    return Region(rows, cols)


def _on_host(region: Region) -> Region:
    rows, cols = (n if isinstance(n, int) else n.cpu().numpy() for n in region)
    return Region(rows, cols)


def _to_host(counts: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """A copy in host memory, and what to wait for before it is read."""
    if counts.device.type == "cpu":
        return counts, None
    host = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
    host.copy_(counts, non_blocking=True)
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return host, event


def _wave_tiles(campaign: Campaign, device: torch.device) -> int:
    """Tiles of a wave: whole blocks of every plan, and buffers that take a quarter of the free memory at most."""
    rows, cols = campaign.grid
    step = block_tiles(campaign.grid) * len(PLANS)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30
    held = 0  # by one tile of each plan; a dst is held as seen and as expected
    for plan in PLANS:
        for slot in slots(campaign.record, campaign.dtypes, campaign.grid, plan):
            held += slot.storage.nbytes * (2 if slot.operand.role is Role.DST else 1)
    held += len(PLANS) * _REGION_BYTES
    room = max(0, free // 4 - _TEMPORARY_BYTES * REFERENCE_ELEMENTS)
    affordable = min(WAVE_ELEMENTS // (rows * cols), room // held * len(PLANS))
    return max(1, affordable // step) * step
