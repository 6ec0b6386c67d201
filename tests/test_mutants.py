"""Deliberately wrong implementations: the default campaign reports every one, under the right category.

Each mutant is the reference with one fault. ``run_campaign`` gets it in place of a backend.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_gpu import backends
from pto_gpu.campaign import compare
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.isa import instructions

TILES = 4096  # four blocks of 16x16: two of each storage plan
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
    """TPRELU with ``product(x, slope)`` in place of the rounded product."""

    def execute(call):
        reference(call)
        dst = call.tiles["dst"]
        rows, cols = dst.type.rows, dst.type.cols
        logical = (slice(None), slice(0, min(16, rows)), slice(0, min(16, cols)))
        x, slope = call.tiles["src0"].data[logical], call.tiles["src1"].data[logical]
        right = dst.data[logical]
        with np.errstate(all="ignore"):
            wrong = product(x, slope)
        change = inside(dst)[logical] & ~(x > 0) & ~np.isnan(right) & ~np.isnan(wrong)
        dst.data[logical] = np.where(change, wrong, right)

    return execute


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


MUTANTS = {
    "TPARTMIN f32": [
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE),
        ("dst columns one short", regions({"dst": (0, -1)}), VALUE),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE),
        ("src0 rows one short", regions({"src0": (-1, 0)}), VALUE),
        ("src0 columns one short", regions({"src0": (0, -1)}), VALUE),
        ("src1 rows one long", regions({"src1": (1, 0)}), VALUE),
        ("src1 columns one long", regions({"src1": (0, 1)}), VALUE),
        ("NaN dropped", rules(nan="number"), NAN),
        ("NaN by compare and select", rules(nan="select"), NAN),
        ("NaN payload kept", after(lambda x: np.where(np.isnan(x), -x, x)), NAN),
        ("zeros in operand order", zeros_in_operand_order, ZERO),
        ("zeros unsigned", after(zeros_unsigned), ZERO),
        ("subnormals flushed", after(flushed), VALUE),
        ("whole tile written", whole_tile, OUTSIDE),
        ("one tile wrong", one_tile_in_a_thousand, VALUE),
    ],
    "TPARTMIN bf16": [
        ("NaN dropped", rules(nan="number"), NAN),
        ("zeros in operand order", zeros_in_operand_order, ZERO),
    ],
    "TPARTMIN u8": [("compared as signed", compared_as_signed, VALUE), ("whole tile written", whole_tile, OUTSIDE)],
    "TPARTMIN u32": [("compared as signed", compared_as_signed, VALUE)],
    "TPARTARGMIN f32/i32": [
        ("tie flipped", rules(tie="src0"), TIE),
        ("NaN dropped", rules(nan="number"), NAN),
        ("index from the value tile's stride", index_from_value_stride, INDEX),
        ("index rows one short", regions({"dst_idx": (-1, 0)}), INDEX),
        ("src0 columns one short", regions({"src0_val": (0, -1), "src0_idx": (0, -1)}), INDEX),
        ("whole tile written", whole_tile, OUTSIDE),
    ],
    "TPARTARGMIN f16/u16": [
        ("tie flipped", rules(tie="src0"), TIE),
        ("index from the value tile's stride", index_from_value_stride, INDEX),
    ],
    "TROWMIN f32": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE),
        ("src columns one long", regions({"src": (0, 1)}), VALUE),
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE),
        ("first column skipped", first_column_skipped, VALUE),
        ("NaN dropped", rules(nan="number"), NAN),
        ("zeros unsigned", after(zeros_unsigned), ZERO),
        ("subnormals flushed", after(flushed), VALUE),
        ("whole tile written", whole_tile, OUTSIDE),
        ("whole row written", whole_row, OUTSIDE),
    ],
    "TROWMIN i8": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE),
        ("src columns one long", regions({"src": (0, 1)}), VALUE),
    ],
    "TPRELU f32": [
        ("product rounded twice", prelu(rounded_twice), VALUE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE),
        ("subnormals flushed", after(flushed), VALUE),
        ("slope ignored", prelu(lambda x, slope: x), VALUE),
        ("slope of the tile's first element", prelu(lambda x, slope: x * slope[:, :1, :1]), VALUE),
        ("max and min of parts", prelu(lambda x, slope: np.maximum(x, 0) + slope * np.minimum(x, 0)), ZERO),
        ("zero kept", rules(zero="keep"), ZERO),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE),
        ("whole tile written", whole_tile, OUTSIDE),
    ],
    "TPRELU f16": [
        ("product rounded twice", prelu(rounded_twice), VALUE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE),
        ("subnormals flushed", after(flushed), VALUE),
        ("slope ignored", prelu(lambda x, slope: x), VALUE),
    ],
}
CASES = [
    pytest.param(*what.split(), execute, category, id=f"{what}: {name}")
    for what, mutants in MUTANTS.items()
    for name, execute, category in mutants
]


@pytest.mark.parametrize(("op", "dtypes", "execute", "category"), CASES)
def test_a_mutant_is_reported(op: str, dtypes: str, execute: Callable[[Any], None], category: str) -> None:
    found = []
    campaign = Campaign(op, tuple(dtypes.split("/")), tiles=TILES, workers=1)
    result = run_campaign(campaign, execute, progress=lambda done: found.append(done))
    assert result.crash is None
    assert not result.equal
    assert found[-1] == TILES
    assert result.first_failure is not None
    assert category in result.categories


@pytest.mark.parametrize(("op", "dtypes"), [(op, d) for op, r in instructions().items() for d in r.element_types["a5"]])
def test_the_reference_itself_is_not_reported(op: str, dtypes: tuple[str, ...]) -> None:
    assert run_campaign(Campaign(op, dtypes, tiles=1100), reference).equal
