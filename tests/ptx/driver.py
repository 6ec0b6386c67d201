"""A driver for Triton whose GPU is :mod:`ptx.executor`; kernels are specialised, compiled and launched as for any.

:func:`install` must be called before a kernel is launched, in a process where ``TRITON_INTERPRET`` is not set.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

from ptx.executor import run
from ptx.kernel import Kernel, parse
from ptx.memory import GlobalMemory

#: What Triton adds to the arguments: scratch memory of the grid and of the profiler, which no kernel asks for.
SCRATCH = (0, 0)


class _Utils:
    """What Triton asks of a driver's library."""

    def load_binary(self, name: str, *_: Any) -> tuple[str, str, int, int, int]:
        """Module, function, registers, spills, most threads of a CTA: there is nothing to load."""
        return name, name, 0, 0, 1024

    def unload_module(self, *_: Any) -> None:
        """Nothing was loaded."""

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}


class _Launcher:
    """Launches one compiled kernel."""

    def __init__(self, source: Any, metadata: Any) -> None:
        files = get_cache_manager(metadata.hash).get_group(f"{metadata.name}.json")
        with open(files[f"{metadata.name}.ptx"], encoding="utf-8") as text:
            self.kernel: Kernel = parse(text.read())
        self.shared = metadata.shared
        constants = {source.fn.arg_names[i] for (i,) in source.constants}
        self.takes = [name not in constants for name in source.fn.arg_names]

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        _stream, _function, _packed, _metadata, _enter, _exit, *values = rest
        assert (y, z) == (1, 1)
        taken = [value for value, takes in zip(values, self.takes, strict=True) if takes]
        spans = [_span(value) for value in taken if hasattr(value, "data_ptr")]
        arguments = [value.data_ptr() if hasattr(value, "data_ptr") else int(value) for value in taken]
        assert len(self.kernel.parameters) == len(arguments) + len(SCRATCH), "a parameter without an argument"
        arguments += SCRATCH
        run(self.kernel, x, arguments, GlobalMemory(spans), self.shared)


def _span(value: Any) -> tuple[int, int]:
    """First address and bytes of what a kernel may touch through a pointer."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    span: tuple[int, int] = value.span
    return span


class _Driver(DriverBase):
    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        self.utils = _Utils()
        self.launcher_cls = _Launcher

    @staticmethod
    def is_active() -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing can be measured here")


def install(architecture: str) -> None:
    """Make an ``architecture``, such as ``"sm_90"``, the GPU of this process, whose memory is that of the host."""
    from pto_gpu.backends import triton as backend

    capability = int(architecture.removeprefix("sm_"))
    triton.runtime.driver.set_active(_Driver(GPUTarget("cuda", capability, 32)))
    backend.unsupported = lambda call: None
    backend._launching = lambda device: contextlib.nullcontext()
    backend._pointer = functools.partial(_pointer, backend._pointer)


def _pointer(original: Any, tile: Any) -> Any:
    """Of a tile in host memory, with its first and last byte."""
    pointer = original(tile)
    memory, size = tile.memory, tile.type.element.itemsize
    steps = [step * size * (n - 1) for step, n in zip(memory.strides, tile.data.shape, strict=True)]
    first = memory.address + sum(min(step, 0) for step in steps)
    last = memory.address + sum(max(step, 0) for step in steps)
    pointer.span = (first, last + size - first)
    return pointer
