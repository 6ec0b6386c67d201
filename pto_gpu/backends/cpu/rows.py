"""Where a tile lies, and rectangles of elements that are copied or cleared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pto_gpu.backends.cpu.compile import inlined
from pto_gpu.backends.cpu.lanes import copy_row
from pto_gpu.backends.cpu.ordering import Ordering
from pto_gpu.backends.cpu.scalars import load_bits, load_int32, load_int64, prefetch, store_bits
from pto_gpu.tilebuf import TileBuf

#: Tiles between the one that is computed and the one whose memory is asked for.
AHEAD = 2
#: The largest valid region that is asked for: a few of them have room in the first cache.
FETCHED_BYTES = 1 << 13
CACHE_LINE = 64


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


@inlined
def place(descriptor, tile):
    """One tile: an operand, valid rows, valid columns.

    An operand is (address, row step, column step, packed), steps in bytes.
    """
    address = load_int64(descriptor) + tile * load_int64(descriptor + 8)
    rows = load_int32(load_int64(descriptor + 32) + tile * load_int64(descriptor + 40))
    cols = load_int32(load_int64(descriptor + 48) + tile * load_int64(descriptor + 56))
    steps = load_int64(descriptor + 16), load_int64(descriptor + 24)
    return (address, *steps, load_int64(descriptor + 64)), rows, cols


@inlined
def fetch_ahead(size, descriptor, tile, end):
    """Ask for the valid region of a tile that is soon to be read, unless it is the end or large.

    A tile is a page or so, too little for a processor to find its pattern of rows by itself; rows that lie end to end
    are a plain stream, which it finds.
    """
    if tile < end:
        operand, rows, cols = place(descriptor, tile)
        width = cols * size
        if width < operand[1] and rows * width <= FETCHED_BYTES:
            for at in range(0, width, CACHE_LINE):
                for i in range(rows):
                    prefetch(operand[0] + i * operand[1] + at)


@inlined
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


@inlined
def offset(operand, row, col):
    """The operand that starts at element (row, col) of ``operand``."""
    return operand[0] + row * operand[1] + col * operand[2], operand[1], operand[2], operand[3]


@inlined
def copy_rect(tag, size, dst, src, rows, cols):
    """Copy ``rows x cols`` elements."""
    to, source = dst[0], src[0]
    if dst[3] and src[3]:
        for _ in range(rows):
            copy_row(tag, to, source, cols * size)
            to, source = to + dst[1], source + src[1]
    else:
        for i in range(rows):
            for j in range(cols):
                at, bits = offset(dst, i, j)[0], load_bits(tag, offset(src, i, j)[0])
                store_bits(tag, at, bits)


@inlined
def zero_rect(tag, dst, rows, cols):
    """Clear ``rows x cols`` elements."""
    for i in range(rows):
        for j in range(cols):
            store_bits(tag, offset(dst, i, j)[0], 0)


@inlined
def take_below(tag, size, dst, rows, cols, first, wide_cols, src0, rows0, cols0, src1, rows1, cols1):
    """What lies below the ``first`` rows, which both sources define: copy what one defines, clear what none does.

    Also clears what no source defines of the ``first`` rows, right of ``wide_cols``.
    """
    tall, tall_rows, tall_cols = (src0, rows0, cols0) if rows0 > rows1 else (src1, rows1, cols1)
    below = tall_rows - first
    copy_rect(tag, size, offset(dst, first, 0), offset(tall, first, 0), below, tall_cols)
    if wide_cols < cols or tall_cols < cols or tall_rows < rows:
        zero_rect(tag, offset(dst, 0, wide_cols), first, cols - wide_cols)
        zero_rect(tag, offset(dst, first, tall_cols), below, cols - tall_cols)
        zero_rect(tag, offset(dst, tall_rows, 0), rows - tall_rows, cols)
