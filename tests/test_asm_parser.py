"""From text to program and back: forms, spellings, positions of errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from asm_texts import Text, texts

import pto_gpu as pto


@pytest.mark.parametrize("text", [*texts("valid.pto"), *texts("pages.pto")])
def test_printing_is_a_fixed_point(text: Text) -> None:
    program = pto.asm.parse(text.body, "valid.pto")
    program.verify("a5")
    program.verify("a2a3")
    printed = str(program)
    again = pto.asm.parse(printed, "printed.pto")
    assert str(again) == printed
    assert again.inputs() == program.inputs()
    again.verify("a5")


@pytest.mark.parametrize("text", [*texts("invalid.pto"), *texts("invalid_programs.pto")])
def test_errors_have_line_and_column(text: Text) -> None:
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse(text.body, "bad.pto").verify()
    assert refused.value.diagnostics == text.errors
    lines = text.body.split("\n")
    shown = str(refused.value).split("\n")
    for (line, column, message), (head, source, caret) in zip(
        text.errors, zip(shown[::3], shown[1::3], shown[2::3], strict=True), strict=True
    ):
        assert head == f"bad.pto:{line}:{column}: {message}"
        assert source == lines[line - 1][:200] + (" ..." if len(lines[line - 1]) > 200 else "")
        assert caret.startswith(" " * (column - 1) + "^")


def _error(text: str) -> tuple[int, int, str]:
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse(text, "bad.pto")
    (one,) = refused.value.diagnostics
    return one


BAD = "%b = tprelux %a, %a : !pto.tile<...>"
UNKNOWN = "operation tprelux is not known; did you mean tprelu?"


@pytest.mark.parametrize(
    ("before", "line", "column"),
    [
        ("", 1, 6),
        ("\n\n", 3, 6),
        ("// comment\r\n\r\n", 3, 6),
        ("\t", 1, 7),
        ("# 注释\n", 2, 6),
        ("\ufeff", 1, 6),
        ("%c = tprelu %x, %x : !pto.tile<...> ", 1, 42),
    ],
)
def test_line_ends_tabs_and_other_alphabets(before: str, line: int, column: int) -> None:
    assert _error(before + BAD) == (line, column, UNKNOWN)
    assert _error((before + BAD).replace("\n", "\r\n")) == (line, column, UNKNOWN)


def test_the_caret_stands_below_what_it_points_at() -> None:
    """Tabs are kept, and wide characters take two columns of a terminal."""
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse('\t"注" = x', "bad.pto")
    head, source, caret = str(refused.value).split("\n")
    assert head.startswith("bad.pto:1:2: ")
    assert (source, caret) == ('\t"注" = x', "\t^^^")
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse('%x = arith.constant {注 = "注"}', "bad.pto")
    assert refused.value.diagnostics == ((1, 22, "unexpected character '注'"),)


def test_a_control_character_is_not_sent_to_the_terminal() -> None:
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse("%a = \x1b[31m", "bad.pto")
    assert "\x1b" not in str(refused.value).split("\n")[1]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("\n", 2, 1),
        ("// only a comment", 1, 18),
        ("func.func @f() {", 1, 17),
        ("func.func @f() {\n", 2, 1),
        ("%a", 1, 3),
        ("%a =", 1, 5),
        ("%a = tprelu %x,\r\n", 2, 1),
        ('%a = "pto.tprelu', 1, 6),
    ],
)
def test_errors_at_the_end_of_the_text(text: str, line: int, column: int) -> None:
    assert _error(text)[:2] == (line, column)


@pytest.mark.parametrize(
    ("spelling", "means"),
    [
        ("!pto.tile_buf<vec, 16x16xf32>", "!pto.tile_buf<vec, 16x16xf32>"),
        ("!pto.tile_buf< vec , 16 x 16 x f32 >", "!pto.tile_buf<vec, 16x16xf32>"),
        ("!pto.tile_buf<mat, 16x16xi8, slayout=row_major, blayout=col_major, fractal=512>",
         "!pto.tile_buf<mat, 16x16xi8, blayout=col_major, slayout=row_major>"),
        ("!pto.tile_buf<vec, 16x32xui8, valid=?x3, pad=3>", "!pto.tile_buf<vec, 16x32xui8, valid=?x3, pad=3>"),
        ("!pto.tile_buf<loc=vec, dtype=bf16, rows=2, cols=16, v_row=-1, v_col=?, blayout=row_major, slayout=none_box,"
         " fractal=512, pad=0>", "!pto.tile_buf<vec, 2x16xbf16, valid=?x?>"),
        ("!pto.tile_buf<loc=vec, f32, 16, 16, RowMajor, NoneBox, None, Zero>",
         "!pto.tile_buf<vec, 16x16xf32, pad=1>"),
        ("!pto.tile<f32,16,16>", "!pto.tile<16x16xf32>"),
        ("!pto.tile<loc=vec, int32, 16, 16, RowMajor, NoneBox, None, Null>", "!pto.tile<16x16xi32>"),
        ("!pto.tile<16x1xf32>", "!pto.tile<vec, 16x1xf32, blayout=col_major>"),
        ("!pto.tile<?x?xf16>", "!pto.tile<?x?xf16>"),
        ("!pto.tile<...>", "!pto.tile<...>"),
        ("!pto.tile<si16, 16, 16>", "!pto.tile<16x16xi16>"),
        ("!pto.tile_buf<vec, // why\n 16x16xf32>", "!pto.tile_buf<vec, 16x16xf32>"),
        ("!pto.ptr<bf16>", "!pto.ptr<bf16>"),
        ("!pto.tensor_view<?x16x3xui16>", "!pto.tensor_view<?x16x3xui16>"),
        ("!pto.partition_tensor_view<16xf32>", "!pto.partition_tensor_view<16xf32>"),
    ],
)  # fmt: skip
def test_spellings_of_types(spelling: str, means: str) -> None:
    program = pto.asm.parse(f"func.func @f(%x: {spelling}) {{ return }}")
    assert program.inputs() == {"x": means}
    assert pto.asm.parse(str(program)).inputs() == {"x": means}


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("", "a tile type has an empty field"),
        ("vec, 16x16xf32,", "a tile type has an empty field"),
        ("vec, 0x16xf32", "rows=0 must be greater than 0"),
        ("vec, 16x16xf32, valid=17x16", "v_row=17 is out of range"),
        ("vec, 16x16xf32, valid=16", "valid=16 is no valid region"),
        ("vec, 99999999999999999999x16xf32", "is no size"),
        ("vec, 16x16xf64", "element type 'f64' is not known"),
        ("dram, 16x16xf32", "element type 'dram' is not known"),
        ("vec, 16x16xf32, pad=4", "pad=4 is not supported: allowed 0, 1, 2, 3, null, zero, max, min"),
        ("vec, 16x16xf32, fractal=100", "fractal=100 is not supported"),
        ("f32, 16, 16, RowMajor, NoneBox, NZ", "fractal 'NZ' is not supported: allowed None"),
        ("f32, 16, 16, RowMajor, NoneBox, None, Zero, More", "one field too many"),
        ("?x16xf32, pad=0", "a tile with ? in its shape has no other fields"),
    ],
)
def test_types_that_are_none(inside: str, message: str) -> None:
    assert message in _error(f"%t = pto.alloc_tile : !pto.tile_buf<{inside}>")[2]


def test_every_record_has_an_operation() -> None:
    """Nothing but its record names an instruction."""
    from pto_gpu.isa import instructions

    for name, record in instructions().items():
        operands = ", ".join(f"%{o}" for o in record.assembly)
        results = ", ".join(f"%{o.name}" for o in record.dsts)
        program = pto.asm.parse(f"{results} = {name.lower()} {operands}")
        assert list(program.inputs()) == list(dict.fromkeys(record.assembly))
        types = ", ".join(["!pto.tile_buf<...>"] * len(record.assembly))
        outs = ", ".join(["!pto.tile_buf<...>"] * len(record.dsts))
        assert program.emit("dps") == f"pto.{name.lower()} ins({operands} : {types}) outs({results} : {outs})\n"


def test_arguments_of_parse() -> None:
    with pytest.raises(pto.TypeMismatch, match="text must be a string: seen bytes"):
        pto.asm.parse(b"%a")
    with pytest.raises(pto.TypeMismatch, match="filename must be a string"):
        pto.asm.parse("%a", 3)


def test_values_without_a_name_get_one() -> None:
    program = pto.asm.parse("tprelu %v, %x\n%p:2 = tpartargmin %v, %x, %i, %i\n%p_0 = tpartmin %p#0, %x")
    first, second, third = str(program).splitlines()
    assert first == "%v_0 = tprelu %v, %x : !pto.tile<...> -> !pto.tile<...>"
    assert second.startswith("%p_0_0, %p_1 = tpartargmin ")
    assert third.startswith("%p_0 = tpartmin %p_0_0, %x")
    assert str(pto.asm.parse(str(program))) == str(program)


def test_a_new_record_is_all_that_a_new_operation_needs() -> None:
    """An instruction under another name, in a process that knows no more of it than its record."""
    code = """
import dataclasses, numpy as np
from pto_gpu import isa
real = isa.instructions()
isa.instructions = lambda: {**real, "TFOO": dataclasses.replace(real["TPARTMIN"], name="TFOO")}
import pto_gpu as pto
x, y = np.random.default_rng(0).standard_normal((2, 3, 16, 16), dtype=np.float32)
program = pto.asm.parse("%d = tfoo %a, %b : !pto.tile<16x16xf32>")
assert (program.run({"a": x, "b": y})["d"] == np.minimum(x, y)).all()
again = pto.asm.parse(program.emit("dps"))
assert "pto.tfoo ins(%a, %b" in str(again)
try:
    pto.asm.parse("%d = tfoo %a, %b : !pto.tile<32x32xi8>").verify("a2a3")
except pto.AsmError as error:
    assert "TFOO: element type i8 of dst is not supported on a2a3" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
