"""Texts that nobody would write: always a program or an AsmError, never anything else, and never for long."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from asm_texts import texts
from hypothesis import given, settings
from hypothesis import strategies as st

import pto_gpu as pto
from pto_gpu.asm import run as asm_run
from pto_gpu.asm.convert import FORMS

CORPUS = [p.values[0].body for name in ("valid.pto", "pages.pto", "invalid_programs.pto") for p in texts(name)]
_TOKEN = re.compile(r"[%@#!^]?[\w.$]+|[^\s\w]")
STRANGE = [
    *("?", "-1", "99999999999", "9" * 70, "1e400", "true", '"', '"a"', "\\", "\0", "\t", "é", "²", "//", "^bb0", "0x"),
    *("loc(unknown)", "scf.while", "builtin.module", "arith.shli", "f64", "memref<4xf32>", "vector<2xi1>", "dense<1>"),
    *("0xFF", "#pto.layout<nz>", "!pto.ptr<i8>", "affine_map<(d0)->(d0)>", "unit", "tensor<2xf32>"),
]
TOKENS = [*sorted({t for text in CORPUS for t in _TOKEN.findall(text)}), *STRANGE]


def check(text: str) -> None:
    """Parse, print, verify, convert, run; every error must be an AsmError."""
    try:
        program = pto.asm.parse(text, "fuzz.pto")
    except pto.AsmError:
        return
    printed = str(program)
    assert str(pto.asm.parse(printed, "printed.pto")) == printed
    try:
        program.verify("a5")
    except pto.AsmError:
        return
    for form in FORMS:
        try:
            emitted = program.emit(form)
        except pto.AsmError:
            continue
        assert pto.asm.parse(emitted, "emitted.pto").emit(form) == emitted
    with contextlib.suppress(pto.AsmError):
        program.run(_inputs(program), backend="numpy")


def _inputs(program: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    try:
        types = program.inputs()
    except pto.AsmError:  # several functions
        return inputs
    for name, ty in types.items():
        if not ty.startswith("!pto"):
            inputs[name] = 2.0 if ty in ("f32", "f16", "bf16") else 2
        elif ty.endswith(("<...>", "?x?xf32>")):
            inputs[name] = np.ones((2, 16, 16), np.float32)
        else:
            try:
                element, shape = program.element_shape(name, inputs)
            except pto.AsmError:
                continue
            if np.prod(shape, dtype=float) < 1e6:
                inputs[name] = np.ones((2, *shape), element.numpy)
    return inputs


@pytest.fixture(scope="module", autouse=True)
def _few_steps() -> Iterator[None]:
    """Loops that never end stop early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asm_run, "MAX_STEPS", 2000)
        yield


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A text of the corpus with some tokens, characters or lines changed."""
    text = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(1, 4))):
        spans = [m.span() for m in _TOKEN.finditer(text)] or [(0, 0)]
        start, end = draw(st.sampled_from(spans))
        kind = draw(st.sampled_from(["drop", "replace", "insert", "copy", "character", "cut", "line", "swap"]))
        lines = text.split("\n")
        at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        if kind == "drop":
            text = text[:start] + text[end:]
        elif kind == "replace":
            text = text[:start] + draw(st.sampled_from(TOKENS)) + text[end:]
        elif kind == "insert":
            text = text[:start] + draw(st.sampled_from(TOKENS)) + " " + text[start:]
        elif kind == "copy":
            left, right = draw(st.sampled_from(spans))
            text = text[:start] + text[left:right] + text[end:]
        elif kind == "character":
            text = text[:start] + draw(st.characters(exclude_categories=["Cs"])) + text[start + 1 :]
        elif kind == "cut":
            text = text[:end]
        elif kind == "line":
            text = "\n".join([*lines[:at], *lines[at + 1 :]])
        else:
            lines[at], lines[other] = lines[other], lines[at]
            text = "\n".join(lines)
    return text


@settings(max_examples=1500)
@given(mutated())
def test_mutated_texts(text: str) -> None:
    check(text)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join))
def test_random_tokens(text: str) -> None:
    check(text)


@settings(max_examples=300)
@given(st.text())
def test_random_characters(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "scf.for " * 10_000,
        '"' + "a" * 100_000,
        '"' + "\\" * 100_000,
        "#" + " " * 100_000,
        "%a" * 50_000,
        "%x = arith.constant " + "9" * 100_000 + " : index",
        "!pto.tile_buf<" + "vec, " * 20_000 + ">",
        "%t = pto.alloc_tile : !pto.tile_buf<vec, " + "1" * 10_000 + "x16xf32>",
        "func.func @f() {" + "scf.if %c {" * 5_000,
        "\n" * 100_000 + "%",
        "// " + "x" * 100_000,
        "%p = pto.make_tensor_view %q, shape = [], strides = [] : !pto.tensor_view<" + "1x" * 5_000 + "f32>",
    ],
    ids=range(13),
)
def test_long_and_deep_texts(text: str) -> None:
    with pytest.raises(pto.AsmError) as refused:
        pto.asm.parse(text)
    assert len(str(refused.value)) < 2_000
