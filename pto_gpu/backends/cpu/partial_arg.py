"""Two sources of values and indices, each pair defined on a part of dst: TPARTARGMIN and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import choose_pair_row, size_of
from pto_gpu.backends.cpu.rows import parameters, place, take_rest
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


@njit(nogil=True)
def choose_pair_rect(tag, size, val, val0, val1, idx, idx0, idx1, rows, cols, order):
    """Combine ``rows x cols`` elements of both pairs."""
    packed = val[2] == size and val0[2] == size and val1[2] == size
    if packed and idx[2] == size and idx0[2] == size and idx1[2] == size:
        width = cols * size
        values_joined = val[1] == width and val0[1] == width and val1[1] == width
        if values_joined and idx[1] == width and idx0[1] == width and idx1[1] == width:
            width *= rows
            rows = min(rows, 1)
        for i in range(rows):
            choose_pair_row(
                tag,
                *(val[0] + i * val[1], idx[0] + i * idx[1]),
                *(val0[0] + i * val0[1], val1[0] + i * val1[1]),
                *(idx0[0] + i * idx0[1], idx1[0] + i * idx1[1]),
                width,
                order,
            )
    else:
        for i in range(rows):
            for j in range(cols):
                choose_pair_row(
                    tag,
                    *(val[0] + i * val[1] + j * val[2], idx[0] + i * idx[1] + j * idx[2]),
                    *(val0[0] + i * val0[1] + j * val0[2], val1[0] + i * val1[1] + j * val1[2]),
                    *(idx0[0] + i * idx0[1] + j * idx0[2], idx1[0] + i * idx1[1] + j * idx1[2]),
                    size,
                    order,
                )


@kernel
def choose_pair(stamp, tag, begin, end, dst_val, dst_idx, src0_val, src1_val, src0_idx, src1_idx, params):
    """Tiles ``begin .. end``: choose a pair where both are valid, take the rest from the one that is."""
    order = parameters(params)
    size = size_of(tag)
    for tile in range(begin, end):
        val, rows, cols = place(dst_val, tile)
        val0, rows0, cols0 = place(src0_val, tile)
        val1, rows1, cols1 = place(src1_val, tile)
        idx, idx0, idx1 = place(dst_idx, tile)[0], place(src0_idx, tile)[0], place(src1_idx, tile)[0]
        rows0, cols0, rows1, cols1 = min(rows, rows0), min(cols, cols0), min(rows, rows1), min(cols, cols1)
        both_rows, both_cols = min(rows0, rows1), min(cols0, cols1)
        choose_pair_rect(tag, size, val, val0, val1, idx, idx0, idx1, both_rows, both_cols, order)
        take_rest(tag, size, val, rows, cols, val0, rows0, cols0, val1, rows1, cols1)
        take_rest(tag, size, idx, rows, cols, idx0, rows0, cols0, idx1, rows1, cols1)


def minimum(element: ElementType, rules: Numerics) -> tuple[int, ...]:
    """The parameters of ``choose_pair`` for TPARTARGMIN."""
    return ordering.for_argmin(element, rules)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose_pair, minimum)}
