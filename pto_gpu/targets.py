"""The two machine generations as data: memory sizes and alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pto_gpu.errors import ConstraintError, TypeMismatch


@dataclass(frozen=True)
class Target:
    """A machine generation. Sizes are in bytes.

    ``ub_bytes``: capacity of the Unified Buffer. ``alignment``: of a tile address.
    ``repeat_bytes``: what one vector instruction works on.
    """

    name: str
    ub_bytes: int
    alignment: int = 32
    repeat_bytes: int = 256


#: Every target, by the name used in ``target=``.
TARGETS: Final[dict[str, Target]] = {
    "a2a3": Target("a2a3", ub_bytes=192 * 1024),
    "a5": Target("a5", ub_bytes=256 * 1024),
}


def resolve_target(target: str) -> Target:
    """The :class:`Target` called ``target``."""
    if not isinstance(target, str):
        raise TypeMismatch(f"target must be a name: seen {type(target).__name__}, allowed {', '.join(TARGETS)}")
    try:
        return TARGETS[target]
    except KeyError:
        raise ConstraintError(f"target={target!r} is not known: allowed {', '.join(TARGETS)}") from None
