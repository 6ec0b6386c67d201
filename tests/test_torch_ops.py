"""``torch.ops.pto.*`` in eager mode: every element of every result against the oracle, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from conftest import Pooled
from rig import Case, Region, assert_same, cases, draw_bits, expected, types_for
from special_values import uint

import pto_gpu as pto
import pto_gpu.torch_ops
from pto_gpu.isa import instructions
from pto_gpu.types import ELEMENT_TYPES

P = torch.ops.pto
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BATCH = 6


def operator(case: Case, suffix: str = "") -> Any:
    return getattr(P, case.record.name.lower() + suffix)


def tensor(bits: np.ndarray, dtype: str, device: str = "cpu") -> torch.Tensor:
    """A tensor of an element type with these bits."""
    integers = torch.from_numpy(bits.copy().view(f"i{bits.itemsize}"))
    return integers.view(getattr(torch, ELEMENT_TYPES[dtype].torch_name)).to(device)


def bits_of(x: torch.Tensor) -> np.ndarray:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    return x.detach().cpu().contiguous().view(integers).numpy().view(f"u{x.element_size()}")


def shape_of_result(case: Case, name: str, types: Mapping[str, pto.TileBufType]) -> tuple[int, int]:
    if case.record.valid_pattern == "rows":
        return types["src"].rows, 1
    if case.record.valid_pattern == "same":
        return types["src0"].rows, types["src0"].cols
    kind = name.partition("_")[2]
    pair = [types[n] for n in case.sources if n.partition("_")[2] == kind]
    return max(ty.rows for ty in pair), max(ty.cols for ty in pair)


def regions_for(
    rng: np.random.Generator, case: Case, types: Mapping[str, pto.TileBufType], batch: int = BATCH
) -> dict[str, Region]:
    """A region for each operand: one source as large as the result, the other a part of it."""
    rows, cols = (min(getattr(types[n], field) for n in case.sources) for field in ("rows", "cols"))
    low = 1 if case.record.valid_pattern == "rows" else 0
    whole = tuple(rng.integers(low, n + 1, batch).astype(np.int32) for n in (rows, cols))
    part = tuple((rng.random(batch) * (n + 1)).astype(np.int32) for n in whole)
    if case.record.valid_pattern == "rows":
        return {"src": whole, "dst": (whole[0], np.ones(batch, np.int32))}
    sides = {"dst": whole, "src0": whole, "src1": part if case.record.valid_pattern != "same" else whole}
    return {n: sides[n.partition("_")[0]] for n in case.operands}


def full(case: Case, types: Mapping[str, pto.TileBufType], batch: int = BATCH) -> dict[str, Region]:
    shapes = {n: (types[n].rows, types[n].cols) for n in case.sources}
    shapes |= {n: shape_of_result(case, n, types) for n in case.dsts}
    return {n: (np.full(batch, r, np.int32), np.full(batch, c, np.int32)) for n, (r, c) in shapes.items()}


def drawn(rng: np.random.Generator, case: Case, *, grow: bool) -> tuple[dict[str, np.ndarray], dict[str, Region]]:
    """Bits and regions of a call that makes its results: full, or, with ``grow``, of tiles of several capacities."""
    types = types_for(case, 5, 16, grow=grow)
    bits = draw_bits(rng, case, types, BATCH)
    for name in case.dsts:
        bits[name] = np.zeros((BATCH, *shape_of_result(case, name, types)), uint(case.dtype(name)))
    return bits, regions_for(rng, case, types) if grow else full(case, types)


def valid_arguments(case: Case, regions: Mapping[str, Region], device: str = "cpu") -> list[torch.Tensor]:
    """One for each group of sources, by the names of the operands."""
    sides = dict.fromkeys(n.partition("_")[0] if case.record.valid_pattern != "same" else "src0" for n in case.sources)
    names = [next(n for n in case.sources if n.startswith(side)) for side in sides]
    return [torch.from_numpy(np.stack(regions[n], 1)).to(device) for n in names]


def in_text_order(case: Case, sources: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [sources[n] for n in case.record.assembly]


def results_of(outcome: Any) -> tuple[torch.Tensor, ...]:
    return outcome if isinstance(outcome, tuple) else (outcome,)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("formulation", ["kernel", "torch"])
@pytest.mark.parametrize("case", cases())
def test_every_element(case: Case, formulation: str, device: str, rng: np.random.Generator) -> None:
    for grow in (False, True):
        bits, regions = drawn(rng, case, grow=grow)
        sources = [tensor(bits[n], case.dtype(n), device) for n in case.record.assembly]
        valid = valid_arguments(case, regions, device) if grow else []
        for numerics, rules in oracle.RULE_SETS.items():
            outcome = operator(case)(*sources, *valid, numerics=numerics, formulation=formulation)
            wanted = expected(case, bits, regions, rules)
            for name, x in zip(case.dsts, results_of(outcome), strict=True):
                assert x.is_contiguous()
                assert_same(bits_of(x), wanted[name], f"{name} {numerics}")
        for name, x in zip(case.record.assembly, sources, strict=True):
            assert_same(bits_of(x), bits[name], f"{name} was changed")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("formulation", ["kernel", "torch"])
@pytest.mark.parametrize("case", cases())
def test_out_writes_the_region_and_nothing_else(
    case: Case, formulation: str, device: str, rng: np.random.Generator
) -> None:
    """Every operand is a slice of one buffer, with other strides than it would have alone."""
    types = types_for(case, 5, 16)
    bits = draw_bits(rng, case, types, BATCH)
    regions = regions_for(rng, case, types)
    slices = {}
    for kind in dict.fromkeys(n.partition("_")[2] for n in case.operands):
        names = [n for n in case.operands if n.partition("_")[2] == kind]
        buffer = torch.zeros(BATCH, 7, len(names), 32, dtype=tensor(bits[names[0]], case.dtype(names[0])).dtype)
        buffer = buffer.to(device)
        for i, name in enumerate(names):
            rows, cols = bits[name].shape[1:]
            slices[name] = buffer[:, :rows, i, :cols]
            slices[name].view(_integer(buffer)).copy_(
                tensor(bits[name], case.dtype(name), device).view(_integer(buffer))
            )
    call = [slices[n] for n in (*case.dsts, *case.record.assembly)]
    outcome = operator(case, "_out")(*call, *valid_arguments(case, regions, device), formulation=formulation)
    assert outcome is None
    wanted = bits | expected(case, bits, regions, oracle.RULE_SETS["isa"])
    for name, x in slices.items():
        assert_same(bits_of(x), wanted[name], name)


def _integer(x: torch.Tensor) -> torch.dtype:
    return {1: torch.int8, 2: torch.int16, 4: torch.int32}[x.element_size()]


def test_out_takes_any_tile_that_holds_the_region() -> None:
    src = torch.randn(3, 9, 16)
    wide, column = torch.full((3, 9, 8), 7.0), torch.full((3, 9, 1), 7.0)
    valid = torch.tensor([[9, 16], [4, 3], [1, 1]], dtype=torch.int32)
    for dst in (wide, column):  # nine rows of one f32 are no whole block
        P.trowmin_out(dst, src, valid)
        for tile, (rows, cols) in enumerate(valid.tolist()):
            assert torch.equal(dst[tile, :rows, 0], src[tile, :rows, :cols].amin(1))
            assert (dst[tile, rows:] == 7).all()
    assert (wide[:, :, 1:] == 7).all()
    with pytest.raises(pto.ConstraintError, match="TROWMIN: dst: valid_row=9 is out of range"):
        P.trowmin_out(torch.zeros(3, 8, 8), src)


def test_dst_may_be_a_source() -> None:
    x, y = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    wanted = torch.minimum(x, y)
    P.tpartmin_out(x, x, y)
    assert torch.equal(x, wanted)
    buffer = torch.randn(40)
    with pytest.raises(pto.AddressError, match=r"dst .* overlaps src0"):
        P.tpartmin_out(buffer[:32].view(1, 4, 8), buffer[8:].view(1, 4, 8), y[:1])


@pytest.mark.parametrize("device", DEVICES)
def test_strided_and_expanded_sources(device: str) -> None:
    base = torch.randn(8, 16, 3, device=device)
    slope = torch.rand(16, device=device)
    x = base.permute(2, 0, 1)
    assert torch.equal(P.tprelu(x, slope.expand(3, 8, 16)), torch.where(x > 0, x, x * slope))
    one = x[:1].expand(5, 8, 16)
    assert torch.equal(P.trowmin(one), one.amin(2, keepdim=True))
    valid = torch.tensor([[3, 5]], dtype=torch.int32, device=device)
    least = P.trowmin(one, valid.expand(5, 2))
    assert torch.equal(least[:, :3], one[:, :3, :5].amin(2, keepdim=True))
    assert not least[:, 3:].any()
    flipped = P.trowmin(x[:, :, ::2])
    assert torch.equal(flipped, x[:, :, ::2].amin(2, keepdim=True))


@pytest.mark.parametrize("case", cases())
def test_an_empty_batch_and_no_alias(case: Case, rng: np.random.Generator) -> None:
    types = types_for(case, 3, 16)
    for batch in (0, 2):
        bits = draw_bits(rng, case, types, batch)
        sources = [tensor(bits[n], case.dtype(n)) for n in case.record.assembly]
        for formulation in ("kernel", "torch"):
            results = results_of(operator(case)(*sources, formulation=formulation))
            assert [x.shape for x in results] == [(batch, *shape_of_result(case, n, types)) for n in case.dsts]
            owners = {x.untyped_storage().data_ptr() for x in sources if x.numel()}
            assert not owners & {x.untyped_storage().data_ptr() for x in results if x.numel()}


def test_the_arguments_are_those_of_the_records() -> None:
    for name, record in instructions().items():
        schema = getattr(P, name.lower()).default._schema
        arguments = [a.name for a in schema.arguments]
        assert arguments[: len(record.assembly)] == [record.by_name[n].argument for n in record.assembly]
        assert arguments[-4:] == ["numerics", "target", "undefined", "formulation"]
        assert len(schema.returns) == len(record.dsts)
        out = getattr(P, f"{name.lower()}_out").default._schema
        written = {a.name for a in out.arguments if a.alias_info is not None and a.alias_info.is_write}
        assert written == {o.name for o in record.dsts}
        assert not out.returns
    names = {n: [a.name for a in getattr(P, n).default._schema.arguments[:-4]] for n in ("tprelu", "tpartargmin")}
    assert names["tprelu"] == ["src", "slope", "valid"]
    assert names["tpartargmin"] == ["src0_val", "src1_val", "src0_idx", "src1_idx", "valid0", "valid1"]


X, Y = torch.zeros(3, 4, 16), torch.zeros(3, 4, 16)
V = torch.tensor([[4, 16], [2, 2], [4, 16]], dtype=torch.int32)
TALL, WIDE = torch.tensor([[4, 2]] * 3, dtype=torch.int32), torch.tensor([[2, 16]] * 3, dtype=torch.int32)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: P.tpartmin(X.double(), Y.double()),
            pto.TypeMismatch,
            "src0 is torch.float64: allowed torch.float16",
        ),
        (lambda: P.tprelu(X.bfloat16(), Y.bfloat16()), pto.TypeMismatch, "TPRELU.*bf16.*not supported"),
        (lambda: P.tpartmin(X, Y.half()), pto.TypeMismatch, "TPARTMIN: src1 has element type f16: allowed f32"),
        (lambda: P.trowmin(X.to(torch.int8), target="a2a3"), pto.PtoError, "TROWMIN"),
        (lambda: P.tpartmin(X[0], Y[0]), pto.LayoutError, "src0 has 2 dimensions"),
        (lambda: P.trowmin(X[:, :, :7]), pto.LayoutError, "TROWMIN: src: .*multiples of 32 bytes"),
        (lambda: P.tprelu(X, Y[:2]), pto.ConstraintError, "TPRELU: slope has a batch of 2: allowed 3, that of src"),
        (lambda: P.tprelu(X, Y, V.long()), pto.TypeMismatch, "TPRELU: valid is torch.int64: allowed torch.int32"),
        (lambda: P.tprelu(X, Y, V[:, :1]), pto.ConstraintError, r"valid has shape \[3, 1\]: allowed \[batch, 2\]"),
        (lambda: P.tprelu(X, Y, V[:2]), pto.ConstraintError, "valid has a batch of 2: allowed 3"),
        (lambda: P.tprelu(X, Y, V + 1), pto.ConstraintError, "TPRELU: src: valid_row is out of range: 2 of 3 tiles"),
        (lambda: P.trowmin(X, V - 2), pto.ConstraintError, r"TROWMIN: src.valid_row must not be 0: 1 of 3 .*tile 1"),
        (lambda: P.tpartmin(X, Y, TALL, WIDE), pto.ConstraintError, "TPARTMIN: dst's valid region must equal"),
        (lambda: P.trowmin(X, None, "iso"), pto.ConstraintError, "numerics='iso' is not known"),
        (lambda: P.trowmin(X, target="a4"), pto.ConstraintError, "target='a4' is not known"),
        (lambda: P.trowmin(X, undefined="maybe"), pto.ConstraintError, "undefined='maybe' is not known"),
        (lambda: P.trowmin(X, formulation="c"), pto.ConstraintError, "formulation='c' is not known"),
    ],
)
def test_refused(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_a_refused_call_writes_nothing() -> None:
    dst = torch.full((3, 4, 16), 7.0)
    with pytest.raises(pto.ConstraintError):
        P.tpartmin_out(dst, X, Y, TALL, WIDE)
    assert (dst == 7).all()


def test_shapes_without_memory() -> None:
    x = torch.empty(7, 9, 32, dtype=torch.float16, device="meta")
    assert P.trowmin(x).shape == (7, 9, 1)
    values = P.tpartargmin(x, x[:, :4], x.to(torch.int16), x[:, :4].to(torch.int16))
    assert [(v.shape, v.dtype) for v in values] == [(x.shape, torch.float16), (x.shape, torch.int16)]


def test_threads_are_those_of_torch(pooled: Pooled) -> None:
    x, threads = torch.zeros(1000, 4, 16), torch.get_num_threads()
    try:
        for count, used in ((2, True), (1, False)):
            torch.set_num_threads(count)
            before = pooled.calls
            P.trowmin(x)
            assert (pooled.calls > before) == used
        with pto.options(threads=3):
            P.trowmin(x)
        assert pooled.calls > before
    finally:
        torch.set_num_threads(threads)


def test_undefined_regions() -> None:
    seen = P.tpartmin(X + 2, Y + 1, TALL, WIDE, undefined="zero")
    wanted = torch.zeros(4, 16)
    wanted[:, :2], wanted[:2] = 2, 1
    assert torch.equal(seen, wanted.expand(3, 4, 16))


def test_custom_rules_by_their_words() -> None:
    x, y = torch.tensor([[[float("nan")] * 8]]), torch.ones(1, 1, 8)
    assert torch.equal(P.tpartmin(x, y, numerics="number/src0/keep"), y)


def test_torch_ops_is_an_attribute_of_the_package() -> None:
    assert pto.torch_ops is sys.modules["pto_gpu.torch_ops"]
    assert "torch_ops" in dir(pto)
