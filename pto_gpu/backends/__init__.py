"""Backends. Each is a module of this package with ``run(call)`` and ``unsupported(call)``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

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
