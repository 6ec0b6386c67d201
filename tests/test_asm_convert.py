"""From one form to another: what is kept, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from rig import assert_same

import pto_gpu as pto

T = "!pto.tile_buf<vec, 16x16xf32>"
V = "!pto.partition_tensor_view<16x16xf32>"
FUNCTION = f"""builtin.module {{
  func.func @f(%a: !pto.tensor_view<16x16xf32>, %b: !pto.tensor_view<16x16xf32>, %n: index) {{
    %c1 = arith.constant 1 : index
    %t = pto.tload %a : (!pto.tensor_view<16x16xf32>) -> {T}
    scf.for %i = %c1 to %n step %c1 {{
      %u = pto.tprelu %t, %t : ({T}, {T}) -> {T}
      %v = pto.tpartmin %u, %t : ({T}, {T}) -> {T}
      pto.tstore %v, %b : ({T}, !pto.tensor_view<16x16xf32>) -> ()
    }}
    func.return
  }}
}}
"""


def test_a_function_in_every_form() -> None:
    a = np.random.default_rng(0).standard_normal((5, 16, 16), dtype=np.float32)
    program = pto.asm.parse(FUNCTION)
    assert str(program) == FUNCTION
    wanted = np.minimum(np.where(a > 0, a, a * a), a)
    dps = program.emit("dps")
    assert dps.count("pto.alloc_tile") == 3
    assert dps.count("ins(") == dps.count("outs(") == 4
    sync = pto.asm.parse(dps).emit("sync")
    assert "%v = tpartmin %u, %t : " in sync
    assert "tstore %v, %b : " in sync
    assert "pto.t" not in sync.replace("pto.tile", "").replace("pto.tensor", "")
    assert pto.asm.parse(sync).emit("ssa") == FUNCTION
    for text in (FUNCTION, dps, sync):
        assert_same(pto.asm.parse(text).run({"a": a, "n": 3})["b"], wanted, text)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"pto.tpartmin ins(%a, %b : {T}, {T}) outs(%a : {T})", 1, "%a is used before it is written"),
        (
            f"pto.tprelu ins(%a, %b : {T}, {T}) outs(%c : {T})\npto.tpartmin ins(%a, %b : {T}, {T}) outs(%c : {T})",
            1,
            "%c is written more than once",
        ),
        (
            f"%k = arith.constant 64 : i64\n%c = pto.alloc_tile addr = %k : {T}\n"
            f"pto.tprelu ins(%a, %b : {T}, {T}) outs(%c : {T})",
            3,
            "%c is no tile of its own",
        ),
        (
            f"func.func @f(%a: {T}, %c: {T}) {{\npto.tprelu ins(%a, %a : {T}, {T}) outs(%c : {T})\nreturn }}",
            2,
            "%c is not made here",
        ),
        (
            "%k = arith.constant 8 : index\n"
            "%c = pto.alloc_tile valid_row = %k : !pto.tile_buf<vec, 16x16xf32, valid=?x16>\n"
            f"pto.tprelu ins(%a, %b : {T}, {T}) outs(%c : !pto.tile_buf<vec, 16x16xf32, valid=?x16>)",
            3,
            "%c has a valid region of its own",
        ),
        (
            f"scf.for %i = %x to %y step %z {{\npto.tprelu ins(%a, %b : {T}, {T}) outs(%c : {T})\n}}",
            2,
            "%c is not made here",
        ),
        (
            f"pto.tprelu ins(%a, %b : {T}, {T}) outs(%c : {T})\npto.tassign %c, @tile(0x20)",
            1,
            "%c is changed by pto.tassign",
        ),
    ],
)
def test_what_results_cannot_say(text: str, line: int, message: str) -> None:
    program = pto.asm.parse(text, "f.pto")
    for form in ("ssa", "sync"):
        with pytest.raises(pto.AsmError, match=f"{message}: the {form} form"):
            program.emit(form)
    assert program.emit("dps")
    with pytest.raises(pto.AsmError) as refused:
        program.emit("ssa")
    assert refused.value.diagnostics[0][0] == line


def test_what_destinations_cannot_say() -> None:
    carried = FUNCTION.replace(
        f"%u = pto.tprelu %t, %t : ({T}, {T}) -> {T}",
        f"%u = scf.for %j = %c1 to %n step %c1 iter_args(%m = %t) -> ({T}) {{\n"
        f"%x = pto.tprelu %m, %t : ({T}, {T}) -> {T}\nscf.yield %x : {T}\n}}",
    )
    with pytest.raises(pto.AsmError, match="%x is handed on: the dps form would share one tile"):
        pto.asm.parse(carried).emit("dps")
    late = "!pto.tile_buf<vec, 16x16xf32, valid=?x?>"
    open_region = f"func.func @f(%a: {late}) {{\n%b = pto.tprelu %a, %a : ({late}, {late}) -> {late}\nreturn }}"
    with pytest.raises(pto.AsmError, match="the valid region of %b is known at run time only"):
        pto.asm.parse(open_region).emit("dps")


def test_a_result_that_is_returned_at_once_can_be_a_destination() -> None:
    """The types of a function stay what they are."""
    ty = "!pto.tile<16x16xf32>"
    program = pto.asm.parse(
        f"func.func @f(%a: {ty}) -> {T} {{\n%r = pto.tprelu %a, %a : ({ty}, {ty}) -> {T}\nreturn %r : {T} }}"
    )
    dps = pto.asm.parse(program.emit("dps"))
    assert f"outs(%r : {T})" in str(dps)
    assert dps.inputs() == program.inputs() == {"a": ty}
    a = np.random.default_rng(1).standard_normal((3, 16, 16), dtype=np.float32)
    assert_same(dps.run({"a": a})["r"], np.where(a > 0, a, a * a), "r")


def test_a_scratch_tile_of_two_operations() -> None:
    rows = "".join(f"pto.trowmin ins(%{n}, %tmp : {T}, {T}) outs(%{n}{n} : !pto.tile_buf<...>)\n" for n in "ab")
    assert pto.asm.parse(rows).emit("sync") == "".join(
        f"%{n}{n} = trowmin %{n} : {T} -> !pto.tile<...>\n" for n in "ab"
    )
    kept = pto.asm.parse(rows + f"pto.tprelu ins(%tmp, %tmp : {T}, {T}) outs(%c : {T})").emit("sync")
    assert f"%c = tprelu %tmp, %tmp : {T}" in kept


def test_forms_that_are_none() -> None:
    with pytest.raises(pto.ConstraintError, match="form 'level3' is not known: allowed sync, ssa, dps"):
        pto.asm.parse("%a = tprelu %x, %x").emit("level3")
    with pytest.raises(pto.AsmError, match="has 1 source operands"):
        pto.asm.parse("%a = tprelu %x").emit("dps")
