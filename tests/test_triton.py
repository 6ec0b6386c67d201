"""The Triton backend's own paths: block shapes, strides, wide offsets, and what a launch is specialised on.

Known traps of Triton and where each is held (numbers of the project's list; threads in brackets):

- NaN in minima and reductions [triton#1566, #7349, #10291]: test_traps.py and test_conformance.py, against an oracle
  that is neither Triton nor its interpreter; compiled minima also by test_compiled_kernels.py.
- bf16 in the interpreter [triton#4972, #11584]: bf16 cases of test_conformance.py.
- integers that wrap, NumPy warnings [triton#9171, #11531]: test_traps.py; warnings are errors in this suite.
- offsets past 2^31 [triton#1058, FlagGems#4156]: test_offsets_past_2_to_the_31, test_codegen.py, scripts/gpu_check.
- grid axes above 65535 [triton#3299], empty grids [triton-ascend#984]: here, and test_conformance.py.
- masks and strides that stop vectors [triton#265, #4834]: test_codegen.py, test_row_strides_and_unaligned_bases.
- recompilation by value [triton#2939, #9547]: test_nothing_is_specialised_on_a_number, and counted in test_gpu.py.
- autotuning in every process [triton#6261, #9822]: a fixed rule by default; test_triton_tune.py.
- CuPy, streams, devices [cupy#8801, #7527; triton#2441, #5205]: test_cupy_interop.py, test_gpu.py.
- flushed subnormals, fused products [pytorch#125557]: test_traps.py, and the instructions in test_codegen.py.
"""

from __future__ import annotations

import importlib
import mmap
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from conftest import GPU, Backend
from rig import Case, assert_same, cases, check, draw_bits, full_regions, legal_regions, types_for

import pto_gpu as pto
from pto_gpu.backends import triton as backend_triton
from pto_gpu.backends import triton_plan
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Call, Role

BACKEND = Backend("triton", "cuda:0" if GPU else "cpu")
interpreted = pytest.mark.skipif(GPU, reason="host tiles: the kernels are compiled on this machine")


def _call(name: str, dtype: str, rows: int, cols: int, batch: int = 2, **region: Any) -> Call:
    record = instructions()[name]
    tiles = {
        o.name: pto.TileBuf.zeros(pto.TileBufType(dtype, rows, cols), batch, BACKEND.device, **region)
        for o in record.operands
        if o.role is not Role.TMP
    }
    return Call(record, tiles, pto.NUMERICS["isa"], "error", "a5")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every loop and every split of rows, columns and tiles is taken."""
    small = backend_triton.machine()._replace(block=triton_plan.Block(512, triton_plan.THREADS_PER_SOURCE))
    monkeypatch.setattr(backend_triton, "machine", lambda: small)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("numerics", ["isa", "simulator"])
@pytest.mark.parametrize("case", [c for c in cases("a5") if c.id.endswith(("f16", "f32", "u8", "f16-i16"))])
def test_many_blocks_for_one_tile(case: Case, numerics: str, rng: np.random.Generator) -> None:
    types = types_for(case, 3, 300)
    bits = draw_bits(rng, case, types, 3)
    check(case, types, bits, full_regions(case, types, 3), BACKEND, numerics=numerics, uniform=True)
    check(case, types, bits, legal_regions(rng, case, types, 3), BACKEND, numerics=numerics)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("case", [c for c in cases("a5") if c.id.endswith(("-f32", "-i8", "f32-i32"))])
def test_many_tiles_in_a_block_and_a_ragged_last_block(case: Case, rng: np.random.Generator) -> None:
    types = types_for(case, 2, 8)
    bits = draw_bits(rng, case, types, 13)
    check(case, types, bits, full_regions(case, types, 13), BACKEND, uniform=True)
    check(case, types, bits, legal_regions(rng, case, types, 13), BACKEND)


@interpreted
@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("stride", [32, 40, 48, 49])
@pytest.mark.parametrize("name", list(instructions()))
def test_row_strides_and_unaligned_bases(name: str, stride: int, offset: int, rng: np.random.Generator) -> None:
    """Rows that start on 16 bytes or not, at the same result; only aligned ones are reached by vectors."""
    record = instructions()[name]
    dtypes = dict(zip(("value", "index"), ("f16", "i16"), strict=True))
    tiles: dict[str, dict[str, pto.TileBuf]] = {"numpy": {}, "triton": {}}
    for o in record.operands:
        if o.role is Role.TMP:
            continue
        base = rng.integers(0, 1 << 16, (5, 7, stride + 8), np.uint16)
        for backend in tiles:
            ty = pto.TileBufType(dtypes[o.kind], 6, 32)
            x = base.copy()[:, 1:, offset : offset + 32].view(ty.element.numpy)
            tiles[backend][o.name] = pto.TileBuf.from_array(
                x, ty, 6, 1 if record.family == "row_reduce" and o.name == "dst" else 29
            )
    call = Call(record, tiles["triton"], pto.NUMERICS["isa"], "error", "a5")
    plan = triton_plan.plan_of(call, triton_plan.INTERPRETER)
    aligned = stride % 8 == 0 and offset % 8 == 0
    assert {plan.constants[f"{n}_vec"] for n in plan.operands} == {8 if aligned else 1}
    for backend, operands in tiles.items():
        getattr(pto, name)(**operands, backend=backend)
    for o in record.dsts:
        assert_same(tiles["triton"][o.name].numpy(), tiles["numpy"][o.name].numpy(), o.name)


@interpreted
@pytest.mark.parametrize("backwards", [slice(None, None, -1), slice(None, None, 2)])
def test_reversed_skipping_broadcast_and_read_only_sources(backwards: slice, rng: np.random.Generator) -> None:
    ty = pto.TileBufType("i16", 4, 16)
    a = rng.integers(-9, 9, (3, 8, 32)).astype(np.int16)[:, :4, ::2][:, ::-1, ::-1]
    b = np.broadcast_to(rng.integers(-9, 9, (4, 32)).astype(np.int16)[:, backwards][:, :16], (3, 4, 16))
    results = [
        pto.tpartmin(pto.TileBuf.from_array(a, ty), pto.TileBuf.from_array(b, ty, 3, 13), backend=backend)
        for backend in ("numpy", "triton")
    ]
    assert_same(results[1].numpy(), results[0].numpy(), "TPARTMIN")


def _sparse(nbytes: int) -> np.ndarray:
    """Zeros of which only touched pages take memory."""
    no_reserve = 0x4000  # MAP_NORESERVE, which the mmap module does not name
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve), "i1")


@interpreted
@pytest.mark.parametrize("step", [(1 << 30) + 64, (1 << 31) + 64, (1 << 32) + 64])
def test_offsets_past_2_to_the_31(step: int, rng: np.random.Generator) -> None:
    """Tiles gigabytes apart: within a block, and as the stride itself."""
    ty = pto.TileBufType("i8", 2, 32)
    memory = _sparse(3 * step + 64)
    far = np.lib.stride_tricks.as_strided(memory, (4, 2, 32), (step, 32, 1))
    far[...] = rng.integers(-128, 128, far.shape)
    near = rng.integers(-128, 128, far.shape).astype(np.int8)
    wanted = np.minimum(far, near)
    call = Call(
        instructions()["TPARTMIN"],
        {n: pto.TileBuf.from_array(x, ty) for n, x in {"dst": far, "src0": far, "src1": near}.items()},
        pto.NUMERICS["isa"],
        "error",
        "a5",
    )
    assert triton_plan.plan_of(call, triton_plan.INTERPRETER).constants["WIDE"]
    backend_triton.run(call)
    assert_same(far, wanted, "dst")
    assert not _call_is_wide("TPARTMIN")


def _call_is_wide(name: str) -> bool:
    wide: bool = triton_plan.plan_of(_call(name, "i8", 2, 32), triton_plan.Machine()).constants["WIDE"]
    return wide


def test_a_batch_past_65535_programs_stays_on_one_axis() -> None:
    plan = triton_plan.plan_of(_call("TPARTMIN", "f32", 64, 64), triton_plan.Machine())
    assert plan.programs(10_000_000) == 40_000_000
    assert plan.programs(1) == 4


def test_65537_tiles(rng: np.random.Generator) -> None:
    ty = pto.TileBufType("i8", 1, 32)
    a, b = rng.integers(-128, 128, (2, 65537, 1, 32)).astype(np.int8)
    cols = rng.integers(0, 33, 65537).astype(np.int32)

    def tiles(x: np.ndarray) -> pto.TileBuf:
        made = pto.TileBuf.zeros(ty, len(x), BACKEND.device, 1, cols)
        made.torch().copy_(torch.from_numpy(x))
        return made

    seen = pto.tpartmin(tiles(a), tiles(b), backend="triton").numpy()
    inside = np.arange(32) < cols[:, None, None]
    assert_same(seen, np.where(inside, np.minimum(a, b), 0), "dst")


@pytest.mark.parametrize("name", list(instructions()))
def test_nothing_is_specialised_on_a_number(name: str) -> None:
    """Batch, counts and strides are run-time values: 1, 3, 16 and 17 tiles are one compilation."""
    plans = {id(triton_plan.plan_of(_call(name, "f16", 16, 16, n), triton_plan.Machine())) for n in (1, 3, 16, 17)}
    assert len(plans) == 1
    family = str(instructions()[name].family)
    program = f"""
import importlib
kernel = getattr(importlib.import_module("pto_gpu.kernels.{family}"), "{family}")
free = [p.name for p in kernel.params if not (p.is_constexpr or p.do_not_specialize)]
print(*free)
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    record = instructions()[name]
    assert done.stdout.split() == [o.name for o in record.operands if o.role is not Role.TMP]


def test_partial_regions_share_a_specialisation() -> None:
    plans = [
        triton_plan.plan_of(_call("TPARTMIN", "f32", 16, 16, 4, valid_row=v), triton_plan.Machine()) for v in (3, 7, 15)
    ]
    assert plans[0] is plans[1] is plans[2]
    assert not plans[0].full
    assert triton_plan.plan_of(_call("TPARTMIN", "f32", 16, 16), triton_plan.Machine()).full


def test_counts_of_tiles_are_uploaded_once() -> None:
    call = _call("TPARTMIN", "f32", 16, 16, 4, valid_row=np.array([1, 2, 3, 4], np.int32))
    plan = triton_plan.plan_of(call, triton_plan.Machine())
    first = backend_triton.arguments_of(call, plan)
    again = backend_triton.arguments_of(call, plan)
    assert first["dst_rows"] is again["dst_rows"]
    assert first["dst_rows"].tolist() == [1, 2, 3, 4]
    assert first["dst_cols"] == 16


def test_full_contiguous_tiles_are_one_row() -> None:
    """So that 127x64 or 7x448 waste no lanes on padding."""
    for rows, cols in ((127, 64), (7, 448), (238, 40), (16, 16)):
        constants = triton_plan.plan_of(_call("TPARTMIN", "f32", rows, cols), triton_plan.Machine()).constants
        assert (constants["ROWS"], constants["COLS"]) == (1, rows * cols)


@pytest.mark.parametrize(
    ("rows", "cols", "elements", "block"),
    [
        (16, 16, 2048, (8, 16, 16)),
        (1, 16384, 2048, (1, 1, 2048)),
        (127, 64, 2048, (1, 32, 64)),
        (2048, 16, 2048, (1, 128, 16)),
        (3, 24, 2048, (16, 4, 32)),
        (1, 448, 2048, (4, 1, 512)),
        (1, 1040, 2048, (8, 1, 256)),
    ],
)
def test_block_shapes(rows: int, cols: int, elements: int, block: tuple[int, int, int]) -> None:
    assert triton_plan.block_shape(rows, cols, elements) == block


def test_host_tiles_without_the_interpreter_are_refused() -> None:
    program = """
import pto_gpu as pto
a = pto.TileBuf.zeros(pto.TileBufType("f32", 8, 8))
try:
    pto.TPARTMIN(a, a, a, backend="triton")
except pto.BackendError as error:
    print(error)
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("TPARTMIN: backend triton: tiles are in host memory: allowed tiles on a GPU")


def test_every_instruction_finds_its_kernel() -> None:
    for record in instructions().values():
        module = importlib.import_module(f"pto_gpu.kernels.{record.family}")
        assert callable(getattr(module, record.family).run)


@interpreted
def test_unified_buffer_tiles_have_a_pitch(rng: np.random.Generator) -> None:
    """Manual mode: the tiles of a batch lie one Unified Buffer apart, and dst may be src0."""
    content = rng.integers(-9, 9, (2, 5, 8, 16)).astype(np.float32)
    results = []
    for backend in ("numpy", "triton"):
        ub = pto.UnifiedBuffer(5)
        a, b = (ub.tile(pto.TileBufType("f32", 8, 16), 7, 11) for _ in range(2))
        pto.TASSIGN(a, 0x100)
        pto.TASSIGN(b, 0x1000)
        a.numpy()[...], b.numpy()[...] = content
        pto.TPRELU(a, a, b, backend=backend)
        results.append((a.numpy().copy(), b.numpy().copy()))
    for seen, wanted in zip(results[1], results[0], strict=True):
        assert_same(seen, wanted, "manual mode")
