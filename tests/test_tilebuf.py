"""Tiles on arrays of other libraries, without a copy."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import Backend
from rig import Case, Slab, assert_same, expected, per_tile, rules_of
from special_values import draw

import pto_gpu as pto
from pto_gpu.isa import instructions

NUMPY = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
}
TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "u16": torch.uint16,
    "i32": torch.int32,
    "u32": torch.uint32,
}
TY = pto.TileBufType("f32", 4, 8)


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_numpy_array_is_not_copied(dtype: str) -> None:
    x = np.zeros((3, 4, 32), NUMPY[dtype])
    tile = pto.TileBuf.from_array(x, pto.TileBufType(dtype, 4, 32))
    assert (tile.batch, tile.device) == (3, "cpu")
    x[2, 3, 31] = 5
    assert tile.numpy()[2, 3, 31] == 5
    tile.numpy()[0, 0, 0] = 7
    assert x[0, 0, 0] == 7
    assert tile.numpy().dtype == x.dtype


@pytest.mark.parametrize("dtype", list(TORCH))
def test_torch_tensor_is_not_copied(dtype: str) -> None:
    x = torch.zeros((3, 4, 32), dtype=TORCH[dtype])
    tile = pto.TileBuf.from_array(x, pto.TileBufType(dtype, 4, 32))
    assert (tile.batch, tile.device) == (3, "cpu")
    x[2, 3, 31] = 5
    assert tile.numpy()[2, 3, 31] == 5
    back = tile.torch()
    back[0, 0, 0] = 7
    assert x[0, 0, 0].item() == 7
    assert (back.dtype, tuple(back.shape), back.data_ptr()) == (TORCH[dtype], (3, 4, 32), x.data_ptr())
    assert tile.numpy().dtype == NUMPY[dtype]


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("blayout", ["row_major", "col_major"])
def test_allocated_tiles_to_torch_and_back(dtype: str, blayout: str) -> None:
    tile = pto.TileBuf.zeros(pto.TileBufType(dtype, 32, 32, blayout=blayout), batch=2)
    tile.torch()[1, 2, 3] = 9
    assert tile.numpy()[1, 2, 3] == 9
    assert np.count_nonzero(tile.numpy()) == 1


def test_result_lands_in_the_callers_array(host_backend: Backend) -> None:
    x = torch.full((2, 4, 8), 3.0)
    y = np.zeros((2, 4, 8), np.float32)
    src, dst = pto.TileBuf.from_array(x, TY), pto.TileBuf.from_array(y, TY, 2, 3)
    pto.TPARTMIN(dst, src.with_valid(2, 3), src.with_valid(2, 3), backend=host_backend.name)
    assert (y[:, :2, :3] == 3).all()
    assert np.count_nonzero(y) == 12


def test_two_dimensions_are_a_batch_of_one() -> None:
    x = np.zeros((4, 8), np.float32)
    tile = pto.TileBuf.from_array(x, TY)
    tile.numpy()[0, 3, 7] = 1
    assert tile.batch == 1
    assert x[3, 7] == 1


def test_tensor_that_requires_grad() -> None:
    x = torch.zeros((1, 4, 8), requires_grad=True)
    tile = pto.TileBuf.from_array(x, TY)
    tile.numpy()[:] = 2
    assert (x.detach() == 2).all()
    assert not tile.torch().requires_grad


def test_read_only_array_is_a_source_only(host_backend: Backend) -> None:
    x = np.ones((2, 4, 8), np.float32)
    x.flags.writeable = False
    source, other = pto.TileBuf.from_array(x, TY), pto.TileBuf.full(TY, 5.0, batch=2)
    assert (pto.tpartmin(source, other, backend=host_backend.name).numpy() == 1).all()
    with pytest.raises(pto.LayoutError, match="TPARTMIN: dst is read-only"):
        pto.TPARTMIN(source, other, other, backend=host_backend.name)
    with pytest.raises(pto.LayoutError, match="read-only"):
        source.torch()


def test_memory_mapped_file(tmp_path: Path, host_backend: Backend) -> None:
    path = tmp_path / "tiles.npy"
    np.save(path, np.full((2, 4, 8), 6, np.float32))
    tile = pto.TileBuf.from_array(np.load(path, mmap_mode="r"), TY)
    assert (pto.tpartmin(tile, tile, backend=host_backend.name).numpy() == 6).all()


STRIDED = {
    "every other tile": lambda b: b((4, 4, 8))[::2],
    "every other row": lambda b: b((2, 8, 8))[:, ::2],
    "every other column": lambda b: b((2, 4, 16))[:, :, ::2],
    "batch reversed": lambda b: b((2, 4, 8))[::-1],
    "rows reversed": lambda b: b((2, 4, 8))[:, ::-1],
    "columns reversed": lambda b: b((2, 4, 8))[:, :, ::-1],
    "transposed": lambda b: b((8, 4, 2)).transpose(2, 1, 0),
    "batch innermost": lambda b: np.moveaxis(b((4, 8, 2)), 2, 0),
    "row stride 17": lambda b: b((2, 4, 17))[:, :, 3:11],
}
EXPANDED = {
    "one tile for all": lambda b: np.broadcast_to(b((1, 4, 8)), (2, 4, 8)),
    "one row for all": lambda b: np.broadcast_to(b((2, 1, 8)), (2, 4, 8)),
    "one element for all": lambda b: np.broadcast_to(b((1, 1, 1)), (2, 4, 8)),
    "sliding window": lambda b: np.lib.stride_tricks.sliding_window_view(b((2, 11)), 8, axis=1),
}


def _filled(rng: np.random.Generator) -> Any:
    return lambda shape: draw(rng, "f32", shape).view(np.float32)


@pytest.mark.parametrize("make", [*STRIDED.values(), *EXPANDED.values()], ids=[*STRIDED, *EXPANDED])
@pytest.mark.parametrize("name", list(instructions()))
def test_strided_source(name: str, make: Any, host_backend: Backend, rng: np.random.Generator) -> None:
    """Used through its strides, or refused by name; the refusal changes nothing."""
    _strided_call(name, make, host_backend, rng, as_dst=False)


@pytest.mark.parametrize("make", STRIDED.values(), ids=list(STRIDED))
@pytest.mark.parametrize("name", list(instructions()))
def test_strided_destination(name: str, make: Any, host_backend: Backend, rng: np.random.Generator) -> None:
    _strided_call(name, make, host_backend, rng, as_dst=True)


def _strided_call(name: str, make: Any, host_backend: Backend, rng: np.random.Generator, *, as_dst: bool) -> None:
    record = instructions()[name]
    case = Case(record, next(s for s in record.element_types["a5"] if s[0] == "f32"))
    special = case.dsts[0] if as_dst else case.sources[0]
    types = {n: pto.TileBufType(case.dtype(n), 4, 8) for n in case.operands}
    arrays = {n: draw(rng, case.dtype(n), (2, 4, 8)).view(NUMPY[case.dtype(n)]) for n in types}
    arrays[special] = make(_filled(rng))
    regions = dict.fromkeys(types, (3, 7))
    if record.family == "row_reduce":
        regions["dst"] = (3, 1)
    bits = {n: np.ascontiguousarray(x).view(f"u{x.itemsize}") for n, x in arrays.items()}
    wanted = expected(case, bits, per_tile(regions, 2), rules_of("isa"))
    tiles = [pto.TileBuf.from_array(arrays[n], types[n], *regions[n]) for n in case.operands]
    refusal = None
    try:
        getattr(pto, name)(*tiles, backend=host_backend.name)
    except (pto.LayoutError, pto.BackendError) as error:
        refusal = str(error)
        wanted = {n: bits[n] for n in case.dsts}
    if refusal is not None:
        assert host_backend.name != "numpy"
        assert name in refusal
        assert special in refusal
    for n in case.dsts:
        assert_same(np.ascontiguousarray(arrays[n]), wanted[n], n)


@pytest.mark.parametrize("strides", [(0, 32, 4), (128, 0, 4), (0, 0, 0), (44, 4, 4), (128, 32, 0), (64, 32, 4)])
def test_expanded_destination_is_refused(strides: tuple[int, int, int], host_backend: Backend) -> None:
    x = np.ones(256, np.float32)
    src = pto.TileBuf.zeros(TY, batch=2)
    dst = pto.TileBuf.from_array(np.lib.stride_tricks.as_strided(x, (2, 4, 8), strides), TY)
    with pytest.raises(pto.LayoutError, match="TPARTMIN: elements of dst share memory"):
        pto.TPARTMIN(dst, src, src, backend=host_backend.name)
    assert (x == 1).all()


def test_strides_that_torch_cannot_have() -> None:
    tile = pto.TileBuf.from_array(np.zeros((2, 4, 8), np.float32)[::-1], TY)
    with pytest.raises(pto.LayoutError, match="negative strides"):
        tile.torch()


def test_strided_tensors_keep_their_memory() -> None:
    x = torch.zeros(2, 8, 4).transpose(1, 2)
    tile = pto.TileBuf.from_array(x, TY)
    tile.numpy()[1, 2, 3] = 4
    assert x[1, 2, 3] == 4
    assert tile.torch().stride() == x.stride()


@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        ([[0.0] * 8] * 4, pto.TypeMismatch, "NumPy, torch or CuPy array is needed: seen list"),
        (None, pto.TypeMismatch, "seen NoneType"),
        (1.0, pto.TypeMismatch, "seen float"),
        (np.float32(1), pto.TypeMismatch, "seen float32"),
        (np.zeros((1, 4, 8)), pto.TypeMismatch, "float64.*f32"),
        (np.zeros((1, 4, 8), np.int32), pto.TypeMismatch, "i32.*f32"),
        (np.zeros((1, 4, 8), ">f4"), pto.TypeMismatch, "byte-swapped.*f32"),
        (np.zeros((1, 4, 8), object), pto.TypeMismatch, "object.*f32"),
        (np.ma.zeros((1, 4, 8), np.float32), pto.TypeMismatch, "masked"),
        (torch.zeros(1, 4, 8, dtype=torch.float64), pto.TypeMismatch, "float64.*f32"),
        (torch.zeros(1, 4, 8, dtype=torch.int32), pto.TypeMismatch, "int32.*f32"),
        (np.zeros((1, 8, 4), np.float32), pto.LayoutError, r"\[1, 8, 4\].*\[batch, 4, 8\]"),
        (np.zeros(32, np.float32), pto.LayoutError, r"\[32\].*\[batch, 4, 8\]"),
        (np.zeros((), np.float32), pto.LayoutError, r"\[\].*\[batch, 4, 8\]"),
        (np.zeros((2, 1, 4, 8), np.float32), pto.LayoutError, r"\[2, 1, 4, 8\]"),
        (torch.zeros(4, 9), pto.LayoutError, r"\[4, 9\].*\[batch, 4, 8\]"),
        (torch.zeros(4, 8).to_sparse(), pto.LayoutError, "sparse"),
        (torch.zeros(1, 4, 8, device="meta"), pto.BackendError, "meta"),
        (np.zeros(129, np.uint8)[1:].view(np.float32).reshape(1, 4, 8), pto.LayoutError, "4-byte boundaries"),
    ],
)
def test_refused_arrays(x: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"TileBuf.from_array: .*{match}"):
        pto.TileBuf.from_array(x, TY)


@pytest.mark.parametrize("dtype", ["f16", "u16", "i16"])
def test_16_bit_types_are_not_mixed_up(dtype: str) -> None:
    with pytest.raises(pto.TypeMismatch, match="bf16"):
        pto.TileBuf.from_array(np.zeros((1, 16, 16), NUMPY[dtype]), pto.TileBufType("bf16", 16, 16))


def test_the_type_must_be_a_tile_type() -> None:
    with pytest.raises(pto.TypeMismatch, match="type must be a TileBufType: seen str"):
        pto.TileBuf.from_array(np.zeros((1, 4, 8), np.float32), "f32")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("blayout", ["row_major", "col_major"])
def test_allocation(dtype: str, blayout: str) -> None:
    ty = pto.TileBufType(dtype, 32, 64, 3, blayout=blayout)
    for tile, value in (
        (pto.TileBuf.zeros(ty, 2, valid_col=[1, 2]), 0),
        (pto.TileBuf.full(ty, 7, 2, valid_col=[1, 2]), 7),
        (pto.TileBuf.empty(ty, 2, valid_col=[1, 2]), None),
    ):
        assert (tile.type, tile.batch, tile.device, tile.valid_row) == (ty, 2, "cpu", 3)
        assert tile.valid_col.tolist() == [1, 2]
        assert (tile.numpy().shape, tile.numpy().dtype) == ((2, 32, 64), NUMPY[dtype])
        inner, outer = tile.numpy().strides[2 if blayout == "row_major" else 1], tile.numpy().itemsize
        assert inner == outer
        if value is not None:
            assert (tile.numpy() == value).all()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -0.0])
def test_full_with_special_values(value: float) -> None:
    for dtype in ("f16", "bf16", "f32"):
        seen = pto.TileBuf.full(pto.TileBufType(dtype, 1, 16), value).numpy().astype(np.float64)
        assert (np.signbit(seen) == np.signbit(value)).all()
        assert np.array_equal(seen, np.full((1, 1, 16), value), equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("i8", 128, pto.ConstraintError),
        ("u8", -1, pto.ConstraintError),
        ("u32", 1 << 32, pto.ConstraintError),
        ("i32", 1.5, pto.TypeMismatch),
        ("i32", float("nan"), pto.TypeMismatch),
        ("f32", "1", pto.TypeMismatch),
        ("f32", None, pto.TypeMismatch),
        ("f32", 1j, pto.TypeMismatch),
        ("f16", 1e6, pto.ConstraintError),
        pytest.param("f32", 10**400, pto.ConstraintError, id="f32-huge"),
    ],
)
def test_full_refuses_what_does_not_fit(dtype: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"TileBuf\.full: value"):
        pto.TileBuf.full(pto.TileBufType(dtype, 1, 32), value)


@pytest.mark.parametrize(
    ("batch", "error"),
    [(-1, pto.ConstraintError), (1.0, pto.TypeMismatch), (True, pto.TypeMismatch), (None, pto.TypeMismatch)],
)
def test_refused_batches(batch: Any, error: type[Exception]) -> None:
    for make in (pto.TileBuf.empty, pto.TileBuf.zeros):
        with pytest.raises(error, match="batch"):
            make(TY, batch)
    with pytest.raises(error, match="batch"):
        pto.UnifiedBuffer(batch)


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "meta", 3])
def test_refused_devices(device: Any) -> None:
    with pytest.raises(pto.BackendError, match="device"):
        pto.TileBuf.zeros(TY, device=device)


def test_torch_cpu_device_object() -> None:
    assert pto.TileBuf.zeros(TY, device=torch.device("cpu")).device == "cpu"


def test_cupy_needs_a_gpu() -> None:
    with pytest.raises(pto.BackendError, match="host memory"):
        pto.TileBuf.zeros(TY).cupy()


def test_repr_tells_the_tiles() -> None:
    tile = pto.TileBuf.zeros(TY, 3, valid_row=[1, 2, 3], valid_col=5)
    assert repr(tile) == "TileBuf(f32 4x8, batch=3, device=cpu, valid_row=per tile, valid_col=5)"


def test_slab_margins_are_poisoned() -> None:
    """The rig itself: what it calls untouched really lies around the tiles."""
    slab = Slab(TY, np.zeros((2, 4, 8), np.uint32))
    slab.tiles(4, 8).numpy()[:] = 1.0
    assert (slab.after() == 0x3F800000).sum() == 2 * 4 * 8
    assert (slab.after() == 0x5A5A5A5A).sum() == 2 * 5 * 24 - 2 * 4 * 8


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda tiles: pickle.loads(pickle.dumps(tiles))])
def test_a_copy_has_memory_of_its_own(duplicate: Any, host_backend: Backend) -> None:
    ty = pto.TileBufType("f32", 4, 8)
    a, d = pto.TileBuf.full(ty, 3, 2), pto.TileBuf.zeros(ty, 2)
    pto.TPARTMIN(d, a, a, backend=host_backend.name)
    other = duplicate(d)
    pto.TPARTMIN(other, *[pto.TileBuf.full(ty, 7, 2)] * 2, backend=host_backend.name)
    assert (d.numpy() == 3).all()
    assert (other.numpy() == 7).all()


def test_reshaping_the_callers_array_does_not_reach_the_tiles(host_backend: Backend) -> None:
    ty = pto.TileBufType("f32", 4, 8)
    x = np.zeros((3, 4, 8), np.float32)
    d, a = pto.TileBuf.from_array(x, ty), pto.TileBuf.full(ty, 5, 3)
    for array in (x, d.numpy()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of setting a shape in place
            array.shape = (1, 1, -1)
    pto.TPARTMIN(d, a, a, backend=host_backend.name)
    assert (x == 5).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1, 4, 8, dtype=torch.complex64).conj().imag,
        lambda: torch.zeros(1, 4, 8).to_sparse(),
        lambda: torch.zeros(1, 4, 8, device="meta"),
    ],
    ids=["lazy negative", "sparse", "meta"],
)
def test_tensors_without_memory_to_show_are_refused(make: Any) -> None:
    with pytest.raises(pto.PtoError, match=r"TileBuf\.from_array"):
        pto.TileBuf.from_array(make(), pto.TileBufType("f32", 4, 8))


@pytest.mark.parametrize(
    "rows",
    [
        np.ma.masked_array(np.ones(2, np.int32), [True, False]),
        torch.ones(2, dtype=torch.int32).to_sparse(),
        torch.ones(2, dtype=torch.int32, device="meta"),
        -(10**5000),
        10**5000,
    ],
    ids=["masked", "sparse", "meta", "very small", "very large"],
)
def test_odd_valid_counts_are_refused(rows: Any) -> None:
    with pytest.raises(pto.PtoError, match="valid_row"):
        pto.TileBuf.zeros(pto.TileBufType("f32", 4, 8), 2, valid_row=rows)


@pytest.mark.parametrize("batch", [2**60, 2**62, 10**5000], ids=["2**60", "2**62", "10**5000"])
def test_more_memory_than_there_can_be_is_refused(batch: int) -> None:
    with pytest.raises(pto.PtoError):
        pto.TileBuf.zeros(pto.TileBufType("f32", 4, 8), batch)


def test_intrinsics_are_pickled_by_name() -> None:
    for intrinsic in (pto.TPARTMIN, pto.tpartmin):
        assert pickle.loads(pickle.dumps(intrinsic)) is intrinsic
