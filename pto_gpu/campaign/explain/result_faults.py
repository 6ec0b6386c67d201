"""Faults in what is computed: NaN, signed zeros, subnormals, where a result is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pto_gpu.campaign.explain.evidence import Evidence, Results, like, value_dsts
from pto_gpu.campaign.explain.fault import Effect, Fault, sides
from pto_gpu.campaign.explain.product_faults import product_faults
from pto_gpu.campaign.tiles.storage import bits, inside, per_tile
from pto_gpu.campaign.ulp import is_nan
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Family, Instruction, Kind
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import BLOCK_BYTES, ElementType

#: Bits to bits, of one element type.
_Change = Callable[[NumPyArray, ElementType], NumPyArray]


def result_faults(instruction: Instruction) -> Iterator[Fault]:
    """What can go wrong between right operands and the right place for the result."""
    yield Fault("-0 written as +0", _after(_zeros_unsigned))
    if "nan" in instruction.rules_used:
        yield Fault("-0 and +0 taken as equal: the earlier one is kept", _zeros_in_order(backwards=False))
        yield Fault("-0 and +0 taken as equal: the later one is kept", _zeros_in_order(backwards=True))
    if instruction.family is Family.PARTIAL_ARG:
        yield Fault("-0 taken as less than +0, where they tie", _zeros_ordered)
    for how, flush in (("keeping their sign", _flushed), ("to +0", _flushed_to_plus_zero)):
        yield Fault(f"subnormal results flushed {how}", _after(flush))
        yield Fault(f"subnormal operands flushed {how}", _before(flush))
        yield Fault(f"subnormal operands and results flushed {how}", _both(flush))
    yield from _nan_faults(instruction)
    yield from product_faults()
    if instruction.family is Family.ROW_REDUCE:
        yield Fault("the result of a row written to all columns of dst", _repeated(whole_row=True))
        yield Fault("the result of a row written to the whole first 32-byte block of dst", _repeated(whole_row=False))


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


def _zeros_ordered(e: Evidence) -> Results | None:
    """Of two zeros the negative one is made less, and then a zero again."""
    values = [o.name for o in e.instruction.sources if o.kind is Kind.VALUE]
    element = e.before[values[0]].type.element
    rows, cols = (min(e.before[name].data.shape[axis] for name in values) for axis in (1, 2))
    window = (slice(None), slice(rows), slice(cols))
    data = {name: bits(e.before[name].data).copy() for name in values}
    zeros = np.logical_and.reduce([_magnitude(x[window], element) == 0 for x in data.values()])
    minus, less = element.bits_dtype.type(_sign(element)), element.bits_dtype.type(_sign(element) | 1)
    for x in data.values():
        x[window] = np.where(zeros & (x[window] == minus), less, x[window])
    results = e.reference({name: like(e.before[name], x.view(element.numpy)) for name, x in data.items()})
    for name in value_dsts(e):
        here = zeros[:, : results[name].shape[1], : results[name].shape[2]]
        part = results[name][:, : here.shape[1], : here.shape[2]]
        part[...] = np.where(here & (part == less), minus, part)
    return results


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


def _nan_faults(instruction: Instruction) -> Iterator[Fault]:
    yield Fault("the sign of every NaN turned over", _after(_nan_negated))
    yield Fault("the canonical NaN has its sign bit set", _after(_canonical_negated))
    values = tuple(o.name for o in instruction.sources if o.kind is Kind.VALUE)
    for which, order in (("first", values), ("last", values[::-1])):
        of = f"of the {which} NaN operand"
        yield Fault(f"a NaN result keeps the bits {of}", _nan_kept(order, which == "last"))
        yield Fault(f"a NaN result keeps the payload {of}", _nan_kept(order, which == "last", _quieted))
        yield Fault(
            f"a NaN result keeps the payload {of}, else has its sign bit set, as on x86",
            _nan_kept(order, which == "last", _quieted, _canonical_negated),
        )
    if len(values) > 1:
        for name in values:
            yield Fault(f"a NaN of {name} is kept as it is", _nan_kept((name,)))
    yield Fault("every NaN made canonical, copied ones too", _after(_canonical))


def _nan_negated(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(is_nan(x, element), x ^ x.dtype.type(_sign(element)), x)


def _canonical_negated(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(x == element.canonical_nan, x | x.dtype.type(_sign(element)), x)


def _canonical(x: NumPyArray, element: ElementType) -> NumPyArray:
    return np.where(is_nan(x, element), x.dtype.type(element.canonical_nan or 0), x)


def _quieted(x: NumPyArray, element: ElementType) -> NumPyArray:
    quiet: NumPyArray = x | x.dtype.type((element.canonical_nan or 0) & ~(element.infinity or 0))
    return quiet


def _same(x: NumPyArray, element: ElementType) -> NumPyArray:
    del element
    return x


def _nan_kept(
    sources: tuple[str, ...], from_right: bool = False, kept: _Change = _same, none: _Change = _same
) -> Effect:
    """A canonical NaN replaced by the first NaN of ``sources`` there, changed by ``kept``; without one, by ``none``.

    Of a reduction the NaN of its row that stands first, or last if ``from_right``.
    """

    def effect(e: Evidence) -> Results | None:
        results = e.reference()
        names = value_dsts(e)
        for name in names:
            element = e.before[name].type.element
            made = (results[name] == element.canonical_nan) & inside(e.before[name])
            nan, found = _nan_operand(e, sources, results[name], from_right)
            changed = np.where(found, kept(nan, element), none(results[name], element))
            results[name] = np.where(made, changed, results[name])
        return results if names else None

    return effect


def _nan_operand(
    e: Evidence, sources: tuple[str, ...], result: NumPyArray, from_right: bool
) -> tuple[NumPyArray, NumPyArray]:
    """The first NaN of ``sources`` at each element of dst, and where there is one."""
    nan, found = np.zeros_like(result), np.zeros(result.shape, bool)
    for source in sources:
        tiles = e.before[source]
        data = bits(tiles.data)
        here: NumPyArray = inside(tiles) & is_nan(data, tiles.type.element)
        if e.instruction.family is Family.ROW_REDUCE:
            place = here.shape[2] - 1 - here[:, :, ::-1].argmax(axis=2) if from_right else here.argmax(axis=2)
            data = np.take_along_axis(data, place[:, :, None], axis=2)
            here = np.any(here, axis=2, keepdims=True)
        rows, cols = (min(result.shape[axis], data.shape[axis]) for axis in (1, 2))
        window = (slice(None), slice(rows), slice(cols))
        new = here[window] & ~found[window]
        nan[window] = np.where(new, data[window], nan[window])
        found[window] |= here[window]
    return nan, found


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
