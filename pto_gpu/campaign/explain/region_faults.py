"""Faults in valid regions: off by one, rounded to blocks, of another operand, what is done where a page is silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pto_gpu.campaign.explain.evidence import Evidence, Results
from pto_gpu.campaign.explain.fault import Effect, Fault, listed, scopes, sides
from pto_gpu.campaign.tiles.storage import bits, inside, per_tile
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction, ValidPattern
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import BLOCK_BYTES, TileBufType

_Change = Callable[[NumPyArray, NumPyArray, TileBufType], tuple[NumPyArray | int, NumPyArray | int]]


def _block(extent: NumPyArray, ty: TileBufType, *, up: bool) -> NumPyArray:
    step = BLOCK_BYTES // ty.element.itemsize
    result: NumPyArray = (extent + (step - 1 if up else 0)) // step * step
    return result


def _rounded(up: bool) -> _Change:
    def change(rows: NumPyArray, cols: NumPyArray, ty: TileBufType) -> tuple[NumPyArray, NumPyArray]:
        if ty.blayout == "row_major":
            return rows, _block(cols, ty, up=up)
        return _block(rows, ty, up=up), cols

    return change


_SHRINKING: Mapping[str, _Change] = {
    "taken one row short": lambda rows, cols, ty: (rows - 1, cols),
    "taken one column short": lambda rows, cols, ty: (rows, cols - 1),
    "taken without its last, partial 32-byte block": _rounded(up=False),
}
_GROWING: Mapping[str, _Change] = {
    "taken one row long": lambda rows, cols, ty: (rows + 1, cols),
    "taken one column long": lambda rows, cols, ty: (rows, cols + 1),
    "taken up to the end of its last 32-byte block": _rounded(up=True),
    "taken as whole rows": lambda rows, cols, ty: (rows, ty.cols),
    "taken as whole columns": lambda rows, cols, ty: (ty.rows, cols),
    "taken as the whole tile": lambda rows, cols, ty: (ty.rows, ty.cols),
}
_CHANGES: Mapping[str, _Change] = {
    **_SHRINKING,
    **_GROWING,
    "taken with rows and columns exchanged": lambda rows, cols, ty: (cols, rows),
}


def within(tiles: TileBuf, rows: NumPyArray | int, cols: NumPyArray | int) -> TileBuf:
    """The tiles with other valid regions, as far as they are in the capacity."""
    ty = tiles.type
    return tiles.with_valid(np.clip(rows, 0, ty.rows), np.clip(cols, 0, ty.cols))


def region_faults(instruction: Instruction) -> Iterator[Fault]:
    """Valid regions that are not the ones given."""
    for names in scopes(instruction):
        of = f"{names[0]}'s valid region" if len(names) == 1 else f"the valid regions of {listed(names)}"
        for text, change in _CHANGES.items():
            yield Fault(f"{of} {text}", _changed(names, change), text, frozenset(names))
    if instruction.valid_pattern in (ValidPattern.PARTIAL, ValidPattern.PARTIAL_ANY):
        for text, change in _GROWING.items():
            for which, place in (("the first source that covers it", 0), ("the last source that covers it", -1)):
                yield Fault(f"dst's valid region, and that of {which}, {text}", _covering(change, place))
            yield Fault(f"dst's valid region, and those of sources that cover it, {text}", _covering(change))
    yield from _taken_from_others(instruction)
    if any(rule.undefined for rule in instruction.region_rules):
        yield from _undefined_faults(instruction)
    yield Fault("dst not written at all", lambda e: {o.name: bits(e.before[o.name].data) for o in e.instruction.dsts})


def _changed(names: tuple[str, ...], change: _Change) -> Effect:
    def effect(e: Evidence) -> Results:
        tiles = {}
        for name in names:
            given = e.before[name]
            tiles[name] = within(given, *change(*per_tile(given), given.type))
        return e.reference(tiles)

    return effect


def _covering(change: _Change, place: int | None = None) -> Effect:
    """A change of dst and of the sources whose region is dst's: the first or last of them, or all."""

    def effect(e: Evidence) -> Results:
        dst = e.before[e.instruction.dsts[0].name]
        both = sides(e.instruction)
        covers = np.array([~per_tile(e.before[side[0]]).differs(per_tile(dst)) for side in both])
        if place is not None:  # of the sides that cover dst in a tile, keep one
            order = np.arange(len(both)) if place == 0 else np.arange(len(both))[::-1]
            first = order[covers[order].argmax(axis=0)]
            covers &= np.arange(len(both))[:, None] == first
        tiles = {}
        for names, there in ((tuple(o.name for o in e.instruction.dsts), None), *zip(both, covers, strict=True)):
            for name in names:
                given, old = e.before[name], per_tile(e.before[name])
                rows, cols = change(*old, given.type)
                if there is not None:
                    rows, cols = np.where(there, rows, old.rows), np.where(there, cols, old.cols)
                tiles[name] = within(given, rows, cols)
        return e.reference(tiles)

    return effect


def _taken_from_others(instruction: Instruction) -> Iterator[Fault]:
    """The region of one operand used for another."""
    dsts = tuple(o.name for o in instruction.dsts)
    both = sides(instruction)
    for side in both:
        if instruction.valid_pattern in (ValidPattern.PARTIAL, ValidPattern.PARTIAL_ANY):
            yield Fault(f"{listed(side)} taken as valid wherever dst is", _region_of(dict.fromkeys(side, dsts[0])))
        if instruction.valid_pattern is not ValidPattern.ROWS:
            yield Fault(f"dst's valid region taken from {side[0]}", _region_of(dict.fromkeys(dsts, side[0])))
    for place, one in enumerate(both):
        for other in both[place + 1 :]:
            swap = dict(zip((*one, *other), (*other, *one), strict=True))
            yield Fault(f"the valid regions of {one[0]} and {other[0]} exchanged", _region_of(swap))


def _region_of(whose: Mapping[str, str]) -> Effect:
    return lambda e: e.reference(
        {name: within(e.before[name], *per_tile(e.before[other])) for name, other in whose.items()}
    )


def _undefined_faults(instruction: Instruction) -> Iterator[Fault]:
    """What is done with tiles whose valid regions a page leaves open."""
    dst = instruction.dsts[0].name
    everywhere = _region_of({o.name: dst for o in instruction.sources})
    sources = listed([o.name for o in instruction.sources])
    yield Fault(f"undefined valid regions computed as if {sources} covered dst", _where_undefined(everywhere))
    yield Fault("tiles with undefined valid regions not computed", _where_undefined(_untouched))
    yield Fault("elements that no source defines left as they were", _left_where_no_source)


def _untouched(e: Evidence) -> Results:
    return {o.name: bits(e.before[o.name].data) for o in e.instruction.dsts}


def _where_undefined(effect: Effect) -> Effect:
    def only_there(e: Evidence) -> Results | None:
        regions = {name: per_tile(t) for name, t in e.before.items()}
        types = {name: t.type for name, t in e.before.items()}
        there = np.zeros(e.batch, bool)
        for rule in e.instruction.region_rules:
            if rule.undefined:
                there |= np.broadcast_to(rule.broken(regions, types), (e.batch,))
        changed = effect(e)
        if not there.any() or changed is None:
            return None
        return {name: np.where(there[:, None, None], changed[name], right) for name, right in e.reference().items()}

    return only_there


def _left_where_no_source(e: Evidence) -> Results:
    results = e.reference()
    for dst in e.instruction.dsts:
        tiles, covered = e.before[dst.name], np.zeros(results[dst.name].shape, bool)
        for source in e.instruction.sources:
            region = per_tile(e.before[source.name])
            covered |= inside(within(tiles, *region))
        results[dst.name] = np.where(covered, results[dst.name], bits(tiles.data))
    return results
