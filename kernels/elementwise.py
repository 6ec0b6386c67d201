"""Two sources, each defined wherever dst is: TPRELU and its siblings.

A sibling is one function ``(a, b, ZERO, NAN_BITS) -> bits`` and its branch in ``combine``.
"""

import triton
import triton.language as tl
from pto_gpu.kernels.block import combine_whole, load_vectors, place, pointers, store_vectors, valid_count
from pto_gpu.kernels.order import as_float


@triton.jit
def combine_prelu(a, b, ZERO: tl.constexpr, NAN_BITS: tl.constexpr):
    """``a > 0 ? a : a * b``, the product rounded once, a NaN canonical; ``ZERO == "keep"`` returns +-0 as it is."""
    x, y = as_float(a, NAN_BITS), as_float(b, NAN_BITS)
    kept = x >= 0 if ZERO == "keep" else x > 0
    result = tl.where(kept, x, x * y)  # what is kept is no NaN
    return tl.where(result == result, result.to(a.dtype, bitcast=True), NAN_BITS)


@triton.jit
def combine(a, b, COMBINE: tl.constexpr, ZERO: tl.constexpr, NAN_BITS: tl.constexpr):
    """The step called ``COMBINE``; by its name, since a kernel inside a torch operator cannot be given a function."""
    if COMBINE == "prelu":
        return combine_prelu(a, b, ZERO, NAN_BITS)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit(do_not_specialize=[
    "batch", "dst_rows", "dst_cols",
    "dst_b", "dst_r", "dst_c", "src0_b", "src0_r", "src0_c", "src1_b", "src1_r", "src1_c",
])  # fmt: skip
def elementwise(
    dst, src0, src1, batch, dst_rows, dst_cols,
    dst_b, dst_r, dst_c, src0_b, src0_r, src0_c, src1_b, src1_r, src1_c,
    COMBINE: tl.constexpr, ZERO: tl.constexpr, NAN_BITS: tl.constexpr, FULL: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    dst_vec: tl.constexpr, src0_vec: tl.constexpr, src1_vec: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One block; the sources' regions equal dst's. ``FULL``: the whole tile is valid."""
    tile0, row0, col0, t, r, c = place(ROWS, COLS, BT, BR, BC)
    p = pointers(dst, tile0, row0, col0, t, r, c, dst_b, dst_r, dst_c, dst_vec, WIDE)
    p0 = pointers(src0, tile0, row0, col0, t, r, c, src0_b, src0_r, src0_c, src0_vec, WIDE)
    p1 = pointers(src1, tile0, row0, col0, t, r, c, src1_b, src1_r, src1_c, src1_vec, WIDE)
    if FULL:
        combine_whole(
            p, p0, p1, tile0, row0, col0, t, r, c, batch, combine, COMBINE, ZERO, NAN_BITS,
            ROWS, COLS, BT, BR, BC, dst_vec, src0_vec, src1_vec,
        )  # fmt: skip
    else:
        live = tile0 + t < batch
        rows = valid_count(dst_rows, row0, tile0, t, live)
        cols = valid_count(dst_cols, col0, tile0, t, live)
        a = load_vectors(p0, r, c, rows, cols, live, src0_vec)
        b = load_vectors(p1, r, c, rows, cols, live, src1_vec)
        store_vectors(p, combine(a, b, COMBINE, ZERO, NAN_BITS), r, c, rows, cols, live, dst_vec)
