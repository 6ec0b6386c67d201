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

The tables are in :mod:`pto_gpu.campaign.tiles.categories`, valid regions in :mod:`pto_gpu.campaign.tiles.valid`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pto_gpu.campaign.tiles.categories import FORCE_NAN_FIRST, FORCE_NAN_LAST, Tables
from pto_gpu.campaign.tiles.compiled import fill_elements, row_words
from pto_gpu.campaign.tiles.storage import repeated
from pto_gpu.interop import NumPyArray

ELEMENT: Final = 0
PROFILE: Final = 1
ROW: Final = 2

#: Byte of the storage around the elements: NaN in f16, and very negative in most other types.
PADDING_BYTE: Final = 0xFB


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
    of each tile, uint8[n], or, for the ``row`` pattern, of each row, uint8[n, rows].
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
    fill_elements(out, rows, cols, (*where, np.uint64(operand)), by_row, (table.masks, table.flips), relation)
    if table.by_row:
        _force_nan(out, words, table, valid_cols)
    padding = out.dtype.type(repeated(PADDING_BYTE, out.itemsize))
    out[:, :rows, cols:] = padding
    out[:, rows:] = padding
    result: NumPyArray = by_row if table.by_row else profiles
    return result


def _force_nan(out: NumPyArray, words: NumPyArray, table: Tables, valid_cols: NumPyArray) -> None:
    force = table.row_force[words[..., 0] & 255]
    nan = ((words[..., 1] & np.uint32(table.nan[0])) ^ np.uint32(table.nan[1])).astype(out.dtype)
    for kind in (FORCE_NAN_FIRST, FORCE_NAN_LAST):
        tile, row = np.nonzero(force == kind)
        column = valid_cols[tile] - 1 if kind == FORCE_NAN_LAST else 0
        out[tile, row, column] = nan[tile, row]
