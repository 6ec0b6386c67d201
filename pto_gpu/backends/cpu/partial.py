"""Two sources, each defined on a part of dst: TPARTMIN and its kin."""

from __future__ import annotations

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import inlined, kernel
from pto_gpu.backends.cpu.lanes import choose_element, choose_row
from pto_gpu.backends.cpu.rows import AHEAD, fetch_ahead, load_ordering, place, take_below
from pto_gpu.backends.cpu.scalars import load_bits, size_of, store_bits


@inlined
def choose_rect(tag, size, dst, src0, src1, cover, rows, cols, common, order):
    """``rows x cols`` elements of ``cover``, one of the sources; both are combined in the first ``common`` columns."""
    to, a, b, c = dst[0], src0[0], src1[0], cover[0]
    packed = dst[3] and src0[3] and src1[3]
    width = cols * size
    if packed and common == cols and dst[1] == width and src0[1] == width and src1[1] == width:
        width *= rows  # the rows lie end to end
        choose_row(tag, to, a, b, c, width, width, order)
        return
    for _ in range(rows):
        if packed:
            choose_row(tag, to, a, b, c, width, common * size, order)
        else:
            for j in range(common):
                choose_element(tag, to + j * dst[2], a + j * src0[2], b + j * src1[2], order)
            for j in range(common, cols):
                store_bits(tag, to + j * dst[2], load_bits(tag, c + j * cover[2]))
        to, a, b, c = to + dst[1], a + src0[1], b + src1[1], c + cover[1]


@kernel
def choose(stamp, tag, begin, end, dst, src0, src1, params):
    """Tiles ``begin .. end``: choose where both sources are valid, take the rest from the one that is."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        fetch_ahead(size, src0, tile + AHEAD, end)
        fetch_ahead(size, src1, tile + AHEAD, end)
        fetch_ahead(size, dst, tile + AHEAD, end)
        to, rows, cols = place(dst, tile)
        a, rows0, cols0 = place(src0, tile)
        b, rows1, cols1 = place(src1, tile)
        rows0, cols0, rows1, cols1 = min(rows, rows0), min(cols, cols0), min(rows, rows1), min(cols, cols1)
        wide, wide_cols = (a, cols0) if cols0 > cols1 else (b, cols1)
        first = min(rows0, rows1)
        choose_rect(tag, size, to, a, b, wide, first, wide_cols, min(cols0, cols1), order)
        take_below(tag, size, to, rows, cols, first, wide_cols, a, rows0, cols0, b, rows1, cols1)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose, ordering.for_minimum)}
