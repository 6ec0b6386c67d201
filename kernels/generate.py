"""The random bits of a campaign, by the recipe of ``pto_gpu/campaign/tiles/generate.py``: any tile from its number.

The tiles of one storage plan come in runs of ``run``, with ``skip`` tiles of other plans between two runs. The first
run starts at tile ``first`` of the campaign, of which ``offset`` tiles are left out.
"""

import triton
import triton.language as tl
from pto_gpu.kernels.block import place, pointers, vectors_inside


@triton.jit
def number(local, first, offset, run, skip):
    """The number in the campaign of the tile at ``local`` of this batch."""
    position = offset + local
    return first + position + position // run * skip


@triton.jit
def drawn(c0, tile, c3, seed):
    """Four words for the counter (c0, tile low, tile high, c3): signed blocks as large as c0 and ``tile`` together."""
    low, high = (tile & 0xFFFFFFFF).to(tl.uint32), (tile >> 32).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(seed, c0.to(tl.uint32), low, high, c3.to(tl.uint32))
    return (
        w0.to(tl.int32, bitcast=True), w1.to(tl.int32, bitcast=True),
        w2.to(tl.int32, bitcast=True), w3.to(tl.int32, bitcast=True),
    )  # fmt: skip


@triton.jit(do_not_specialize=["batch", "first", "offset", "run", "skip", "seed", "c3"])
def words(
    out, batch, first: tl.int64, offset, run, skip, seed: tl.uint64, c3, BLOCKS: tl.constexpr, BT: tl.constexpr
):  # fmt: skip
    """``out`` int32[batch, BLOCKS, 4]: the words for c0 = 0 to BLOCKS - 1 of each tile."""
    tile0 = tl.program_id(0).to(tl.int64) * BT
    t = tl.arange(0, BT)[:, None]
    tile = number(tile0 + t, first, offset, run, skip)
    for block in tl.static_range(BLOCKS):
        w0, w1, w2, w3 = drawn(tl.full((1, 1), block, tl.uint32), tile, c3, seed)
        four = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
        p = out + tile0 * (BLOCKS * 4) + (t * (BLOCKS * 4) + block * 4 + tl.arange(0, 4)[None, :])
        tl.store(p, four, mask=tile0 + t < batch)


@triton.jit(do_not_specialize=[
    "batch", "first", "offset", "run", "skip", "seed", "operand", "nan_mask", "nan_flip",
    "out_b", "out_r", "partner_b", "partner_r",
])  # fmt: skip
def generate(
    out, partner, profiles, valid_cols, profile_of, force, masks, flips, keep, flip,
    batch, first: tl.int64, offset, run, skip, seed: tl.uint64, operand, nan_mask, nan_flip,
    out_b, out_r, partner_b, partner_r,
    SLOTS: tl.constexpr, BY_ROW: tl.constexpr, PARTNER: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    VEC: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One block of the logical shape of an operand, and the profile of each of its tiles or rows.

    ``SLOTS``: entries of ``profile_of``. ``BY_ROW``: rows have profiles of their own, and ``force`` says where a NaN
    comes ``FIRST`` or ``LAST``. ``PARTNER``: the operand is drawn like ``partner``. Columns are a multiple of VEC.
    """
    tile0, row0, col0, t, r, c = place(ROWS, COLS, BT, BR, BC)
    live = tile0 + t < batch
    rows, cols = ROWS - row0.to(tl.int32), COLS - col0.to(tl.int32)
    here = vectors_inside(r, c, rows, cols, live, VEC)
    tile = number(tile0 + t, first, offset, run, skip)

    pair = tl.arange(0, BC // 2)[None, None, :]
    w0, w1, w2, w3 = drawn((row0 + r) * (COLS // 2) + col0 // 2 + pair, tile, operand, seed)
    p, q = tl.interleave(w0, w2), tl.interleave(w1, w3)

    if BY_ROW:
        u0, u1, _, _ = drawn(row0 + r, tile, operand + 512, seed)
        once = live & (r < rows) & (r + col0 == r)  # no scalar: the interpreter makes a mask of one wrongly
        to = profiles + tile0 * ROWS + row0 + (t * ROWS + r)
    else:
        u0, u1, _, _ = drawn(tl.zeros((1, 1, 1), tl.uint32), tile, operand + 256, seed)
        once = live & (t + row0 + col0 == t)
        to = profiles + tile0 + t
    profile = tl.load(profile_of + (u0 & (SLOTS - 1)))
    tl.store(to, profile.to(tl.uint8), mask=once)

    category = profile * 256 + (p & 255)
    x = (q & tl.load(masks + category)) ^ tl.load(flips + category)
    if PARTNER:
        other = tl.load(pointers(partner, tile0, row0, col0, t, r, c, partner_b, partner_r, 1, VEC, WIDE), mask=here)
        relation = (p >> 8) & 255
        kept = tl.load(keep + relation)
        x = (x & ~kept) | ((other.to(tl.int32) ^ tl.load(flip + relation)) & kept)
    if BY_ROW:
        forced = tl.load(force + (u0 & 255))
        last = tl.load(valid_cols + tile0 + t, mask=live, other=0) - 1
        column = tl.where(forced == LAST, last, tl.where(forced == FIRST, 0, -1))
        x = tl.where(c + col0.to(tl.int32) == column, (u1 & nan_mask) ^ nan_flip, x)
    to_out = pointers(out, tile0, row0, col0, t, r, c, out_b, out_r, 1, VEC, WIDE)
    tl.store(to_out, x.to(out.dtype.element_ty), mask=here)
