"""The kernel of tests/asm/kernel.pto, its inputs, and what the Python calls make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from special_values import draw

import pto_gpu as pto

KERNEL = Path(__file__).parent / "asm" / "kernel.pto"
ROWS, COLS = 16, 32


def kernel_inputs(batch: int, blocks: int) -> dict[str, Any]:
    """Arrays ``[batch, rows, 32]`` with every special value, and ties."""
    rng = np.random.default_rng(batch)
    shape = (batch, blocks * ROWS, COLS)
    x = draw(rng, "f32", shape).view(np.float32)
    y = np.where(rng.random(shape) < 0.3, x, draw(rng, "f32", shape).view(np.float32))
    xi, yi = (rng.integers(-1000, 1000, shape, dtype=np.int32) for _ in range(2))
    return {"x": x, "y": y, "xi": xi, "yi": yi, "blocks": blocks}


def kernel_by_calls(inputs: dict[str, Any], **keywords: Any) -> dict[str, np.ndarray]:
    """The same block by block with the in-place intrinsics, on ``target="a2a3"``."""
    f32, i32 = (pto.TileBufType(dtype, ROWS, COLS) for dtype in ("f32", "i32"))
    column = pto.TileBufType("f32", ROWS, 1, blayout="col_major")
    batch = len(inputs["x"])
    made: dict[str, list[np.ndarray]] = {"least": [], "where": [], "sloped": [], "rows_least": []}
    for block in range(inputs["blocks"]):
        part = slice(block * ROWS, (block + 1) * ROWS)
        x, y, xi, yi = (
            pto.TileBuf.from_array(inputs[name][:, part], ty)
            for name, ty in (("x", f32), ("y", f32), ("xi", i32), ("yi", i32))
        )
        m, v, p, tmp = (pto.TileBuf.zeros(f32, batch) for _ in range(4))
        i, r = pto.TileBuf.zeros(i32, batch), pto.TileBuf.zeros(column, batch)
        mask = pto.TileBuf.zeros(pto.TileBufType("u8", ROWS + 1, COLS), batch)
        pto.TPARTMIN(m, x, y, target="a2a3", **keywords)
        pto.TPARTARGMIN(v, x, y, i, xi, yi, target="a2a3", **keywords)
        pto.TPRELU(p, m, v, mask, target="a2a3", **keywords)
        pto.TROWMIN(r, p, tmp, target="a2a3", **keywords)
        for name, tile in (("least", m), ("where", i), ("sloped", p), ("rows_least", r)):
            made[name].append(tile.numpy())
    return {name: np.concatenate(parts, axis=1) for name, parts in made.items()}
