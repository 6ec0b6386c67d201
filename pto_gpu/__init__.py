"""Bulk execution and validation of PTO tile instructions on GPUs, CPUs and plain NumPy.

Public names are imported at first use, so that ``pto-gpu --help`` does not wait for NumPy or torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pto_gpu import asm
    from pto_gpu.defaults import options
    from pto_gpu.errors import (
        AddressError,
        AsmError,
        BackendError,
        ConstraintError,
        FileError,
        LayoutError,
        PtoError,
        TypeMismatch,
    )
    from pto_gpu.memory import TASSIGN, UnifiedBuffer
    from pto_gpu.numerics import NUMERICS, Numerics
    from pto_gpu.targets import TARGETS
    from pto_gpu.tilebuf import TileBuf
    from pto_gpu.types import DYNAMIC, ELEMENT_TYPES, ElementType, TileBufType

__version__: Final = "0.1.0"

_HOME: Final = {
    "errors": [
        "AddressError",
        "AsmError",
        "BackendError",
        "ConstraintError",
        "FileError",
        "LayoutError",
        "PtoError",
        "TypeMismatch",
    ],
    "memory": ["TASSIGN", "UnifiedBuffer"],
    "numerics": ["NUMERICS", "Numerics"],
    "defaults": ["options"],  # a module called options would hide the function
    "targets": ["TARGETS"],
    "tilebuf": ["TileBuf"],
    "types": ["DYNAMIC", "ELEMENT_TYPES", "ElementType", "TileBufType"],
}
#: Modules that ``pto.`` reaches without an import of their own.
_MODULES: Final = ("asm", "torch_ops")
_MODULE_OF: Final = {name: module for module, names in _HOME.items() for name in names}


def _import(module: str) -> Any:
    return importlib.import_module(f"{__name__}.{module}")


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        value = getattr(_import(module), name)
    elif name in _MODULES:
        value = _import(name)
    elif name in (name.upper(), name.lower()) and name.upper() in _import("isa").instructions():
        value = _import("intrinsics").intrinsics()[name]
    else:  # a submodule too: the import system looks for an attribute first
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES, *_import("intrinsics").intrinsics()})
