"""Bit patterns that arithmetic gets wrong, for every element type."""

from __future__ import annotations

import numpy as np
from oracle import FLOATS, INTEGERS

UINT = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def width(dtype: str) -> int:
    return 1 + sum(FLOATS[dtype]) if dtype in FLOATS else INTEGERS[dtype][0]


def uint(dtype: str) -> type[np.unsignedinteger]:
    """The unsigned NumPy type of the same width."""
    return UINT[width(dtype)]


def _float(dtype: str) -> list[int]:
    form = FLOATS[dtype]
    inf, unit = form.infinity, 1 << form.mantissa
    one = ((1 << (form.exponent - 1)) - 1) << form.mantissa
    quiet = unit >> 1
    magnitudes = [
        *(0, 1, 2, 3, unit // 2, unit - 1),  # zero and subnormals
        *(unit, unit + 1, 2 * unit, inf // 3),  # smallest normals, something small
        *(one - unit, one - 1, one, one + 1, one + unit // 2, one + unit),  # 1/2, 1 and neighbours, 3/2, 2
        *(inf - 1, inf - unit, inf),  # largest finite, largest power of two, infinity
        *(inf | quiet, inf | quiet | 1, inf | (unit - 1)),  # quiet NaN: canonical, a payload, every bit
        *(inf | 1, inf | (quiet - 1), inf | (quiet >> 1)),  # signalling NaN
    ]
    return [sign | m for m in magnitudes for sign in (0, form.sign)]


def specials(dtype: str) -> np.ndarray:
    """The patterns, as an unsigned array."""
    if dtype in FLOATS:
        patterns = _float(dtype)
    else:
        bits = INTEGERS[dtype][0]
        top = 1 << (bits - 1)
        patterns = [0, 1, 2, top - 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1, (2 * top - 1) // 3]
    return np.array(sorted(set(patterns)), uint(dtype))


def all_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every ordered pair of special patterns."""
    values = specials(dtype)
    a, b = np.meshgrid(values, values, indexing="ij")
    return a.ravel(), b.ravel()


def draw(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random patterns, more than half of them special."""
    anything = rng.integers(0, 1 << width(dtype), shape, dtype=np.uint64).astype(uint(dtype))
    return np.where(rng.random(shape) < 0.6, rng.choice(specials(dtype), shape), anything)
