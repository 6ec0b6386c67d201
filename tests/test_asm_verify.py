"""Programs against the rules of the Python calls: the same errors, at their line, and early where they can be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asm_calls import LATE, T, failure, parse, same, tiles
from refusals import Refusal, good, refusals

import pto_gpu as pto
from pto_gpu.isa import instructions


def _program(name: str, tiles: dict[str, Any], types: dict[str, str]) -> Any:
    """The instruction on inputs that are called like its operands; dsts are inputs too."""
    record = instructions()[name]
    ins = [*record.assembly, *([record.tmp.name] if record.tmp and tiles.get(record.tmp.name) is not None else [])]
    outs = [o.name for o in record.dsts]

    def group(word: str, names: list[str]) -> str:
        return f"{word}({', '.join(f'%{n}' for n in names)} : {', '.join(types[n] for n in names)})"

    return pto.asm.parse(f"\n  pto.{name.lower()} {group('ins', ins)} {group('outs', outs)}", "rule.pto")


CASES = [
    pytest.param(refusal, id=f"{refusal.instruction}-{refusal.target}-{refusal.label}")
    for refusal in refusals()
    if "another batch" not in refusal.label  # that is said of the input, before the instruction sees it
]


def _refused_call(refusal: Refusal, tiles: dict[str, Any]) -> pto.PtoError:
    with pytest.raises(refusal.error) as refused:
        getattr(pto, refusal.instruction)(**tiles, target=refusal.target, backend="numpy")
    return refused.value


@pytest.mark.parametrize("refusal", CASES)
def test_a_run_is_refused_as_the_call_is(refusal: Refusal) -> None:
    tiles = refusal.tiles()
    program = _program(refusal.instruction, tiles, dict.fromkeys(tiles, "!pto.tile_buf<...>"))
    expected = _refused_call(refusal, tiles)
    with pytest.raises(pto.AsmError, match=refusal.match) as refused:
        program.run({name: t for name, t in tiles.items() if t is not None}, target=refusal.target)
    assert refused.value.diagnostics == ((2, 3, str(expected)),)


def _spelled(tile: pto.TileBuf) -> str:
    ty = tile.type
    rows, cols = (n if isinstance(n, int) else int(n[0]) for n in (tile.valid_row, tile.valid_col))
    dtype = ty.dtype.replace("u", "ui") if ty.dtype.startswith("u") else ty.dtype
    return (
        f"!pto.tile_buf<{ty.loc}, {ty.rows}x{ty.cols}x{dtype}, valid={rows}x{cols}, blayout={ty.blayout}, "
        f"slayout={ty.slayout}>"
    )


@pytest.mark.parametrize("refusal", CASES)
def test_verify_refuses_what_the_types_say(refusal: Refusal) -> None:
    """With the types in the text, and the valid regions of the first tile that breaks the rule, for a batch of one."""
    whole = refusal.tiles()
    at = _first_broken(str(_refused_call(refusal, whole)))
    tiles: dict[str, Any] = {}
    for name, tile in whole.items():
        if tile is not None:
            counts = (n if isinstance(n, int) else int(n[at]) for n in (tile.valid_row, tile.valid_col))
            tiles[name] = pto.TileBuf.from_array(tile.numpy()[at : at + 1], tile.type, *counts)
    program = _program(refusal.instruction, tiles, {name: _spelled(t) for name, t in tiles.items()})
    expected = _refused_call(refusal, tiles)
    with pytest.raises(pto.AsmError) as refused:
        program.verify(refusal.target)
    assert (2, 3, str(expected)) in refused.value.diagnostics


def _first_broken(message: str) -> int:
    _, found, rest = message.partition("first tile ")
    return int(rest.split(" ")[0]) if found else 0


@pytest.mark.parametrize("target", ["a2a3", "a5"])
@pytest.mark.parametrize("name", instructions())
def test_legal_programs_verify(name: str, target: str) -> None:
    tiles = {n: t for n, t in good(name, target).items() if t is not None}
    program = _program(name, tiles, {n: _spelled(t) for n, t in tiles.items()})
    program.verify(target)
    seen = program.run(tiles, target=target)
    getattr(pto, name)(**tiles, target=target)
    assert {n: x.tobytes() for n, x in seen.items()} == {
        o.name: tiles[o.name].numpy().tobytes() for o in instructions()[name].dsts
    }


def test_the_target_of_the_module_holds_unless_another_is_asked_for() -> None:
    text = "module attributes {{{}}} {{\n%m = tpartmin %a, %a : !pto.tile<32x32xi8>\n}}"
    for word, target in (
        ('pto.target_arch = "a3"', "a2a3"),
        ('pto.target_arch = "A5"', "a5"),
        ('"pto.device-spec" = "Ascend950"', "a5"),
        ('"pto.device-spec" = "Ascend910B3"', "a2a3"),
    ):
        program = pto.asm.parse(text.format(word))
        assert program.target == target
        x = np.zeros((1, 32, 32), np.int8)
        if target == "a5":
            program.run({"a": x})
        else:
            with pytest.raises(pto.AsmError, match="i8 of dst is not supported on a2a3"):
                program.verify()
        program.verify("a5")
    assert pto.asm.parse("%m = tpartmin %a, %a").target is None


def test_all_errors_are_reported_in_the_order_of_the_text() -> None:
    line = "%m{} = tpartmin %a, %a : !pto.tile_buf<vec, 16x16xf64>"
    with pytest.raises(pto.AsmError) as refused:  # the first that does not parse stops
        pto.asm.parse("\n".join(line.format(i) for i in range(3)))
    assert len(refused.value.diagnostics) == 1
    program = pto.asm.parse("\n".join(line.format(i).replace("f64", "ui16") for i in range(3)))
    with pytest.raises(pto.AsmError) as refused:
        program.verify("a2a3")
    assert [d[:2] for d in refused.value.diagnostics] == [(1, 7), (2, 7), (3, 7)]
    program.verify("a5")


def _reshaped(reshape: str, use: str) -> Any:
    """A function of %n, in which %t has 16x16 valid elements before ``reshape``."""
    return parse(f"""func.func @f(%a: {T}, %d: {T}, %n: index) {{
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c8 = arith.constant 8 : index
%c16 = arith.constant 16 : index
%t = pto.alloc_tile valid_row = %c16 valid_col = %c16 : {LATE}
pto.tprelu ins(%a, %a : {T}, {T}) outs(%t : {LATE})
%more = arith.cmpi slt, %c0, %n : index
{reshape}pto.set_validshape %t, %c8, %c8 : {LATE}
{use}pto.tpartmin ins(%t, %t : {LATE}, {LATE}) outs(%d : {T})
}}
return }}""")


@pytest.mark.parametrize(
    ("reshape", "use"),
    [
        ("scf.if %more {\n", "} else {\n"),
        ("scf.for %i = %c0 to %n step %c1 {\n", "}\nscf.if %more {\n} else {\n"),
    ],
)
def test_what_a_region_may_have_changed_is_not_known(reshape: str, use: str, rng: np.random.Generator) -> None:
    """One branch says nothing about the other, nor a loop about what follows: it may not run."""
    program = _reshaped(reshape, use)
    program.verify()
    a = tiles(rng)
    same(program.run({"a": a, "d": a, "n": 0}), {"d": np.where(a > 0, a, a * a)})
    same(program.run({"a": a, "d": a, "n": 1}), {"d": a})


def test_an_address_that_is_known_at_run_time_only(rng: np.random.Generator) -> None:
    text = f"""
%c0 = arith.constant 0 : i64
%t = pto.alloc_tile addr = %x : {T}
%u = pto.alloc_tile addr = %c0 : {T}
pto.tprelu ins(%a, %a : {T}, {T}) outs(%t : {T})
pto.tpartmin ins(%u, %u : {T}, {T}) outs(%d : {T})
"""
    program = parse(text)
    program.verify()
    a = tiles(rng)
    same(program.run({"a": a, "x": 0}, outputs=["d"]), {"d": np.where(a > 0, a, a * a)})
    message = "pto.tpartmin: %u is read, but nothing wrote it"
    assert failure(program, {"a": a, "x": 0x1000}) == (6, 1, message)


def test_an_input_that_is_assigned_is_needed() -> None:
    program = parse(f"tassign %a, @tile(0x0)\n%m = tpartmin %a, %a : {T}")
    assert failure(program, {}) == (1, 9, f"input a is missing: a tile, {T}")


def test_an_input_that_only_a_called_function_reads_is_needed() -> None:
    program = parse(f"""func.func private @g(%x: {T}) -> {T} {{
%z = pto.tpartmin %x, %x : ({T}, {T}) -> {T}
return %z : {T} }}
func.func @f(%a: {T}) -> {T} {{
%r = func.call @g(%a) : ({T}) -> {T}
return %r : {T} }}""")
    assert failure(program, {}) == (4, 14, f"input a is missing: a tile, {T}")


def test_a_called_function_may_move_a_tile(rng: np.random.Generator) -> None:
    """What is loaded into it afterwards may lie anywhere: at the address of %u, here."""
    program = parse(f"""func.func private @g(%x: {T}) {{
pto.tassign %x, @tile(0x1000)
return }}
func.func @f(%v: !pto.tensor_view<16x16xf32>, %o: !pto.tensor_view<16x16xf32>) {{
%c0 = arith.constant 0 : i64
%c4096 = arith.constant 4096 : i64
%t = pto.alloc_tile addr = %c0 : {T}
%u = pto.alloc_tile addr = %c4096 : {T}
pto.tload ins(%v : !pto.tensor_view<16x16xf32>) outs(%t : {T})
func.call @g(%t) : ({T}) -> ()
pto.tload ins(%v : !pto.tensor_view<16x16xf32>) outs(%t : {T})
%d = pto.tprelu %u, %u : ({T}, {T}) -> {T}
pto.tstore ins(%d : {T}) outs(%o : !pto.tensor_view<16x16xf32>)
return }}""")
    program.verify()
    a = tiles(rng)
    same(program.run({"v": a}), {"o": np.where(a > 0, a, a * a)})


def test_one_function_writes_nothing_for_another() -> None:
    body = "%c0 = arith.constant 0 : i64\n%t = pto.alloc_tile addr = %c0 : {T}\n{line}\nreturn"
    write = f"pto.tpartmin ins(%a, %a : {T}, {T}) outs(%t : {T})"
    read = f"%r = pto.tpartmin %t, %t : ({T}, {T}) -> {T}"
    texts = [f"func.func @{n}(%a: {T}) {{\n{body.format(T=T, line=x)} }}" for n, x in (("f", write), ("g", read))]
    with pytest.raises(pto.AsmError) as refused:
        parse("\n".join(texts)).verify()
    assert refused.value.diagnostics == ((9, 6, "pto.tpartmin: %t is read, but nothing wrote it"),)
