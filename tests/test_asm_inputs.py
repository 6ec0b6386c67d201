"""Inputs of a run, and its results: what is bound, what is returned, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from asm_calls import T, failure, parse, same, tiles
from asm_kernel import KERNEL, kernel_inputs
from rig import assert_same

import pto_gpu as pto


def test_what_is_returned(rng: np.random.Generator) -> None:
    a, b = tiles(rng), tiles(rng)
    snippet = parse("%m = tpartmin %a, %b\n%p = tprelu %m, %a\n%q = tpartmin %m, %b")
    assert list(snippet.run({"a": a, "b": b})) == ["p", "q"]
    chosen = snippet.run({"a": a, "b": b}, outputs=["m", "a"])
    same(chosen, {"a": a, "m": np.minimum(a, b)})
    message = "there is no tile 'z' to return: allowed a, b, m, p, q"
    assert failure(snippet, {"a": a, "b": b}, outputs=["z"])[2] == message
    function = parse(f"""func.func @f(%a: {T}, %b: {T}, %d: {T}) -> {T} {{
  pto.tpartmin ins(%a, %b : {T}, {T}) outs(%d : {T})
  %r = pto.tprelu %d, %d : ({T}, {T}) -> {T}
  return %r : {T}
}}""")
    least = np.minimum(a, b)
    same(function.run({"a": a, "b": b}), {"d": least, "r": np.where(least > 0, least, least * least)})


def test_an_input_that_is_written_is_copied(rng: np.random.Generator) -> None:
    a, b = tiles(rng), tiles(rng)
    before = a.copy()
    in_place = parse(f"pto.tpartmin ins(%a, %b : {T}, {T}) outs(%a : {T})")
    same(in_place.run({"a": a, "b": b}), {"a": np.minimum(a, b)})
    stored = parse(f"""func.func @f(%p: !pto.tensor_view<2x16x16xf32>, %t: {T}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %q = pto.partition_view %p, offsets = [%c1, %c0, %c0], sizes = [%c1, %c16, %c16] : !pto.tensor_view<2x16x16xf32> -> !pto.partition_tensor_view<1x16x16xf32>
  pto.tstore ins(%t : {T}) outs(%q : !pto.partition_tensor_view<1x16x16xf32>)
  return
}}""")  # noqa: E501
    both = np.stack([a, a], axis=1)
    same(stored.run({"p": both, "t": b}), {"p": np.stack([a, b], axis=1)})
    same(stored.run({"t": b}), {"p": np.stack([np.zeros_like(b), b], axis=1)})
    assert_same(both[:, 1], before, "p")
    assert_same(a, before, "a")


def test_strided_views(rng: np.random.Generator) -> None:
    """Every other row of a transposed matrix: the view's strides, not the array's shape, say where elements are."""
    text = """
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%c16 = arith.constant 16 : index
%c32 = arith.constant 32 : index
%v = pto.make_tensor_view %p, shape = [%c16, %c16], strides = [%c2, %c32] {layout = #pto.layout<dn>} : !pto.tensor_view<16x16xf32>
%t = pto.tload %v : (!pto.tensor_view<16x16xf32>) -> !pto.tile<...>
%r = tpartmin %t, %t
"""  # noqa: E501
    x = rng.standard_normal((3, 16, 32), dtype=np.float32)
    same(parse(text).run({"p": x}), {"r": np.ascontiguousarray(x.swapaxes(1, 2)[:, ::2])})
    assert "takes 511 of the 256 elements of %p" in failure(parse(text), {"p": x[:, :8].copy()})[2]


@pytest.mark.parametrize("dtype", ["bf16", "u16", "f16"])
def test_torch_tensors_and_bits(dtype: str) -> None:
    bits = np.arange(2 * 256, dtype=np.uint16).reshape(2, 16, 16)
    element = pto.ELEMENT_TYPES[dtype]
    mlir = "ui16" if dtype == "u16" else dtype
    program = parse(f"%m = tpartmin %a, %a : !pto.tile<16x16x{mlir}>")
    wanted = program.run({"a": bits.view(element.numpy)})["m"]
    assert wanted.dtype == element.numpy
    assert_same(wanted, bits, dtype)
    tensor = torch.from_numpy(bits.view(np.int16)).view(getattr(torch, element.torch_name))
    assert_same(program.run({"a": tensor})["m"], wanted, "torch")
    if dtype == "bf16":
        assert_same(program.run({"a": bits})["m"], wanted, "bits")
        assert_same(parse("%m = tpartmin %a, %a").run({"a": tensor})["m"], wanted, "open type")


BAD_INPUTS = [
    ({}, "input a is missing: a tile, !pto.tile_buf<vec, 16x16xf32>"),
    ({"a": 3.5}, "input a: a NumPy, torch or CuPy array is needed: seen float"),
    ({"a": np.zeros((2, 16, 16))}, "input a: array of float64: the tile type says f32"),
    ({"a": np.zeros((2, 8, 16), np.float32)}, "input a: shape [2, 8, 16]: the tile type needs [batch, 16, 16]"),
    ({"a": np.zeros((2, 16, 16), np.float32), "a_valid": [8, 16]}, "input a: the type says valid_row=16: write ?"),
    ({"a": np.zeros((2, 16, 16), np.float32), "n": 1.5}, "input n must be an integer: seen 1.5"),
    ({"a": np.zeros((2, 16, 16), np.float32), "n": 1 << 64}, "input n is out of range"),
    ({"a": np.zeros((2, 16, 16), np.float32), "n": 1}, "input s is missing: a scalar, f32"),
    ({"a": np.zeros((2, 16, 16), np.float32), "n": 1, "s": "x"}, "input s must be a number, f32: seen str"),
    ({"A": 1}, "there is no input 'A': allowed a, n, s, p"),
    ({"a": np.zeros((2, 16, 16), np.float32), "n": 1, "s": 2}, "input p is missing: an array [batch, ...] of f32"),
    (
        {"a": np.zeros((2, 16, 16), np.float32), "n": 1, "s": 2, "p": np.zeros((3, 256), np.float32)},
        "input p has a batch of 3: allowed 2, that of a",
    ),
    (
        {"a": pto.TileBuf.zeros(pto.TileBufType("f32", 32, 16), 2)},
        "input a: a tile of f32 32x16: the program says f32 16",
    ),
]


@pytest.mark.parametrize(("inputs", "message"), BAD_INPUTS)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], message: str) -> None:
    program = parse(f"""func.func @f(%a: {T}, %n: index, %s: f32, %p: !pto.ptr<f32>) {{
  %c1 = arith.constant 1 : index
  %v = pto.make_tensor_view %p, shape = [%n], strides = [%c1] : !pto.tensor_view<?xf32>
  %m = pto.tpartmin %a, %a : ({T}, {T}) -> {T}
  return
}}""")
    with pytest.raises(pto.AsmError) as refused:
        program.run(inputs)
    assert any(message in text for _, _, text in refused.value.diagnostics), str(refused.value)
    assert all(line == 1 for line, _, _ in refused.value.diagnostics)


def test_a_batch_of_one_and_of_none(rng: np.random.Generator) -> None:
    program = parse("%m = tpartmin %a, %a")
    x = tiles(rng)
    same(program.run({"a": x[0]}), {"m": x[:1]})
    same(program.run({"a": x[:0]}), {"m": x[:0]})
    assert parse(KERNEL.read_text()).run(kernel_inputs(0, 1))["least"].shape == (0, 16, 32)


def test_which_function_runs(rng: np.random.Generator) -> None:
    body = f"(%a: {T}) -> {T} {{ %b = pto.tpartmin %a, %a : ({T}, {T}) -> {T}\nreturn %b : {T} }}"
    two = parse(f"func.func @f{body}\nfunc.func @g{body}")
    x = tiles(rng)
    assert failure(two, {"a": x})[2] == "more than one function could be run: name one of f, g"
    assert failure(two, {"a": x}, function="h")[2] == "there is no function 'h': allowed f, g"
    same(two.run({"a": x}, function="g"), {"b": x})
    entry = parse(
        f"func.func @f{body}\nfunc.func @g{body}".replace(f"-> {T} {{", f"-> {T} attributes {{pto.entry}} {{", 1)
    )
    same(entry.run({"a": x}), {"b": x})
    assert failure(parse("func.func private @f()"), {})[2] == "the program has no function with a body"


def test_reading_what_was_never_stored(rng: np.random.Generator) -> None:
    text = f"""func.func @f(%p: !pto.tensor_view<16x16xf32>, %t: {T}, %first: i1) {{
  scf.if %first {{
    pto.tstore ins(%t : {T}) outs(%p : !pto.tensor_view<16x16xf32>)
  }}
  %u = pto.tload %p : (!pto.tensor_view<16x16xf32>) -> {T}
  pto.tstore ins(%u : {T}) outs(%p : !pto.tensor_view<16x16xf32>)
  return
}}"""
    x = tiles(rng)
    same(parse(text).run({"t": x, "first": True}), {"p": x})
    message = "pto.tload: %p is read, but nothing is bound to it or stored there"
    assert failure(parse(text), {"t": x, "first": False}) == (5, 8, message)


def test_arguments_of_run(rng: np.random.Generator) -> None:
    program = parse("%m = tpartmin %a, %a")
    with pytest.raises(pto.TypeMismatch, match="inputs must be a mapping"):
        program.run([1])
    with pytest.raises(pto.ConstraintError, match="backend='fpga' is not known"):
        program.run({"a": tiles(rng)}, backend="fpga")
    with pytest.raises(pto.ConstraintError, match="target='a9' is not known"):
        program.verify("a9")
    with pto.options(target="a2a3"), pytest.raises(pto.AsmError, match="i8 of dst is not supported on a2a3"):
        parse("%m = tpartmin %a, %a : !pto.tile<32x32xi8>").verify()
    wide = parse("%m = tpartmin %a, %b")
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1, 1 << 15, 1 << 15), (4, 0, 0))
    assert "bytes: allowed" in failure(parse("%m = tpartmin %a, %a\n%n = tpartmin %m, %m"), {"a": huge})[2]
    assert failure(wide, {"a": tiles(rng), "b": tiles(rng, 5)})[2] == "input b has a batch of 5: allowed 6, that of a"


def test_a_snippet_returns_what_a_loop_hands_on_and_tiles_under_their_first_name(rng: np.random.Generator) -> None:
    text = f"""
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%t = pto.alloc_tile : {T}
%u = pto.tassign %t, %address : {T} -> {T}
pto.tpartmin ins(%a, %a : {T}, {T}) outs(%u : {T})
%r = scf.for %i = %c0 to %n step %c1 iter_args(%m = %b) -> ({T}) {{
  %k = pto.tprelu %m, %b : ({T}, {T}) -> {T}
  scf.yield %k : {T}
}}
"""
    a, b = tiles(rng), tiles(rng)
    wanted = np.where(b > 0, b, b * b)
    inputs = {"a": a, "b": b, "n": 2, "address": 64}
    same(parse(text).run(inputs), {"t": a, "r": np.where(wanted > 0, wanted, wanted * b)})
    same(parse(text).run(inputs, outputs=["u"]), {"u": a})
    same(parse(text).run({**inputs, "n": 0}, outputs=["r"]), {"r": b})
