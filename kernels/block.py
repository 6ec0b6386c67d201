"""Blocks of tiles x rows x columns: where they lie, and access to them in 16-byte pieces.

``VEC`` of an operand says how it can be reached: more than 1, elements of a 16-byte vector whose start is aligned
in every row; 1, columns are adjacent but rows are not aligned; 0, columns have a stride of their own. Strides of
rows and tiles come in units of ``VEC`` elements, because that is what proves the alignment to the compiler.
"""

import triton
import triton.language as tl


@triton.jit
def place(ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """First tile, row and column of this program's block, and its tiles, rows and columns counted from there.

    The firsts are 64-bit, so that no offset made of them wraps.
    """
    ROW_BLOCKS: tl.constexpr = (ROWS + BR - 1) // BR
    COL_BLOCKS: tl.constexpr = (COLS + BC - 1) // BC
    program = tl.program_id(0).to(tl.int64)
    tile0 = program // (ROW_BLOCKS * COL_BLOCKS) * BT
    row0 = program // COL_BLOCKS % ROW_BLOCKS * BR
    col0 = program % COL_BLOCKS * BC
    t = tl.arange(0, BT)[:, None, None]
    r = tl.arange(0, BR)[None, :, None]
    c = tl.arange(0, BC)[None, None, :]
    return tile0, row0, col0, t, r, c


@triton.jit
def pointers(base, tile0, row0, col0, t, r, c, step_tile, step_row, step_col, VEC: tl.constexpr, WIDE: tl.constexpr):
    """Pointers to the elements of a block. ``WIDE``: offsets inside a block do not fit 32 bits.

    Elements are worked on as signed integers of their bits, whatever their type: a compiled torch graph hands over its
    tensors as they are, since it cannot write through a view of another type.
    """
    if base.dtype.element_ty.primitive_bitwidth == 8:
        base = base.to(tl.pointer_type(tl.int8))
    elif base.dtype.element_ty.primitive_bitwidth == 16:
        base = base.to(tl.pointer_type(tl.int16))
    else:
        base = base.to(tl.pointer_type(tl.int32))
    if WIDE:
        t, r, c = t.to(tl.int64), r.to(tl.int64), c.to(tl.int64)
    if VEC == 0:
        base += tile0 * step_tile + row0 * step_row + col0 * step_col
        return base + (t * step_tile + r * step_row + c * step_col)
    else:
        base += (tile0 * step_tile + row0 * step_row) * VEC + col0
        return base + ((t * step_tile + r * step_row) * VEC + c)


@triton.jit
def valid_count(n, first, tile0, t, live):
    """Valid rows (or columns) counted from ``first``: of every tile, or of each if n points to one for each."""
    if not isinstance(n, tl.tensor):  # a compiled torch graph makes a constant of a 1
        return n - first.to(tl.int32)
    elif n.dtype.is_ptr():
        return tl.load(n + tile0 + t, mask=live, other=0) - first.to(tl.int32)
    else:
        return n - first.to(tl.int32)


@triton.jit
def vectors_inside(r, c, rows, cols, live, VEC: tl.constexpr):
    """Where a vector starts inside rows x cols: the exact region if ``cols`` is a multiple of ``VEC``."""
    here = live & (r < rows)
    if VEC > 1:
        here = here & (c // VEC * VEC < cols)
    else:
        here = here & (c < cols)
    return here


@triton.jit
def load_vectors(p, r, c, rows, cols, live, VEC: tl.constexpr):
    """The elements inside rows x cols; up to VEC - 1 columns past the last one are read too, within the row."""
    return tl.load(p, mask=vectors_inside(r, c, rows, cols, live, VEC), other=0)


@triton.jit
def store_vectors(p, x, r, c, rows, cols, live, VEC: tl.constexpr):
    """Store exactly rows x cols: whole vectors first, then the ragged end of each row."""
    here = live & (r < rows)
    if VEC > 1:
        end = c // VEC * VEC + VEC
        tl.store(p, x, mask=here & (end <= cols))
        tl.store(p, x, mask=here & (end > cols) & (c < cols))
    else:
        tl.store(p, x, mask=here & (c < cols))


@triton.jit
def combine_whole(
    p, p0, p1, tile0, row0, col0, t, r, c, batch,
    combine: tl.constexpr, COMBINE: tl.constexpr, RULE: tl.constexpr, NAN_BITS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    dst_vec: tl.constexpr, src0_vec: tl.constexpr, src1_vec: tl.constexpr,
):  # fmt: skip
    """Combine two sources that are valid everywhere; masks only in a block that sticks out of the batch or the tile."""
    if (tile0 + BT <= batch) & (row0 + BR <= ROWS) & (col0 + BC <= COLS):
        tl.store(p, combine(tl.load(p0), tl.load(p1), COMBINE, RULE, NAN_BITS))
    else:
        live = tile0 + t < batch
        rows, cols = ROWS - row0.to(tl.int32), COLS - col0.to(tl.int32)
        a = load_vectors(p0, r, c, rows, cols, live, src0_vec)
        b = load_vectors(p1, r, c, rows, cols, live, src1_vec)
        here = vectors_inside(r, c, rows, cols, live, dst_vec)
        tl.store(p, combine(a, b, COMBINE, RULE, NAN_BITS), mask=here)
