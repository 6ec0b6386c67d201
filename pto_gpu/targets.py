"""The two machine generations as data: names, memory sizes and alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pto_gpu.errors import ConstraintError, TypeMismatch


@dataclass(frozen=True)
class Target:
    """A machine generation. Sizes are in bytes.

    ``ub_bytes``: capacity of the Unified Buffer. ``alignment``: of a tile address.
    ``repeat_bytes``: what one vector instruction works on. ``architectures``: what compilers call it in a module;
    ``devices``: how the names of its devices start.
    """

    name: str
    ub_bytes: int
    architectures: tuple[str, ...]
    devices: tuple[str, ...]
    alignment: int = 32
    repeat_bytes: int = 256


#: Every target, by the name used in ``target=``.
TARGETS: Final[dict[str, Target]] = {
    "a2a3": Target(
        "a2a3",
        ub_bytes=192 * 1024,
        architectures=("a2", "a3", "a2a3"),
        devices=("Ascend910B", "Ascend910C", "Ascend910_93"),
    ),
    "a5": Target("a5", ub_bytes=256 * 1024, architectures=("a5",), devices=("Ascend950",)),
}


def resolve_target(target: str) -> Target:
    """The :class:`Target` called ``target``."""
    if not isinstance(target, str):
        raise TypeMismatch(f"target must be a name: seen {type(target).__name__}, allowed {', '.join(TARGETS)}")
    try:
        return TARGETS[target]
    except KeyError:
        raise ConstraintError(f"target={target!r} is not known: allowed {', '.join(TARGETS)}") from None
