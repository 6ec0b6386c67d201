"""The instructions. Each module with an ``INSTRUCTION`` is one; there is no other list of them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pto_gpu.errors import ConstraintError, nearest
from pto_gpu.isa.record import Instruction


@cache
def instructions() -> dict[str, Instruction]:
    """Every instruction by its upper-case name, in the order of the names."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        record = getattr(importlib.import_module(f"{__name__}.{module.name}"), "INSTRUCTION", None)
        if isinstance(record, Instruction):
            found[record.name] = record
    return dict(sorted(found.items()))


def instruction(name: str) -> Instruction:
    """The instruction called ``name``, in any case; the ConstraintError for an unknown one names the nearest."""
    found = instructions().get(name.upper()) if name.isascii() else None
    if found is None:
        hint = nearest(name.upper(), instructions(), cutoff=0.5)
        raise ConstraintError(f"instruction {name!r} is not known: allowed {', '.join(instructions())}{hint}")
    return found
