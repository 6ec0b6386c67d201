"""Fold each row to one element: TROWMIN and its siblings.

A sibling is four functions and a branch in each of ``lanes``, ``join``, ``fold`` and ``finish``, which choose by the
name ``COMBINE``, since a kernel inside a torch operator cannot be given a function. Two accumulators (key, tie) go
through them: ``lanes`` makes them of the elements, ``join`` merges two blocks of the same row element by element,
``fold`` reduces over the columns, ``finish`` turns the result into the bits to store.
"""

import triton
import triton.language as tl
from pto_gpu.kernels.block import load_vectors, place, pointers, valid_count
from pto_gpu.kernels.order import (
    bits_of_min_key,
    from_native,
    is_nan,
    min_key,
    native_min2,
    native_minimum,
    native_minimum_number,
    to_native,
)


@triton.jit
def lanes_min(x, column, inside, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """Key of each element, the largest where there is none; for select also ``2 * column + sign`` of each zero."""
    W: tl.constexpr = x.dtype.primitive_bitwidth
    HIGH: tl.constexpr = (1 << W) - 1 if ORDER == "unsigned" else (1 << (W - 1)) - 1
    if ORDER == "propagate native" or ORDER == "number native":
        INFINITY: tl.constexpr = NAN_BITS & (NAN_BITS << 1)
        key = to_native(tl.where(inside, x, INFINITY if ORDER == "propagate native" else NAN_BITS), NAN_BITS)
    else:
        key = tl.where(inside, min_key(x, ORDER, NAN_BITS), HIGH)
        if W == 8:  # every step widens bytes by itself, and long rows then spill
            key = key.to(tl.int32)
    if ORDER == "select":
        tie = tl.where(inside & (key == 0), 2 * column + (x < 0).to(tl.int32), 0x7FFFFFFF)
    else:
        tie = key
    return key, tie


@triton.jit
def join_min(key0, tie0, key1, tie1, ORDER: tl.constexpr):
    """The smaller key and the earlier zero."""
    if ORDER == "propagate native" or ORDER == "number native":
        key = native_min2(key0, key1, ORDER)
        return key, key
    else:
        return tl.minimum(key0, key1), tl.minimum(tie0, tie1)


@triton.jit
def fold_min(key, tie, ORDER: tl.constexpr):
    """Over the columns. Floats by a step of our own: ``tl.min`` has lost NaNs in several versions."""
    if ORDER == "propagate native":
        least = tl.reduce(key, 2, native_minimum, keep_dims=True)
    elif ORDER == "number native":
        least = tl.reduce(key, 2, native_minimum_number, keep_dims=True)
    else:
        least = tl.min(key, axis=2, keep_dims=True).to(key.dtype)
    if ORDER == "select":
        return least, tl.min(tie, axis=2, keep_dims=True)
    else:
        return least, least


@triton.jit
def finish_min(key, tie, first, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """The result's bits. Select: a NaN in front stays (nothing is less), and of the zeros the first is kept."""
    if ORDER == "propagate native" or ORDER == "number native":
        bits = from_native(key, NAN_BITS)
    else:
        bits = bits_of_min_key(key, ORDER, NAN_BITS)
    if ORDER == "select":
        LOW: tl.constexpr = -(1 << (key.dtype.primitive_bitwidth - 1))
        bits = tl.where(key == 0, tl.where(tie % 2 == 1, LOW, 0), bits)
        bits = tl.where(is_nan(first, NAN_BITS), first, bits)
    return bits


@triton.jit
def lanes(x, column, inside, COMBINE: tl.constexpr, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """Two accumulators for each element."""
    if COMBINE == "min":
        return lanes_min(x, column, inside, ORDER, NAN_BITS)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit
def join(key0, tie0, key1, tie1, COMBINE: tl.constexpr, ORDER: tl.constexpr):
    """Two blocks of the same row merged, element by element."""
    if COMBINE == "min":
        return join_min(key0, tie0, key1, tie1, ORDER)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit
def fold(key, tie, COMBINE: tl.constexpr, ORDER: tl.constexpr):
    """Over the columns."""
    if COMBINE == "min":
        return fold_min(key, tie, ORDER)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit
def finish(key, tie, first, COMBINE: tl.constexpr, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """The bits to store."""
    if COMBINE == "min":
        return finish_min(key, tie, first, ORDER, NAN_BITS)
    else:
        tl.static_assert(False, "unknown COMBINE")


@triton.jit
def load_rows(p, r, c, rows, cols, live, whole, VEC: tl.constexpr, UNBROKEN: tl.constexpr):
    """A block of rows; no mask where every column (``UNBROKEN``) and every row (``whole``) of it is valid."""
    if UNBROKEN:
        if whole:
            x = tl.load(p)
        else:
            x = tl.load(p, mask=live & (r < rows), other=0)
    else:
        x = load_vectors(p, r, c, rows, cols, live, VEC)
    return x


@triton.jit(do_not_specialize=[
    "batch", "src_rows", "src_cols", "dst_b", "dst_r", "dst_c", "src_b", "src_r", "src_c",
])  # fmt: skip
def row_reduce(
    dst, src, batch, src_rows, src_cols, dst_b, dst_r, dst_c, src_b, src_r, src_c,
    COMBINE: tl.constexpr, ORDER: tl.constexpr, NAN_BITS: tl.constexpr, FULL: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    dst_vec: tl.constexpr, src_vec: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One block of rows; a row longer than the block is walked through. dst has the same valid rows as src."""
    tile0, row0, col0, t, r, c = place(ROWS, 1, BT, BR, BC)
    p = pointers(src, tile0, row0, col0, t, r, c, src_b, src_r, src_c, src_vec, WIDE)
    live = tile0 + t < batch
    if FULL:
        rows, cols = ROWS - row0.to(tl.int32), COLS
    else:
        rows = valid_count(src_rows, row0, tile0, t, live)
        cols = valid_count(src_cols, col0, tile0, t, live)
    UNBROKEN: tl.constexpr = FULL and COLS % BC == 0
    whole = (tile0 + BT <= batch) & (row0 + BR <= ROWS)
    x = load_rows(p, r, c, rows, cols, live, whole, src_vec, UNBROKEN)
    key, tie = lanes(x, c, c < cols, COMBINE, ORDER, NAN_BITS)
    if COLS > BC:
        step = src_c.to(tl.int64) if src_vec == 0 else 1
        for start in range(BC, COLS, BC):
            p += BC * step
            x = load_rows(p, r, c, rows, cols - start, live, whole, src_vec, UNBROKEN)
            key1, tie1 = lanes(x, start + c, c < cols - start, COMBINE, ORDER, NAN_BITS)
            key, tie = join(key, tie, key1, tie1, COMBINE, ORDER)
    key, tie = fold(key, tie, COMBINE, ORDER)
    zero = tl.zeros((1, 1, 1), tl.int32)
    here = live & (r < rows)
    if ORDER == "select":
        first = tl.load(pointers(src, tile0, row0, col0, t, r, zero, src_b, src_r, src_c, src_vec, WIDE), mask=here)
    else:
        first = key
    q = pointers(dst, tile0, row0, col0, t, r, zero, dst_b, dst_r, dst_c, dst_vec, WIDE)
    tl.store(q, finish(key, tie, first, COMBINE, ORDER, NAN_BITS), mask=here)
