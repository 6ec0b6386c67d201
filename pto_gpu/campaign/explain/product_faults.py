"""Faults in products: rounded twice, ties the other way, truncated, flushed. The formula runs with another ``*``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from pto_gpu import backends
from pto_gpu.campaign.explain.evidence import Evidence, Results, value_dsts
from pto_gpu.campaign.explain.fault import Effect, Fault
from pto_gpu.campaign.tiles.storage import bits
from pto_gpu.interop import NumPyArray

#: The product of two arrays of one floating-point type, rounded somehow.
_Product = Callable[[NumPyArray, NumPyArray], NumPyArray]


def product_faults() -> Iterator[Fault]:
    """Other products than the one that is rounded once, to nearest even."""
    yield Fault("product rounded twice", _multiplied(_rounded_twice))
    yield Fault("product rounded away from zero on ties", _multiplied(_ties_away))
    yield Fault("product rounded towards zero", _multiplied(_towards_zero))
    yield Fault("computed as max(x, 0) + slope * min(x, 0)", _multiplied(_max_plus_min))
    yield Fault("subnormal products flushed keeping their sign", _multiplied(_product_flushed))


def _multiplied(product: _Product) -> Effect:
    """The formula with another product; no fault of an instruction that does not multiply."""

    def effect(e: Evidence) -> Results | None:
        names = value_dsts(e)
        if not names:
            return None
        library = _library(product)
        tiles = e.fresh({})
        arrays = {name: t.data.view(library.array) for name, t in tiles.items()}
        regions = {name: t.region for name, t in tiles.items()}
        element = tiles[names[0]].type.element
        with np.errstate(all="ignore"):
            backends.load("numpy").evaluate(library, e.instruction, e.rules, element, arrays, regions)
        return {o.name: bits(tiles[o.name].data) for o in e.instruction.dsts} if library.multiplied else None

    return effect


def _library(product: _Product) -> Any:
    """NumPy, but for what ``*`` means on the arrays of type ``array``."""

    class Array(np.ndarray[Any, Any]):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
            plain = [x.view(np.ndarray) if isinstance(x, Array) else x for x in inputs]
            if ufunc is not np.multiply or method != "__call__":
                return getattr(ufunc, method)(*plain, **keywords)
            library.multiplied = True
            return product(plain[0], plain[1]).view(Array)

    class Library:
        array = Array
        multiplied = False

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def zeros(self, *arguments: Any, **keywords: Any) -> Any:
            return np.zeros(*arguments, **keywords).view(Array)

    library = Library()
    return library


def _exact(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    """The product, exact for elements of at most 32 bits."""
    return a.astype(np.float64) * b.astype(np.float64)


def _rounded_twice(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    """First to the significand of the type, whatever the exponent, then to the type: another result for subnormals."""
    digits = int(_finfo(a).nmant) + 1
    significand, exponent = np.frexp(_exact(a, b))
    result: NumPyArray = np.ldexp(np.rint(np.ldexp(significand, digits)), exponent - digits).astype(a.dtype)
    return result


def _finfo(x: NumPyArray) -> Any:
    return ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]


def _next_to(x: NumPyArray, *, away: bool) -> NumPyArray:
    """The neighbour of each element, away from or towards zero; infinities and zeros as they are."""
    pattern = bits(np.ascontiguousarray(x))
    moved = (pattern + pattern.dtype.type(1)) if away else (pattern - pattern.dtype.type(1))
    keep = ~np.isfinite(x.astype(np.float64)) | ((x == 0) & (not away))
    return np.where(keep, pattern, moved).view(x.dtype)


def _ties_away(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    exact = _exact(a, b)
    near = exact.astype(a.dtype)
    away = _next_to(near, away=True)
    here, there = near.astype(np.float64), away.astype(np.float64)
    tie = (exact != here) & (np.abs(there - exact) == np.abs(exact - here)) & np.isfinite(there)
    return np.where(tie, away, near)


def _towards_zero(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    exact = _exact(a, b)
    near = exact.astype(a.dtype)
    too_far = np.abs(near.astype(np.float64)) > np.abs(exact)
    smaller = (bits(near) - bits(near).dtype.type(1)).view(a.dtype)  # below infinity is the largest number
    return np.where(too_far, smaller, near)


def _max_plus_min(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    zero = a.dtype.type(0)
    result: NumPyArray = np.maximum(a, zero) + b * np.minimum(a, zero)
    return result


def _product_flushed(a: NumPyArray, b: NumPyArray) -> NumPyArray:
    product = a * b
    smallest_normal = _finfo(product).smallest_normal
    flushed: NumPyArray = np.where(
        np.abs(product) < smallest_normal, np.copysign(product.dtype.type(0), product), product
    )
    return flushed
