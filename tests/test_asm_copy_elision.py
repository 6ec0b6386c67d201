"""Loads and stores without a copy: what they must not be seen to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asm_calls import CONSTANTS, PART, VIEW, T, least, load, parse, part, same, store

from pto_gpu.asm.copy_elision import Transfers


def function(body: str, *tiles: str) -> Any:
    allocs = "".join(f"%{t} = pto.alloc_tile : {T}\n" for t in tiles)
    return parse(f"func.func @f(%a: {VIEW}, %b: {VIEW}, %o: {VIEW}) {{{CONSTANTS}{allocs}{body}return\n}}")


def planned(program: Any) -> tuple[set[str], set[str]]:
    """Which tiles are loaded, and which are stored, without a copy."""
    (entry,) = program._parsed.functions.values()
    transfers, name = Transfers(entry), program._parsed.names
    return {name[v] for v in transfers.loaded}, {name[v] for v in transfers.stored}


@pytest.fixture
def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    made = {n: rng.standard_normal((4, 32, 16), dtype=np.float32) for n in "abo"}
    for x in made.values():
        x.flags.writeable = False
    return made


def test_a_block_of_rows_at_a_time(arrays: dict[str, np.ndarray]) -> None:
    body = (
        "scf.for %i = %c0 to %c32 step %c16 {\n"
        + part("p", "a", "%i") + part("q", "b", "%i") + part("r", "o", "%i")
        + load("p", "t") + load("q", "u") + least("t", "u", "d") + store("d", "r") + "}\n"
    )  # fmt: skip
    program = function(body, "t", "u", "d")
    assert planned(program) == ({"t", "u"}, {"d"})
    same(program.run(arrays), {"o": np.minimum(arrays["a"], arrays["b"])})


def test_a_tile_that_is_loaded_from_two_arrays(arrays: dict[str, np.ndarray]) -> None:
    """%o is stored to, so its rows are copied: not over those of %a, which %t showed before."""
    body = (
        part("p", "a", "%c0") + part("q", "o", "%c0") + part("r", "o", "%c16")
        + load("p", "t") + least("t", "t", "d") + load("q", "t") + least("t", "d", "e") + store("e", "r")
    )  # fmt: skip
    program = function(body, "t", "d", "e")
    assert planned(program) == ({"t"}, set())
    wanted = arrays["o"].copy()
    wanted[:, 16:] = np.minimum(arrays["a"], arrays["o"])[:, :16]
    before = arrays["a"].copy()
    same(program.run(arrays), {"o": wanted})
    assert (arrays["a"] == before).all()


@pytest.mark.parametrize("first", ["r", "s"])
def test_two_stores_to_one_place_keep_their_order(arrays: dict[str, np.ndarray], first: str) -> None:
    other = {"r": "s", "s": "r"}[first]
    body = (
        part("p", "a", "%c0") + part("q", "b", "%c0") + part("r", "o", "%c0") + part("s", "o", "%c8")
        + load("p", "t") + load("q", "u") + least("t", "t", "d") + least("u", "u", "e")
        + store("d", first) + store("e", other)
    )  # fmt: skip
    program = function(body, "t", "u", "d", "e")
    assert planned(program) == ({"t", "u"}, set())
    wanted = arrays["o"].copy()
    rows = {"r": slice(0, 16), "s": slice(8, 24)}
    wanted[:, rows[first]] = arrays["a"][:, :16]
    wanted[:, rows[other]] = arrays["b"][:, :16]
    same(program.run(arrays), {"o": wanted})


def test_overlapping_places_in_a_loop(arrays: dict[str, np.ndarray]) -> None:
    body = (
        "scf.for %i = %c0 to %c32 step %c8 {\n%k = arith.minui %i, %c16 : index\n"
        + part("p", "a", "%k") + part("r", "o", "%k")
        + load("p", "t") + least("t", "t", "d") + store("d", "r") + "}\n"
    )  # fmt: skip
    program = function(body, "t", "d")
    assert planned(program) == ({"t"}, {"d"})
    same(program.run({**arrays, "b": arrays["a"]}), {"o": arrays["a"]})


def test_a_tile_that_the_next_round_reads_first(arrays: dict[str, np.ndarray]) -> None:
    body = (
        part("p", "a", "%c0") + part("q", "a", "%c16") + load("p", "t") + least("t", "t", "d")
        + "scf.for %i = %c0 to %c32 step %c16 {\n" + part("r", "o", "%i")
        + least("t", "d", "e") + load("q", "u") + least("u", "e", "d") + store("d", "r") + "}\n"
    )  # fmt: skip
    program = function(body, "t", "u", "d", "e")
    assert planned(program) == ({"t", "u"}, set())
    a = arrays["a"]
    both = np.minimum(a[:, :16], a[:, 16:])
    same(program.run(arrays), {"o": np.concatenate([both, both], axis=1)})


def test_a_tile_that_is_written_again_after_it_was_stored(arrays: dict[str, np.ndarray]) -> None:
    body = (
        part("p", "a", "%c0") + part("q", "b", "%c0") + part("r", "o", "%c0") + load("p", "t") + load("q", "u")
        + least("t", "t", "d") + store("d", "r") + least("u", "u", "d")
    )  # fmt: skip
    program = function(body, "t", "u", "d")
    assert planned(program) == ({"t", "u"}, set())
    wanted = arrays["o"].copy()
    wanted[:, :16] = arrays["a"][:, :16]
    same(program.run(arrays), {"o": wanted})


@pytest.mark.parametrize("taken", [True, False])
def test_a_store_that_may_not_happen(arrays: dict[str, np.ndarray], taken: bool) -> None:
    body = (
        f"%if = arith.cmpi {'slt' if taken else 'sgt'}, %c0, %c1 : index\n"
        + part("p", "a", "%c0") + part("r", "o", "%c0") + load("p", "t") + least("t", "t", "d")
        + "scf.if %if {\n" + store("d", "r") + "}\n"
    )  # fmt: skip
    program = function(body, "t", "d")
    assert planned(program) == ({"t"}, set())
    wanted = arrays["o"].copy()
    if taken:
        wanted[:, :16] = arrays["a"][:, :16]
    same(program.run(arrays), {"o": wanted})


def test_a_kernel_in_place(arrays: dict[str, np.ndarray]) -> None:
    """What is stored would be loaded by the next round if it came early."""
    body = (
        "scf.for %i = %c0 to %c32 step %c16 {\n%j = arith.subi %c16, %i : index\n"
        + part("p", "o", "%j") + part("q", "a", "%i") + part("r", "o", "%i")
        + load("q", "t") + load("p", "u") + least("t", "u", "d") + store("d", "r") + "}\n"
    )  # fmt: skip
    program = function(body, "t", "u", "d")
    assert planned(program) == ({"t", "u"}, set())
    wanted = arrays["o"].copy()
    for i in (0, 16):
        wanted[:, i : i + 16] = np.minimum(arrays["a"][:, i : i + 16], wanted[:, 16 - i : 32 - i])
    same(program.run(arrays), {"o": wanted})


def test_other_element_steps_and_ranks(rng: np.random.Generator) -> None:
    """A transposed load, a store to every other row, and one through a view of three dimensions."""
    text = f"""func.func @f(%p: !pto.ptr<f32>, %o: !pto.ptr<f32>, %q: !pto.ptr<f32>) {{{CONSTANTS}
  %c2 = arith.constant 2 : index
  %c128 = arith.constant 128 : index
  %v = pto.make_tensor_view %p, shape = [%c16, %c16], strides = [%c1, %c16] : !pto.tensor_view<16x16xf32>
  %w = pto.make_tensor_view %o, shape = [%c16, %c16], strides = [%c32, %c2] : !pto.tensor_view<16x16xf32>
  %z = pto.make_tensor_view %q, shape = [%c2, %c8, %c16], strides = [%c128, %c1, %c8] : !pto.tensor_view<2x8x16xf32>
  %t = pto.tload %v : (!pto.tensor_view<16x16xf32>) -> {T}
  %d = pto.tprelu %t, %t : ({T}, {T}) -> {T}
  %e = pto.tpartmin %d, %t : ({T}, {T}) -> {T}
  pto.tstore ins(%d : {T}) outs(%w : !pto.tensor_view<16x16xf32>)
  pto.tstore ins(%e : {T}) outs(%z : !pto.tensor_view<2x8x16xf32>)
  return
}}"""
    p, o = (rng.standard_normal((3, 512), dtype=np.float32) for _ in range(2))
    q = rng.standard_normal((3, 256), dtype=np.float32)
    x = p[:, :256].reshape(3, 16, 16).swapaxes(1, 2)
    sloped = np.where(x > 0, x, x * x)
    wanted_o, wanted_q = o.copy(), q.copy()
    wanted_o.reshape(3, 16, 32)[:, :, ::2] = sloped
    for i in range(16):
        start = i // 8 * 128 + i % 8
        wanted_q[:, start : start + 128 : 8] = np.minimum(sloped, x)[:, i]
    program = parse(text)
    assert planned(program) == ({"t"}, {"d", "e"})
    same(program.run({"p": p, "o": o, "q": q}), {"o": wanted_o, "q": wanted_q})


def test_a_view_whose_rows_are_one(rng: np.random.Generator) -> None:
    """No instruction may have a dst that overlaps itself: the tile is stored from elsewhere."""
    text = f"""func.func @f(%a: !pto.tensor_view<16x16xf32>, %o: !pto.ptr<f32>) {{{CONSTANTS}
  %v = pto.make_tensor_view %o, shape = [%c16, %c16], strides = [%c0, %c1] : !pto.tensor_view<16x16xf32>
  %t = pto.tload %a : (!pto.tensor_view<16x16xf32>) -> {T}
  %d = pto.tpartmin %t, %t : ({T}, {T}) -> {T}
  pto.tstore ins(%d : {T}) outs(%v : !pto.tensor_view<16x16xf32>)
  return
}}"""
    row = rng.standard_normal((3, 16), dtype=np.float32)
    a = np.repeat(row[:, None], 16, axis=1)
    same(parse(text).run({"a": a, "o": np.zeros((3, 16), np.float32)}), {"o": row})


def test_a_tile_with_an_address_is_stored_from_there(arrays: dict[str, np.ndarray]) -> None:
    """%e has the bytes of %d, which is stored as well."""
    body = (
        part("p", "a", "%c0") + part("r", "o", "%c0") + load("p", "t")
        + f"pto.tassign %d, @tile(0x800) : {T}\npto.tassign %e, @tile(0x800) : {T}\n"
        + least("t", "t", "d") + store("d", "r") + least("e", "e", "t") + part("s", "b", "%c16") + store("t", "s")
    )  # fmt: skip
    program = function(body, "t", "d", "e")
    assert planned(program) == (set(), set())
    a = arrays["a"][:, :16]
    wanted = {"b": arrays["b"].copy(), "o": arrays["o"].copy()}
    wanted["b"][:, 16:] = wanted["o"][:, :16] = a
    same(program.run(arrays), wanted)


def test_a_tile_that_a_loop_hands_on(arrays: dict[str, np.ndarray]) -> None:
    """The next round reads it, and stores over half of its place."""
    body = (
        f"%first = pto.partition_view %a, offsets = [%c0, %c0], sizes = [%c16, %c16] : {VIEW} -> {PART}\n"
        f"%x = pto.tload %first : ({PART}) -> {T}\n"
        f"%last = scf.for %i = %c0 to %c16 step %c8 iter_args(%m = %x) -> ({T}) {{\n"
        + part("p", "b", "%i") + part("r", "o", "%i")
        + f"%y = pto.tload %p : ({PART}) -> {T}\n%d = pto.tpartmin %m, %y : ({T}, {T}) -> {T}\n"
        + store("d", "r") + f"scf.yield %d : {T}\n}}\n"
    )  # fmt: skip
    program = function(body)
    assert planned(program) == ({"y"}, set())
    wanted, least_so_far = arrays["o"].copy(), arrays["a"][:, :16]
    for i in (0, 8):
        least_so_far = np.minimum(least_so_far, arrays["b"][:, i : i + 16])
        wanted[:, i : i + 16] = least_so_far
    same(program.run(arrays), {"o": wanted})


def test_a_tile_of_which_one_column_is_written(arrays: dict[str, np.ndarray]) -> None:
    body = (
        part("p", "a", "%c0") + part("r", "o", "%c0") + load("p", "t")
        + f"pto.trowmin ins(%t : {T}) outs(%d : {T})\n" + store("d", "r")
    )  # fmt: skip
    program = function(body, "t", "d")
    assert planned(program) == ({"t"}, set())
    wanted = arrays["o"].copy()
    wanted[:, :16] = 0
    wanted[:, :16, 0] = arrays["a"][:, :16].min(axis=2)
    same(program.run(arrays), {"o": wanted})
