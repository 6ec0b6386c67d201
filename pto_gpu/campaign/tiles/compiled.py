"""All that is compiled for a campaign, in one file: Numba's cache notices changes of a function's own file only.

Every drawn bit comes from Philox4x32-10, a counter-based generator (Salmon et al., SC 2011). Four 32-bit counter
words and a 64-bit key give four 32-bit words. Nothing is carried from one call to the next, so any bit of a campaign
can be had on its own, on any machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_gpu.interop import NumPyArray
from pto_gpu.jit import cached

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_BYTE, _EIGHT = np.uint32(0xFF), np.uint32(8)
_ROUNDS = 10


@cached
def philox4x32(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The four words for counter (c0, c1, c2, c3) and key (k0, k1): all of them uint64 below 2**32."""
    for _ in range(_ROUNDS):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _HALF) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _HALF) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@cached
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


@cached
def _tile_blocks(w: Any, seed: Any, tile: Any, c3: Any) -> None:
    """``w`` uint32[4, blocks]: the words of each pair of elements of one tile."""
    k0, k1 = seed & _LOW, seed >> _HALF
    low, high = tile & _LOW, tile >> _HALF
    for b in range(w.shape[1]):
        w0, w1, w2, w3 = philox4x32(np.uint64(b), low, high, c3, k0, k1)
        w[0, b] = w0
        w[1, b] = w1
        w[2, b] = w2
        w[3, b] = w3


@cached
def fill_elements(out: Any, rows: Any, cols: Any, where: Any, profiles: Any, choice: Any, relation: Any) -> None:
    """Write the elements of tiles by the recipe of :mod:`.generate`, whose arguments these are."""
    seed, first_tile, operand = where
    w = np.empty((4, rows * (cols // 2)), np.uint32)
    for t in range(out.shape[0]):
        _tile_blocks(w, seed, first_tile + np.uint64(t), operand)
        _map(out[t], relation[0][t], w, rows, cols, profiles[t], choice[0], choice[1], relation[1], relation[2])


@cached
def _map(
    out: Any,
    partner: Any,
    w: Any,
    rows: Any,
    cols: Any,
    profiles: Any,
    masks: Any,
    flips: Any,
    keep: Any,
    flip: Any,
) -> None:
    """The elements of one tile, from its words. Written out for even and odd elements: this is the hot loop."""
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    half = cols // 2
    for i in range(rows):
        profile = profiles[i]
        for b in range(half):
            k, j = i * half + b, 2 * b
            c, r = w0[k] & _BYTE, (w0[k] >> _EIGHT) & _BYTE
            own = (w1[k] & masks[profile, c]) ^ flips[profile, c]
            out[i, j] = (own & ~keep[r]) | ((np.uint32(partner[i, j]) ^ flip[r]) & keep[r])
            c, r = w2[k] & _BYTE, (w2[k] >> _EIGHT) & _BYTE
            own = (w3[k] & masks[profile, c]) ^ flips[profile, c]
            out[i, j + 1] = (own & ~keep[r]) | ((np.uint32(partner[i, j + 1]) ^ flip[r]) & keep[r])
