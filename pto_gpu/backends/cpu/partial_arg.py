"""Two sources of values and indices, each pair defined on a part of dst: TPARTARGMIN and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import choose_pair_element, choose_pair_row, load_bits, size_of, store_bits
from pto_gpu.backends.cpu.rows import load_ordering, offset, place


@njit(nogil=True)
def choose_pair_tile(tag, size, dst, src0, src1, rows, cols, rows0, cols0, rows1, cols1, order):
    """``rows x cols`` elements of a (value, index) dst, of which each source defines a part; else zero."""
    (val, idx), (val0, idx0), (val1, idx1) = dst, src0, src1
    width = cols * size
    packed, joined = True, rows0 == rows and rows1 == rows and cols0 == cols and cols1 == cols
    for operand in (val, val0, val1, idx, idx0, idx1):
        packed = packed and operand[3] != 0
        joined = joined and operand[1] == width
    if packed and joined:  # the rows lie end to end
        width *= rows
        choose_pair_row(tag, val[0], idx[0], val0[0], idx0[0], val1[0], idx1[0], width, width, width, order)
        return
    for i in range(rows):
        here0, here1 = cols0 if i < rows0 else 0, cols1 if i < rows1 else 0
        to = offset(val, i, 0)[0], offset(idx, i, 0)[0]
        a = offset(val0, i, 0)[0], offset(idx0, i, 0)[0]
        b = offset(val1, i, 0)[0], offset(idx1, i, 0)[0]
        if packed:
            choose_pair_row(tag, *to, *a, *b, width, here0 * size, here1 * size, order)
            continue
        for j in range(cols):
            if j < here0 and j < here1:
                choose_pair_element(tag, *to, a[0], b[0], a[1], b[1], order)
            elif j < here0:
                store_bits(tag, to[0], load_bits(tag, a[0]))
                store_bits(tag, to[1], load_bits(tag, a[1]))
            elif j < here1:
                store_bits(tag, to[0], load_bits(tag, b[0]))
                store_bits(tag, to[1], load_bits(tag, b[1]))
            else:
                store_bits(tag, to[0], 0)
                store_bits(tag, to[1], 0)
            to = to[0] + val[2], to[1] + idx[2]
            a, b = (a[0] + val0[2], a[1] + idx0[2]), (b[0] + val1[2], b[1] + idx1[2])


@kernel
def choose_pair(stamp, tag, begin, end, dst_val, dst_idx, src0_val, src1_val, src0_idx, src1_idx, params):
    """Tiles ``begin .. end``: choose a pair where both are valid, take the rest from the one that is."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        val, rows, cols = place(dst_val, tile)
        val0, rows0, cols0 = place(src0_val, tile)
        val1, rows1, cols1 = place(src1_val, tile)
        idx, idx0, idx1 = place(dst_idx, tile)[0], place(src0_idx, tile)[0], place(src1_idx, tile)[0]
        choose_pair_tile(
            tag, size, (val, idx), (val0, idx0), (val1, idx1), rows, cols, rows0, cols0, rows1, cols1, order
        )


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose_pair, ordering.for_argmin)}
