"""The GPU backend: launches the Triton kernels of :mod:`pto_gpu.kernels`, one launch for a call.

With ``TRITON_INTERPRET=1`` in the environment the same kernels run on tiles in host memory, slowly: for tests.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
import triton

from pto_gpu.backends import triton_plan, triton_tune
from pto_gpu.backends.triton_plan import Plan
from pto_gpu.isa.record import Call
from pto_gpu.tilebuf import TileBuf

#: Whether the kernels are interpreted: decided by the environment when Triton first decorates one.
INTERPRETED: bool = bool(triton.knobs.runtime.interpret)

#: Every product is rounded by itself: none is fused with a sum.
COMPILER_OPTIONS: Final[Mapping[str, Any]] = {"enable_fp_fusion": False}

#: The interpreter patches Triton's modules while it runs: one thread at a time.
_interpreter = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that a thread of its parent holds
    os.register_at_fork(
        before=_interpreter.acquire, after_in_parent=_interpreter.release, after_in_child=_interpreter.release
    )


def unsupported(call: Call) -> str | None:
    """Why this backend cannot run ``call``, or None."""
    device = call.tiles[call.instruction.operands[0].name].device
    if device == "cpu" and not INTERPRETED:
        return "tiles are in host memory: allowed tiles on a GPU, or TRITON_INTERPRET=1 set before Python starts"
    return None


def run(call: Call) -> None:
    """Run a checked call with at least one tile, on the current stream of the tiles' device."""
    plan = triton_plan.plan_of(call, machine())
    tuner = _tuner()
    launch_call(call, plan if tuner is None else tuner.tuned(call, plan))


@functools.cache
def _tuner() -> triton_tune.Tuner | None:
    """What changes plans, where that is asked for."""
    if INTERPRETED or not triton_tune.asked_for():
        return None
    return triton_tune.Tuner(launch_call, triton_tune.cache_file())


def launch_call(call: Call, plan: Plan) -> None:
    """Run ``call`` as ``plan`` says."""
    launch_plan(plan, call.batch, arguments_of(call, plan), call.tiles[plan.operands[0]].device)


def launch_plan(plan: Plan, batch: int, arguments: Mapping[str, Any], device: str) -> None:
    """Launch the kernel of ``plan`` on ``batch`` tiles, at least one, on the current stream of ``device``."""
    launch_kernel(kernel_of(plan), plan.programs(batch), plan.threads, arguments, device)


def launch_kernel(kernel: Any, programs: int, threads: int, arguments: Mapping[str, Any], device: str) -> None:
    """Launch ``programs`` of ``threads`` threads each, on the current stream of ``device``."""
    values = [arguments[name] for name in kernel.arg_names]
    with _launching(device):
        kernel[(programs,)](*values, num_warps=warps(threads), **COMPILER_OPTIONS)


def kernel_of(plan: Plan) -> Any:
    """The Triton function that runs ``plan``."""
    return getattr(importlib.import_module(f"pto_gpu.kernels.{plan.family}"), plan.family)


def warps(threads: int) -> int:
    """The warps that ``threads`` are on this machine: of 32, or the 64 of an AMD wavefront."""
    target = _target()
    return threads // (32 if target is None else int(target.warp_size))


@functools.cache
def machine() -> triton_plan.Machine:
    """What plans must know of this machine."""
    if INTERPRETED:
        return triton_plan.INTERPRETER
    target = _target()
    return triton_plan.Machine() if target is None else triton_plan.machine_of(target)


@functools.cache
def _target() -> Any:
    """The ``GPUTarget`` that Triton compiles for; None where it interprets, or finds no GPU."""
    try:
        return None if INTERPRETED else triton.runtime.driver.active.get_current_target()
    except RuntimeError as error:
        if "0 active drivers" in str(error):
            return None
        raise


def arguments_of(call: Call, plan: Plan) -> dict[str, Any]:
    """Every argument of the kernel by name: memory, batch, valid counts, strides, compile-time constants."""
    arguments: dict[str, Any] = {"batch": call.batch, **plan.strides, **plan.constants}
    for name in plan.operands:
        tile = call.tiles[name]
        arguments[name] = _pointer(tile)
        rows, cols = _counts(tile) if not plan.full else tile.region
        arguments[f"{name}_rows"], arguments[f"{name}_cols"] = (cols, rows) if plan.swapped else (rows, cols)
    return arguments


@contextlib.contextmanager
def _launching(device: str) -> Any:
    """What a launch of a kernel must stand in: its device is the current one, or the interpreter is its own."""
    if INTERPRETED:
        with _interpreter, np.errstate(all="ignore"):  # it computes with NumPy
            yield
    else:
        with torch.cuda.device(device):
            yield


def _pointer(tile: TileBuf) -> Any:
    """Element [0, 0, 0] as signed integers; the kernel reaches the others through strides."""
    integer = getattr(torch, triton_plan.INTEGERS[tile.type.element.itemsize])
    return _HostPointer(tile.memory.address, integer) if tile.device == "cpu" else tile.torch().view(integer)


class _HostPointer:
    """An address that the interpreter takes for a tensor that owns its storage.

    A real tensor is copied onto itself after a launch, which memory mapped read-only does not survive, and cannot
    have negative strides. The interpreters of Triton 3.5 to 3.9 ask for no more than this.
    """

    def __init__(self, address: int, dtype: torch.dtype) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self.address

    def _itself(self, *_: Any, **__: Any) -> _HostPointer:
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = _itself

    def _nothing(self) -> int:
        return 0

    storage_offset = size = stride = _nothing


def _counts(tile: TileBuf) -> tuple[Any, ...]:
    """Valid counts of the batch where the kernel reads them: each an int, or an int32 tensor on the tiles' device."""
    if tile.region.uniform:
        return tile.region
    counts: tuple[Any, ...] | None = tile.backend_cache.get("triton")
    if counts is None:
        counts = tile.backend_cache["triton"] = tuple(
            n if isinstance(n, (int, torch.Tensor)) else torch.tensor(n, dtype=torch.int32, device=tile.device)
            for n in tile.region
        )
    return counts
