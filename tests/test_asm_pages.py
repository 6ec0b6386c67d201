"""The assembly of the instruction pages, as it stands there: run in every form, compared with the Python calls."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from asm_texts import Text, texts
from rig import assert_same

import pto_gpu as pto
from pto_gpu.asm.convert import FORMS

N = 7
TARGETS = ("a5", "a2a3")


def _inputs(program: Any) -> dict[str, np.ndarray]:
    """Random tiles for every source; a tmp and a dst are left out."""
    rng = np.random.default_rng(4)
    inputs = {}
    for name in program.inputs():
        if name.startswith("src"):
            index = name.endswith("Idx")
            shape = (N, 16, 16)
            inputs[name] = rng.integers(-9, 9, shape, dtype=np.int32) if index else _values(rng, shape)
    return inputs


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-3, 3, shape).astype(np.float32)  # with ties, and zeros of one sign


def _called(text: str, inputs: dict[str, np.ndarray], target: str) -> dict[str, np.ndarray]:
    """The same by a Python call of the value form; operands stand in text order."""
    name = re.search(r"\b(t[a-z]+)\b (?:ins\()?%src", text)
    assert name is not None
    tiles = []
    for x in inputs.values():
        dtype = "i32" if x.dtype == np.int32 else "f32"
        tiles.append(pto.TileBuf.from_array(x, pto.TileBufType(dtype, 16, 16)))
    results = getattr(pto, name[1])(*tiles, target=target)
    results = results if isinstance(results, tuple) else (results,)
    names = ["dstVal", "dstIdx"] if len(results) == 2 else ["dst"]
    return {name: tile.numpy() for name, tile in zip(names, results, strict=True)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", texts("pages.pto"))
def test_pages_run_verbatim(text: Text, target: str) -> None:
    program = pto.asm.parse(text.body, "page.pto")
    inputs = _inputs(program)
    expected = _called(text.body, inputs, target)
    seen = program.run(inputs, target=target)
    assert list(seen) == list(expected)
    for name, wanted in expected.items():
        assert_same(seen[name], wanted, name)


@pytest.mark.parametrize("text", texts("pages.pto"))
def test_every_form_means_the_same(text: Text) -> None:
    program = pto.asm.parse(text.body, "page.pto")
    inputs = _inputs(program)
    expected = program.run(inputs)
    for form in FORMS:
        if "AS Level 2" in text.body and form != "dps":  # its second line writes over the result of the first
            with pytest.raises(pto.AsmError, match=f"the {form} form has no destination"):
                program.emit(form)
            continue
        emitted = program.emit(form)
        again = pto.asm.parse(emitted, f"{form}.pto")
        assert str(again) == emitted == again.emit(form)
        seen = again.run(inputs)
        assert list(seen) == list(expected)
        for name, wanted in expected.items():
            assert_same(seen[name], wanted, f"{form} {name}")


SYNC = "%dst = trowmin %src : !pto.tile<...> -> !pto.tile<...>\n"
SSA = "%dst = pto.trowmin %src, %tmp : (!pto.tile<...>, !pto.tile<...>) -> !pto.tile<...>\n"
DPS = "pto.trowmin ins(%src, %tmp : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%dst : !pto.tile_buf<...>)\n"


def test_the_forms_of_a_page_convert_into_each_other() -> None:
    """To the letter; the synchronous form has no tmp, as on the page."""
    assert pto.asm.parse(SSA).emit("dps") == DPS
    assert pto.asm.parse(DPS).emit("ssa") == SSA
    assert pto.asm.parse(SSA).emit("sync") == pto.asm.parse(DPS).emit("sync") == SYNC
    assert pto.asm.parse(SYNC).emit("ssa") == SSA.replace(", %tmp", "").replace("(!pto.tile<...>, ", "(")
