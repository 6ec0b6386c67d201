"""Two sources, each defined on a part of dst: TPARTMIN and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import choose_element, choose_row, load_bits, size_of, store_bits
from pto_gpu.backends.cpu.rows import load_ordering, offset, place


@njit(nogil=True)
def choose_tile(tag, size, dst, src0, src1, rows, cols, rows0, cols0, rows1, cols1, order):
    """``rows x cols`` elements of dst, of which each source defines a part; what none defines becomes zero."""
    packed = dst[3] and src0[3] and src1[3]
    width = cols * size
    same = rows0 == rows and rows1 == rows and cols0 == cols and cols1 == cols
    if packed and same and dst[1] == width and src0[1] == width and src1[1] == width:  # the rows lie end to end
        choose_row(tag, dst[0], src0[0], src1[0], rows * width, rows * width, rows * width, order)
        return
    for i in range(rows):
        here0, here1 = cols0 if i < rows0 else 0, cols1 if i < rows1 else 0
        to, a, b = offset(dst, i, 0)[0], offset(src0, i, 0)[0], offset(src1, i, 0)[0]
        if packed:
            choose_row(tag, to, a, b, width, here0 * size, here1 * size, order)
            continue
        for j in range(cols):
            if j < here0 and j < here1:
                choose_element(tag, to, a, b, order)
            else:
                store_bits(tag, to, load_bits(tag, a) if j < here0 else load_bits(tag, b) if j < here1 else 0)
            to, a, b = to + dst[2], a + src0[2], b + src1[2]


@kernel
def choose(stamp, tag, begin, end, dst, src0, src1, params):
    """Tiles ``begin .. end``: choose where both sources are valid, take the rest from the one that is."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        to, rows, cols = place(dst, tile)
        a, rows0, cols0 = place(src0, tile)
        b, rows1, cols1 = place(src1, tile)
        choose_tile(tag, size, to, a, b, rows, cols, rows0, cols0, rows1, cols1, order)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose, ordering.for_minimum)}
