"""Faults in what is read, and where a result is put: other operands, other strides, other element types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from pto_gpu.campaign.explain.evidence import Evidence, Results, like
from pto_gpu.campaign.explain.fault import Effect, Fault, listed, sides
from pto_gpu.campaign.tiles.storage import bits, inside, per_tile
from pto_gpu.campaign.ulp import is_nan
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Family, Instruction, Kind, Pattern
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ELEMENT_TYPES, ElementType

#: Other elements for a source, uint[batch, rows, cols], or None where the change cannot be.
_Read = Callable[[TileBuf], NumPyArray | None]


def operand_faults(instruction: Instruction) -> Iterator[Fault]:
    """Sources that are read wrongly, and dsts that are written with wrong strides."""
    yield from _stride_faults(instruction)
    yield from _exchanged(instruction)
    if instruction.family is Family.ROW_REDUCE:
        for source in instruction.sources:
            yield Fault(f"the first column of {source.name} left out", _with({source.name: _first_column_skipped}))
    for source in instruction.sources:
        if instruction.draws[source.name].pattern is Pattern.SLOPE:
            yield Fault(f"{source.name} ignored (taken as 1)", _with({source.name: _ones}))
            yield Fault(f"{source.name} taken as 0", _with({source.name: _zeros}))
    for text, read in _PLACES.items():
        for source in instruction.sources:
            yield Fault(f"{source.name}: {text}", _with({source.name: read}))
    if instruction.family is not Family.ELEMENTWISE:
        yield Fault("values compared with the wrong signedness", _other_signedness)
        yield Fault("values compared by their bits, as integers", _as_integers)
        yield Fault("values compared the other way round", _other_way_round)


def _with(reads: dict[str, _Read]) -> Effect:
    def effect(e: Evidence) -> Results | None:
        tiles = {}
        for name, read in reads.items():
            given = e.before[name]
            changed = read(given)
            if changed is None:
                return None
            tiles[name] = like(given, np.ascontiguousarray(changed).view(given.type.element.numpy))
        return e.reference(tiles)

    return effect


# -- places -------------------------------------------------------------------------------------------------


def _first_column_skipped(tiles: TileBuf) -> NumPyArray:
    data = bits(tiles.data).copy()
    if tiles.type.cols > 1:
        wide = per_tile(tiles).cols[:, None] > 1
        data[:, :, 0] = np.where(wide, data[:, :, 1], data[:, :, 0])
    return data


def _flat(tiles: TileBuf) -> NumPyArray:
    """uint[batch, rows * cols] in the order of memory."""
    data = bits(tiles.data)
    return (data if tiles.type.blayout == "row_major" else data.swapaxes(1, 2)).reshape(len(data), -1)


def _moved(by: int) -> _Read:
    def read(tiles: TileBuf) -> NumPyArray | None:
        if tiles.type.blayout != "row_major":
            return None
        moved: NumPyArray = np.roll(_flat(tiles), -by, axis=1).reshape(tiles.data.shape)
        return moved

    return read


_PLACES: dict[str, _Read] = {
    "its first element read for all": lambda t: np.broadcast_to(bits(t.data)[:, :1, :1], t.data.shape),
    "its first row read for all": lambda t: np.broadcast_to(bits(t.data)[:, :1], t.data.shape),
    "its first column read for all": lambda t: np.broadcast_to(bits(t.data)[:, :, :1], t.data.shape),
    "read one element too late": _moved(1),
    "read one element too early": _moved(-1),
}


def _ones(tiles: TileBuf) -> NumPyArray:
    return bits(np.ones(tiles.data.shape, tiles.type.element.numpy))


def _zeros(tiles: TileBuf) -> NumPyArray:
    return np.zeros(tiles.data.shape, tiles.type.element.bits_dtype)


def _exchanged(instruction: Instruction) -> Iterator[Fault]:
    """One source in the place of another."""
    both = sides(instruction)
    for one, other in combinations(both, 2):
        for a, b in zip(one, other, strict=True):
            yield Fault(f"{a} and {b} exchanged", _given({a: b, b: a}))
            yield Fault(f"{a} read for {b}", _given({b: a}))
            yield Fault(f"{b} read for {a}", _given({a: b}))
        if len(one) > 1:
            whose = dict(zip((*one, *other), (*other, *one), strict=True))
            yield Fault(f"{listed(one)} exchanged with {listed(other)}", _given(whose))


def _given(whose: dict[str, str]) -> Effect:
    """The elements of one operand under the valid region of another."""

    def effect(e: Evidence) -> Results:
        tiles = {}
        for name, other in whose.items():
            given, there = per_tile(e.before[name]), e.before[other]
            rows, cols = np.minimum(given.rows, there.type.rows), np.minimum(given.cols, there.type.cols)
            tiles[name] = there.with_valid(rows, cols)
        return e.reference(tiles)

    return effect


# -- strides ------------------------------------------------------------------------------------------------


def _stride_faults(instruction: Instruction) -> Iterator[Fault]:
    """Rows that are taken to be as far apart as those of another operand, or as its valid columns."""
    values = [o.name for o in (*instruction.dsts, *instruction.sources) if o.kind is Kind.VALUE]
    indices = [o.name for o in (*instruction.dsts, *instruction.sources) if o.kind is Kind.INDEX]
    pairs = dict(zip(indices, values, strict=False))
    sources = {name: value for name, value in pairs.items() if name in [o.name for o in instruction.sources]}
    if pairs:
        yield Fault("the row stride of each source's value tile used for its index tile", _strided(sources))
        yield Fault("the row stride of the value tiles used for every index tile", _strided(pairs))
        back = {value: name for name, value in sources.items()}
        yield Fault("the row stride of each source's index tile used for its value tile", _strided(back))
    everyone = [o.name for o in (*instruction.dsts, *instruction.sources)]
    for name in everyone:
        for other in everyone:
            if other != name:
                yield Fault(f"the row stride of {other} used for {name}", _strided({name: other}))
        yield Fault(f"the rows of {name} packed to its valid columns", _strided({name: None}))
    yield Fault("the rows of every operand packed to its valid columns", _strided(dict.fromkeys(everyone)))


def _strided(whose: Mapping[str, str | None]) -> Effect:
    """``whose``: operand to the one whose row stride it gets, None for its own valid columns."""

    def effect(e: Evidence) -> Results | None:
        if any(e.before[name].type.blayout != "row_major" for name in whose):
            return None
        dsts = [o.name for o in e.instruction.dsts]
        tiles = {}
        for name, other in whose.items():
            steps = _steps(e, name, other)
            if name not in dsts:
                given = e.before[name]
                read = np.take_along_axis(_flat(given), _places(given, steps).reshape(e.batch, -1), axis=1)
                tiles[name] = like(given, read.reshape(given.data.shape).view(given.type.element.numpy))
        results = e.reference(tiles)
        for name in dsts:
            if name in whose:
                results[name] = _written(e.before[name], results[name], _steps(e, name, whose[name]))
        return results

    return effect


def _steps(e: Evidence, name: str, other: str | None) -> NumPyArray:
    """Elements from one row to the next, int64[batch]."""
    if other is None:
        own: NumPyArray = per_tile(e.before[name]).cols
        return own
    ty = e.before[other].type
    return np.full(e.batch, ty.cols if ty.blayout == "row_major" else 1)


def _places(tiles: TileBuf, steps: NumPyArray) -> NumPyArray:
    """Where element (i, j) is looked for, int64[batch, rows, cols], kept inside the tile."""
    rows, cols = tiles.type.rows, tiles.type.cols
    places = np.arange(rows)[:, None] * steps[:, None, None] + np.arange(cols)
    held: NumPyArray = np.minimum(places, rows * cols - 1)
    return held


def _written(tiles: TileBuf, result: NumPyArray, steps: NumPyArray) -> NumPyArray:
    """The elements of ``result`` in the valid region, each put where rows are ``steps`` apart, in order."""
    flat = _flat(tiles).copy()
    tile, row, col = np.nonzero(inside(tiles))
    places = row * steps[tile] + col
    held = places < flat.shape[1]
    flat[tile[held], places[held]] = result[tile, row, col][held]
    written: NumPyArray = flat.reshape(result.shape)
    return written


# -- element types ------------------------------------------------------------------------------------------


def _other_signedness(e: Evidence) -> Results | None:
    return _reinterpreted(e, {"i": "u", "u": "i"})


def _as_integers(e: Evidence) -> Results | None:
    return _reinterpreted(e, {"f": "i"})


def _reinterpreted(e: Evidence, kinds: dict[str, str]) -> Results | None:
    values = [o.name for o in (*e.instruction.dsts, *e.instruction.sources) if o.kind is Kind.VALUE]
    element = e.before[values[0]].type.element
    other = next(
        (t for t in ELEMENT_TYPES.values() if t.kind == kinds.get(element.kind) and t.bits == element.bits), None
    )
    if other is None:
        return None
    tiles = {}
    for name in values:
        given = e.before[name]
        tiles[name] = TileBuf.from_array(
            given.data.view(other.numpy), replace(given.type, dtype=other.name), *given.region
        )
    return e.reference(tiles)


def _other_way_round(e: Evidence) -> Results:
    """The reference of values whose order is turned over, and its results turned back."""
    values = [o.name for o in e.instruction.sources if o.kind is Kind.VALUE]
    tiles = {name: e.before[name] for name in values}
    turned = {n: _turned(bits(t.data), t.type.element).view(t.type.element.numpy) for n, t in tiles.items()}
    results = e.reference({name: like(t, turned[name]) for name, t in tiles.items()})
    for dst in e.instruction.dsts:
        if dst.kind is Kind.VALUE:
            t, result = e.before[dst.name], results[dst.name]
            results[dst.name] = np.where(inside(t), _turned(result, t.type.element), result)
    return results


def _turned(x: NumPyArray, element: ElementType) -> NumPyArray:
    """Bits whose order is the opposite one: every bit of integers, the sign of numbers; NaN stays."""
    if not element.is_float:
        return ~x
    turned: NumPyArray = np.where(is_nan(x, element), x, x ^ x.dtype.type(1 << (element.bits - 1)))
    return turned
