"""Backends. Each is a module of this package with ``run(call)`` and ``unsupported(call)``."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from functools import cache
from typing import Any

from pto_gpu.cores import device_of_this_process
from pto_gpu.errors import BackendError
from pto_gpu.isa.record import Call


@cache
def load(name: str) -> Any:
    """The module of the backend called ``name``; imported at first use, since Numba and Triton are slow to import."""
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError as error:  # Triton has no wheels for macOS and Windows
        raise BackendError(f"backend {name} cannot be loaded: {error}") from error


def runner(name: str, call: Call) -> Callable[[Call], None]:
    """What runs ``call``. ``auto`` is triton for tiles on a GPU and cpu for the rest.

    Raises BackendError where the backend cannot run on this machine or on these tiles.
    """
    device = call.tiles[call.instruction.operands[0].name].device
    if name == "auto":
        name = "cpu" if device == "cpu" else "triton"
    module = load(name)
    problem = module.unsupported(call)
    if problem:
        raise BackendError(f"{call.instruction.name}: backend {name}: {problem}")
    run: Callable[[Call], None] = module.run
    return run


def gpu() -> str | None:
    """The GPU that Triton kernels of this process run on; None where torch sees none, or they cannot run on it.

    Interpreted kernels run on the host.
    """
    if _torch_knows_no_gpu():
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        interpreted = load("triton").INTERPRETED
    except BackendError:
        return None
    return None if interpreted else f"cuda:{device_of_this_process(torch.cuda.device_count())}"


def _torch_knows_no_gpu() -> bool:
    """Whether torch is built for CPUs only, asked without importing it, which takes seconds."""
    try:
        return importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
