"""What tests that run programs share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rig import assert_same

import pto_gpu as pto

T = "!pto.tile_buf<vec, 16x16xf32>"
LATE = "!pto.tile_buf<vec, 16x16xf32, valid=?x?>"
TY = pto.TileBufType("f32", 16, 16)
#: Memory of 16 columns, the part of it that one load or store moves, and indices to cut it with.
VIEW = "!pto.tensor_view<?x16xf32>"
PART = "!pto.partition_tensor_view<16x16xf32>"
CONSTANTS = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
"""


def parse(text: str) -> Any:
    return pto.asm.parse(text, "program.pto")


def tiles(rng: np.random.Generator, batch: int = 6) -> np.ndarray:
    return rng.standard_normal((batch, 16, 16), dtype=np.float32)


def same(seen: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(seen) == list(wanted)
    for name, x in wanted.items():
        assert_same(seen[name], x, name)


def failure(program: Any, inputs: dict[str, Any], **keywords: Any) -> tuple[int, int, str]:
    with pytest.raises(pto.AsmError) as refused:
        program.run(inputs, **keywords)
    (one,) = refused.value.diagnostics
    return one


# -- lines of programs --------------------------------------------------------------------------------------


def part(name: str, of: str, row: str) -> str:
    return f"%{name} = pto.partition_view %{of}, offsets = [{row}, %c0], sizes = [%c16, %c16] : {VIEW} -> {PART}\n"


def load(name: str, tile: str) -> str:
    return f"pto.tload ins(%{name} : {PART}) outs(%{tile} : {T})\n"


def least(a: str, b: str, d: str) -> str:
    return f"pto.tpartmin ins(%{a}, %{b} : {T}, {T}) outs(%{d} : {T})\n"


def store(tile: str, name: str) -> str:
    return f"pto.tstore ins(%{tile} : {T}) outs(%{name} : {PART})\n"
