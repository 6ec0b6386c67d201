"""Deliberately wrong implementations, each the reference with one fault, and what is to be said about them."""

import dataclasses

import numpy as np

from pto_gpu import backends
from pto_gpu.campaign import compare

VALUE, INDEX, NAN = compare.VALUE, compare.INDEX, compare.NAN
TIE, ZERO, OUTSIDE = compare.TIE, compare.SIGNED_ZERO, compare.OUTSIDE


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


def short(operand, what):
    return f"{operand}'s valid region taken one {what} short"


def long(operand, what):
    return f"{operand}'s valid region taken one {what} long"


DROPPED, SELECTED = "NaN dropped", "NaN and signed zeros by plain compare and select"
ALL, UNSIGNED = "dst's valid region taken as the whole tile", "-0 written as +0"
FLUSHED, SIGNED = "subnormal results flushed keeping their sign", "values compared with the wrong signedness"
IN_ORDER = "-0 and +0 taken as equal: the earlier one is kept"
STRIDE = "the row stride of each source's value tile used for its index tile"
TWICE, AWAY = "product rounded twice", "product rounded away from zero on ties"
#: name, mutant, a category that it is reported under, its cause.
MUTANTS = {
    "TPARTMIN f32": [
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE, short("dst", "row")),
        ("dst columns one short", regions({"dst": (0, -1)}), VALUE, short("dst", "column")),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE, long("dst", "row")),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE, long("dst", "column")),
        ("src0 rows one short", regions({"src0": (-1, 0)}), VALUE, short("src0", "row")),
        ("src0 columns one short", regions({"src0": (0, -1)}), VALUE, short("src0", "column")),
        ("src1 rows one long", regions({"src1": (1, 0)}), VALUE, long("src1", "row")),
        ("src1 columns one long", regions({"src1": (0, 1)}), VALUE, long("src1", "column")),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("NaN by compare and select", rules(nan="select"), NAN, SELECTED),
        ("NaN negated", after(lambda x: np.where(np.isnan(x), -x, x)), NAN, "the sign of every NaN turned over"),
        ("NaN payload kept", payload_kept, NAN, "a NaN result keeps the bits of the first NaN operand"),
        ("zeros in operand order", zeros_in_operand_order, ZERO, IN_ORDER),
        ("zeros unsigned", after(zeros_unsigned), ZERO, UNSIGNED),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
        (
            "whole blocks written",
            blocks("dst"),
            OUTSIDE,
            "dst's valid region taken up to the end of its last 32-byte block",
        ),
        (
            "whole blocks copied",
            copied_in_blocks,
            OUTSIDE,
            "dst's valid region, and that of the first source that covers it, "
            "taken up to the end of its last 32-byte block",
        ),
        (
            "last block left out",
            blocks("dst", up=False),
            VALUE,
            "dst's valid region taken without its last, partial 32-byte block",
        ),
        ("rows packed", rows_packed, VALUE, "the rows of dst packed to its valid columns"),
        ("one tile wrong", one_tile_in_a_thousand, VALUE, None),
    ],
    "TPARTMIN bf16": [
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("zeros in operand order", zeros_in_operand_order, ZERO, IN_ORDER),
    ],
    "TPARTMIN u8": [
        ("compared as signed", compared_as_signed, VALUE, SIGNED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
    ],
    "TPARTMIN u32": [("compared as signed", compared_as_signed, VALUE, SIGNED)],
    "TPARTARGMIN f32/i32": [
        ("tie flipped", rules(tie="src0"), TIE, "ties go to src0"),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("index from the value tile's stride", index_from_value_stride, INDEX, STRIDE),
        ("index rows one short", regions({"dst_idx": (-1, 0)}), INDEX, short("dst_idx", "row")),
        (  # the reference asks the value tile where a side is valid
            "src0 columns one short",
            regions({"src0_val": (0, -1), "src0_idx": (0, -1)}),
            INDEX,
            short("src0_val", "column"),
        ),
        ("indices exchanged", indices_exchanged, INDEX, "src0_idx and src1_idx exchanged"),
        (
            "whole tile written",
            whole_tile,
            OUTSIDE,
            "the valid regions of dst_val and dst_idx taken as the whole tile",
        ),
    ],
    "TPARTARGMIN f16/u16": [
        ("tie flipped", rules(tie="src0"), TIE, "ties go to src0"),
        ("index from the value tile's stride", index_from_value_stride, INDEX, STRIDE),
    ],
    "TROWMIN f32": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE, short("src", "column")),
        ("src columns one long", regions({"src": (0, 1)}), VALUE, long("src", "column")),
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE, short("dst", "row")),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE, long("dst", "row")),
        ("first column skipped", first_column_skipped, VALUE, "the first column of src left out"),
        (
            "last block left out",
            blocks("src", up=False),
            VALUE,
            "src's valid region taken without its last, partial 32-byte block",
        ),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("NaN of x86", after(canonical_negated), NAN, "the canonical NaN has its sign bit set"),
        ("zeros unsigned", after(zeros_unsigned), ZERO, UNSIGNED),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
        ("whole row written", whole_row, OUTSIDE, "the result of a row written to all columns of dst"),
    ],
    "TROWMIN i8": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE, short("src", "column")),
        ("src columns one long", regions({"src": (0, 1)}), VALUE, long("src", "column")),
    ],
    "TPRELU f32": [
        ("product rounded twice", prelu(rounded_twice), VALUE, TWICE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE, AWAY),
        ("product truncated", prelu(truncated), VALUE, "product rounded towards zero"),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("slope ignored", prelu(lambda x, slope: x), VALUE, "src1 ignored (taken as 1)"),
        (
            "slope of the tile's first element",
            prelu(lambda x, slope: x * slope[:, :1, :1]),
            VALUE,
            "src1: its first element read for all",
        ),
        (
            "max and min of parts",
            prelu(lambda x, slope: np.maximum(x, 0) + slope * np.minimum(x, 0)),
            ZERO,
            "computed as max(x, 0) + slope * min(x, 0)",
        ),
        ("zero kept", rules(zero="keep"), ZERO, "x = ±0 returned as it is"),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE, long("dst", "column")),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
    ],
    "TPRELU f16": [
        ("product rounded twice", prelu(rounded_twice), VALUE, TWICE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE, AWAY),
        ("product truncated", prelu(truncated), VALUE, "product rounded towards zero"),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("slope ignored", prelu(lambda x, slope: x), VALUE, "src1 ignored (taken as 1)"),
    ],
}
#: Mutants that are right about a batch of one.
ALONE = {"one tile wrong"}
#: The rule sets that mean the same to the instruction as what the mutant changed.
RULE_SETS = {
    ("TPARTMIN f32", "NaN dropped"): ("formal",),
    ("TPARTMIN f32", "NaN by compare and select"): ("simulator",),
    ("TPARTMIN bf16", "NaN dropped"): ("formal",),
    ("TPARTARGMIN f32/i32", "tie flipped"): ("a5", "a2a3"),
    ("TPARTARGMIN f32/i32", "NaN dropped"): ("formal",),
    ("TPARTARGMIN f16/u16", "tie flipped"): ("a5", "a2a3"),
    ("TROWMIN f32", "NaN dropped"): ("formal",),
    ("TPRELU f32", "zero kept"): ("a5",),
}
