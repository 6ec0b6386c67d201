"""Philox4x32-10, the counter-based generator that every drawn bit comes from (Salmon et al., SC 2011).

Four 32-bit counter words and a 64-bit key give four 32-bit words. Nothing is carried from one call to the
next, so any bit of a campaign can be had on its own, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from pto_gpu.interop import NumPyArray

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
ROUNDS = 10


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled by Numba, without the interpreter lock; kept on disk where a place can be written."""
    try:
        result: Callable[..., Any] = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable cache directory
        result = numba.njit(nogil=True)(function)
    return result


@compiled
def philox4x32(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The four words for counter (c0, c1, c2, c3) and key (k0, k1): all of them uint64 below 2**32."""
    for _ in range(ROUNDS):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _HALF) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _HALF) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@compiled
def row_words(out: NumPyArray, seed: Any, first_tile: Any, c3: Any) -> None:
    """``out`` uint32[n, rows, 4]: the words for counter (row, tile low, tile high, c3), from ``first_tile``."""
    k0, k1 = seed & _LOW, seed >> _HALF
    for t in range(out.shape[0]):
        tile = first_tile + np.uint64(t)
        for i in range(out.shape[1]):
            w0, w1, w2, w3 = philox4x32(np.uint64(i), tile & _LOW, tile >> _HALF, c3, k0, k1)
            out[t, i, 0] = w0
            out[t, i, 1] = w1
            out[t, i, 2] = w2
            out[t, i, 3] = w3


def philox4x32_numpy(counter: NumPyArray, key: NumPyArray) -> NumPyArray:
    """The same in plain NumPy, which tests compare with: uint32[..., 4] and uint32[..., 2] to uint32[..., 4]."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = (key[..., i].astype(np.uint64) for i in range(2))
    for _ in range(ROUNDS):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)
