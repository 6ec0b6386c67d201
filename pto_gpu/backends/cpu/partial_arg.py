"""Two sources of values and indices, each pair defined on a part of dst: TPARTARGMIN and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import choose_pair_element, choose_pair_row, size_of
from pto_gpu.backends.cpu.rows import load_ordering, offset, place, take_rest


@njit(nogil=True)
def choose_pair_rect(tag, size, val, val0, val1, idx, idx0, idx1, rows, cols, order):
    """Combine ``rows x cols`` elements of both pairs."""
    width = cols * size
    packed = joined = True
    for operand in (val, val0, val1, idx, idx0, idx1):
        packed = packed and operand[3] != 0
        joined = joined and operand[1] == width
    if packed and joined:  # the rows lie end to end
        width *= rows
        rows = min(rows, 1)
    for i in range(rows):
        if packed:
            choose_pair_row(
                tag,
                *(offset(val, i, 0)[0], offset(idx, i, 0)[0]),
                *(offset(val0, i, 0)[0], offset(val1, i, 0)[0]),
                *(offset(idx0, i, 0)[0], offset(idx1, i, 0)[0]),
                width,
                order,
            )
        else:
            for j in range(cols):
                choose_pair_element(
                    tag,
                    *(offset(val, i, j)[0], offset(idx, i, j)[0]),
                    *(offset(val0, i, j)[0], offset(val1, i, j)[0]),
                    *(offset(idx0, i, j)[0], offset(idx1, i, j)[0]),
                    order,
                )


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
        rows0, cols0, rows1, cols1 = min(rows, rows0), min(cols, cols0), min(rows, rows1), min(cols, cols1)
        both_rows, both_cols = min(rows0, rows1), min(cols0, cols1)
        choose_pair_rect(tag, size, val, val0, val1, idx, idx0, idx1, both_rows, both_cols, order)
        take_rest(size, val, rows, cols, val0, rows0, cols0, val1, rows1, cols1)
        take_rest(size, idx, rows, cols, idx0, rows0, cols0, idx1, rows1, cols1)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose_pair, ordering.for_argmin)}
