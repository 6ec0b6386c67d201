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
