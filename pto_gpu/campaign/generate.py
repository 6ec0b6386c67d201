"""The elements of a campaign's operands.

The recipe, bit for bit, so that it can be had on another device. Philox4x32-10 with key (seed low, seed high);
every counter is (c0, tile low, tile high, c3), where tile is the number of the tile in the campaign and
``c3 = operand + 256 * stream`` with the operand's place among the operands of the instruction.

- stream ``PROFILE``, c0 = 0: ``profile = profile_of[w0 & 15]``.
- stream ``ROW``, c0 = row, only for the ``row`` pattern: ``profile = row_profile[w0 & 255]``, and
  ``row_force[w0 & 255]`` may say that the first column, or the last valid one, becomes the NaN made of w1.
- stream ``ELEMENT``, c0 = e // 2 for element e = i * cols + j of the logical shape (cols is even): the pair
  (w0, w1) is for even e, (w2, w3) for odd. Call it (p, q); with c = p & 255:
  ``own = (q & masks[profile, c]) ^ flips[profile, c]``, cut to the width of the element type;
  with r = (p >> 8) & 255: ``bits = (own & ~keep[r]) | ((partner ^ flip[r]) & keep[r])``, where partner is the
  same element of the operand that this one is drawn like.

The tables are in :mod:`pto_gpu.campaign.categories`, valid regions in :mod:`pto_gpu.campaign.valid`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pto_gpu.campaign.categories import FORCE_NAN_FIRST, FORCE_NAN_LAST, Tables
from pto_gpu.campaign.philox import compiled, philox4x32, row_words
from pto_gpu.interop import NumPyArray

ELEMENT: Final = 0
PROFILE: Final = 1
ROW: Final = 2

#: Byte of the storage around the elements: NaN in f16, and very negative in most other types.
PADDING_BYTE: Final = 0xFB

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_BYTE, _EIGHT = np.uint32(0xFF), np.uint32(8)


def draw_elements(
    out: NumPyArray,
    shape: tuple[int, int],
    seed: int,
    first_tile: int,
    operand: int,
    table: Tables,
    partner: NumPyArray | None,
    valid_cols: NumPyArray,
) -> NumPyArray:
    """Fill ``out``, unsigned[n, rows, cols] storage, with tiles ``first_tile`` onwards of the logical ``shape``.

    What lies around the logical shape gets :data:`PADDING_BYTE`. ``partner``: storage of the operand that
    this one is drawn like. ``valid_cols`` int32[n] is read by the ``row`` pattern only. Returns the profile
    of each tile, uint8[n].
    """
    rows, cols = shape
    where = (np.uint64(seed), np.uint64(first_tile))
    words = np.empty((out.shape[0], 1, 4), np.uint32)
    row_words(words, *where, np.uint64(operand + 256 * PROFILE))
    profiles = table.profile_of[words[:, 0, 0] & 15]
    by_row = np.repeat(profiles[:, None], rows, axis=1)
    if table.by_row:
        words = np.empty((out.shape[0], rows, 4), np.uint32)
        row_words(words, *where, np.uint64(operand + 256 * ROW))
        by_row = table.row_profile[words[..., 0] & 255]
    relation = (out if partner is None else partner, table.keep, table.flip)
    _fill(out, rows, cols, (*where, np.uint64(operand)), by_row, (table.masks, table.flips), relation)
    if table.by_row:
        _force_nan(out, words, table, valid_cols)
    padding = out.dtype.type(int.from_bytes(bytes([PADDING_BYTE]) * out.itemsize, "little"))
    out[:, :rows, cols:] = padding
    out[:, rows:] = padding
    result: NumPyArray = profiles
    return result


def _force_nan(out: NumPyArray, words: NumPyArray, table: Tables, valid_cols: NumPyArray) -> None:
    force = table.row_force[words[..., 0] & 255]
    nan = ((words[..., 1] & np.uint32(table.nan[0])) ^ np.uint32(table.nan[1])).astype(out.dtype)
    for kind in (FORCE_NAN_FIRST, FORCE_NAN_LAST):
        tile, row = np.nonzero(force == kind)
        column = valid_cols[tile] - 1 if kind == FORCE_NAN_LAST else 0
        out[tile, row, column] = nan[tile, row]


@compiled
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


@compiled
def _fill(out: Any, rows: Any, cols: Any, where: Any, profiles: Any, choice: Any, relation: Any) -> None:
    seed, first_tile, operand = where
    w = np.empty((4, rows * (cols // 2)), np.uint32)
    for t in range(out.shape[0]):
        _tile_blocks(w, seed, first_tile + np.uint64(t), operand)
        _map(out[t], relation[0][t], w, rows, cols, profiles[t], choice[0], choice[1], relation[1], relation[2])


@compiled
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
