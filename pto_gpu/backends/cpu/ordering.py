"""Rule sets as numbers: what turns "smaller" into a signed integer comparison of bit patterns.

``key(u) = v ^ ((v >> (W-1)) & flip)`` with ``v = u ^ bias``: for floats ``flip`` is the largest integer, so that
integer order is IEEE order with -0 < +0; for integers ``flip`` is 0, and ``bias`` is the sign bit of unsigned ones.
The key -1, which is -0, becomes ``fold``: 0 where zeros of both signs are to be equal. Keys of NaN are replaced.
"""

from __future__ import annotations

from typing import NamedTuple

from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


class Ordering(NamedTuple):
    """Parameters of a choice; every field is an integer of the element's width, sign-extended."""

    bias: int
    flip: int
    infinity: int  # magnitudes above it are NaN
    fold: int  # what the key of -0 becomes
    nan0: int  # key of a NaN in src0
    nan1: int  # key of a NaN in src1
    nan_key: int  # a least key that stands for a NaN ...
    nan_bits: int  # ... and the bits that are then written
    strict: int  # TPARTARGMIN: src0 must be strictly less
    select: int  # TROWMIN: left-to-right compare and select


def _limits(element: ElementType) -> tuple[int, int]:
    return -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1


def _integer(element: ElementType) -> Ordering:
    low, high = _limits(element)
    bias = low if element.kind == "u" else 0
    # No magnitude exceeds ``high``, and the bits written for the key ``low`` are those that have that key.
    return Ordering(bias, 0, high, -1, low, low, low, low ^ bias, 0, 0)


def for_minimum(element: ElementType, rules: Numerics) -> Ordering:
    """The ordering of TPARTMIN."""
    if not element.is_float:
        return _integer(element)
    low, high = _limits(element)
    canonical = element.canonical_nan or 0
    if rules.nan == "select":
        # `b < a` is false with a NaN on either side; no key of a number is ``low``, so nothing is made canonical.
        return Ordering(0, high, element.infinity or 0, 0, low + 1, high, low, canonical, 0, 1)
    nan = low if rules.nan == "propagate" else high
    return Ordering(0, high, element.infinity or 0, -1, nan, nan, nan, canonical, 0, 0)


def for_fold(element: ElementType, rules: Numerics) -> Ordering:
    """The ordering of TROWMIN: with ``select`` a NaN is passed over, unless it comes first."""
    order = for_minimum(element, rules)
    return order._replace(nan0=_limits(element)[1]) if order.select else order


def for_argmin(element: ElementType, rules: Numerics) -> Ordering:
    """The ordering of TPARTARGMIN: zeros are equal, and each side's NaN key makes the comparison come out as ruled."""
    low, high = _limits(element)
    strict = int(rules.tie == "src1")
    nan0, nan1 = {
        "propagate": (low, low + 1),
        "number": (high, high),
        "select": (high, low) if strict else (low, high),
    }[rules.nan]
    return Ordering(0, high, element.infinity or 0, 0, nan0, nan1, low, 0, strict, 0)
