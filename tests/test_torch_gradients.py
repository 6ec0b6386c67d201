"""Gradients of ``torch.ops.pto.*``: against autograd through the reference; ties and NaN against the forward."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from array_api_compat import torch as xp
from rig import Case, as_bits, cases, draw_bits, types_for
from test_torch_ops import (
    BATCH,
    DEVICES,
    P,
    bits_of,
    full,
    operator,
    regions_for,
    results_of,
    shape_of_result,
    tensor,
    valid_arguments,
)

import pto_gpu as pto
from pto_gpu.backends.numpy import evaluate
from pto_gpu.isa.record import Kind
from pto_gpu.numerics import NAN_RULES, TIE_RULES, ZERO_RULES, Numerics
from pto_gpu.regions import Region
from pto_gpu.types import ELEMENT_TYPES

FLOATS = [c for c in cases() if ELEMENT_TYPES[c.values[0].signature[0]].is_float]
WHOLE = [c for c in cases() if not ELEMENT_TYPES[c.values[0].signature[0]].is_float]
RULES = [Numerics(*words) for words in itertools.product(NAN_RULES, TIE_RULES, ZERO_RULES)]


def values_of(case: Case) -> list[str]:
    return [n for n in case.sources if case.kind(n) is Kind.VALUE]


def ordinary(rng: np.random.Generator, case: Case, grow: bool, device: str) -> dict[str, torch.Tensor]:
    """Sources without ties, NaN or zeros."""
    types = types_for(case, 5, 16, grow=grow)
    sources = {}
    for name in case.sources:
        x = rng.permutation(BATCH * types[name].rows * types[name].cols).reshape(BATCH, types[name].rows, -1)
        x = torch.from_numpy(x - x.size / 2 + (0.25 if name.startswith("src0") else 0.75))
        x = (x / 64).to(getattr(torch, ELEMENT_TYPES[case.dtype(name)].torch_name))
        sources[name] = x.to(device)
    return sources


def through_the_reference(
    case: Case, sources: dict[str, torch.Tensor], regions: dict[str, Any], shapes: dict[str, tuple[int, int]]
) -> torch.Tensor:
    """The first result by the reference, as operations that torch differentiates."""
    device = next(iter(sources.values())).device
    dsts = {}
    for name in case.dsts:
        dtype = getattr(torch, ELEMENT_TYPES[case.dtype(name)].torch_name)
        dsts[name] = torch.zeros(BATCH, *shapes[name], dtype=dtype, device=device)
    counts = {n: Region(*(torch.from_numpy(c).to(device) for c in regions[n])) for n in case.operands}
    element = ELEMENT_TYPES[case.signature[0]]
    evaluate(xp, case.record, Numerics(), element, {**dsts, **sources}, counts)
    return dsts[case.dsts[0]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grow", [False, True], ids=["full", "per tile"])
@pytest.mark.parametrize("case", FLOATS)
def test_equal_to_autograd_through_the_reference(case: Case, grow: bool, device: str, rng: np.random.Generator) -> None:
    types = types_for(case, 5, 16, grow=grow)
    regions = regions_for(rng, case, types) if grow else full(case, types)
    shapes = {n: shape_of_result(case, n, types) for n in case.dsts}
    sources = ordinary(rng, case, grow, device)
    valid = valid_arguments(case, regions, device) if grow else []
    weight = torch.from_numpy(rng.standard_normal((BATCH, *shapes[case.dsts[0]]))).to(sources[case.sources[0]].dtype)
    weight = weight.to(device)
    values = values_of(case)
    for wanted in (values, *([name] for name in values)):  # of all sources, then of one at a time
        leaves = {n: x.detach().clone().requires_grad_(n in wanted) for n, x in sources.items() if n in values}
        inputs = {**sources, **leaves}
        seen = results_of(operator(case)(*(inputs[n] for n in case.record.assembly), *valid))[0]
        reference = through_the_reference(case, inputs, regions, shapes)
        assert torch.equal(seen, reference)
        a = torch.autograd.grad(seen, [leaves[n] for n in wanted], weight)
        b = torch.autograd.grad(reference, [leaves[n] for n in wanted], weight)
        for name, x, y in zip(wanted, a, b, strict=True):
            assert torch.equal(x, y), name
            assert x.any()


def first_that_qualifies(candidates: list[np.ndarray], nan: list[np.ndarray], result: np.ndarray) -> np.ndarray:
    """Which candidate the result is: one-hot, the first with its bits, or the first NaN where it is a canonical NaN."""
    qualifies = np.stack([(c == result[0]) | (n & result[1]) for c, n in zip(candidates, nan, strict=True)])
    first = qualifies.argmax(0)
    assert qualifies.any(0).all()
    one_hot: np.ndarray = np.arange(len(candidates)).reshape(-1, *[1] * first.ndim) == first
    return one_hot


@pytest.mark.parametrize("case", [c for c in FLOATS if c.values[0].record.combine == "min"])
def test_ties_and_nan_follow_the_forward(case: Case, rng: np.random.Generator) -> None:
    types = types_for(case, 5, 32)
    bits = draw_bits(rng, case, types, 40)
    for name in case.sources:
        if case.kind(name) is Kind.INDEX:
            bits[name][...] = int(name.startswith("src1"))
    for rules in RULES:
        inputs = {n: tensor(bits[n], case.dtype(n)) for n in case.sources}
        values = [inputs[n].requires_grad_() for n in values_of(case)]
        results = results_of(operator(case)(*(inputs[n] for n in case.record.assembly), None, numerics=rules.label))
        gradients = [g.float().numpy() for g in torch.autograd.grad(results[0].float().sum(), values)]
        result = (bits_of(results[0]), torch.isnan(results[0]).numpy())
        nan = [torch.isnan(x).numpy() for x in values]
        if len(results) == 2:
            wanted = np.stack([bits_of(results[1]) == side for side in (0, 1)])
        elif len(values) == 2:
            wanted = first_that_qualifies([as_bits(bits[n]) for n in values_of(case)], nan, result)
        else:
            columns = np.moveaxis(bits["src"], 2, 0), np.moveaxis(nan[0], 2, 0)
            flat = result[0][:, :, 0], result[1][:, :, 0]
            wanted = np.moveaxis(first_that_qualifies(list(columns[0]), list(columns[1]), flat), 0, 2)[None]
        for gradient, chosen in zip(gradients, wanted, strict=True):
            assert np.array_equal(gradient, chosen), rules


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([0.0, -0.0, -0.0, 5.0], {"propagate": 1, "number": 1, "select": 0}),
        ([7.0, -0.0, 0.0, -0.0], {"propagate": 1, "number": 1, "select": 1}),
        ([3.0, 1.0, 1.0, 2.0], {"propagate": 1, "number": 1, "select": 1}),
        ([3.0, float("nan"), 1.0, float("nan")], {"propagate": 1, "number": 2, "select": 2}),
        ([float("nan"), 2.0, 1.0, float("nan")], {"propagate": 0, "number": 2, "select": 0}),
        ([float("nan")] * 4, {"propagate": 0, "number": 0, "select": 0}),
        ([float("inf"), float("inf"), float("nan"), float("inf")], {"propagate": 2, "number": 0, "select": 0}),
    ],
)
def test_where_the_gradient_of_a_row_goes(row: list[float], wanted: dict[str, int], dtype: torch.dtype) -> None:
    x = torch.zeros(1, 1, 16, dtype=dtype)
    x[0, 0, :4] = torch.tensor(row, dtype=dtype)
    x.requires_grad_()
    valid = torch.tensor([[1, 4]], dtype=torch.int32)
    for nan, column in wanted.items():
        (g,) = torch.autograd.grad(P.trowmin(x, valid, Numerics(nan=nan).label).sum(), x)
        assert g.nonzero().tolist() == [[0, 0, column]], nan


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_prelu_of_special_values(dtype: torch.dtype) -> None:
    """Against torch's own prelu, whose slope is one for each channel; ours is expanded to every element."""
    words = [0.0, -0.0, 1.0, -1.0, 3e-5, -3e-5, float("inf"), -float("inf"), float("nan"), 2.5]
    pairs = torch.tensor(list(itertools.product(words, words)) + [(1.0, 1.0)] * 12, dtype=dtype)
    gradients = []
    for prelu in (
        lambda x, w: P.tprelu(x.view(1, 1, -1), w.expand(1, 1, -1)).view(1, -1),
        torch.nn.functional.prelu,
    ):
        x, slope = pairs[:, 0].clone().view(1, -1).requires_grad_(), pairs[:, 1].clone().requires_grad_()
        y = prelu(x, slope)
        gradients.append(torch.autograd.grad(y, (x, slope), torch.full_like(y, 2.0)))
    for seen, wanted in zip(*gradients, strict=True):
        assert torch.equal(seen.isnan(), wanted.isnan())
        assert torch.equal(seen.nan_to_num(7.0), wanted.nan_to_num(7.0))


def test_prelu_that_keeps_zeros() -> None:
    x, slope = torch.tensor([[[0.0, -0.0] * 4]], requires_grad=True), torch.full((1, 1, 8), -3.0)
    for numerics, wanted in (("isa", -3.0), ("a5", 1.0)):
        (g,) = torch.autograd.grad(P.tprelu(x, slope, None, numerics).sum(), x)
        assert (g == wanted).all()


def test_gradient_of_a_gradient() -> None:
    x, slope = (torch.randn(2, 4, 8, requires_grad=True) for _ in range(2))
    (g,) = torch.autograd.grad(P.tprelu(x, slope).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), slope)
    assert torch.equal(h, (x <= 0).float())


def test_a_shared_parameter_gathers_its_gradient() -> None:
    x, slope = torch.randn(5, 4, 8), torch.rand(8, requires_grad=True)
    P.tprelu(x, slope.expand_as(x)).sum().backward()
    assert torch.allclose(slope.grad, x.clamp(max=0).sum((0, 1)))


@pytest.mark.parametrize("case", WHOLE)
def test_integers_have_no_gradient(case: Case, rng: np.random.Generator) -> None:
    bits = draw_bits(rng, case, types_for(case, 5, 16), BATCH)
    outcome = operator(case)(*(tensor(bits[n], case.dtype(n)) for n in case.record.assembly))
    assert not any(x.requires_grad for x in results_of(outcome))


def test_no_grad_and_inference_mode() -> None:
    x = torch.randn(2, 4, 8, requires_grad=True)
    with torch.no_grad():
        assert not P.trowmin(x).requires_grad
    with torch.inference_mode():
        y = torch.randn(2, 4, 8)
        assert P.tpartmin(y, y).is_inference()
        P.tpartmin_out(y, y, x.detach())
        assert torch.equal(P.trowmin(x), x.amin(2, keepdim=True))
    assert P.trowmin(x).requires_grad


def test_only_the_values_of_a_pair_carry_a_gradient() -> None:
    x, index = torch.randn(2, 4, 8, requires_grad=True), torch.zeros(2, 4, 8, dtype=torch.int32)
    value, chosen = P.tpartargmin(x, x.detach() + 1, index, index)
    assert value.requires_grad
    assert not chosen.requires_grad


def test_out_refuses_to_lose_a_gradient() -> None:
    x, dst = torch.randn(2, 4, 8, requires_grad=True), torch.zeros(2, 4, 8)
    with pytest.raises(pto.ConstraintError, match=r"TPARTMIN: src1 requires grad.*: allowed torch\.ops\.pto\.tpartmin"):
        P.tpartmin_out(dst, dst, x)
    assert not dst.any()
    with torch.no_grad():
        P.tpartmin_out(dst, dst, x)
    assert torch.equal(dst, x.detach().clamp(max=0))


def test_out_tells_autograd_that_dst_changed() -> None:
    x, weight = torch.randn(2, 4, 8), torch.randn(2, 4, 8, requires_grad=True)
    product = (x * weight).sum()  # keeps x for its gradient
    P.tpartmin_out(x, x, torch.zeros(2, 4, 8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_autocast_casts_only_what_differs() -> None:
    """A layer's bf16 output and an f32 slope meet in f32; one type alone stays, and indices are never cast."""
    half, single = torch.randn(2, 4, 16).half(), torch.randn(2, 4, 16, requires_grad=True)
    with pytest.raises(pto.TypeMismatch):
        P.tprelu(half, single)
    with torch.autocast("cpu", torch.bfloat16):
        assert P.tprelu(half, half).dtype == torch.float16
        assert torch.equal(P.tprelu(half, single), P.tprelu(half.float(), single))
        assert P.tpartmin(half, half.bfloat16()).dtype == torch.float32
        with pytest.raises(pto.TypeMismatch):
            P.tpartmin(single, torch.zeros(2, 4, 16, dtype=torch.int32))
        (g,) = torch.autograd.grad(P.tprelu(half, single).sum(), single)
    assert g.dtype == torch.float32
