"""The Triton side of the operators: launches, and what a compiler sees of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import oracle
import pytest
import torch
from conftest import GPU
from rig import Case, assert_same, cases, expected
from test_torch_ops import bits_of, drawn, tensor, valid_arguments

import pto_gpu as pto
from pto_gpu.isa import instructions
from pto_gpu.torch_ops.arguments import bind
from pto_gpu.torch_ops.implementations import new_results
from pto_gpu.torch_ops.launch import launch
from pto_gpu.torch_ops.tiles import static_of

interpreted = pytest.mark.skipif(GPU, reason="the kernels are compiled, and run through the operators")


@interpreted
@pytest.mark.parametrize("case", cases())
def test_launch_on_the_interpreter(case: Case, rng: np.random.Generator) -> None:
    """The launch that a GPU gets, on host tensors: full and per tile, each with sources of another capacity."""
    for grow in (False, True):
        bits, regions = drawn(rng, case, grow=grow)
        sources = [tensor(bits[n], case.dtype(n)) for n in case.record.assembly]
        call = bind(case.record, False, (*sources, *(valid_arguments(case, regions) if grow else ())), {})
        static = static_of(case.record, call)
        dsts = new_results(case.record, call, static)
        launch(case.record, call, static, dsts, traced=False)
        for name, wanted in expected(case, bits, regions, oracle.RULE_SETS["isa"]).items():
            assert_same(bits_of(dsts[name]), wanted, name)


@interpreted
@pytest.mark.parametrize("counts", [(9, 24), (5, 1 << 30), (1 << 30, 30)])
def test_counts_outside_a_tile_are_brought_into_it(counts: tuple[int, int]) -> None:
    """A GPU's valid regions are not read before the launch, so that the kernel must not leave its memory."""
    record = instructions()["TROWMIN"]
    source, result = torch.full((4, 7, 48), -2.0), torch.full((4, 7, 1), -2.0)
    src, dst = source[1:3, :5, :24], result[1:3, :5]  # a block has room for more rows and columns than a tile
    src[...] = 1
    call = bind(record, True, (dst, src, torch.tensor([counts, (-3, 2)], dtype=torch.int32)), {})
    launch(record, call, static_of(record, call), call.dsts, traced=False)
    assert (dst[0] == 1).all()
    dst[0] = -2
    assert (result == -2).all()


@interpreted
def test_a_dst_that_overlaps_a_source_is_refused() -> None:
    record = instructions()["TPARTMIN"]
    buffer = torch.zeros(48)
    whole = torch.ones(1, 4, 8)
    for dst in (buffer[8:40].view(1, 4, 8), buffer[:8].expand(1, 4, 8)):
        call = bind(record, True, (dst, buffer[:32].view(1, 4, 8), whole), {})
        with pytest.raises(pto.PtoError, match=r"TPARTMIN: (dst .* overlaps src0|elements of dst share memory)"):
            launch(record, call, static_of(record, call), call.dsts, traced=False)
    assert not buffer.any()


TRACE = """
import json, logging, torch, triton
from triton.backends.compiler import GPUTarget

class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

if not torch.cuda.is_available():
    triton.runtime.driver.set_active(Driver())  # which arguments a kernel writes is found out by compiling it

import pto_gpu.torch_ops
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

P = torch.ops.pto

class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)

def values(x, y, i, v):
    least, chosen = P.tpartargmin(x, y, i, i, v, v)
    return P.trowmin(P.tprelu(P.tpartmin(x, least, v, None), y, v), v), chosen

def out(x, y, i, v):
    P.tprelu_out(x, x, y, v)
    return (x.sum(),)

with FakeTensorMode(shape_env=ShapeEnv()):
    x, y = (torch.randn(5, 16, 32, device="cuda").half() for _ in range(2))
    i, v = torch.zeros(5, 16, 32, device="cuda").short(), torch.ones(5, 2, device="cuda").int()
found = []
for function in (values, out):
    graph, signature = aot_export_module(Module(function), (x, y, i, v), trace_joint=False)
    kernels = [
        node.kwargs["tensors_to_clone"]
        for node in graph.graph.nodes
        if node.target is torch.ops.higher_order.triton_kernel_wrapper_functional
    ]
    opaque = sum("pto" in str(node.target) for node in graph.graph.nodes)
    found.append((kernels, opaque, sorted(signature.user_inputs_to_mutate.values())))
print(json.dumps(found))
"""


def run_compiled(program: str) -> str:
    """The output of a program in which kernels are compiled, not interpreted; no GPU is needed to compile."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_trap_16_the_compiler_sees_the_kernels() -> None:
    """Operators on a GPU are traced into kernels, which write dst and nothing else."""
    values, out = json.loads(run_compiled(TRACE))
    assert sorted(values[0]) == [["dst"], ["dst"], ["dst"], ["dst_val", "dst_idx"]]
    assert out[0] == [["dst"]]
    assert values[1] == out[1] == 0
    assert values[2] == []
    assert len(out[2]) == 1


ONES = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pto_gpu.backends.triton import kernel_of
from pto_gpu.backends.triton_plan import Shape, machine_of, make_plan
from pto_gpu.isa import instructions
from pto_gpu.numerics import Numerics
from pto_gpu.types import ELEMENT_TYPES

TARGET = GPUTarget("cuda", 90, 32)
for record in instructions().values():
    names = [o.name for o in (*record.dsts, *record.sources)]
    shape = Shape(1, 64, (64, 64, 1), ELEMENT_TYPES["f16"], True)
    plan = make_plan(record, dict.fromkeys(names, shape), Numerics(), False, machine_of(TARGET))
    arguments = {"batch": 1, **plan.strides, **plan.constants}
    for name in names:
        arguments[f"{name}_rows"], arguments[f"{name}_cols"] = 1, 64
    kernel = kernel_of(plan)
    constants = {n: v for n, v in arguments.items() if n in kernel.arg_names and (n in plan.constants or v == 1)}
    signature = {n: "*fp16" if n in names else "constexpr" if n in constants else "i32" for n in kernel.arg_names}
    triton.compile(ASTSource(kernel, signature, constants, {}), target=TARGET)
    print(record.name)
"""


def test_trap_12_an_argument_of_one_may_be_a_constant() -> None:
    """Inductor makes a constant of a 1, whatever the kernel says about it; tensors come with their own types."""
    assert run_compiled(ONES).split() == list(instructions())
