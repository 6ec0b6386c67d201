"""Combine two sources that carry an index along: TPARTARGMIN and its siblings.

A sibling is one function ``(a, b, NAN, TIE, NAN_BITS) -> where src0 is taken`` and its branch in
``combine``.
"""

import triton
import triton.language as tl
from pto_gpu.kernels.block import load_vectors, place, pointers, store_vectors, valid_count, vectors_inside
from pto_gpu.kernels.order import as_float


@triton.jit
def combine_min(a, b, NAN: tl.constexpr, TIE: tl.constexpr, NAN_BITS: tl.constexpr):
    """Where src0 is taken: it is less, or not more if ties go to src0; a comparison with a NaN is false."""
    x, y = as_float(a, NAN_BITS), as_float(b, NAN_BITS)
    if NAN == "select":
        return x < y if TIE == "src1" else (y < x) == 0
    less = x < y if TIE == "src1" else x <= y
    if NAN == "propagate":  # the NaN of src0 wins over everything, that of src1 over numbers
        return less | (x != x)
    elif TIE == "src1":
        return less | ((x == x) & (y != y))
    else:
        return less | (y != y)


@triton.jit
def combine(a, b, COMBINE: tl.constexpr, NAN: tl.constexpr, TIE: tl.constexpr, NAN_BITS: tl.constexpr):
    """The step called ``COMBINE``; by its name, since a kernel inside a torch operator cannot be given a function."""
    if COMBINE == "min":
        return combine_min(a, b, NAN, TIE, NAN_BITS)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit(do_not_specialize=[
    "batch", "dst_val_rows", "dst_val_cols", "src0_val_rows", "src0_val_cols", "src1_val_rows", "src1_val_cols",
    "dst_val_b", "dst_val_r", "dst_val_c", "src0_val_b", "src0_val_r", "src0_val_c",
    "src1_val_b", "src1_val_r", "src1_val_c", "dst_idx_b", "dst_idx_r", "dst_idx_c",
    "src0_idx_b", "src0_idx_r", "src0_idx_c", "src1_idx_b", "src1_idx_r", "src1_idx_c",
])  # fmt: skip
def partial_arg(
    dst_val, src0_val, src1_val, dst_idx, src0_idx, src1_idx, batch,
    dst_val_rows, dst_val_cols, src0_val_rows, src0_val_cols, src1_val_rows, src1_val_cols,
    dst_val_b, dst_val_r, dst_val_c, src0_val_b, src0_val_r, src0_val_c, src1_val_b, src1_val_r, src1_val_c,
    dst_idx_b, dst_idx_r, dst_idx_c, src0_idx_b, src0_idx_r, src0_idx_c, src1_idx_b, src1_idx_r, src1_idx_c,
    COMBINE: tl.constexpr, NAN: tl.constexpr, TIE: tl.constexpr, NAN_BITS: tl.constexpr, FULL: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    dst_val_vec: tl.constexpr, src0_val_vec: tl.constexpr, src1_val_vec: tl.constexpr,
    dst_idx_vec: tl.constexpr, src0_idx_vec: tl.constexpr, src1_idx_vec: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Both defined, the chosen side's pair; one, that side's; none, zero. Indices have the values' regions."""
    tile0, row0, col0, t, r, c = place(ROWS, COLS, BT, BR, BC)
    p = pointers(dst_val, tile0, row0, col0, t, r, c, dst_val_b, dst_val_r, dst_val_c, dst_val_vec, WIDE)
    p0 = pointers(src0_val, tile0, row0, col0, t, r, c, src0_val_b, src0_val_r, src0_val_c, src0_val_vec, WIDE)
    p1 = pointers(src1_val, tile0, row0, col0, t, r, c, src1_val_b, src1_val_r, src1_val_c, src1_val_vec, WIDE)
    q = pointers(dst_idx, tile0, row0, col0, t, r, c, dst_idx_b, dst_idx_r, dst_idx_c, dst_idx_vec, WIDE)
    q0 = pointers(src0_idx, tile0, row0, col0, t, r, c, src0_idx_b, src0_idx_r, src0_idx_c, src0_idx_vec, WIDE)
    q1 = pointers(src1_idx, tile0, row0, col0, t, r, c, src1_idx_b, src1_idx_r, src1_idx_c, src1_idx_vec, WIDE)
    live = tile0 + t < batch
    if FULL:
        if (tile0 + BT <= batch) & (row0 + BR <= ROWS) & (col0 + BC <= COLS):
            a, b = tl.load(p0), tl.load(p1)
            i, j = tl.load(q0), tl.load(q1)
            first = combine(a, b, COMBINE, NAN, TIE, NAN_BITS)
            tl.store(p, tl.where(first, a, b))
            tl.store(q, tl.where(first, i, j))
        else:
            rows, cols = ROWS - row0.to(tl.int32), COLS - col0.to(tl.int32)
            a = load_vectors(p0, r, c, rows, cols, live, src0_val_vec)
            b = load_vectors(p1, r, c, rows, cols, live, src1_val_vec)
            i = load_vectors(q0, r, c, rows, cols, live, src0_idx_vec)
            j = load_vectors(q1, r, c, rows, cols, live, src1_idx_vec)
            first = combine(a, b, COMBINE, NAN, TIE, NAN_BITS)
            tl.store(p, tl.where(first, a, b), mask=vectors_inside(r, c, rows, cols, live, dst_val_vec))
            tl.store(q, tl.where(first, i, j), mask=vectors_inside(r, c, rows, cols, live, dst_idx_vec))
    else:
        rows = valid_count(dst_val_rows, row0, tile0, t, live)
        cols = valid_count(dst_val_cols, col0, tile0, t, live)
        rows0 = tl.minimum(rows, valid_count(src0_val_rows, row0, tile0, t, live))
        cols0 = tl.minimum(cols, valid_count(src0_val_cols, col0, tile0, t, live))
        rows1 = tl.minimum(rows, valid_count(src1_val_rows, row0, tile0, t, live))
        cols1 = tl.minimum(cols, valid_count(src1_val_cols, col0, tile0, t, live))
        a = load_vectors(p0, r, c, rows0, cols0, live, src0_val_vec)
        b = load_vectors(p1, r, c, rows1, cols1, live, src1_val_vec)
        i = load_vectors(q0, r, c, rows0, cols0, live, src0_idx_vec)
        j = load_vectors(q1, r, c, rows1, cols1, live, src1_idx_vec)
        in0 = (r < rows0) & (c < cols0)
        in1 = (r < rows1) & (c < cols1)
        first = in0 & ((in1 == 0) | combine(a, b, COMBINE, NAN, TIE, NAN_BITS))
        x = tl.where(first, a, tl.where(in1, b, 0))
        y = tl.where(first, i, tl.where(in1, j, 0))
        store_vectors(p, x, r, c, rows, cols, live, dst_val_vec)
        store_vectors(q, y, r, c, rows, cols, live, dst_idx_vec)
