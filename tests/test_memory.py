"""Manual mode: the Unified Buffer and TASSIGN."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from conftest import Backend

import pto_gpu as pto

TY = pto.TileBufType("f32", 16, 16)  # 1 KiB
KIB = 1024
UB_BYTES = {"a2a3": 192 * KIB, "a5": 256 * KIB}


def _bound(ub: pto.UnifiedBuffer, address: int, ty: pto.TileBufType = TY, **valid: Any) -> pto.TileBuf:
    return pto.TASSIGN(ub.tile(ty, **valid), address)


def test_tassign_returns_the_tile() -> None:
    tile = pto.UnifiedBuffer(2).tile(TY)
    assert tile.address is None
    assert pto.TASSIGN(tile, 0x1000) is tile
    assert tile.address == 0x1000
    assert pto.TASSIGN(tile, np.int64(0x20)).address == 0x20


def test_fresh_bytes_are_zero() -> None:
    assert not _bound(pto.UnifiedBuffer(3), 0x40).numpy().any()


@pytest.mark.parametrize(
    ("ty", "strides"),
    [
        (pto.TileBufType("f32", 4, 8), (32, 4)),
        (pto.TileBufType("f16", 4, 48), (96, 2)),
        (pto.TileBufType("i8", 32, 3, blayout="col_major"), (1, 32)),
        (pto.TileBufType("bf16", 16, 2, blayout="col_major"), (2, 32)),
    ],
    ids=str,
)
def test_bytes_of_a_tile(ty: pto.TileBufType, strides: tuple[int, int]) -> None:
    """Element (i, j) of every batch element lies at address + i * row stride + j * column stride."""
    ub = pto.UnifiedBuffer(2)
    tile = _bound(ub, 0x60, ty)
    raw = _bound(ub, 0x40, pto.TileBufType("u8", 1, 512))
    size = ty.element.itemsize
    tile.numpy().view(ty.element.bits_dtype)[1, 2, 1] = 0x5A5A5A5A % (1 << 8 * size)
    at = 0x20 + 2 * strides[0] + strides[1]
    seen = raw.numpy()
    assert np.flatnonzero(seen[1, 0]).tolist() == list(range(at, at + size))
    assert not seen[0].any()


def test_aliasing_is_real_aliasing() -> None:
    ub = pto.UnifiedBuffer(2)
    floats, words = _bound(ub, 0x1000), _bound(ub, 0x1000, pto.TileBufType("u32", 16, 16))
    floats.numpy()[1] = 1.0
    assert words.numpy().tolist() == [[[0] * 16] * 16, [[0x3F800000] * 16] * 16]
    words.numpy()[0, 0, 0] = 0x40000000
    assert floats.numpy()[0, 0, 0] == 2.0


def test_rebinding_keeps_the_bytes() -> None:
    tile = _bound(pto.UnifiedBuffer(2), 0)
    tile.numpy()[:] = 3.0
    pto.TASSIGN(tile, 0x1000)
    assert not tile.numpy().any()
    tile.numpy()[:] = 4.0
    pto.TASSIGN(tile, 0)
    assert (tile.numpy() == 3.0).all()
    pto.TASSIGN(tile, 0x1000)
    assert (tile.numpy() == 4.0).all()


def test_growing_and_merging_keep_the_content() -> None:
    ub = pto.UnifiedBuffer(2)
    left, right = _bound(ub, 0), _bound(ub, 0x600)
    left.numpy()[:] = np.arange(512, dtype=np.float32).reshape(2, 16, 16)
    right.numpy()[:] = np.arange(1000, 1512, dtype=np.float32).reshape(2, 16, 16)
    assert ub.nbytes == 2 * 2 * KIB
    bridge = _bound(ub, 0x200)  # second half of left, then 512 fresh bytes
    assert ub.nbytes == 2 * (0x600 + KIB)
    assert bridge.numpy()[:, :8].tolist() == left.numpy()[:, 8:].tolist()
    assert not bridge.numpy()[:, 8:].any()
    wide = _bound(ub, 0, pto.TileBufType("f32", 16, 64))
    assert wide.numpy().reshape(2, -1)[:, :256].tolist() == np.arange(512.0).reshape(2, 256).tolist()
    assert wide.numpy().reshape(2, -1)[:, 384:640].tolist() == np.arange(1000.0, 1512).reshape(2, 256).tolist()
    assert ub.nbytes == 2 * 4 * KIB
    right.numpy()[1, 0, 0] = -1.0  # a tile bound before the merge still aliases
    assert wide.numpy().reshape(2, -1)[1, 384] == -1.0


def test_memory_is_taken_for_addresses_in_use_only() -> None:
    """200 000 Unified Buffers of 192 KiB would be 39 GB."""
    ub = pto.UnifiedBuffer(200_000, target="a2a3")
    assert ub.nbytes == 0
    small = pto.TileBufType("f32", 1, 8)
    low, high = _bound(ub, 0, small), _bound(ub, 192 * KIB - 32, small)
    low.numpy()[:] = 1.0
    assert ub.nbytes == 200_000 * 64
    assert not high.numpy().any()


@pytest.mark.parametrize("target", list(UB_BYTES))
def test_a_tile_ends_within_the_unified_buffer(target: str) -> None:
    ub, last = pto.UnifiedBuffer(1, target=target), UB_BYTES[target] - KIB
    assert _bound(ub, last).numpy().shape == (1, 16, 16)
    tile = ub.tile(TY)
    for address in (last + 32, UB_BYTES[target], 1 << 40):
        with pytest.raises(pto.AddressError, match=f"TASSIGN: address=0x{address:x}.*{target} ends at 0x"):
            pto.TASSIGN(tile, address)
    whole = pto.TileBufType("u8", 1, UB_BYTES[target])
    assert _bound(ub, 0, whole).type.nbytes == UB_BYTES[target]
    with pytest.raises(pto.AddressError, match=target):
        _bound(ub, 0, pto.TileBufType("u8", 1, UB_BYTES[target] + 32))


def test_capacity_counts_not_the_valid_region() -> None:
    tile = pto.UnifiedBuffer(1).tile(TY, valid_row=1, valid_col=1)
    with pytest.raises(pto.AddressError, match="1024 bytes of a f32 16x16"):
        pto.TASSIGN(tile, 256 * KIB - 512)


@pytest.mark.parametrize(
    ("address", "error", "match"),
    [
        (-32, pto.AddressError, "address=-32.*negative"),
        (1, pto.AddressError, "address=0x1 is not aligned.*32"),
        (0x1010, pto.AddressError, "address=0x1010 is not aligned.*32"),
        (32.0, pto.TypeMismatch, "address must be an integer.*32.0"),
        (float("nan"), pto.TypeMismatch, "address must be an integer"),
        (True, pto.TypeMismatch, "address must be an integer"),
        ("0x1000", pto.TypeMismatch, "address must be an integer"),
        (None, pto.TypeMismatch, "address must be an integer"),
    ],
)
def test_refused_addresses_leave_the_binding(address: Any, error: type[Exception], match: str) -> None:
    tile = _bound(pto.UnifiedBuffer(1), 0x40)
    with pytest.raises(error, match=f"TASSIGN: {match}"):
        pto.TASSIGN(tile, address)
    assert tile.address == 0x40


def test_tassign_needs_a_declared_tile() -> None:
    with pytest.raises(pto.AddressError, match="TASSIGN: tile is not declared in a UnifiedBuffer"):
        pto.TASSIGN(pto.TileBuf.zeros(TY), 0)
    with pytest.raises(pto.TypeMismatch, match="TASSIGN: tile must be a TileBuf: seen ndarray"):
        pto.TASSIGN(np.zeros((16, 16), np.float32), 0)  # type: ignore[arg-type]


def test_unknown_target() -> None:
    with pytest.raises(pto.ConstraintError, match="a6"):
        pto.UnifiedBuffer(1, target="a6")


def test_unbound_tile(host_backend: Backend) -> None:
    ub = pto.UnifiedBuffer(2)
    dst, src = _bound(ub, 0), ub.tile(TY)
    dst.numpy()[:] = 5
    with pytest.raises(pto.AddressError, match="TPARTMIN: src1 has no address: bind it with TASSIGN"):
        pto.TPARTMIN(dst, dst, src, backend=host_backend.name)
    with pytest.raises(pto.AddressError, match="no address"):
        src.numpy()
    assert (dst.numpy() == 5).all()


def test_memory_shown_by_an_array_does_not_move() -> None:
    """A view handed out stays true: growth that would move it is refused."""
    ub = pto.UnifiedBuffer(2)
    tile = _bound(ub, 0)
    part = tile.numpy()[1, 2]
    with pytest.raises(pto.AddressError, match=r"drop that array"):
        _bound(ub, 0x200)
    part[:] = 6
    assert (tile.numpy()[1, 2] == 6).all()
    far = _bound(ub, 0x400)  # touches no shown byte
    inside = _bound(ub, 0x20, pto.TileBufType("f32", 4, 8))  # lies within what is there
    assert (inside.numpy()[1, 3] == 6).any()
    assert not far.numpy().any()
    del part
    grown = _bound(ub, 0x200)
    assert grown.address == 0x200
    assert (tile.numpy()[1, 2] == 6).all()


def test_torch_view_of_a_bound_tile() -> None:
    ub = pto.UnifiedBuffer(2)
    tile = _bound(ub, 0)
    tensor = tile.torch()
    tensor[1] = 2
    assert (tile.numpy()[1] == 2).all()
    with pytest.raises(pto.AddressError, match="drop that array"):
        _bound(ub, 0x200)


def test_empty_batch(host_backend: Backend) -> None:
    ub = pto.UnifiedBuffer(0)
    dst, src = _bound(ub, 0), _bound(ub, 0x1000)
    assert pto.TPARTMIN(dst, src, src, backend=host_backend.name) is dst
    assert dst.numpy().shape == (0, 16, 16)
    assert tuple(dst.torch().shape) == (0, 16, 16)
    assert ub.nbytes == 0


def test_with_valid_keeps_the_address() -> None:
    tile = _bound(pto.UnifiedBuffer(2), 0x40)
    part = tile.with_valid([1, 2], 3)
    assert part.address == 0x40
    part.numpy()[:] = 1
    assert (tile.numpy() == 1).all()


def test_instruction_on_bound_tiles(host_backend: Backend, rng: np.random.Generator) -> None:
    """Every byte of the Unified Buffer outside dst's valid region stays."""
    ub = pto.UnifiedBuffer(3)
    raw = _bound(ub, 0, pto.TileBufType("u8", 1, 4 * KIB))
    raw.numpy()[:] = rng.integers(0, 256, (3, 1, 4 * KIB), dtype=np.uint8)
    src0, src1 = _bound(ub, 0x40), _bound(ub, 0x800)
    dst = _bound(ub, 0xC00, valid_row=[16, 2, 0], valid_col=5)
    for tile in (src0, src1):
        tile.numpy()[:] = rng.standard_normal((3, 16, 16)).astype(np.float32)
    before = raw.numpy().copy()
    src0, src1 = (tile.with_valid([16, 2, 0], 5) for tile in (src0, src1))
    wanted = np.minimum(src0.numpy(), src1.numpy())
    pto.TPARTMIN(dst, src0, src1, backend=host_backend.name)
    inside = np.zeros((3, 16, 16), bool)
    for t, rows in enumerate((16, 2, 0)):
        inside[t, :rows, :5] = True
    assert (dst.numpy()[inside] == wanted[inside]).all()
    changed = raw.numpy() != before
    assert not changed[:, 0, :0xC00].any()
    assert not changed[:, 0, 0xC00:].reshape(3, 16, 16, 4)[~inside].any()


@pytest.mark.parametrize("which", [0, 1])
def test_exact_alias_of_destination_and_source(which: int, host_backend: Backend, rng: np.random.Generator) -> None:
    ub = pto.UnifiedBuffer(4)
    src = [_bound(ub, 0), _bound(ub, 0x400)]
    dst = _bound(ub, (0, 0x400)[which])
    for tile in src:
        tile.numpy()[:] = rng.standard_normal((4, 16, 16)).astype(np.float32)
    wanted = np.minimum(src[0].numpy(), src[1].numpy())
    pto.TPARTMIN(dst, *src, backend=host_backend.name)
    assert (src[which].numpy() == wanted).all()


@pytest.mark.parametrize("offset", [-0x3E0, -32, 32, 0x3E0])
@pytest.mark.parametrize("operand", ["src0", "src1"])
def test_partial_overlap_is_refused_by_name(operand: str, offset: int, host_backend: Backend) -> None:
    ub = pto.UnifiedBuffer(2)
    tiles = {"dst": 0x1000, "src0": 0x3000, "src1": 0x5000, operand: 0x1000 + offset}
    bound = {name: _bound(ub, address) for name, address in tiles.items()}
    bound["src0"].numpy()[:] = 1.0
    with pytest.raises(pto.AddressError, match=rf"TPARTMIN: dst \(bytes 0x1000 to 0x1400\) overlaps {operand} \(bytes"):
        pto.TPARTMIN(**bound, backend=host_backend.name)
    assert (bound["src0"].numpy() == 1.0).all()


def test_same_address_with_another_shape_is_partial_overlap(host_backend: Backend) -> None:
    ub = pto.UnifiedBuffer(2)
    dst, src = _bound(ub, 0), _bound(ub, 0, pto.TileBufType("f32", 8, 32), valid_row=8, valid_col=16)
    dst = dst.with_valid(8, 16)
    with pytest.raises(pto.AddressError, match=r"dst .* overlaps src0"):
        pto.TPARTMIN(dst, src, src, backend=host_backend.name)


def test_sources_may_overlap(host_backend: Backend) -> None:
    ub = pto.UnifiedBuffer(1)
    src0, src1, dst = _bound(ub, 0), _bound(ub, 0x40), _bound(ub, 0x1000)
    src0.numpy()[:] = 2.0
    pto.TPARTMIN(dst, src0, src1, backend=host_backend.name)
    assert dst.numpy()[0].tolist() == [[2.0] * 16] * 15 + [[0.0] * 16]  # src1's last row is fresh


_PRELU = {"dst": 0, "src0": 0x1000, "src1": 0x2000, "tmp": 0x3000}


def _prelu(ub: pto.UnifiedBuffer, **moved: int) -> dict[str, pto.TileBuf]:
    mask = pto.TileBufType("u8", 17, 32)
    return {name: _bound(ub, at, mask if name == "tmp" else TY) for name, at in {**_PRELU, **moved}.items()}


@pytest.mark.parametrize(
    ("a", "b"), [("dst", "src0"), ("dst", "src1"), ("src0", "src1"), ("dst", "tmp"), ("src0", "tmp"), ("src1", "tmp")]
)
@pytest.mark.parametrize("offset", [0, 0x20])
def test_tprelu_in_manual_mode_on_a2a3_wants_every_operand_apart(
    a: str, b: str, offset: int, host_backend: Backend
) -> None:
    tiles = _prelu(pto.UnifiedBuffer(2, target="a2a3"), **{b: _PRELU[a] + offset})
    with pytest.raises(pto.AddressError, match=rf"TPRELU: {a} .*overlaps {b} "):
        pto.TPRELU(**tiles, target="a2a3", backend=host_backend.name)


def test_tprelu_apart_in_manual_mode(host_backend: Backend) -> None:
    for target in UB_BYTES:
        tiles = _prelu(pto.UnifiedBuffer(2, target=target))
        tiles["src0"].numpy()[:] = -3.0
        tiles["src1"].numpy()[:] = 0.5
        pto.TPRELU(**tiles, target=target, backend=host_backend.name)
        assert (tiles["dst"].numpy() == -1.5).all()


@pytest.mark.parametrize("name", ["src0", "src1", "tmp"])
def test_tprelu_on_a5_may_alias(name: str, host_backend: Backend) -> None:
    tiles = _prelu(pto.UnifiedBuffer(2), **{name: 0})
    pto.TASSIGN(tiles["src1"], tiles["src1"].address)
    tiles["src0"].numpy()[:] = -3.0
    tiles["src1"].numpy()[:] = -3.0
    pto.TPRELU(**tiles, backend=host_backend.name)
    assert (tiles["dst"].numpy() == 9.0).all()


def test_tprelu_on_a2a3_may_alias_outside_manual_mode(host_backend: Backend) -> None:
    """The page forbids overlap in manual mode only."""
    x, slope = pto.TileBuf.full(TY, -2.0), pto.TileBuf.full(TY, 4.0)
    pto.TPRELU(x, x, slope, target="a2a3", backend=host_backend.name)
    assert (x.numpy() == -8.0).all()


def test_a_call_for_a2a3_stays_within_its_smaller_memory(host_backend: Backend) -> None:
    """A Unified Buffer of a5 reaches further than that of a2a3."""
    ub = pto.UnifiedBuffer(2, target="a5")
    dst, src = _bound(ub, 192 * KIB), _bound(ub, 0)
    with pytest.raises(pto.AddressError, match=r"TPARTMIN: dst .*outside the Unified Buffer of a2a3: .*0x30000"):
        pto.TPARTMIN(dst, src, src, target="a2a3", backend=host_backend.name)
    pto.TPARTMIN(dst, src, src, target="a5", backend=host_backend.name)
    pto.TASSIGN(dst, 191 * KIB)
    pto.TPARTMIN(dst, src, src, target="a2a3", backend=host_backend.name)


def test_tiles_of_one_buffer_used_first_by_several_threads() -> None:
    ty = pto.TileBufType("i32", 4, 8)
    for _ in range(40):
        ub = pto.UnifiedBuffer(batch=2)
        tiles = [ub.tile(ty) for _ in range(9)]
        for k, tile in enumerate(tiles):
            pto.TASSIGN(tile, 128 * k)
        source = pto.TileBuf.full(ty, 6, 2)
        barrier = threading.Barrier(8)

        def write(tile: pto.TileBuf, source: pto.TileBuf = source, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            pto.TPARTMIN(tile, source, source)

        threads = [threading.Thread(target=write, args=(tile,)) for tile in tiles[:8]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [int(tile.numpy().min()) for tile in tiles] == [6] * 8 + [0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_unified_buffers_and_their_tiles_are_not_copied(duplicate: Any) -> None:
    ub = pto.UnifiedBuffer()
    for thing in (ub, pto.TASSIGN(ub.tile(pto.TileBufType("i32", 4, 8)), 0)):
        with pytest.raises(pto.TypeMismatch, match="cannot be copied or pickled"):
            duplicate(thing)
