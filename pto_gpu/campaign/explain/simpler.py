"""Simple numbers in the place of the elements of a failing tile."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from pto_gpu.campaign.explain.trial import Candidate, Trial
from pto_gpu.interop import NumPyArray
from pto_gpu.types import ELEMENT_TYPES, ElementType

_FLOATS: Final = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5)
#: More elements than this are simplified a part of the tile at a time.
_FEW: Final = 24
_PARTS: Final = 16
#: The rank of an element that is none of the simple numbers: beyond it the fewer bits are set, the simpler.
_NO_SIMPLE: Final = 100


@cache
def simple_bits(dtype: str) -> tuple[int, ...]:
    """The bits of simple elements, the simplest first: small integers, then the special ones."""
    element = ELEMENT_TYPES[dtype]
    top = 1 << (element.bits - 1)
    if not element.is_float:
        return tuple(dict.fromkeys([0, 1, 2, 3, 2 * top - 1, top, top - 1]))
    small = np.array(_FLOATS).astype(element.numpy).view(element.bits_dtype).tolist()
    infinity = element.infinity or 0
    special = [top, element.canonical_nan or 0, infinity, top | infinity, 1, infinity & -infinity, infinity - 1]
    return (*small, *special)


def _rank(pattern: int, element: ElementType) -> int:
    simple = simple_bits(element.name)
    return simple.index(pattern) if pattern in simple else _NO_SIMPLE + pattern.bit_count()


def _simpler_than(pattern: int, element: ElementType) -> list[int]:
    """Elements simpler than this one, the simplest first: simple numbers, then itself with fewer bits set."""
    rank = _rank(pattern, element)
    shorter = [pattern & ~((1 << k) - 1) for k in range(element.bits - 1, 0, -1)]
    one_less = [pattern & ~(1 << k) for k in range(element.bits)]
    options = dict.fromkeys([*simple_bits(element.name), *shorter, *one_less])
    return [b for b in options if b != pattern and _rank(b, element) < rank]


def filled_outside(trial: Trial) -> None:
    """Make all elements of sources outside their valid regions the same simple number."""
    names = [o.name for o in trial.tile.instruction.sources]
    for group in (names, *([name] for name in names)):
        if trial.over or not all(trial.best.arrays[name].size for name in group):
            return
        count = min(len(simple_bits(trial.best.types[name].dtype)) for name in group)
        candidates = []
        for place in range(count):
            changes = {}
            for name in group:
                rows, cols = trial.best.valid[name]
                array = np.full_like(trial.best.arrays[name], simple_bits(trial.best.types[name].dtype)[place])
                array[:rows, :cols] = trial.best.arrays[name][:rows, :cols]
                changes[name] = array
            candidates.append(_with(trial.best, changes))
        if trial.accept(candidates) and group is names:
            return


def _with(best: Candidate, changes: dict[str, NumPyArray]) -> Candidate:
    return replace(best, arrays={**best.arrays, **changes})


def simpler_elements(trial: Trial) -> None:
    """Make the valid elements of sources simple numbers: parts of a tile at once, then one at a time."""
    for source in trial.tile.instruction.sources:
        _simpler_parts(trial, source.name)
    while not trial.over:
        best = trial.best
        places = [
            (o.name, row, col)
            for o in trial.tile.instruction.sources
            for row in range(best.valid[o.name][0])
            for col in range(best.valid[o.name][1])
        ]
        if len(places) > _FEW:
            return
        changes = [(name, row, col, value) for name, row, col in places for value in _options(best, name, row, col)]
        fails = trial.fails([_changed(best, [change]) for change in changes])
        # The simplest for each element at once, else the first that can be had.
        found = [change for change, failed in zip(changes, fails, strict=True) if failed]
        first = {change[:3]: change for change in reversed(found)}
        candidates = [_changed(best, list(first.values())), *(_changed(best, [change]) for change in first.values())]
        if not found or not trial.accept(candidates):
            return


def _options(best: Candidate, name: str, row: int, col: int) -> list[int]:
    return _simpler_than(int(best.arrays[name][row, col]), best.types[name].element)


def _changed(best: Candidate, changes: list[tuple[str, int, int, int]]) -> Candidate:
    arrays = dict(best.arrays)
    for name, row, col, value in changes:
        if arrays[name] is best.arrays[name]:
            arrays[name] = best.arrays[name].copy()
        arrays[name][row, col] = value
    return _with(best, arrays)


def _simpler_parts(trial: Trial, name: str) -> None:
    """Set the whole valid region of one source, or a part of it, to one simple number."""
    rows, cols = trial.best.valid[name]
    simple, size = simple_bits(trial.best.types[name].dtype), rows * cols
    if size < 2:
        return
    for parts in (1, min(size, _PARTS)):
        for part in range(parts):
            if trial.over:
                return
            chosen = np.arange(size * part // parts, size * (part + 1) // parts)
            candidates = []
            for value in simple[:2]:
                array = trial.best.arrays[name].copy()
                array[:rows, :cols][np.unravel_index(chosen, (rows, cols))] = value
                if not np.array_equal(array, trial.best.arrays[name]):
                    candidates.append(_with(trial.best, {name: array}))
            if trial.accept(candidates) and parts == 1:
                return
