"""What the reference formulas share, in the array-API style: NumPy, torch and CuPy arrays all work.

Nothing here is used by a fast backend: they are checked against it.
"""

from __future__ import annotations

from typing import Any

from pto_gpu.isa.record import Plane
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


def number(xp: Any, x: Any, element: ElementType) -> Any:
    """``x`` as exact numbers that every array library can compare.

    Unsigned elements may come as signed ones with the same bits: torch has no ``<`` on u16 and u32, nor, up to 2.9,
    ``where``.
    """
    if element.is_float:
        return xp.astype(x, xp.float32, copy=False)
    wide = xp.astype(x, xp.int64)
    return wide & ((1 << element.bits) - 1) if element.kind == "u" else wide


def canonical_nan(xp: Any, like: Any, element: ElementType) -> Any:
    """The canonical NaN of ``element``, bit for bit, as an array that broadcasts against ``like``."""
    dtype = xp.int32 if element.bits == 32 else xp.int16
    bits = xp.full((1, 1, 1), element.canonical_nan, dtype=dtype, device=like.device)  # made there, not brought there
    return bits.view(like.dtype)


def minimum(xp: Any, a: Any, b: Any, rules: Numerics, element: ElementType) -> Any:
    """``min2(a, b)`` under the rule set; integers have neither NaN nor signed zeros."""
    x, y = number(xp, a, element), number(xp, b, element)
    if not element.is_float or rules.nan == "select":
        return xp.where(y < x, b, a)
    smaller = xp.where((y < x) | ((y == x) & xp.signbit(y)), b, a)  # -0 < +0
    nan_a, nan_b = xp.isnan(x), xp.isnan(y)
    if rules.nan == "propagate":
        return xp.where(nan_a | nan_b, canonical_nan(xp, a, element), smaller)
    smaller = xp.where(nan_a, b, xp.where(nan_b, a, smaller))
    return xp.where(nan_a & nan_b, canonical_nan(xp, a, element), smaller)


def takes_src0(xp: Any, a: Any, b: Any, rules: Numerics, element: ElementType) -> Any:
    """Where TPARTARGMIN takes value and index of src0; -0 equals +0."""
    x, y = number(xp, a, element), number(xp, b, element)
    wins = (x < y) if rules.tie == "src1" else (x <= y)
    if rules.nan == "select":
        # Every comparison with a NaN is false, so the side that needs no comparison wins.
        return wins if rules.tie == "src1" else xp.logical_not(y < x)
    nan_x, nan_y = xp.isnan(x), xp.isnan(y)
    if rules.nan == "propagate":
        return nan_x | (xp.logical_not(nan_y) & wins)
    if rules.tie == "src0":  # number: both NaN is a tie
        wins = wins | (nan_x & nan_y)
    return wins | (nan_y & xp.logical_not(nan_x))


def minimum_is_first(xp: Any, a: Any, b: Any, rules: Numerics, element: ElementType) -> Any:
    """Where ``minimum`` returns ``a``; equal elements count as ``a``, and so do two NaNs."""
    x, y = number(xp, a, element), number(xp, b, element)
    if rules.nan == "select":
        return xp.logical_not(y < x)
    first = xp.logical_not((y < x) | ((y == x) & xp.signbit(y) & xp.logical_not(xp.signbit(x))))
    nan_a, nan_b = xp.isnan(x), xp.isnan(y)
    if rules.nan == "propagate":
        return nan_a | (first & xp.logical_not(nan_b))
    return nan_b | (first & xp.logical_not(nan_a))


def shared_out(xp: Any, g: Any, first: Any, src0: Plane, src1: Plane) -> tuple[Any, Any]:
    """The gradient ``g`` given to one source for each element: the only one defined, or src0 where ``first``."""
    none = xp.zeros_like(g)
    to_first = src0.inside & (first | xp.logical_not(src1.inside))
    to_second = src1.inside & xp.logical_not(to_first)
    return xp.where(to_first, g, none), xp.where(to_second, g, none)
