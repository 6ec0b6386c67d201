"""``torch.ops.pto.*`` under torch.library.opcheck, torch.compile, torch.export and torch.vmap."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rig import Case, as_bits, assert_same, cases, draw_bits, types_for
from special_values import all_pairs
from test_torch_gradients import FLOATS
from test_torch_ops import BATCH, DEVICES, P, bits_of, operator, regions_for, results_of, tensor, valid_arguments
from torch._dynamo.utils import counters
from torch.library import opcheck

from pto_gpu.types import ELEMENT_TYPES

pytestmark = [
    # Raised while torch imports Inductor and exports, whatever is compiled.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]


#: What costs a few hundredths of a second. Tracing forwards and backwards on top costs up to two: for one call and the
#: out-variant of every element type, and for every form of a call on one element type of each operator.
STATIC = ("test_schema", "test_autograd_registration", "test_faketensor")
EVERYTHING = (*STATIC, "test_aot_dispatch_dynamic")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compilations() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", cases())
def test_opcheck(case: Case, device: str, rng: np.random.Generator) -> None:
    """Every operator and element type: full, per tile, expanded; the values requiring grad; the out-variant."""
    types = types_for(case, 5, 16)
    sources = []
    for name in case.record.assembly:  # opcheck takes two NaN for different
        x = rng.integers(0, 50, (BATCH, types[name].rows, types[name].cols)).astype(types[name].element.numpy)
        sources.append(tensor(as_bits(x), case.dtype(name), device))
    valid = valid_arguments(case, regions_for(rng, case, types), device)
    function = operator(case).default
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in sources]
    slices = [x.new_zeros((2, *x.shape))[1].copy_(x) for x in sources]
    expanded = [x[:1].expand_as(x) for x in sources]
    results = [torch.zeros_like(x) for x in results_of(function(*sources))]
    out = operator(case, "_out").default
    opcheck(function, (*leaves, *valid), test_utils=EVERYTHING)
    opcheck(out, (*results, *sources, *valid), test_utils=EVERYTHING)
    which = EVERYTHING if case.signature == case.record.element_types["a5"][0] else STATIC
    for call in (leaves, (*slices, None), (*expanded, *valid)):
        opcheck(function, tuple(call), test_utils=which)
    for words in ({"formulation": "torch"}, {"numerics": "simulator", "undefined": "zero"}):
        opcheck(function, (*leaves, *valid), words, test_utils=which)
        opcheck(out, (*results, *sources), words, test_utils=which)


class Model(torch.nn.Module):
    """Tiles of 16x32 through a layer, TPRELU with a slope for each column, and TROWMIN."""

    def __init__(self, formulation: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(32, 32)
        self.slope = torch.nn.Parameter(torch.rand(32))
        self.words = {"formulation": formulation}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        least: torch.Tensor = P.trowmin(P.tprelu(hidden, self.slope.expand_as(hidden), **self.words), **self.words)
        return least


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("formulation", ["kernel", "torch"])
def test_inside_a_model(formulation: str, device: str) -> None:
    model, x = Model(formulation).to(device), torch.randn(3, 16, 32, device=device)
    compiled = torch.compile(model, fullgraph=True)
    outcomes = []
    for forward in (model, compiled):
        model.zero_grad()
        y = forward(x)
        y.sum().backward()
        outcomes.append([y.detach(), *(p.grad.clone() for p in model.parameters())])
    for eager, seen in zip(*outcomes, strict=True):
        torch.testing.assert_close(seen, eager, rtol=1e-6, atol=1e-6)
    assert compilations() == 1


def test_autocast_inside_a_model() -> None:
    model, x = Model("kernel"), torch.randn(3, 16, 32)
    with torch.autocast("cpu", torch.bfloat16):
        eager, compiled = model(x), torch.compile(model, fullgraph=True)(x)
    assert eager.dtype == compiled.dtype == torch.float32
    assert torch.equal(eager, compiled)


def chain(x: torch.Tensor, y: torch.Tensor, valid: torch.Tensor) -> Any:
    least, index = P.tpartargmin(x, y, valid_index(x), valid_index(y) + 1, valid, None)
    return P.trowmin(P.tprelu(P.tpartmin(x, least, valid, None), y)), index


def valid_index(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x, dtype=torch.int32)


def operands(batch: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(batch)
    x, y = (torch.randn(batch, 2, 8, generator=generator) for _ in range(2))
    rows = torch.randint(0, 3, (batch, 1), generator=generator)
    valid = torch.cat([rows, torch.randint(0, 9, (batch, 1), generator=generator)], 1).to(torch.int32)
    return x.to(device), y.to(device), valid.to(device)


#: How the batch is made dynamic, and how many compilations that takes: torch compiles a size of 1 apart, unless it is
#: told that the size is not to be looked at.
DYNAMIC = {
    "unbacked": ({}, torch._dynamo.decorators.mark_unbacked, 1),
    "marked": ({}, torch._dynamo.mark_dynamic, 2),
    "dynamic=True": ({"dynamic": True}, None, 2),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", list(DYNAMIC))
def test_trap_15_one_compilation_for_every_batch(kind: str, device: str) -> None:
    words, mark, wanted = DYNAMIC[kind]
    compiled = torch.compile(chain, fullgraph=True, **words)
    for batch in (3, 1, 16, 17, 100_000):
        call = operands(batch, device)
        if mark is not None:
            for x in call:
                mark(x, 0)
        seen = compiled(*call)
        for x, y in zip(seen, chain(*operands(batch, device)), strict=True):
            assert torch.equal(x, y)
    assert compilations() == wanted


def test_trap_15_a_static_batch_compiles_for_each_until_it_is_dynamic() -> None:
    compiled = torch.compile(chain, fullgraph=True, dynamic=False)
    for batch in (3, 16, 3):
        for x, y in zip(compiled(*operands(batch)), chain(*operands(batch)), strict=True):
            assert torch.equal(x, y)
    assert compilations() == 2


def into_slices(buffer: torch.Tensor) -> torch.Tensor:
    P.tpartmin_out(buffer[0], buffer[1], buffer[2])
    P.tpartmin_out(buffer[1], buffer[1], buffer[0])
    P.trowmin_out(buffer[2, :, :, :8], buffer[1])
    return buffer.sum(0)


def into_arguments(dst: torch.Tensor, src0: torch.Tensor, src1: torch.Tensor) -> torch.Tensor:
    P.tprelu_out(dst, src0, src1)
    return dst + src0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "call",
    [
        lambda f, b: f(into_slices)(b),
        lambda f, b: f(into_arguments)(b[0], b[1], b[2]),
        lambda f, b: f(into_arguments)(b[0], b[0], b[2]),
    ],
    ids=["inside", "arguments", "in place"],
)
def test_trap_14_out_of_slices_of_one_buffer(call: Callable[..., torch.Tensor], device: str) -> None:
    """Compiled and eager leave the same bytes in the whole buffer."""
    buffer = torch.randn(3, 4, 16, 16, device=device)
    eager, compiled = buffer.clone(), buffer.clone()
    wanted = call(lambda f: f, eager)
    seen = call(lambda f: torch.compile(f, fullgraph=True), compiled)
    assert torch.equal(seen, wanted)
    assert torch.equal(compiled, eager)
    assert not torch.equal(eager, buffer)


@pytest.mark.parametrize("dtype", ["u16", "u32"])
@pytest.mark.parametrize("formulation", ["kernel", "torch"])
def test_trap_18_unsigned_tiles_compile(dtype: str, formulation: str, rng: np.random.Generator) -> None:
    """torch has no arithmetic on u16 and u32 on the CPU, and Inductor no selection."""
    case = next(c.values[0] for c in cases() if c.values[0].signature == (dtype,))
    bits = draw_bits(rng, case, types_for(case, 4, 16), BATCH)
    a, b = (tensor(bits[n], dtype) for n in case.sources)

    def least(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = P.tpartmin(a, b, formulation=formulation)
        return result

    wanted = np.minimum(bits["src0"], bits["src1"])
    assert_same(bits_of(least(a, b)), wanted, "eager")
    assert_same(bits_of(torch.compile(least, fullgraph=True)(a, b)), wanted, "compiled")


@pytest.mark.parametrize("case", [c for c in FLOATS if len(c.values[0].sources) == 2])
def test_the_compiled_formula_keeps_bits(case: Case) -> None:
    """Every pair of special values. Inductor loads 16-bit floats as f32, which NaN payloads do not survive."""
    element = ELEMENT_TYPES[case.signature[0]]
    pairs = [np.resize(x, (1, -(-len(x) // 32), 32)) for x in all_pairs(element.name)]
    sources = [tensor(x, element.name) for x in pairs]
    compiled = torch.compile(lambda *x: operator(case)(*x, formulation="torch"), fullgraph=True)(*sources)
    kernel = operator(case)(*sources)
    seen, wanted = bits_of(compiled), bits_of(kernel)
    if element.bits == 16:
        both_nan = (compiled.isnan() & kernel.isnan()).numpy()
        seen, wanted = (np.where(both_nan, 0, x) for x in (seen, wanted))
    assert_same(seen, wanted, element.name)


def test_trap_17_intrinsics_do_not_go_through_operators() -> None:
    """A custom operator costs more than a call of the kernel: only who asks for one pays."""
    program = """
import sys, numpy as np, pto_gpu as pto
ty = pto.TileBufType("f32", 4, 8)
pto.tpartmin(*(pto.TileBuf.zeros(ty, 3) for _ in range(2)), backend="cpu")
assert not any(name.startswith("pto_gpu.torch_ops") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=120)


def test_export() -> None:
    """The operators stay in an exported program, for any batch; it runs where this package is imported."""
    model = Model("kernel")
    dynamic = {"x": {0: torch.export.Dim("batch", min=1)}}
    program = torch.export.export(model, (torch.randn(5, 16, 32),), dynamic_shapes=dynamic)
    names = [str(node.target) for node in program.graph.nodes if "pto" in str(node.target)]
    assert names == ["pto.tprelu.default", "pto.trowmin.default"]
    for batch in (1, 7):
        x = torch.randn(batch, 16, 32)
        assert torch.equal(program.module()(x), model(x))


@pytest.mark.parametrize("case", cases())
def test_vmap(case: Case, rng: np.random.Generator) -> None:
    """A vmapped dimension anywhere, and sources that are the same for all of it."""
    types = types_for(case, 3, 16)
    stacked = [draw_bits(rng, case, types, BATCH) for _ in range(3)]
    valid = valid_arguments(case, regions_for(rng, case, types))
    names = case.record.assembly
    sources = [[tensor(bits[n], case.dtype(n)) for bits in stacked] for n in names]
    integer = {2: torch.int16, 4: torch.int32, 1: torch.int8}
    dims = [(1, 0)[i % 2] if i != 1 else None for i in range(len(names))]
    arguments = [
        x[0] if dim is None else torch.stack([y.view(integer[y.element_size()]) for y in x], dim).view(x[0].dtype)
        for x, dim in zip(sources, dims, strict=True)
    ]
    outcome = torch.vmap(operator(case), in_dims=(*dims, *(None for _ in valid)))(*arguments, *valid)
    for i in range(3):
        one = operator(case)(*(x[0 if dim is None else i] for x, dim in zip(sources, dims, strict=True)), *valid)
        for seen, wanted in zip(results_of(outcome), results_of(one), strict=True):
            assert_same(bits_of(seen[i]), bits_of(wanted), f"{i}")
    assert ELEMENT_TYPES[case.signature[0]].itemsize == results_of(outcome)[0].element_size()
