"""Compiled CPU code: one pass, valid elements only, parallel over tiles.

``lanes`` holds the SIMD rows, emitted with ``vectors``; ``rows`` tiles and rectangles, ``scalars`` single elements. One
module a family holds the loops over a tile, and ``ordering`` turns a rule set into the numbers that they work with.
Nothing is shared with the reference.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pto_gpu.backends.cpu.compile import compiled
from pto_gpu.backends.cpu.pool import over_tiles
from pto_gpu.backends.cpu.rows import describe
from pto_gpu.isa.record import Call, Family, Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ElementType


class _Plan(NamedTuple):
    """What is the same for every call of an instruction on one element type under one rule set."""

    code: Callable[..., None]
    operands: tuple[str, ...]
    params: np.ndarray[Any, np.dtype[np.int64]]
    params_address: int


def unsupported(call: Call) -> str | None:
    """Why this backend cannot run ``call``, or None."""
    device = call.tiles[call.instruction.operands[0].name].device
    return None if device == "cpu" else f"tiles are on {device}: allowed cpu"


def run(call: Call) -> None:
    """Run a checked call on a batch that is not empty."""
    instruction, tiles = call.instruction, call.tiles
    first = tiles[instruction.operands[0].name]
    plan = _plan(instruction, first.type.element, call.rules)
    transposed = instruction.family is not Family.ROW_REDUCE and _all_column_major(tiles, plan.operands)
    arguments, nbytes = [], 0
    for name in plan.operands:
        tile = tiles[name]
        arguments.append(describe(tile, transposed).address)
        nbytes += tile.type.nbytes
    arguments.append(plan.params_address)
    if first.batch == 1:
        plan.code(0, None, 0, 1, *arguments)
        return

    def work(begin: int, end: int) -> None:
        plan.code(0, None, begin, end, *arguments)

    over_tiles(work, first.batch, nbytes, call.threads)


@lru_cache(maxsize=1024)
def _plan(instruction: Instruction, element: ElementType, rules: Numerics) -> _Plan:
    family = importlib.import_module(f"{__name__}.{instruction.family}")
    kernel, parameters = family.COMBINES[instruction.combine]
    operands = tuple(o.name for o in (*instruction.dsts, *instruction.sources))
    code = compiled(kernel, element, len(operands) + 1)
    params = np.array(parameters(element, rules), np.int64)
    return _Plan(code, operands, params, params.ctypes.data)


def _all_column_major(tiles: Mapping[str, TileBuf], operands: tuple[str, ...]) -> bool:
    """Whether every operand is packed along columns: an element-wise loop then runs along them."""
    for name in operands:
        _, row, col = tiles[name].memory.strides
        if row != 1 or col == 1:
            return False
    return True
