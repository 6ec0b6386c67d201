"""What needs a GPU: interop with CuPy, streams, devices. Everything else runs there through the backend fixture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rig import assert_same

import pto_gpu as pto

pytestmark = pytest.mark.gpu


def test_cupy_arrays_in_and_out(rng: np.random.Generator) -> None:
    cupy = pytest.importorskip("cupy")
    for name in ("f32", "f16", "bf16", "i8", "u16"):
        ty = pto.TileBufType(name, 8, 32)
        bits = rng.integers(0, 1 << ty.element.bits, (2, 5, 8, 32)).astype(ty.element.bits_dtype)
        host = [pto.TileBuf.from_array(x.view(ty.element.numpy), ty) for x in bits]
        arrays = [cupy.asarray(x).view(ty.element.numpy) for x in bits]
        tiles = [pto.TileBuf.from_array(x, ty) for x in arrays]
        assert tiles[0].cupy().data.ptr == arrays[0].data.ptr
        seen = pto.tpartmin(*tiles).cupy()
        wanted = pto.tpartmin(*host, backend="numpy").numpy()
        assert_same(cupy.asnumpy(seen.view(ty.element.bits_dtype)), wanted.view(ty.element.bits_dtype), name)


def test_a_unified_buffer_in_cupys_pool() -> None:
    cupy = pytest.importorskip("cupy")
    before = cupy.get_default_memory_pool().used_bytes()
    ub = pto.UnifiedBuffer(100, device="cuda:0", allocator="cupy")
    tile = pto.TASSIGN(ub.tile(pto.TileBufType("f32", 16, 16)), 0x100)
    assert not tile.numpy().any()
    assert cupy.get_default_memory_pool().used_bytes() >= before + 100 * 1024


def test_a_side_stream_is_respected() -> None:
    """Operands made by a slow kernel on another stream, and the call on that stream too."""
    ty = pto.TileBufType("f32", 64, 64)
    a, b = (torch.zeros(2000, 64, 64, device="cuda") for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(3)
        b.fill_(2)
        result = pto.tpartmin(pto.TileBuf.from_array(a, ty), pto.TileBuf.from_array(b, ty))
    stream.synchronize()
    assert (result.torch() == 2).all()


def test_the_device_of_the_tiles_is_used() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    ty = pto.TileBufType("i32", 8, 8)
    tiles = [pto.TileBuf.full(ty, n, 3, "cuda:1") for n in (4, 5)]
    assert torch.cuda.current_device() == 0
    assert (pto.tpartmin(*tiles).numpy() == 4).all()
    assert torch.cuda.current_device() == 0


def test_host_and_gpu_tiles_do_not_mix() -> None:
    ty = pto.TileBufType("i32", 8, 8)
    with pytest.raises(pto.ConstraintError, match="src1 is on cpu: allowed cuda:0"):
        pto.TPARTMIN(*(pto.TileBuf.zeros(ty, 3, device) for device in ("cuda:0", "cuda:0", "cpu")))


def test_one_compilation_for_every_batch() -> None:
    from pto_gpu.kernels.partial import partial

    def compiled() -> int:
        return sum(len(entry[0]) for entry in partial.device_caches.values())

    ty = pto.TileBufType("f32", 24, 24)
    counts = []
    for batch in (1, 3, 16, 17):
        pto.tpartmin(*(pto.TileBuf.zeros(ty, batch, "cuda:0") for _ in range(2)))
        counts.append(compiled())
    assert counts == counts[:1] * 4
