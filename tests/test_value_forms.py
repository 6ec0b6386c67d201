"""AS Level 1: the result is allocated, zero outside its valid region."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import oracle
import pytest
from conftest import Backend
from rig import (
    Case,
    Region,
    Slab,
    as_bits,
    assert_same,
    cases,
    draw_bits,
    expected,
    legal_regions,
    rules_of,
    types_for,
)

import pto_gpu as pto
from pto_gpu.isa import instructions

#: The names on the pages, in the order of their text form.
TEXT_ORDER = {
    "TPARTMIN": ["src0", "src1"],
    "TPARTARGMIN": ["src0_val", "src1_val", "src0_idx", "src1_idx"],
    "TROWMIN": ["src"],
    "TPRELU": ["src0", "src1"],
}


def test_operand_order_is_that_of_the_text_form() -> None:
    for name in instructions():
        parameters = list(inspect.signature(getattr(pto, name.lower())).parameters)
        wanted = ["src", "slope"] if name == "TPRELU" else TEXT_ORDER[name]
        assert parameters[: len(wanted)] == wanted


def test_prelu_by_the_names_of_its_value_form() -> None:
    ty = pto.TileBufType("f32", 8, 8)
    src, slope = pto.TileBuf.full(ty, -2.0), pto.TileBuf.full(ty, 0.25)
    assert (pto.tprelu(slope=slope, src=src).numpy() == -0.5).all()


def _sources(
    rng: np.random.Generator, case: Case, batch: int
) -> tuple[dict[str, pto.TileBufType], dict[str, np.ndarray], dict[str, Region]]:
    """Sources of one capacity whose regions have a legal union."""
    types = types_for(case, 12, 32)
    regions = legal_regions(rng, case, types, batch)
    if case.record.valid_pattern.startswith("partial"):
        for name in case.sources:  # an empty region adds nothing, so keep the larger one nonempty
            rows, cols = (np.minimum(a, b) for a, b in zip(regions[name], regions[case.dsts[0]], strict=True))
            regions[name] = (rows, cols)
    return types, draw_bits(rng, case, types, batch), regions


@pytest.mark.parametrize("numerics", ["isa", "formal", "simulator"])
@pytest.mark.parametrize("case", cases("a5"))
def test_result(case: Case, numerics: str, backend: Backend, rng: np.random.Generator) -> None:
    batch = 10
    types, bits, regions = _sources(rng, case, batch)
    form = getattr(pto, case.record.name.lower())
    tiles = [Slab(types[n], bits[n], backend.device).tiles(*regions[n]) for n in TEXT_ORDER[case.record.name]]
    results = form(*tiles, backend=backend.name, numerics=numerics)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(case.dsts)
    for name, tile in zip(case.dsts, results, strict=True):
        assert (tile.type.dtype, tile.batch, tile.device) == (case.dtype(name), batch, backend.device)
        shape = (batch, tile.type.rows, tile.type.cols)
        own = {**regions, name: _counts(tile, batch)}
        blank = {**bits, **{d: np.zeros(shape, as_bits(tile.numpy()).dtype) for d in case.dsts}}
        wanted = expected(case, blank, {**own, **dict.fromkeys(case.dsts, own[name])}, rules_of(numerics))
        assert_same(np.ascontiguousarray(tile.numpy()), wanted[name], f"{case.record.name.lower()} {name}")
        _check_region(case, name, tile, regions)


def _counts(tile: pto.TileBuf, batch: int) -> Region:
    rows, cols = (np.broadcast_to(n, batch) for n in (tile.valid_row, tile.valid_col))
    return rows, cols


def _check_region(case: Case, name: str, tile: pto.TileBuf, regions: dict[str, Region]) -> None:
    """Rows and columns of the result; the area only, where a source is empty."""
    rows, cols = _counts(tile, tile.batch)
    sources = [n for n in case.sources if n.endswith("_idx") == name.endswith("_idx")]
    for t in range(tile.batch):
        parts = [(int(regions[n][0][t]), int(regions[n][1][t])) for n in sources]
        if case.record.valid_pattern == "rows":
            assert (rows[t], cols[t]) == (parts[0][0], 1)
            continue
        full = [p for p in parts if 0 not in p]
        if full:
            assert (rows[t], cols[t]) == (max(r for r, _ in full), max(c for _, c in full))
        else:
            assert 0 in (rows[t], cols[t])


@pytest.mark.parametrize(
    ("dtype", "rows", "wanted"),
    [
        ("f32", 16, 16),
        ("f32", 3, 8),
        ("f32", 127, 128),
        ("f16", 67, 80),
        ("i8", 1, 32),
        ("u8", 33, 64),
        ("i16", 16, 16),
    ],
)
def test_trowmin_gives_a_legal_dn_column(dtype: str, rows: int, wanted: int, host_backend: Backend) -> None:
    src = pto.TileBuf.full(pto.TileBufType(dtype, rows, 64), 3, batch=2)
    dst = pto.trowmin(src, backend=host_backend.name)
    assert dst.type == pto.TileBufType(dtype, wanted, 1, blayout="col_major")
    assert (dst.valid_row, dst.valid_col) == (rows, 1)
    assert dst.numpy()[:, :, 0].tolist() == [[3] * rows + [0] * (wanted - rows)] * 2


def test_tpartmin_of_different_capacities(host_backend: Backend) -> None:
    src0 = pto.TileBuf.full(pto.TileBufType("f32", 4, 32), 2.0)
    src1 = pto.TileBuf.full(pto.TileBufType("f32", 8, 16), 1.0, valid_row=3)
    dst = pto.tpartmin(src0, src1, backend=host_backend.name)
    assert (dst.type.rows, dst.type.cols, dst.valid_row, dst.valid_col) == (8, 32, 4, 32)
    assert dst.numpy()[0].tolist() == [[1.0] * 16 + [2.0] * 16] * 3 + [[2.0] * 32] + [[0.0] * 32] * 4


def test_union_that_no_source_covers(host_backend: Backend) -> None:
    ty = pto.TileBufType("f32", 4, 8)
    src0, src1 = pto.TileBuf.full(ty, 2.0, valid_row=2), pto.TileBuf.full(ty, 1.0, valid_col=3)
    with pytest.raises(pto.ConstraintError, match="TPARTMIN: dst's valid region"):
        pto.tpartmin(src0, src1, backend=host_backend.name)
    dst = pto.tpartmin(src0, src1, undefined="zero", backend=host_backend.name)
    assert dst.numpy()[0].tolist() == [[1.0] * 3 + [2.0] * 5] * 2 + [[1.0] * 3 + [0.0] * 5] * 2


def test_a_source_is_never_returned(host_backend: Backend) -> None:
    src = pto.TileBuf.full(pto.TileBufType("f32", 4, 8), 2.0)
    for result in (pto.tpartmin(src, src, backend=host_backend.name), pto.tprelu(src, src, backend=host_backend.name)):
        assert not np.shares_memory(result.numpy(), src.numpy())


def test_result_of_a_dynamic_type(host_backend: Backend) -> None:
    ty = pto.TileBufType("f32", 4, 8, pto.DYNAMIC, pto.DYNAMIC)
    src = pto.TileBuf.full(ty, -2.0, 2, valid_row=[1, 4], valid_col=2)
    dst = pto.tprelu(src, src, backend=host_backend.name)
    assert dst.valid_row.tolist() == [1, 4]
    assert np.count_nonzero(dst.numpy()) == 2 + 8


@pytest.mark.parametrize("name", list(instructions()))
def test_empty_batch(name: str, host_backend: Backend) -> None:
    record = instructions()[name]
    case = Case(record, record.element_types["a5"][0])
    types = types_for(case, 4, 16)
    tiles = [pto.TileBuf.empty(types[n], 0) for n in TEXT_ORDER[name]]
    result = getattr(pto, name.lower())(*tiles, backend=host_backend.name)
    assert all(r.batch == 0 for r in (result if isinstance(result, tuple) else (result,)))


_A, _B = pto.TileBufType("f32", 4, 8), pto.TileBufType("f16", 4, 16)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((pto.TileBuf.zeros(_A),), pto.TypeMismatch, "TPARTMIN: src1 must be a TileBuf: seen nothing"),
        ((pto.TileBuf.zeros(_A), pto.TileBuf.zeros(_B)), pto.TypeMismatch, "TPARTMIN: src1 has element type f16"),
        ((pto.TileBuf.zeros(_A), pto.TileBuf.zeros(_A, 2)), pto.ConstraintError, "TPARTMIN: .*batch"),
        ((pto.TileBuf.zeros(_A), np.zeros((4, 8))), pto.TypeMismatch, "TPARTMIN: src1 must be a TileBuf: seen ndarray"),
    ],
)
def test_refused(arguments: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        pto.tpartmin(*arguments)


def test_trowmin_of_no_columns(host_backend: Backend) -> None:
    with pytest.raises(pto.ConstraintError, match=r"TROWMIN: src\.valid_col must not be 0"):
        pto.trowmin(pto.TileBuf.zeros(_A, valid_col=0), backend=host_backend.name)


def test_tpartargmin_example(host_backend: Backend) -> None:
    """Equal values: src1's index by the page's formula, src0's by the A5 and A2A3 sources."""
    val, idx = pto.TileBufType("f32", 1, 8), pto.TileBufType("i32", 1, 8)
    values = [pto.TileBuf.full(val, v) for v in (1.0, 1.0)]
    indices = [pto.TileBuf.full(idx, v) for v in (10, 20)]
    for numerics, wanted in (("isa", 20), ("simulator", 20), ("a5", 10), ("a2a3", 10)):
        assert oracle.RULE_SETS[numerics].tie == {10: "src0", 20: "src1"}[wanted]
        value, index = pto.tpartargmin(*values, *indices, numerics=numerics, backend=host_backend.name)
        assert value.numpy().tolist() == [[[1.0] * 8]]
        assert index.numpy().tolist() == [[[wanted] * 8]]
