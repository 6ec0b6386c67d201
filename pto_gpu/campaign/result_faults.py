"""Faults in what is computed: NaN, signed zeros, subnormals, the rounding of products, where a result is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pto_gpu import backends
from pto_gpu.campaign.evidence import Evidence, Results, inside, like, per_tile
from pto_gpu.campaign.fault import Effect, Fault, sides
from pto_gpu.campaign.storage import bits
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Family, Instruction, Kind
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import BLOCK_BYTES, ElementType

#: Bits to bits, of one element type.
_Change = Callable[[NumPyArray, ElementType], NumPyArray]
#: The product of two arrays of one floating-point type, rounded somehow.
_Product = Callable[[NumPyArray, NumPyArray], NumPyArray]


def result_faults(instruction: Instruction) -> Iterator[Fault]:
    """What can go wrong between right operands and the right place for the result."""
    yield Fault("-0 written as +0", _after(_zeros_unsigned))
    if "nan" in instruction.rules_used:
        yield Fault("-0 and +0 taken as equal: the earlier one is kept", _zeros_in_order(backwards=False))
        yield Fault("-0 and +0 taken as equal: the later one is kept", _zeros_in_order(backwards=True))
    for how, flush in (("keeping their sign", _flushed), ("to +0", _flushed_to_plus_zero)):
        yield Fault(f"subnormal results flushed {how}", _after(flush))
        yield Fault(f"subnormal operands flushed {how}", _before(flush))
        yield Fault(f"subnormal operands and results flushed {how}", _both(flush))
    yield from _nan_faults()
    yield from _product_faults()
    if instruction.family is Family.ROW_REDUCE:
        yield Fault("the result of a row written to all columns of dst", _repeated(whole_row=True))
        yield Fault("the result of a row written to the whole first 32-byte block of dst", _repeated(whole_row=False))


def value_dsts(e: Evidence) -> list[str]:
    """The destinations that hold values of a floating-point type."""
    return [o.name for o in e.instruction.dsts if o.kind is Kind.VALUE and e.before[o.name].type.element.is_float]


def _after(change: _Change) -> Effect:
    """The right result with its values changed, inside the valid region."""

    def effect(e: Evidence) -> Results | None:
        return _changed(e, e.reference(), change)

    return effect


def _changed(e: Evidence, results: dict[str, NumPyArray], change: _Change) -> Results | None:
    names = value_dsts(e)
    for name in names:
        tiles = e.before[name]
        results[name] = np.where(inside(tiles), change(results[name], tiles.type.element), results[name])
    return results if names else None


def _flushed_sources(e: Evidence, change: _Change) -> dict[str, TileBuf]:
    tiles = {}
    for source in e.instruction.sources:
        given = e.before[source.name]
        element = given.type.element
        if source.kind is Kind.VALUE and element.is_float:
            tiles[source.name] = like(given, change(bits(given.data), element).view(element.numpy))
    return tiles


def _before(change: _Change) -> Effect:
    return lambda e: e.reference(_flushed_sources(e, change)) if value_dsts(e) else None


def _both(change: _Change) -> Effect:
    return lambda e: _changed(e, e.reference(_flushed_sources(e, change)), change)


# -- zeros and subnormals -----------------------------------------------------------------------------------


def _sign(element: ElementType) -> int:
    return 1 << (element.bits - 1)


def _magnitude(x: NumPyArray, element: ElementType) -> NumPyArray:
    result: NumPyArray = x & x.dtype.type(_sign(element) - 1)
    return result


def _zeros_unsigned(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(_magnitude(x, element) == 0, x.dtype.type(0), x)


def _flushed(x: NumPyArray, element: ElementType) -> NumPyArray:
    infinity = element.infinity or 0
    smallest_normal = infinity & -infinity
    return np.where(_magnitude(x, element) < smallest_normal, x & x.dtype.type(_sign(element)), x)


def _flushed_to_plus_zero(x: NumPyArray, element: ElementType) -> NumPyArray:
    infinity = element.infinity or 0
    magnitude = _magnitude(x, element)
    return np.where((magnitude > 0) & (magnitude < (infinity & -infinity)), x.dtype.type(0), x)


def _zeros_in_order(*, backwards: bool) -> Effect:
    """Where the result is a zero, the one that plain compare and select takes."""

    def effect(e: Evidence) -> Results | None:
        results = e.reference()
        selected = e.under(replace(e.rules, nan="select")).reference(_backwards(e) if backwards else None)
        names = value_dsts(e)
        for name in names:
            element = e.before[name].type.element
            zero = (_magnitude(results[name], element) == 0) & (_magnitude(selected[name], element) == 0)
            results[name] = np.where(zero & inside(e.before[name]), selected[name], results[name])
        return results if names else None

    return effect


def _backwards(e: Evidence) -> dict[str, TileBuf]:
    """The operands of a comparison in the opposite order: sides exchanged, or valid columns reversed."""
    if e.instruction.family is Family.ROW_REDUCE:
        tiles = {}
        for source in e.instruction.sources:
            given = e.before[source.name]
            cols, place = per_tile(given).cols[:, None, None], np.arange(given.type.cols)
            from_right = np.where(place < cols, cols - 1 - place, place)
            data = np.take_along_axis(bits(given.data), np.broadcast_to(from_right, given.data.shape), axis=2)
            tiles[source.name] = like(given, data.view(given.type.element.numpy))
        return tiles
    one, *others = sides(e.instruction)
    if not others:
        return {}
    return {a: e.before[b] for a, b in zip((*one, *others[0]), (*others[0], *one), strict=True)}


# -- NaN ----------------------------------------------------------------------------------------------------


def _is_nan(x: NumPyArray, element: ElementType) -> NumPyArray:
    return _magnitude(x, element) > (element.infinity or 0)


def _nan_faults() -> Iterator[Fault]:
    yield Fault("the sign of every NaN turned over", _after(_nan_negated))
    yield Fault("the canonical NaN has its sign bit set", _after(_canonical_negated))
    for last in (False, True):
        which = "last" if last else "first"
        yield Fault(f"a NaN result keeps the bits of the {which} NaN operand", _payload_kept(last=last, quiet=False))
        yield Fault(f"a NaN result keeps the payload of the {which} NaN operand", _payload_kept(last=last, quiet=True))
    yield Fault("every NaN made canonical, copied ones too", _after(_canonical))


def _nan_negated(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(_is_nan(x, element), x ^ x.dtype.type(_sign(element)), x)


def _canonical_negated(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(x == element.canonical_nan, x | x.dtype.type(_sign(element)), x)


def _canonical(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(_is_nan(x, element), x.dtype.type(element.canonical_nan or 0), x)


def _payload_kept(*, last: bool, quiet: bool) -> Effect:
    """A canonical NaN replaced by a NaN of the operands there: of the row, for a reduction."""

    def effect(e: Evidence) -> Results | None:
        results = e.reference()
        names = value_dsts(e)
        for name in names:
            element = e.before[name].type.element
            nan, found = _nan_operand(e, results[name].shape, element, last=last)
            if quiet:
                nan |= nan.dtype.type((element.canonical_nan or 0) & ~(element.infinity or 0))
            made = (results[name] == element.canonical_nan) & found & inside(e.before[name])
            results[name] = np.where(made, nan, results[name])
        return results if names else None

    return effect


def _nan_operand(
    e: Evidence, shape: tuple[int, ...], element: ElementType, *, last: bool
) -> tuple[NumPyArray, NumPyArray]:
    """The first or last NaN among the operands of each element of dst, and where there is one."""
    nan = np.zeros(shape, element.bits_dtype)
    found = np.zeros(shape, bool)
    for source in e.instruction.sources:
        if source.kind is not Kind.VALUE:
            continue
        tiles = e.before[source.name]
        data = bits(tiles.data)
        here: NumPyArray = inside(tiles) & _is_nan(data, element)
        if e.instruction.family is Family.ROW_REDUCE:
            place = here.shape[2] - 1 - here[:, :, ::-1].argmax(axis=2) if last else here.argmax(axis=2)
            data = np.take_along_axis(data, place[:, :, None], axis=2)
            here = np.any(here, axis=2, keepdims=True)
        rows, cols = min(shape[1], data.shape[1]), min(shape[2], data.shape[2])
        window = (slice(None), slice(rows), slice(cols))
        taken = here[window] if last else here[window] & ~found[window]
        nan[window] = np.where(taken, data[window], nan[window])
        found[window] |= here[window]
    return nan, found


# -- products -----------------------------------------------------------------------------------------------


def _product_faults() -> Iterator[Fault]:
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
    digits = _digits(a)
    significand, exponent = np.frexp(_exact(a, b))
    result: NumPyArray = np.ldexp(np.rint(np.ldexp(significand, digits)), exponent - digits).astype(a.dtype)
    return result


def _digits(x: NumPyArray) -> int:
    import ml_dtypes

    return int(ml_dtypes.finfo(x.dtype).nmant) + 1  # type: ignore[no-untyped-call]


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
    from pto_gpu.types import element_type_of

    product = a * b
    element = element_type_of(product.dtype)
    return product if element is None else _flushed(bits(product), element).view(product.dtype)


# -- rows ---------------------------------------------------------------------------------------------------


def _repeated(*, whole_row: bool) -> Effect:
    """Column 0 of every valid row in the columns beside it too."""

    def effect(e: Evidence) -> Results | None:
        results = e.reference()
        for dst in e.instruction.dsts:
            tiles, result = e.before[dst.name], results[dst.name]
            if tiles.type.cols == 1:
                continue
            rows = (np.arange(tiles.type.rows) < per_tile(tiles).rows[:, None])[:, :, None]
            width = tiles.type.cols if whole_row else BLOCK_BYTES // tiles.type.element.itemsize
            there = rows & (np.arange(tiles.type.cols) < width)
            results[dst.name] = np.where(there, result[:, :, :1], result)
        return results

    return effect
