"""Running programs: kernels against the Python calls, control flow, addresses, waves, inputs and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from asm_calls import LATE, TY, T, failure, parse, same, tiles
from asm_kernel import KERNEL, kernel_by_calls, kernel_inputs
from conftest import Backend
from rig import assert_same

import pto_gpu as pto
from pto_gpu.asm import interpret
from pto_gpu.asm import run as asm_run

# -- kernels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["isa", "simulator", "a5"])
def test_a_kernel_equals_the_python_calls(host_backend: Backend, numerics: str) -> None:
    inputs = kernel_inputs(9, 3)
    before = {name: np.copy(x) for name, x in inputs.items()}
    program = parse(KERNEL.read_text())
    assert program.target == "a2a3"
    seen = program.run(inputs, backend=host_backend.name, numerics=numerics)
    same(seen, kernel_by_calls(inputs, backend="numpy", numerics=numerics))
    for name, x in before.items():
        assert_same(np.asarray(inputs[name]), x, name)


def test_waves_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = kernel_inputs(23, 2)
    program = parse(KERNEL.read_text())
    wanted = program.run(inputs)
    counted = []
    real = interpret.Wave.__init__

    def counting(self: Any, start: int, stop: int, *rest: Any) -> None:
        counted.append((start, stop))
        real(self, start, stop, *rest)

    monkeypatch.setattr(interpret.Wave, "__init__", counting)
    monkeypatch.setattr(asm_run, "WAVE_BYTES", 5 * 22_000)  # a batch element has 21 KB of tiles
    same(program.run(inputs), wanted)
    assert counted == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 23)]


def test_snippet_waves_make_no_difference(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    a, b = tiles(rng, 40), tiles(rng, 40)
    valid = rng.integers(1, 17, (40, 2), dtype=np.int32)
    text = f"""
%m = tpartmin %a, %b : !pto.tile<...> -> !pto.tile<...>
%p = tprelu %m, %b : !pto.tile<...>
%k = pto.alloc_tile : {T}
pto.trowmin ins(%p : !pto.tile_buf<...>) outs(%r : !pto.tile_buf<...>)
pto.tpartmin ins(%b, %b : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%k : {T})
"""
    inputs = {"a": a, "a_valid": valid, "b": b}
    text = text.replace("tprelu %m, %b", "tprelu %m, %m")
    wanted = parse(text).run(inputs)
    assert list(wanted) == ["r", "k"]
    monkeypatch.setattr(asm_run, "WAVE_BYTES", 7 * 4 * 1024)
    same(parse(text).run(inputs), wanted)
    ta = pto.TileBuf.from_array(a, TY, valid[:, 0], valid[:, 1])
    m = pto.tpartmin(ta, pto.TileBuf.from_array(b, TY))
    same(wanted, {"r": pto.trowmin(pto.tprelu(m, m)).numpy(), "k": b})


def test_a_kernel_on_every_backend(backend: Backend) -> None:
    """Host arrays: with triton on a GPU the tiles of each wave are copied there, and the results back."""
    inputs = kernel_inputs(3, 2)
    seen = parse(KERNEL.read_text()).run(inputs, backend=backend.name)
    same(seen, kernel_by_calls(inputs, backend="numpy"))


@pytest.mark.gpu
def test_arrays_on_a_gpu() -> None:
    """The results are where the inputs are."""
    inputs = kernel_inputs(300, 2)
    there = {name: torch.from_numpy(x).to("cuda") if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
    seen = parse(KERNEL.read_text()).run(there)
    assert all(x.device.type == "cuda" for x in seen.values())
    same({name: x.cpu().numpy() for name, x in seen.items()}, kernel_by_calls(inputs, backend="numpy"))
    snippet = parse("%m = tpartmin %a, %b\npto.tassign %m, @tile(0x400)\n%r = trowmin %m")
    a, b = (inputs[name][:, :16, :16].copy() for name in "xy")
    valid = np.random.default_rng(0).integers(1, 17, (300, 2), dtype=np.int32)
    host = {"a": a, "b": b, "a_valid": valid, "b_valid": valid}
    there = {name: torch.from_numpy(x).to("cuda") if name in "ab" else x for name, x in host.items()}
    wanted = snippet.run(host, backend="numpy", outputs=["m", "r"])
    seen = snippet.run(there, outputs=["m", "r"])
    same({name: x.cpu().numpy() for name, x in seen.items()}, wanted)


# -- control flow -------------------------------------------------------------------------------------------


LOOP = f"""
func.func private @least(%x: {T}, %y: {T}) -> {T} {{
  %z = pto.tpartmin %x, %y : ({T}, {T}) -> {T}
  return %z : {T}
}}
func.func @reduce(%p: !pto.tensor_view<?x16xf32>, %blocks: i32, %cut: index) -> {T} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %n = arith.index_cast %blocks : i32 to index
  %end = arith.minsi %n, %cut : index
  %rows = arith.muli %end, %c16 : index
  %first = pto.partition_view %p, offsets = [%c0, %c0], sizes = [%c16, %c16] : !pto.tensor_view<?x16xf32> -> !pto.partition_tensor_view<16x16xf32>
  %t = pto.tload %first : (!pto.partition_tensor_view<16x16xf32>) -> {T}
  %r = scf.for %i = %c16 to %rows step %c16 iter_args(%acc = %t) -> ({T}) {{
    %part = pto.partition_view %p, offsets = [%i, %c0], sizes = [%c16, %c16] : !pto.tensor_view<?x16xf32> -> !pto.partition_tensor_view<16x16xf32>
    %x = pto.tload %part : (!pto.partition_tensor_view<16x16xf32>) -> {T}
    %y = func.call @least(%acc, %x) : ({T}, {T}) -> {T}
    scf.yield %y : {T}
  }}
  %few = arith.cmpi slt, %end, %n : index
  scf.if %few {{
    pto.tprelu ins(%r, %t : {T}, {T}) outs(%r : {T})
  }}
  return %r : {T}
}}
"""  # noqa: E501


@pytest.mark.parametrize(("blocks", "cut"), [(1, 9), (4, 9), (4, 3)])
def test_loops_branches_and_calls(blocks: int, cut: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 64, 16), dtype=np.float32)
    seen = parse(LOOP).run({"p": x, "blocks": blocks, "cut": cut})
    parts = x[:, : 16 * min(blocks, cut)].reshape(3, -1, 16, 16)
    wanted = parts.min(axis=1)
    if cut < blocks:
        wanted = np.where(wanted > 0, wanted, wanted * parts[:, 0])
    same(seen, {"r": wanted})


def test_a_loop_must_go_upwards_and_end() -> None:
    text = f"""func.func @f(%x: {T}, %n: index, %step: index) {{
  %c0 = arith.constant 0 : index
  scf.for %i = %c0 to %n step %step {{
    %k = arith.addi %i, %i : index
  }}
  %y = pto.tprelu %x, %x : ({T}, {T}) -> {T}
  return
}}"""
    x = np.zeros((1, 16, 16), np.float32)
    assert failure(parse(text), {"x": x, "n": 4, "step": 0}) == (
        3,
        3,
        "scf.for: the step of a loop must be positive: seen 0",
    )
    program = parse(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asm_run, "MAX_STEPS", 1000)
        message = failure(program, {"x": x, "n": 1 << 62, "step": 1})[2]
    assert message.endswith("the program runs more than 1000 operations")


VIEWED = "!pto.tensor_view<?x16xf32>"
PARTED = "!pto.partition_tensor_view<?x16xf32>"


def _cut(offset: str, size: str, part: str = PARTED) -> str:
    return f"%v = pto.partition_view %p, offsets = [{offset}, %c0], sizes = [{size}, %c16] : {VIEWED} -> {part}"


def _viewed(size: str, stride: str, view: str = VIEWED) -> str:
    return f"%v = pto.make_tensor_view %q, shape = [{size}, %c16], strides = [{stride}, %c1] : {view}"


@pytest.mark.parametrize(
    ("line", "i", "message"),
    [
        (_cut("%i", "%c16"), 17, "17 + 16 in dimension 0 is past the end of the view, which has 32"),
        (_cut("%i", "%c16"), -1, "offset -1 of dimension 0 must not be negative"),
        (_cut("%c0", "%i"), 0, "size 0 of dimension 0 must be positive"),
        (
            _cut("%c0", "%i", PARTED.replace("?", "16")),
            9,
            "size 9 of dimension 0 differs from the type, which says 16",
        ),
        (_viewed("%i", "%c16"), -1, "shape has -1 where the type has ?"),
        (_viewed("%i", "%c16", VIEWED.replace("?", "16")), 9, "shape has 9 where the type has 16"),
        (_viewed("%c1", "%i"), -3, "stride -3 must not be negative"),
    ],
)
def test_views_that_only_a_run_knows(line: str, i: int, message: str) -> None:
    text = f"""func.func @f(%p: {VIEWED}, %q: !pto.ptr<f32>, %from: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %to = arith.addi %from, %c1 : index
  scf.for %i = %from to %to step %c1 {{
    {line}
  }}
  return
}}"""
    x = np.zeros((3, 32, 16), np.float32)
    name = line.split()[2]
    assert failure(parse(text), {"p": x, "q": x, "from": i}) == (7, 10, f"{name}: {message}")


# -- addresses ----------------------------------------------------------------------------------------------


def test_tiles_at_one_address_share_bytes(rng: np.random.Generator) -> None:
    """A tile that is read at an address holds what was written there through another."""
    text = f"""
%a0 = arith.constant 4096 : i64
%a1 = arith.constant 4608 : i64
%x = pto.alloc_tile addr = %a0 : {T}
%half = pto.alloc_tile addr = %a1 : !pto.tile_buf<vec, 8x16xf32>
pto.tload ins(%v : !pto.tensor_view<16x16xf32>) outs(%x : {T})
pto.tpartmin ins(%half, %half : !pto.tile_buf<vec, 8x16xf32>, !pto.tile_buf<vec, 8x16xf32>) outs(%lower : !pto.tile_buf<vec, 8x16xf32>)
pto.tassign %half, @tile(0x1000)
pto.tpartmin ins(%half, %half : !pto.tile_buf<vec, 8x16xf32>, !pto.tile_buf<vec, 8x16xf32>) outs(%upper : !pto.tile_buf<vec, 8x16xf32>)
"""  # noqa: E501
    x = tiles(rng)
    same(parse(text).run({"v": x}), {"lower": x[:, 8:], "upper": x[:, :8], "x": x})


def test_inputs_move_to_their_addresses(rng: np.random.Generator) -> None:
    """The second input is put where the first lies; both names then mean its bytes."""
    text = f"""
tassign %a, %here : {T}, index
tassign %b, %here : {T}, index
%m = tpartmin %a, %c : {T} -> {T}
"""
    a, b, c = tiles(rng), tiles(rng), tiles(rng)
    same(parse(text).run({"a": a, "b": b, "c": c, "here": 0x200}), {"m": np.minimum(b, c)})
    message = "TASSIGN: address=0x201 is not aligned: allowed multiples of 32"
    assert failure(parse(text), {"a": a, "b": b, "c": c, "here": 0x201}) == (2, 1, message)


def test_an_overlap_is_refused_as_in_python(rng: np.random.Generator) -> None:
    text = f"""
tassign %a, %here : {T}, index
pto.tassign %m, @tile(0x400) : {T}
pto.tpartmin ins(%a, %a : {T}, {T}) outs(%m : {T})
"""
    ub = pto.UnifiedBuffer(6, target="a5")
    a, m = pto.TASSIGN(ub.tile(TY), 0x200), pto.TASSIGN(ub.tile(TY), 0x400)
    with pytest.raises(pto.AddressError) as refused:
        pto.TPARTMIN(m, a, a)
    assert failure(parse(text), {"a": tiles(rng), "here": 0x200}) == (4, 1, str(refused.value))
    assert parse(text).run({"a": tiles(rng), "here": 0})["m"].shape == (6, 16, 16)


# -- valid regions ------------------------------------------------------------------------------------------


def test_results_are_zero_outside_their_valid_regions(rng: np.random.Generator) -> None:
    x = tiles(rng)
    valid = rng.integers(0, 17, (6, 2), dtype=np.int32)
    inside = (np.arange(16)[:, None] < valid[:, 0, None, None]) & (np.arange(16) < valid[:, 1, None, None])
    wanted = np.where(inside, np.minimum(x, 0) * x + np.maximum(x, 0), 0).astype(np.float32)
    for text in (
        "%d = pto.tprelu %a, %a : (!pto.tile<...>, !pto.tile<...>) -> !pto.tile<...>",
        "pto.tprelu ins(%a, %a : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%d : !pto.tile_buf<...>)",
        f"%d = tprelu %a, %a : {LATE}",
        f"%d = tprelu %a, %a : {LATE}\npto.tassign %d, @tile(0x40)\n%e = trowmin %a",
    ):
        if "trowmin" in text:
            valid = np.maximum(valid, 1)
            inside = (np.arange(16)[:, None] < valid[:, 0, None, None]) & (np.arange(16) < valid[:, 1, None, None])
            wanted = np.where(inside, np.minimum(x, 0) * x + np.maximum(x, 0), 0).astype(np.float32)
        assert_same(parse(text).run({"a": x, "a_valid": valid})["d"], wanted, text)
    tile = pto.TileBuf.from_array(x, TY, valid[:, 0], valid[:, 1])
    assert_same(parse("%d = tprelu %a, %a").run({"a": tile})["d"], wanted, "TileBuf")


def test_set_validshape(rng: np.random.Generator) -> None:
    text = f"""
%c4 = arith.constant 4 : index
%t = pto.alloc_tile valid_row = %n valid_col = %n : {LATE}
pto.tpartmin ins(%a, %a : {LATE}, {LATE}) outs(%t : {LATE})
pto.set_validshape %t, %c4, %n : {LATE}
%r = trowmin %t
"""
    x = tiles(rng)
    x[:, 9:] = x[:, :, 9:] = -99
    wanted = np.zeros((6, 16, 1), np.float32)
    wanted[:, :4, 0] = x[:, :4, :9].min(axis=2)
    same(parse(text).run({"a": x, "a_valid": [9, 9], "n": 9}), {"r": wanted})
    message = "pto.alloc_tile: valid_row=17 is out of range: allowed 0 to 16"
    assert failure(parse(text), {"a": x, "n": 17}) == (3, 6, message)


def test_a_rule_broken_by_some_tiles_names_them_and_the_line(rng: np.random.Generator) -> None:
    valid = np.full((6, 2), 16, np.int32)
    valid[[2, 4]] = 7, 9
    program = parse("\n  %d = tpartmin %a, %b : !pto.tile<...> -> !pto.tile_buf<vec, 16x16xf32>")
    x = tiles(rng)
    part = pto.TileBuf.from_array(x, TY, valid[:, 0], valid[:, 1])
    with pytest.raises(pto.ConstraintError) as refused:
        pto.TPARTMIN(pto.TileBuf.zeros(TY, 6), part, part)
    assert failure(program, {"a": x, "a_valid": valid, "b": x, "b_valid": valid}) == (2, 8, str(refused.value))
    seen = program.run({"a": x, "a_valid": valid, "b": x, "b_valid": valid}, undefined="zero")
    assert not seen["d"][2, 7:].any()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asm_run, "WAVE_BYTES", 3 * 1024)
        two = "%e = tprelu %a, %b\n" + "%d = tpartmin %e, %b : !pto.tile<...> -> !pto.tile_buf<vec, 16x16xf32>"
        message = failure(parse(two), {"a": x, "a_valid": valid, "b": x, "b_valid": valid})[2]
    assert "1 of 3 tiles break this, first tile 2" in message
    assert message.endswith("(tiles counted from 0)")


def test_elements_that_nothing_writes_are_zero_in_every_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    """TROWMIN fills one column of a wider tile, which the last wave left full of something else."""
    text = f"""
%t = pto.alloc_tile : {T}
%u = pto.alloc_tile : {T}
pto.trowmin ins(%a : {T}) outs(%t : {T})
pto.tpartmin ins(%t, %t : {T}, {T}) outs(%r : {T})
pto.tpartmin ins(%a, %a : {T}, {T}) outs(%t : {T})
pto.tpartmin ins(%t, %t : {T}, {T}) outs(%u : {T})
"""
    a = np.random.default_rng(3).standard_normal((9, 16, 16), dtype=np.float32)
    wanted = np.zeros_like(a)
    wanted[:, :, 0] = a.min(axis=2)
    monkeypatch.setattr(asm_run, "WAVE_BYTES", 3 * 1024)
    same(parse(text).run({"a": a}), {"r": wanted, "u": a})


def test_a_loop_may_write_what_it_is_given(rng: np.random.Generator) -> None:
    """Through another name: neither the array that was loaded nor the tile of the last round may change."""
    text = f"""func.func @f(%p: !pto.tensor_view<16x16xf32>, %q: !pto.tensor_view<16x16xf32>, %n: index) -> {T} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = pto.tload %q : (!pto.tensor_view<16x16xf32>) -> {T}
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%last = %y) -> ({T}) {{
    %x = pto.tload %p : (!pto.tensor_view<16x16xf32>) -> {T}
    %z = pto.tpartmin %x, %x : ({T}, {T}) -> {T}
    %s = scf.for %j = %c0 to %i step %c1 iter_args(%m = %z) -> ({T}) {{
      pto.tpartmin ins(%m, %last : {T}, {T}) outs(%m : {T})
      scf.yield %m : {T}
    }}
    scf.for %j = %c0 to %c1 step %c1 iter_args(%m = %x) -> ({T}) {{
      pto.tprelu ins(%m, %m : {T}, {T}) outs(%m : {T})
      scf.yield %m : {T}
    }}
    scf.yield %s : {T}
  }}
  return %r : {T}
}}"""
    p, q = tiles(rng), tiles(rng)
    before = p.copy()
    same(parse(text).run({"p": p, "q": q, "n": 1}), {"r": p})
    same(parse(text).run({"p": p, "q": q - 9, "n": 2}), {"r": p})
    assert_same(p, before, "p")


def test_a_written_tile_that_is_assigned_moves_to_the_address(rng: np.random.Generator) -> None:
    program = parse(f"""
%m = pto.tpartmin %a, %a : ({T}, {T}) -> {T}
tassign %m, @tile(0x100) : {T}
%c = arith.constant 256 : i64
%same = pto.alloc_tile addr = %c : {T}
%n = pto.tpartmin %same, %same : ({T}, {T}) -> {T}
""")
    x = tiles(rng)
    same(program.run({"a": x}, outputs=["n"]), {"n": x})


def test_a_tile_written_at_an_address_that_only_the_run_knows(rng: np.random.Generator) -> None:
    """Verification must not take the bytes there for unwritten; the run knows."""
    program = parse(f"""
%t = pto.tpartmin %a, %a : ({T}, {T}) -> {T}
tassign %t, @tile(0x5000) : {T}
tassign %t, %k : {T}, i64
pto.tpartmin ins(%b, %b : {T}, {T}) outs(%t : {T})
tassign %t, @tile(0x300) : {T}
%n = pto.tpartmin %t, %t : ({T}, {T}) -> {T}
""")
    x, y = tiles(rng), tiles(rng)
    seen = program.run({"a": x, "b": y, "k": 0x100}, outputs=["n"])["n"]
    assert_same(seen[:, :8], y[:, 8:], "n")
    elsewhere = failure(program, {"a": x, "b": y, "k": 0x1000}, outputs=["n"])
    assert elsewhere == (7, 6, "pto.tpartmin: %t is read, but nothing wrote it")
