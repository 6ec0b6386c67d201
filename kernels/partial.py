"""Combine two sources, each defined on a part of dst: TPARTMIN and its siblings.

A sibling is one function ``(a, b, ORDER, NAN_BITS) -> bits`` and its branch in ``combine``.
"""

import triton
import triton.language as tl
from pto_gpu.kernels.block import combine_whole, load_vectors, place, pointers, store_vectors, valid_count
from pto_gpu.kernels.order import bits_of_min_key, from_native, key_with_nan, min_key, native_min2, to_native


@triton.jit
def combine_min(a, b, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """``min2``: select is ``b < a ? b : a``, false with a NaN on either side."""
    if ORDER == "propagate native" or ORDER == "number native":
        return from_native(native_min2(to_native(a, NAN_BITS), to_native(b, NAN_BITS), ORDER), NAN_BITS)
    elif ORDER == "select":
        LOW: tl.constexpr = -(1 << (a.dtype.primitive_bitwidth - 1))
        smaller = key_with_nan(b, NAN_BITS, -LOW - 1, True) < key_with_nan(a, NAN_BITS, LOW, True)
        return tl.where(smaller, b, a)
    else:
        key = tl.minimum(min_key(a, ORDER, NAN_BITS), min_key(b, ORDER, NAN_BITS))
        return bits_of_min_key(key, ORDER, NAN_BITS)


@triton.jit
def combine(a, b, COMBINE: tl.constexpr, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """The step called ``COMBINE``; by its name, since a kernel inside a torch operator cannot be given a function."""
    if COMBINE == "min":
        return combine_min(a, b, ORDER, NAN_BITS)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit(do_not_specialize=[
    "batch", "dst_rows", "dst_cols", "src0_rows", "src0_cols", "src1_rows", "src1_cols",
    "dst_b", "dst_r", "dst_c", "src0_b", "src0_r", "src0_c", "src1_b", "src1_r", "src1_c",
])  # fmt: skip
def partial(
    dst, src0, src1, batch,
    dst_rows, dst_cols, src0_rows, src0_cols, src1_rows, src1_cols,
    dst_b, dst_r, dst_c, src0_b, src0_r, src0_c, src1_b, src1_r, src1_c,
    COMBINE: tl.constexpr, ORDER: tl.constexpr, NAN_BITS: tl.constexpr, FULL: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    dst_vec: tl.constexpr, src0_vec: tl.constexpr, src1_vec: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One block: both defined, combine; one, its bits; none, zero. ``FULL``: every operand is valid everywhere."""
    tile0, row0, col0, t, r, c = place(ROWS, COLS, BT, BR, BC)
    p = pointers(dst, tile0, row0, col0, t, r, c, dst_b, dst_r, dst_c, dst_vec, WIDE)
    p0 = pointers(src0, tile0, row0, col0, t, r, c, src0_b, src0_r, src0_c, src0_vec, WIDE)
    p1 = pointers(src1, tile0, row0, col0, t, r, c, src1_b, src1_r, src1_c, src1_vec, WIDE)
    if FULL:
        combine_whole(
            p, p0, p1, tile0, row0, col0, t, r, c, batch, combine, COMBINE, ORDER, NAN_BITS,
            ROWS, COLS, BT, BR, BC, dst_vec, src0_vec, src1_vec,
        )  # fmt: skip
    else:
        live = tile0 + t < batch
        rows = valid_count(dst_rows, row0, tile0, t, live)
        cols = valid_count(dst_cols, col0, tile0, t, live)
        rows0 = tl.minimum(rows, valid_count(src0_rows, row0, tile0, t, live))
        cols0 = tl.minimum(cols, valid_count(src0_cols, col0, tile0, t, live))
        rows1 = tl.minimum(rows, valid_count(src1_rows, row0, tile0, t, live))
        cols1 = tl.minimum(cols, valid_count(src1_cols, col0, tile0, t, live))
        a = load_vectors(p0, r, c, rows0, cols0, live, src0_vec)
        b = load_vectors(p1, r, c, rows1, cols1, live, src1_vec)
        in0 = (r < rows0) & (c < cols0)
        in1 = (r < rows1) & (c < cols1)
        one = tl.where(in0, a, tl.where(in1, b, 0))
        x = tl.where(in0 & in1, combine(a, b, COMBINE, ORDER, NAN_BITS), one)
        store_vectors(p, x, r, c, rows, cols, live, dst_vec)
