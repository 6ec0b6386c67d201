"""The opt-in tuner of block sizes: ``PTO_GPU_TUNE=1`` in the environment before the first call on a GPU.

The first call of each specialisation times :data:`CANDIDATES` on its own operands, with a dst of the tuner's; the
winner is kept, and on disk in ``pto-gpu/tuned.json`` of the user's cache directory, so that a second process times
nothing. Without the variable, and where the kernels are interpreted, the fixed rule of
:mod:`pto_gpu.backends.triton_plan` holds. A file that cannot be read or written costs the timing, never a call.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
import triton

from pto_gpu import __version__
from pto_gpu.backends.triton_plan import BLOCK_BYTES, THREADS_PER_SOURCE, VECTOR_BYTES, Block, Machine, Plan, plan_of
from pto_gpu.cores import count_from_environment
from pto_gpu.interop import adopt
from pto_gpu.isa.record import Call, Role
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf

#: What is timed: one or two vectors a thread, since more spill; the fixed rule first, so that it wins a tie.
CANDIDATES: Final = (
    Block(BLOCK_BYTES, THREADS_PER_SOURCE),
    Block(BLOCK_BYTES // 2, THREADS_PER_SOURCE // 2),
    Block(BLOCK_BYTES // 2, THREADS_PER_SOURCE),
    Block(BLOCK_BYTES, 2 * THREADS_PER_SOURCE),
    Block(2 * BLOCK_BYTES, 2 * THREADS_PER_SOURCE),
)
#: Bytes of an operand below which a launch takes longer than the kernel, and above which more would show no more.
LEAST_BYTES: Final = 16 << 20
MOST_BYTES: Final = 256 << 20

Launch = Callable[[Call, Plan], None]
#: Seconds, or any other unit, that an action takes on the device.
Timer = Callable[[Callable[[], None]], float]
_log = logging.getLogger(__name__)


def asked_for() -> bool:
    """Whether the environment asks for tuning; raises ConstraintError for another word than 0 or 1."""
    return count_from_environment("PTO_GPU_TUNE", 0, 1, default=0) == 1


def cache_file() -> Path | None:
    """Where winners are kept, or None for a user without a home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "pto-gpu" / "tuned.json"


def bench(action: Callable[[], None]) -> float:
    """Median milliseconds on the current device, with cold caches."""
    median: float = triton.testing.do_bench(action, warmup=5, rep=20, return_mode="median")
    return median


class Tuner:
    """Chooses blocks by timing them. ``launch(call, plan)`` runs a call; ``path``: the file, None to keep nothing."""

    def __init__(self, launch: Launch, path: Path | None, timer: Timer = bench) -> None:
        self._launch = launch
        self._path = path
        self._timer = timer
        self._lock = threading.Lock()
        self._known = self._read()

    def tuned(self, call: Call, plan: Plan) -> Plan:
        """The plan to run ``call`` with; ``plan`` is that of the fixed rule."""
        key = _key(call, plan)
        block = self._known.get(key)
        if block is None:
            with self._lock:
                block = self._known.get(key) or self._choose(call, key, plan.machine)
        return plan if block is None else plan_of(call, plan.machine._replace(block=block))

    def _choose(self, call: Call, key: str, machine: Machine) -> Block | None:
        if _operand_bytes(call) < LEAST_BYTES or _capturing():
            return None  # another time
        try:
            sample = _sample(call)
            plans = {block: plan_of(sample, machine._replace(block=block)) for block in CANDIDATES}
            times = {block: self._time(sample, plan) for block, plan in plans.items() if _fills_vectors(plan)}
        except torch.OutOfMemoryError:
            return None
        block = min(times, key=lambda b: times[b])
        if times[block] == float("inf"):
            return None
        self._known[key] = block
        self._write()
        return block

    def _time(self, call: Call, plan: Plan) -> float:
        device = call.tiles[plan.operands[0]].device
        try:
            with contextlib.nullcontext() if device == "cpu" else torch.cuda.device(device):
                return self._timer(lambda: self._launch(call, plan))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # too much shared memory, say: the others are still good
            _log.warning("tuning %s: %s: %s", call.instruction.name, plan.machine.block, error)
            return float("inf")

    def _read(self) -> dict[str, Block]:
        """What the file holds that is a candidate of this version; nothing of a file that is damaged or not there."""
        try:
            held = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
            entries = {str(key): Block(*block) for key, block in held.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}
        # The candidate itself: 4096.0 in a file is equal to 4096 and no number of threads.
        return {key: CANDIDATES[CANDIDATES.index(block)] for key, block in entries.items() if block in CANDIDATES}

    def _write(self) -> None:
        """Replace the file as a whole: another process may read or write it now."""
        if self._path is None:
            return
        text = json.dumps({**self._read(), **self._known}, indent=1, sort_keys=True) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False, encoding="utf-8") as file:
                file.write(text)
            os.replace(file.name, self._path)
        except OSError as error:
            _log.warning("what tuning found is not kept: %s", error)


def _key(call: Call, plan: Plan) -> str:
    """Everything that the times depend on, as text."""
    tiles = [call.tiles[name] for name in plan.operands]
    uniform = all(t.region.uniform for t in tiles)
    shapes = (
        f"{t.type.dtype} {t.type.rows}x{t.type.cols} strides {'/'.join(map(str, t.memory.strides))} "
        f"vectors {plan.constants[f'{name}_vec']}"
        for name, t in zip(plan.operands, tiles, strict=True)
    )
    regions = "full" if plan.full else "uniform" if uniform else "per tile"
    what = f"{call.instruction.name} {call.rules.label}"
    versions = f"triton {triton.__version__}", f"pto-gpu {__version__}"
    return "; ".join((_device_name(tiles[0].device), *versions, what, regions, *shapes))


def _fills_vectors(plan: Plan) -> bool:
    """Whether each thread has a vector at least: an instruction of four sources has more threads."""
    return plan.machine.block.bytes >= VECTOR_BYTES * plan.threads


def _capturing() -> bool:
    """Whether calls are being captured into a CUDA graph, in which nothing can be timed."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _device_name(device: str) -> str:
    return "host" if device == "cpu" else torch.cuda.get_device_name(device)


def _tile_bytes(tile: TileBuf) -> int:
    """Bytes from one tile to the next."""
    return max(abs(tile.memory.strides[0]) * tile.type.element.itemsize, tile.type.nbytes)


def _operand_bytes(call: Call) -> int:
    return max(_tile_bytes(tile) for tile in call.tiles.values()) * call.batch


def _sample(call: Call) -> Call:
    """The first tiles of ``call``, with dsts of their own: timing writes dst many times, and it may be a source too."""
    n = min(call.batch, max(1, MOST_BYTES // max(_tile_bytes(tile) for tile in call.tiles.values())))
    dsts = {o.name for o in call.instruction.with_role(Role.DST)}
    tiles = {}
    for name, tile in call.tiles.items():
        x = tile.torch()[:n]
        if name in dsts:
            x = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        region = Region(*(count if isinstance(count, int) else count[:n] for count in tile.region))
        data, device = adopt(x, tile.type.element, "tuner")
        tiles[name] = TileBuf(tile.type, data, n, device, region)
    return call._replace(tiles=tiles)
