"""Problems that others reported about systems like this one; the number is that of the list of known traps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import Backend
from rig import Slab, as_bits
from special_values import uint

import pto_gpu as pto

#: dtype: (canonical NaN, quiet NaN with payload and sign, signalling NaN, 1.0, infinity)
WORDS = {
    "f16": (0x7E00, 0xFE05, 0x7D01, 0x3C00, 0x7C00),
    "bf16": (0x7FC0, 0xFFC5, 0x7F81, 0x3F80, 0x7F80),
    "f32": (0x7FC00000, 0xFFC00005, 0x7F800001, 0x3F800000, 0x7F800000),
}


def _tile(dtype: str, bits: list[int], backend: Backend) -> pto.TileBuf:
    """One row of bit patterns, in a tile of 32 columns."""
    ty = pto.TileBufType(dtype, 1, 32)
    x = np.zeros((1, 1, 32), uint(dtype))
    x[0, 0, : len(bits)] = bits
    return Slab(ty, x, backend.device).tiles(1, len(bits))


def _bits(tile: pto.TileBuf) -> list[int]:
    x = np.ascontiguousarray(tile.numpy())
    row: list[int] = x.view(f"u{x.itemsize}")[0, 0, : tile.valid_col].tolist()
    return row


@pytest.mark.parametrize("dtype", list(WORDS))
@pytest.mark.parametrize("rule", ["propagate", "number", "select"])
def test_trap_1_nan_in_either_source(rule: str, dtype: str, backend: Backend) -> None:
    canonical, quiet, signalling, one, _ = WORDS[dtype]
    a = [quiet, signalling, one, one, quiet, signalling]
    b = [one, one, quiet, signalling, signalling, quiet]
    wanted = {
        "propagate": [canonical] * 6,
        "number": [one] * 4 + [canonical] * 2,
        "select": a,  # b < a is false
    }[rule]
    dst = pto.tpartmin(
        _tile(dtype, a, backend), _tile(dtype, b, backend), numerics=pto.Numerics(nan=rule), backend=backend.name
    )
    assert _bits(dst) == wanted


@pytest.mark.parametrize(
    ("nan", "tie", "wanted"),
    [
        ("propagate", "src1", [0, 1, 0, 1]),
        ("propagate", "src0", [0, 1, 0, 0]),
        ("number", "src1", [1, 0, 1, 1]),
        ("number", "src0", [1, 0, 0, 0]),
        ("select", "src1", [1, 1, 1, 1]),
        ("select", "src0", [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_trap_1_index_follows_the_nan_rule(nan: str, tie: str, wanted: list[int], dtype: str, backend: Backend) -> None:
    """NaN in src0, in src1, in both; then a tie of the two zeros."""
    _, quiet, signalling, one, _ = WORDS[dtype]
    minus_zero = 0x8000 if dtype == "f16" else 0x80000000
    a, b = [quiet, one, quiet, 0], [one, signalling, signalling, minus_zero]
    index = {"f16": "u16", "f32": "i32"}[dtype]
    value, chosen = pto.tpartargmin(
        _tile(dtype, a, backend),
        _tile(dtype, b, backend),
        _tile(index, [0] * 4, backend),
        _tile(index, [1] * 4, backend),
        numerics=pto.Numerics(nan=nan, tie=tie),
        backend=backend.name,
    )
    assert _bits(chosen) == wanted
    assert _bits(value) == [(a, b)[side][j] for j, side in enumerate(wanted)]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("rule", ["propagate", "number", "select"])
def test_trap_2_row_minimum_with_nan(rule: str, dtype: str, backend: Backend) -> None:
    canonical, quiet, signalling, one, infinity = WORDS[dtype]
    rows = {
        "first": ([quiet, one, infinity], {"propagate": canonical, "number": one, "select": quiet}),
        "last": ([infinity, one, quiet], {"propagate": canonical, "number": one, "select": one}),
        "middle": ([infinity, signalling, one], {"propagate": canonical, "number": one, "select": one}),
        "all": ([signalling, quiet, quiet], {"propagate": canonical, "number": canonical, "select": signalling}),
        "alone": ([signalling], {"propagate": canonical, "number": canonical, "select": signalling}),
        "none": ([infinity, one, one], {"propagate": one, "number": one, "select": one}),
        "with infinity": ([quiet, infinity], {"propagate": canonical, "number": infinity, "select": quiet}),
    }
    for label, (row, wanted) in rows.items():
        dst = pto.trowmin(_tile(dtype, row, backend), numerics=pto.Numerics(nan=rule), backend=backend.name)
        assert _bits(dst) == [wanted[rule]], label


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_trap_2_row_minimum_of_zeros(dtype: str, backend: Backend) -> None:
    minus = 0x8000 if dtype == "f16" else 0x80000000
    for row, select in (([0, minus], 0), ([minus, 0], minus), ([0, 0, minus, minus], 0)):
        for rule, wanted in (("propagate", minus), ("number", minus), ("select", select)):
            dst = pto.trowmin(_tile(dtype, row, backend), numerics=pto.Numerics(nan=rule), backend=backend.name)
            assert _bits(dst) == [wanted]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("i8", -128, 127),
        ("u8", 0, 255),
        ("i16", -32768, 32767),
        ("u16", 0, 65535),
        ("i32", -(2**31), 2**31 - 1),
        ("u32", 0, 2**32 - 1),
    ],
)
def test_trap_5_integer_extremes(dtype: str, low: int, high: int, backend: Backend) -> None:
    """No wrap, no saturation, no detour through a narrower or signed type."""
    ty = pto.TileBufType(dtype, 1, 32)
    middle = (low + high) // 2 + 1
    pairs = [(low, high), (high, low), (high, high - 1), (middle, middle - 1), (middle, high), (low + 1, low)]
    x = np.zeros((2, 1, 1, 32), ty.element.numpy)
    x[0, 0, 0, :6], x[1, 0, 0, :6] = zip(*pairs, strict=True)
    src0, src1 = (Slab(ty, as_bits(v), backend.device).tiles(1, 6) for v in x)
    dst = pto.tpartmin(src0, src1, backend=backend.name)
    assert dst.numpy()[0, 0, :6].tolist() == [min(p) for p in pairs]
    if dtype in ("i8", "u8", "i16", "i32"):
        assert pto.trowmin(src0, backend=backend.name).numpy()[0, 0, 0] == low


@pytest.mark.parametrize(("dtype", "torch_dtype"), [("u16", torch.uint16), ("u32", torch.uint32)])
def test_trap_18_unsigned_torch_tensors(dtype: str, torch_dtype: torch.dtype, backend: Backend) -> None:
    """torch has no arithmetic on u16 and u32: as values and as indices they must not need it."""
    top = torch.iinfo(torch_dtype).max
    a = torch.tensor([[top, top - 1, 1, 0] * 8]).to(torch_dtype)
    b = torch.tensor([[0, top, top, top // 2] * 8]).to(torch_dtype)
    ty = pto.TileBufType(dtype, 1, 32)
    src0, src1 = (pto.TileBuf.from_array(x.to(backend.device), ty) for x in (a, b))
    dst = pto.tpartmin(src0, src1, backend=backend.name)
    assert dst.torch().dtype == torch_dtype
    assert dst.numpy()[0, 0, :4].tolist() == [0, top - 1, 1, 0]
    val = pto.TileBufType({"u16": "f16", "u32": "f32"}[dtype], 1, 32)
    less, more = (pto.TileBuf.full(val, v, device=backend.device) for v in (1.0, 2.0))
    _, index = pto.tpartargmin(less, more, src0, src1, backend=backend.name)
    assert index.torch().tolist() == [a.tolist()]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_trap_22_prelu_of_special_values(dtype: str, backend: Backend) -> None:
    nan, quiet, signalling, one, inf = WORDS[dtype]
    sign = 0x8000 if dtype == "f16" else 0x80000000
    table = {  # x: {slope: result}
        quiet: {one: nan, 0: nan, inf: nan, quiet: nan, sign | one: nan},
        signalling: {one: nan, 0: nan, inf: nan, signalling: nan},
        inf: {one: inf, 0: inf, inf: inf, quiet: inf, sign | one: inf},  # kept: the slope is not looked at
        sign | inf: {one: sign | inf, sign | one: inf, 0: nan, sign: nan, inf: sign | inf, quiet: nan},
        0: {one: 0, sign | one: sign, 0: 0, sign: sign, inf: nan, quiet: nan},
        sign: {one: sign, sign | one: 0, 0: sign, sign: 0, inf: nan, quiet: nan},
        one: {0: one, sign | one: one, inf: one, quiet: one},
        sign | one: {0: sign, sign: 0, sign | one: one, inf: sign | inf, sign | inf: inf, quiet: nan},
    }
    for zero in ("product", "keep"):
        for x, row in table.items():
            wanted = [x] * len(row) if zero == "keep" and x in (0, sign) else list(row.values())
            rules = pto.Numerics(zero=zero)
            dst = pto.tprelu(
                _tile(dtype, [x] * len(row), backend),
                _tile(dtype, list(row), backend),
                numerics=rules,
                backend=backend.name,
            )
            assert [hex(b) for b in _bits(dst)] == [hex(b) for b in wanted], (hex(x), zero)


@pytest.mark.parametrize(
    ("dtype", "x", "slope", "wanted"),
    [
        ("f32", 0x80800000, 0x3F000000, 0x80400000),  # smallest normal / 2
        ("f32", 0x80000003, 0x3F800000, 0x80000003),  # subnormal * 1
        ("f32", 0x80000001, 0x3F000000, 0x80000000),  # half of the smallest: to even
        ("f32", 0x80000003, 0x3F000000, 0x80000002),  # 1.5 of the smallest: to even
        ("f32", 0x80000001, 0x4B000000, 0x80800000),  # the smallest * 2**23
        ("f32", 0x80FFFFFF, 0x3F000000, 0x80800000),  # rounds up into the normals
        ("f32", 0xA0000000, 0x9F800001, 0x00400000),  # normal * normal is subnormal, and rounds
        ("f16", 0x8400, 0x3800, 0x8200),
        ("f16", 0x8003, 0x3C00, 0x8003),
        ("f16", 0x8003, 0x3800, 0x8002),
        ("f16", 0x87FF, 0x3800, 0x8400),
        ("f16", 0x8001, 0x6400, 0x8400),
        ("f32", 0x00000001, 0x40000000, 0x00000001),  # kept
        ("f16", 0x0001, 0x4000, 0x0001),
    ],
)
def test_trap_23_subnormal_products(dtype: str, x: int, slope: int, wanted: int, backend: Backend) -> None:
    n = 24  # long enough for a vector body
    dst = pto.tprelu(_tile(dtype, [x] * n, backend), _tile(dtype, [slope] * n, backend), backend=backend.name)
    assert {hex(b) for b in _bits(dst)} == {hex(wanted)}


@pytest.mark.parametrize("dtype", list(WORDS))
def test_trap_23_subnormals_are_ordered(dtype: str, backend: Backend) -> None:
    sign = 0x80000000 if dtype == "f32" else 0x8000
    for rule in ("propagate", "number", "select"):
        rules = pto.Numerics(nan=rule)
        a, b = [1, 2, sign | 1, sign | 1, 0, 3], [0, 1, 1, sign | 2, sign | 1, 3]
        dst = pto.tpartmin(_tile(dtype, a, backend), _tile(dtype, b, backend), numerics=rules, backend=backend.name)
        assert _bits(dst) == [0, 1, sign | 1, sign | 2, sign | 1, 3]
        if dtype != "bf16":
            assert _bits(pto.trowmin(_tile(dtype, [3, 1, 2], backend), numerics=rules, backend=backend.name)) == [1]
