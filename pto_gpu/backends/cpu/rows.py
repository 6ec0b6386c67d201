"""Where the tiles of a batch lie, and one of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pto_gpu.backends.cpu.lanes import load_int32, load_int64
from pto_gpu.backends.cpu.ordering import Ordering
from pto_gpu.tilebuf import TileBuf


class Descriptor(NamedTuple):
    """Where a batch lies: an int64 array that a kernel reads, and what must stay alive for it.

    Fields: address, bytes to the next tile, row and column; address of the valid rows and bytes to the next
    tile's; the same for valid columns; 1 if rows are packed and fill whole blocks of 32 bytes.
    """

    fields: np.ndarray[Any, np.dtype[np.int64]]
    address: int
    keep: tuple[Any, ...]


def describe(tile: TileBuf, transposed: bool = False) -> Descriptor:
    """The descriptor of ``tile``, kept with it; ``transposed`` swaps rows and columns."""
    memory = tile.memory  # first: a rebound Unified Buffer tile drops what was kept
    key = "cpu transposed" if transposed else "cpu"
    found: Descriptor | None = tile.backend_cache.get(key)
    if found is None:
        size = tile.type.element.itemsize
        to_tile, *steps = (step * size for step in memory.strides)
        counts = [_count_address(n) for n in tile.region]
        if transposed:
            steps.reverse()
            counts.reverse()
        (rows, rows_step, keep_rows), (cols, cols_step, keep_cols) = counts
        # Rows that fill whole blocks may be read in whole blocks; a type says that of its rows, or of its columns.
        packed = steps[1] == size and tile.type.blayout == ("col_major" if transposed else "row_major")
        fields = np.array([memory.address, to_tile, *steps, rows, rows_step, cols, cols_step, packed], np.int64)
        found = tile.backend_cache[key] = Descriptor(fields, fields.ctypes.data, (keep_rows, keep_cols))
    return found


def _count_address(counts: Any) -> tuple[int, int, Any]:
    """Address of a tile's count, bytes to that of the next tile, and the array that holds it."""
    if isinstance(counts, int):
        held = np.array([counts], np.int32)
        return held.ctypes.data, 0, held
    held = np.ascontiguousarray(counts)
    return held.ctypes.data, held.itemsize, held


@njit(nogil=True)
def place(descriptor, tile):
    """One tile: an operand, valid rows, valid columns.

    An operand is (address, row step, column step, packed), steps in bytes.
    """
    address = load_int64(descriptor) + tile * load_int64(descriptor + 8)
    rows = load_int32(load_int64(descriptor + 32) + tile * load_int64(descriptor + 40))
    cols = load_int32(load_int64(descriptor + 48) + tile * load_int64(descriptor + 56))
    steps = load_int64(descriptor + 16), load_int64(descriptor + 24)
    return (address, *steps, load_int64(descriptor + 64)), rows, cols


@njit(nogil=True)
def load_ordering(address):
    """The :class:`Ordering` whose fields lie at ``address`` as int64."""
    return Ordering(
        load_int64(address),
        load_int64(address + 8),
        load_int64(address + 16),
        load_int64(address + 24),
        load_int64(address + 32),
        load_int64(address + 40),
        load_int64(address + 48),
        load_int64(address + 56),
        load_int64(address + 64),
        load_int64(address + 72),
    )


@njit(nogil=True)
def offset(operand, row, col):
    """The operand that starts at element (row, col) of ``operand``."""
    return operand[0] + row * operand[1] + col * operand[2], operand[1], operand[2], operand[3]
