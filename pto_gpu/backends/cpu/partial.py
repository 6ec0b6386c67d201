"""Two sources, each defined on a part of dst: TPARTMIN and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import choose_element, choose_row, size_of
from pto_gpu.backends.cpu.rows import load_ordering, offset, place, take_rest


@njit(nogil=True)
def choose_rect(tag, size, dst, src0, src1, rows, cols, order):
    """Combine ``rows x cols`` elements of both sources."""
    packed = dst[3] and src0[3] and src1[3]
    width = cols * size
    if packed and dst[1] == width and src0[1] == width and src1[1] == width:  # the rows lie end to end
        width *= rows
        rows = min(rows, 1)
    for i in range(rows):
        to, a, b = offset(dst, i, 0)[0], offset(src0, i, 0)[0], offset(src1, i, 0)[0]
        if packed:
            choose_row(tag, to, a, b, width, order)
        else:
            for j in range(cols):
                choose_element(tag, to + j * dst[2], a + j * src0[2], b + j * src1[2], order)


@kernel
def choose(stamp, tag, begin, end, dst, src0, src1, params):
    """Tiles ``begin .. end``: choose where both sources are valid, take the rest from the one that is."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        to, rows, cols = place(dst, tile)
        a, rows0, cols0 = place(src0, tile)
        b, rows1, cols1 = place(src1, tile)
        rows0, cols0, rows1, cols1 = min(rows, rows0), min(cols, cols0), min(rows, rows1), min(cols, cols1)
        choose_rect(tag, size, to, a, b, min(rows0, rows1), min(cols0, cols1), order)
        take_rest(size, to, rows, cols, a, rows0, cols0, b, rows1, cols1)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose, ordering.for_minimum)}
