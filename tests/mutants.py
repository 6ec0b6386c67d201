"""Deliberately wrong implementations, each the reference with one fault."""

import dataclasses

import numpy as np

from pto_gpu import backends


def reference(call):
    backends.load("numpy").run(call)


def regions(deltas):
    """Valid regions off by one: operand name to (rows, columns) to add."""

    def execute(call):
        tiles = dict(call.tiles)
        for name, (more_rows, more_cols) in deltas.items():
            tile = tiles[name]
            rows = np.clip(tile.region.rows + np.int32(more_rows), 0, tile.type.rows)
            cols = np.clip(np.broadcast_to(tile.region.cols, (tile.batch,)) + np.int32(more_cols), 0, tile.type.cols)
            tiles[name] = tile.with_valid(rows, cols)
        reference(call._replace(tiles=tiles))

    return execute


def rules(**changes):
    def execute(call):
        reference(call._replace(rules=dataclasses.replace(call.rules, **changes)))

    return execute


def inside(tile):
    rows, cols = (np.broadcast_to(n, (tile.batch,))[:, None, None] for n in tile.region)
    return (np.arange(tile.type.rows)[:, None] < rows) & (np.arange(tile.type.cols) < cols)


def after(change):
    """``change(dst elements inside the valid region)`` applied to the right result."""

    def execute(call):
        reference(call)
        dst = call.tiles[call.instruction.dsts[0].name]
        with np.errstate(all="ignore"):
            dst.data[...] = np.where(inside(dst), change(dst.data), dst.data)

    return execute


def whole_tile(call):
    tiles = dict(call.tiles)
    for operand in call.instruction.dsts:
        tile = tiles[operand.name]
        tiles[operand.name] = tile.with_valid(tile.type.rows, tile.type.cols)
    reference(call._replace(tiles=tiles))


def whole_row(call):
    """A row reduction that leaves its result in the columns beside, where there are any."""
    reference(call)
    dst = call.tiles["dst"]
    if dst.type.cols > 1:
        rows = (np.arange(dst.type.rows) < np.broadcast_to(dst.region.rows, (dst.batch,))[:, None])[:, :, None]
        dst.data[...] = np.where(rows, dst.data[:, :, :1], dst.data)


def index_from_value_stride(call):
    """Index tiles read as if their rows were as far apart as those of the value tile."""
    tiles = dict(call.tiles)
    for side in ("src0", "src1"):
        value, index = tiles[f"{side}_val"], tiles[f"{side}_idx"]
        tile_step, _, step = index.data.strides
        row_step = value.data.strides[1]
        wrong = np.lib.stride_tricks.as_strided(
            index.data, (index.batch, value.type.rows, value.type.cols), (tile_step, row_step, step), writeable=False
        )
        ty = dataclasses.replace(value.type, dtype=index.type.dtype)
        tiles[f"{side}_idx"] = type(index).from_array(wrong, ty, *index.region)
    reference(call._replace(tiles=tiles))


def zeros_in_operand_order(call):
    """A minimum by ``b < a ? b : a``, which does not know that -0 is below +0."""
    reference(call)
    dst, a, b = (call.tiles[name] for name in ("dst", "src0", "src1"))
    rows, cols = (min(t.type.rows for t in (dst, a, b)), min(t.type.cols for t in (dst, a, b)))
    x, y = a.data[:, :rows, :cols], b.data[:, :rows, :cols]
    both = (inside(a)[:, :rows, :cols]) & (inside(b)[:, :rows, :cols]) & (inside(dst)[:, :rows, :cols])
    with np.errstate(invalid="ignore"):
        zero = both & (x == 0) & (y == 0)
    view = dst.data[:, :rows, :cols]
    view[...] = np.where(zero, x, view)


def zeros_unsigned(x):
    return np.where(x == 0, np.zeros_like(x), x)


def flushed(x):
    tiny = np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(np.zeros_like(x), x), x)


def prelu(product):
    """TPRELU with ``product(x, slope)`` in place of the rounded product; a NaN is canonical as before."""

    def execute(call):
        reference(call)
        dst = call.tiles["dst"]
        rows, cols = dst.type.rows, dst.type.cols
        logical = (slice(None), slice(0, min(16, rows)), slice(0, min(16, cols)))
        x, slope = call.tiles["src0"].data[logical], call.tiles["src1"].data[logical]
        with np.errstate(all="ignore"):
            wrong = np.broadcast_to(product(x, slope), x.shape)
            wrong = np.where(np.isnan(wrong), canonical_nan(dst), wrong)
        dst.data[logical] = np.where(inside(dst)[logical] & ~(x > 0), wrong, dst.data[logical])

    return execute


def canonical_nan(tile):
    element = tile.type.element
    return np.array(element.canonical_nan, element.bits_dtype).view(element.numpy)


def rounded_twice(x, slope):
    """First to the significand of the type with an unbounded exponent, then to the type: wrong for subnormals."""
    digits = np.finfo(x.dtype).nmant + 1
    fraction, exponent = np.frexp(x.astype(np.float64) * slope.astype(np.float64))
    return np.ldexp(np.rint(np.ldexp(fraction, digits)), exponent - digits).astype(x.dtype)


def rounded_up_on_ties(x, slope):
    """A product that rounds halfway cases away from zero."""
    exact = x.astype(np.float64) * slope.astype(np.float64)
    near = exact.astype(x.dtype)
    away = np.nextafter(near, np.copysign(x.dtype.type(np.inf), near))
    halfway = (away.astype(np.float64) - exact == exact - near.astype(np.float64)) & (exact != near)
    return np.where(halfway, away, near)


def truncated(x, slope):
    """A product rounded towards zero."""
    exact = x.astype(np.float64) * slope.astype(np.float64)
    near = exact.astype(x.dtype)
    return np.where(np.abs(near) > np.abs(exact), np.nextafter(near, x.dtype.type(0)), near)


def canonical_negated(x):
    """Arithmetic on x86 makes a NaN with its sign bit set."""
    bits = x.view(f"u{x.itemsize}")
    sign, canonical = (0x80000000, 0x7FC00000) if x.itemsize == 4 else (0x8000, 0x7E00)
    return np.where(bits == canonical, bits | bits.dtype.type(sign), bits).view(x.dtype)


def payload_kept(call):
    """NaN for NaN: the first one among the operands, as it is."""
    reference(call)
    dst, a, b = (call.tiles[name] for name in ("dst", "src0", "src1"))
    rows, cols = (min(getattr(t.type, field) for t in (dst, a, b)) for field in ("rows", "cols"))
    window = (slice(None), slice(0, rows), slice(0, cols))
    x, y, both = a.data[window], b.data[window], inside(a)[window] & inside(b)[window] & inside(dst)[window]
    first = np.where(np.isnan(x), x, y)
    dst.data[window] = np.where(both & np.isnan(first), first, dst.data[window])


def nan_of_x86(call):
    """NaN as x86 multiplies: the first NaN operand made quiet, or the canonical one with its sign bit set."""
    reference(call)
    dst, a, b = (call.tiles[name] for name in ("dst", "src0", "src1"))
    rows, cols = (min(getattr(t.type, field) for t in (dst, a, b)) for field in ("rows", "cols"))
    window = (slice(None), slice(0, rows), slice(0, cols))
    x, y, out = a.data[window], b.data[window], dst.data[window]
    uint = f"u{x.itemsize}"
    quiet, negative = (0x400000, 0xFFC00000) if x.itemsize == 4 else (0x200, 0xFE00)
    made = np.where(np.isnan(x), x.view(uint) | quiet, np.where(np.isnan(y), y.view(uint) | quiet, negative))
    nan = np.isnan(out) & inside(dst)[window]
    dst.data[window] = np.where(nan, made.astype(uint).view(x.dtype), out)


def nan_not_multiplied(call):
    """``x < 0 ? x * slope : x``, which returns x if it is NaN."""
    reference(call)
    dst, a = call.tiles["dst"], call.tiles["src0"]
    window = (slice(None), slice(0, min(dst.type.rows, a.type.rows)), slice(0, min(dst.type.cols, a.type.cols)))
    x = a.data[window]
    dst.data[window] = np.where(np.isnan(x) & inside(dst)[window], x, dst.data[window])


def blocks(*names, up=True):
    """Valid columns rounded to whole 32-byte blocks."""

    def execute(call):
        tiles = dict(call.tiles)
        for name in names:
            tile = tiles[name]
            step, cols = 32 // tile.data.itemsize, np.broadcast_to(tile.region.cols, (tile.batch,))
            tiles[name] = tile.with_valid(tile.region.rows, (cols + (step - 1 if up else 0)) // step * step)
        reference(call._replace(tiles=tiles))

    return execute


def copied_in_blocks(call):
    """The source that covers dst is copied first, in whole blocks, and the minimum written over that."""
    dst = call.tiles["dst"]
    regions = {name: [np.broadcast_to(n, (dst.batch,)) for n in call.tiles[name].region] for name in call.tiles}
    step = 32 // dst.data.itemsize
    for t in range(dst.batch):
        rows, cols = (int(n[t]) for n in regions["dst"])
        covers = [(int(regions[s][0][t]), int(regions[s][1][t])) == (rows, cols) for s in ("src0", "src1")]
        covering = "src1" if covers == [False, True] else "src0"
        width = -(-cols // step) * step
        dst.data[t, :rows, :width] = call.tiles[covering].data[t, :rows, :width]
    reference(call)


def rows_packed(call):
    """dst written with its valid columns as row stride."""
    dst = call.tiles["dst"]
    right = type(dst).from_array(dst.data.copy(), dst.type, *dst.region)
    reference(call._replace(tiles={**call.tiles, "dst": right}))
    for t in range(dst.batch):
        rows, cols = dst.region.of_tile(t)
        flat = dst.data[t].reshape(-1)
        flat[: rows * cols] = right.data[t, :rows, :cols].reshape(-1)


def zeros_ordered(call):
    """TPARTARGMIN by an order in which -0 is less than +0."""
    reference(call)
    names = ("dst_val", "src0_val", "src1_val", "dst_idx", "src0_idx", "src1_idx")
    tiles = [call.tiles[name] for name in names]
    rows, cols = (min(getattr(t.type, field) for t in tiles) for field in ("rows", "cols"))
    window = (slice(None), slice(0, rows), slice(0, cols))
    dst_val, a, b, dst_idx, i, j = (t.data[window] for t in tiles)
    both = inside(tiles[0])[window] & inside(tiles[1])[window] & inside(tiles[2])[window]
    first = both & (a == 0) & (b == 0) & np.signbit(a) & ~np.signbit(b)
    second = both & (a == 0) & (b == 0) & np.signbit(b) & ~np.signbit(a)
    for dst, x, y in ((dst_val, a, b), (dst_idx, i, j)):
        dst[...] = np.where(first, x, np.where(second, y, dst))


def indices_exchanged(call):
    tiles = dict(call.tiles)
    a, b = tiles["src0_idx"], tiles["src1_idx"]
    rows, cols = min(a.type.rows, b.type.rows), min(a.type.cols, b.type.cols)
    for name, mine, other in (("src0_idx", a, b), ("src1_idx", b, a)):
        data = mine.data.copy()
        data[:, :rows, :cols] = other.data[:, :rows, :cols]
        tiles[name] = type(mine).from_array(data, mine.type, *mine.region)
    reference(call._replace(tiles=tiles))


def compared_as_signed(call):
    """An unsigned minimum computed with signed comparisons."""
    signed = {"u8": "i8", "u16": "i16", "u32": "i32"}

    def as_signed(tile):
        ty = dataclasses.replace(tile.type, dtype=signed[tile.type.dtype])
        return type(tile).from_array(tile.data.view(ty.element.numpy), ty, *tile.region)

    reference(call._replace(tiles={name: as_signed(t) for name, t in call.tiles.items()}))


def first_column_skipped(call):
    tiles = dict(call.tiles)
    src = tiles["src"]
    shifted = src.data.copy()
    wide = (np.broadcast_to(src.region.cols, (src.batch,)) > 1)[:, None]
    shifted[:, :, 0] = np.where(wide, shifted[:, :, 1], shifted[:, :, 0])
    tiles["src"] = type(src).from_array(shifted, src.type, *src.region)
    reference(call._replace(tiles=tiles))


def one_tile_in_a_thousand(call):
    """A fault that shows in one tile only: a race, a wrong remainder loop."""
    reference(call)
    dst = call.tiles["dst"]
    if call.batch > 500:
        dst.data[500, 0, 0] = 77
