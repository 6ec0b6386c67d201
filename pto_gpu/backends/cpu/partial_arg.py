"""Two sources of values and indices, each pair defined on a part of dst: TPARTARGMIN and its kin."""

from __future__ import annotations

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import inlined, kernel
from pto_gpu.backends.cpu.lanes import choose_pair_element, choose_pair_row
from pto_gpu.backends.cpu.rows import AHEAD, fetch_ahead, load_ordering, place, take_below
from pto_gpu.backends.cpu.scalars import load_bits, size_of, store_bits


@inlined
def choose_pair_rect(tag, size, dst, src0, src1, cover, rows, cols, common, order):
    """``rows x cols`` pairs of ``cover``, one of the sources; both are combined in the first ``common`` columns."""
    (val, idx), (val0, idx0), (val1, idx1), (val2, idx2) = dst, src0, src1, cover
    width = cols * size
    packed, joined = True, common == cols
    for operand in (val, val0, val1, idx, idx0, idx1):
        packed = packed and operand[3] != 0
        joined = joined and operand[1] == width
    if packed and joined:  # the rows lie end to end
        width *= rows
        to, c = (val[0], idx[0]), (val2[0], idx2[0])
        choose_pair_row(tag, *to, val0[0], idx0[0], val1[0], idx1[0], *c, width, width, order)
        return
    for i in range(rows):
        to = val[0] + i * val[1], idx[0] + i * idx[1]
        a = val0[0] + i * val0[1], idx0[0] + i * idx0[1]
        b = val1[0] + i * val1[1], idx1[0] + i * idx1[1]
        c = val2[0] + i * val2[1], idx2[0] + i * idx2[1]
        if packed:
            choose_pair_row(tag, *to, *a, *b, *c, width, common * size, order)
            continue
        for j in range(common):
            choose_pair_element(
                tag,
                *(to[0] + j * val[2], to[1] + j * idx[2]),
                *(a[0] + j * val0[2], b[0] + j * val1[2]),
                *(a[1] + j * idx0[2], b[1] + j * idx1[2]),
                order,
            )
        for j in range(common, cols):
            store_bits(tag, to[0] + j * val[2], load_bits(tag, c[0] + j * val2[2]))
            store_bits(tag, to[1] + j * idx[2], load_bits(tag, c[1] + j * idx2[2]))


@kernel
def choose_pair(stamp, tag, begin, end, dst_val, dst_idx, src0_val, src1_val, src0_idx, src1_idx, params):
    """Tiles ``begin .. end``: choose a pair where both are valid, take the rest from the one that is."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        fetch_ahead(size, src0_val, tile + AHEAD, end)
        fetch_ahead(size, src1_val, tile + AHEAD, end)
        fetch_ahead(size, src0_idx, tile + AHEAD, end)
        fetch_ahead(size, src1_idx, tile + AHEAD, end)
        fetch_ahead(size, dst_val, tile + AHEAD, end)
        fetch_ahead(size, dst_idx, tile + AHEAD, end)
        val, rows, cols = place(dst_val, tile)
        val0, rows0, cols0 = place(src0_val, tile)
        val1, rows1, cols1 = place(src1_val, tile)
        idx, idx0, idx1 = place(dst_idx, tile)[0], place(src0_idx, tile)[0], place(src1_idx, tile)[0]
        rows0, cols0, rows1, cols1 = min(rows, rows0), min(cols, cols0), min(rows, rows1), min(cols, cols1)
        a, b = (val0, idx0), (val1, idx1)
        wide, wide_cols = (a, cols0) if cols0 > cols1 else (b, cols1)
        first = min(rows0, rows1)
        choose_pair_rect(tag, size, (val, idx), a, b, wide, first, wide_cols, min(cols0, cols1), order)
        take_below(tag, size, val, rows, cols, first, wide_cols, val0, rows0, cols0, val1, rows1, cols1)
        take_below(tag, size, idx, rows, cols, first, wide_cols, idx0, rows0, cols0, idx1, rows1, cols1)


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (choose_pair, ordering.for_argmin)}
