"""Operands: the documented recipe bit for bit, independence of batch and split, and what occurs in them."""

import zlib
from typing import Any

import numpy as np
import pytest
from philox import philox4x32

from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.categories import tables
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.campaign.tiles.storage import bits, block_tiles, plan_of
from pto_gpu.isa import instructions

SEED = 0x1234_5678_9ABC_DEF0


def philox(c0, tile, c3, seed=SEED):
    counter = np.array([c0, tile & 0xFFFFFFFF, tile >> 32, c3], np.uint32)
    return philox4x32(counter, np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)).tolist()


def by_recipe(table, operand, tile, shape, width, partner, valid_cols):
    """The module docstring of generate.py, in plain Python."""
    rows, cols = shape
    out = np.zeros(shape, np.uint64)
    ones = (1 << width) - 1
    tile_profile = int(table.profile_of[philox(0, tile, operand + 256)[0] & 15])
    for i in range(rows):
        profile, force, nan = tile_profile, 0, 0
        if table.by_row:
            w = philox(i, tile, operand + 512)
            profile, force = int(table.row_profile[w[0] & 255]), int(table.row_force[w[0] & 255])
            nan = (w[1] & table.nan[0]) ^ table.nan[1]
        for j in range(cols):
            e = i * cols + j
            w = philox(e // 2, tile, operand)
            p, q = w[2 * (e % 2) : 2 * (e % 2) + 2]
            c, r = p & 255, (p >> 8) & 255
            own = (q & int(table.masks[profile, c])) ^ int(table.flips[profile, c])
            keep, flip = int(table.keep[r]), int(table.flip[r])
            other = int(partner[i, j]) if partner is not None else 0
            out[i, j] = ((own & ~keep) | ((other ^ flip) & keep)) & ones
        if force:
            out[i, 0 if force == 1 else valid_cols - 1] = nan
    return out


@pytest.mark.parametrize(
    ("op", "dtypes", "tile"),
    [
        ("TPARTMIN", ("f32",), 5),
        ("TPARTMIN", ("bf16",), 1024),  # the first padded tile
        ("TPARTMIN", ("i8",), 3),
        ("TPARTARGMIN", ("f16", "u16"), 2**32 + 1024 * 3 + 7),
        ("TROWMIN", ("f16",), 1030),
        ("TROWMIN", ("i32",), 9),
        ("TPRELU", ("f32",), 77),
    ],
)
def test_elements_follow_the_recipe(op: str, dtypes: tuple[str, ...], tile: int) -> None:
    campaign = Campaign(op, dtypes, seed=SEED)
    drawn = draw(campaign, tile, 1)
    rows, cols = campaign.grid
    for slot in drawn.slots:
        how = campaign.record.draws.get(slot.operand.name)
        if how is None:
            continue
        data = bits(drawn.sources[slot.operand.name].data)[0]
        table = tables(slot.logical.dtype, how.pattern, how.like is not None)
        partner = bits(drawn.sources[how.like].data)[0] if how.like else None
        valid_cols = drawn.sources[slot.operand.name].region.of_tile(0)[1]
        width = slot.logical.element.bits
        expected = by_recipe(table, slot.place, tile, campaign.grid, width, partner, valid_cols)
        assert data[:rows, :cols].tolist() == expected.tolist()
        around = np.ones(data.shape, bool)
        around[:rows, :cols] = False
        assert set(data[around].view(np.uint8).tolist()) <= {0xFB}


@pytest.mark.parametrize("op", sorted(instructions()))
def test_a_tile_does_not_depend_on_batch_or_split(op: str) -> None:
    dtypes = instructions()[op].element_types["a5"][0]
    campaign = Campaign(op, dtypes, seed=3)
    whole = draw(campaign, 1024, 64)
    for tile in (1024, 1025, 1087):
        one = draw(campaign, tile, 1)
        for name, tiles in one.sources.items():
            assert bits(tiles.data)[0].tolist() == bits(whole.sources[name].data)[tile - 1024].tolist()
        for name, region in one.regions.items():
            assert region.of_tile(0) == whole.regions[name].of_tile(tile - 1024)


GOLDEN = {"TPARTARGMIN": "14c73991", "TPRELU": "4d068775", "TROWMIN": "867c0996"}


def uniformed(region):
    rows, cols = (np.broadcast_to(n, (16,)) for n in region)
    return type(region)(rows, cols)


def test_drawn_bits_are_the_same_in_every_release() -> None:
    """A change here makes every published seed mean something else."""
    seen = {}
    for op, dtypes in (("TPARTARGMIN", ("f32", "i32")), ("TROWMIN", ("i8",)), ("TPRELU", ("f16",))):
        drawn = draw(Campaign(op, dtypes, seed=1), 0, 16)
        parts = [bits(t.data).astype("<u4").tobytes() for t in drawn.sources.values()]
        parts += [
            np.stack(r, axis=-1).astype("<i4").tobytes() if not r.uniform else b""
            for r in map(uniformed, drawn.regions.values())
        ]
        seen[op] = f"{zlib.crc32(b''.join(parts)):08x}"
    assert seen == GOLDEN


def test_seed_and_operand_change_the_elements() -> None:
    a, b = (draw(Campaign("TPARTMIN", ("i32",), seed=s), 0, 8) for s in (1, 2))
    assert (a.sources["src0"].data != b.sources["src0"].data).mean() > 0.5
    assert (a.sources["src0"].data != a.sources["src1"].data).mean() > 0.5


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_special_values_occur_and_most_tiles_have_no_nan(dtype: str) -> None:
    drawn = draw(Campaign("TPARTMIN", (dtype,), seed=11), 0, 1024)
    element = drawn.slots[0].logical.element
    a, b = (bits(drawn.sources[name].data).astype(np.int64) for name in ("src0", "src1"))
    sign = 1 << (element.bits - 1)
    fraction = {"f16": 10, "bf16": 7, "f32": 23}[dtype]
    exponent = sign - (1 << fraction)
    one = ((1 << (element.bits - fraction - 2)) - 1) << fraction
    quiet = 1 << (fraction - 1)
    for side in (0, sign):
        for value in (0, one, one + 1, one - 1, exponent - 1, exponent):
            assert (a == side | value).any(), hex(side | value)
        size = a & ~sign
        this_sign = (a & sign) == side
        assert (this_sign & (size > 0) & (size < 1 << fraction)).any()
        assert len(np.unique(a[this_sign & (size > exponent + quiet)])) > 50  # quiet NaN payloads
        assert len(np.unique(a[this_sign & (size > exponent) & (size < exponent + quiet)])) > 30
    nan = (a & ~sign) > exponent
    assert 0.1 < nan.any(axis=(1, 2)).mean() < 0.3
    finite_pairs = ~nan & ((b & ~sign) <= exponent)
    assert ((a == b) & finite_pairs).mean() > 0.15
    assert (((a ^ b) == sign) & ((a & ~sign) == 0)).sum() > 500


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32"])
def test_integer_extremes_and_ties_occur(dtype: str) -> None:
    drawn = draw(Campaign("TPARTMIN", (dtype,), seed=11), 0, 256)
    a, b = drawn.sources["src0"].data, drawn.sources["src1"].data
    info = np.iinfo(a.dtype)
    for value in (info.min, info.max, 0, 1):
        assert (a == value).sum() > 50
    assert (a == b).mean() > 0.15


@pytest.mark.parametrize(("dtype", "wide", "exponent"), [("f16", np.float32, -14), ("f32", np.float64, -126)])
def test_products_of_tprelu_hit_rounding_ties_and_subnormals(
    dtype: str, wide: type[np.floating[Any]], exponent: int
) -> None:
    drawn = draw(Campaign("TPRELU", (dtype,), seed=5), 0, 1024)
    x, slope = (drawn.sources[name].data for name in ("src0", "src1"))
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) * slope.astype(np.float64)
        rounded = exact.astype(x.dtype)
        up, down = np.nextafter(rounded, x.dtype.type(np.inf)), np.nextafter(rounded, x.dtype.type(-np.inf))
        other = np.where(exact > rounded, up, down).astype(np.float64)
        halfway = (exact != rounded) & np.isfinite(other) & (exact - rounded == other - exact)
    negative = x < 0
    small = (np.abs(exact) > 0) & (np.abs(exact) < 2.0**exponent)
    assert (halfway & negative).sum() > 300
    assert (small & negative).sum() > 1000
    for special in (slope < 0, np.isinf(slope), np.isnan(slope), (slope == 0) & np.signbit(slope), slope == 0):
        assert (special & negative).sum() > 100


def test_rows_of_trowmin_hold_repeated_minima_and_nan_at_both_ends() -> None:
    drawn = draw(Campaign("TROWMIN", ("f32",), seed=5), 0, 1024)
    x = drawn.sources["src"].data
    cols = np.asarray(drawn.regions["src"].cols)
    nan = np.isnan(x)
    inside = np.arange(16) < cols[:, None, None]
    only = (nan & inside).sum(axis=2) == 1
    wide = (cols > 2)[:, None]
    last = np.take_along_axis(nan, np.broadcast_to(cols[:, None, None] - 1, (1024, 16, 1)), axis=2)[..., 0]
    assert (only & wide & nan[:, :, 0]).sum() > 200
    assert (only & wide & last).sum() > 200
    assert ((nan | ~inside).all(axis=2) & wide).sum() > 200
    clean = ~(nan & inside).any(axis=2)
    least = np.where(inside, x, np.inf).min(axis=2, keepdims=True)
    assert (clean & (((x == least) & inside).sum(axis=2) > 1)).sum() > 1000


def test_storage_plans_alternate_and_give_every_operand_its_own_row_stride() -> None:
    shape = (16, 16)
    step = block_tiles(shape)
    assert [plan_of(t, shape) for t in (0, step - 1, step, 2 * step)] == ["packed", "packed", "padded", "packed"]
    drawn = draw(Campaign("TPARTARGMIN", ("f32", "i32")), step, 2)
    strides = [s.storage.cols for s in drawn.slots]
    assert len(set(strides)) == len(strides)
