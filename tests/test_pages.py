"""Every example of the four instruction pages, in the words of the page."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Backend

import pto_gpu as pto

N = 3


@pytest.fixture(params=["a2a3", "a5"])
def target(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(params=["auto", "manual"])
def tiles(request: pytest.FixtureRequest, target: str) -> object:
    """A maker of tiles: allocated, or bound to 0x1000, 0x2000, ... as on the page."""
    ub = pto.UnifiedBuffer(batch=N, target=target)
    addresses = iter(range(0x1000, 0x10000, 0x1000))

    def make(ty: pto.TileBufType, values: np.ndarray | None = None) -> pto.TileBuf:
        if request.param == "auto":
            tile = pto.TileBuf.zeros(ty, batch=N)
        else:
            tile = ub.tile(ty)
            pto.TASSIGN(tile, next(addresses))
        if values is not None:
            tile.numpy()[:] = values
        return tile

    return make


def _random(shift: int = 0) -> np.ndarray:
    return np.random.default_rng(shift).standard_normal((N, 16, 16)).astype(np.float32)


def test_tpartmin(tiles, target: str, host_backend: Backend) -> None:  # type: ignore[no-untyped-def]
    ty = pto.TileBufType("float", 16, 16)
    a, b = _random(0), _random(1)
    src0, src1, dst = tiles(ty, a), tiles(ty, b), tiles(ty)
    pto.TPARTMIN(dst, src0, src1, target=target, backend=host_backend.name)
    assert dst.numpy().tolist() == np.where(a < b, a, b).tolist()


def test_tpartargmin(tiles, target: str, host_backend: Backend) -> None:  # type: ignore[no-untyped-def]
    val, idx = pto.TileBufType("float", 16, 16), pto.TileBufType("int32_t", 16, 16)
    a, b = _random(0), _random(1)
    k = np.arange(N * 256, dtype=np.int32).reshape(N, 16, 16)
    src0_val, src1_val, dst_val = tiles(val, a), tiles(val, b), tiles(val)
    src0_idx, src1_idx, dst_idx = tiles(idx, k), tiles(idx, -k), tiles(idx)
    pair = pto.TPARTARGMIN(
        dst_val, src0_val, src1_val, dst_idx, src0_idx, src1_idx, target=target, backend=host_backend.name
    )
    assert pair == (dst_val, dst_idx)
    assert dst_val.numpy().tolist() == np.where(a < b, a, b).tolist()
    assert dst_idx.numpy().tolist() == np.where(a < b, k, -k).tolist()


def test_trowmin(tiles, target: str, host_backend: Backend) -> None:  # type: ignore[no-untyped-def]
    src_t, dst_t = pto.TileBufType("float", 16, 16), pto.TileBufType("float", 16, 1, blayout="col_major")
    a = _random()
    src, dst, tmp = tiles(src_t, a), tiles(dst_t), tiles(src_t)
    pto.TROWMIN(dst, src, tmp, target=target, backend=host_backend.name)
    assert dst.numpy()[:, :, 0].tolist() == [[min(row) for row in tile] for tile in a.tolist()]


def test_tprelu_on_a5(host_backend: Backend) -> None:
    """The page's tmp is a float tile, which a5 ignores."""
    ty = pto.TileBufType("float", 16, 16)
    a, b = _random(0), _random(1)
    x, slope, out, tmp = (pto.TileBuf.zeros(ty, N) for _ in range(4))
    x.numpy()[:], slope.numpy()[:] = a, b
    pto.TPRELU(out, x, slope, tmp, backend=host_backend.name)
    assert out.numpy().tolist() == np.where(a > 0, a, a * b).tolist()


def test_tprelu_on_a2a3_is_refused_as_its_tmp_is_no_u8(host_backend: Backend) -> None:
    ty = pto.TileBufType("float", 16, 16)
    x, slope, out, tmp = (pto.TileBuf.full(ty, -1.0, N) for _ in range(4))
    with pytest.raises(pto.TypeMismatch, match="TPRELU: tmp's element type must be u8 on a2a3: seen f32"):
        pto.TPRELU(out, x, slope, tmp, target="a2a3", backend=host_backend.name)
    assert (out.numpy() == -1.0).all()


def test_tprelu_on_a2a3_with_the_scratch_it_asks_for(host_backend: Backend) -> None:
    ty = pto.TileBufType("float", 16, 16)
    x, slope, out = (pto.TileBuf.full(ty, v, N) for v in (-2.0, 0.25, 9.0))
    tmp = pto.TileBuf.zeros(pto.TileBufType("uint8_t", 17, 32), N)
    pto.TPRELU(out, x, slope, tmp, target="a2a3", backend=host_backend.name)
    assert (out.numpy() == -0.5).all()
