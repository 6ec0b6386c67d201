"""The reference: the formula of each record, on whole arrays, in blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_gpu.isa.record import Call, Instruction, Plane
from pto_gpu.numerics import Numerics
from pto_gpu.regions import Region
from pto_gpu.types import ElementType

#: Elements of dst's grid worked on at once: temporaries of this size stay in a core's cache.
BLOCK_ELEMENTS = 1 << 16


def unsupported(call: Call) -> str | None:
    """Why this backend cannot run ``call``, or None."""
    device = call.tiles[call.instruction.operands[0].name].device
    return None if device == "cpu" else f"tiles are on {device}: allowed cpu"


def run(call: Call) -> None:
    """Run a checked call."""
    tiles = call.tiles
    element = tiles[call.instruction.operands[0].name].type.element
    grid = max(tile.type.rows * tile.type.cols for tile in tiles.values())
    step = max(1, BLOCK_ELEMENTS // grid)
    with np.errstate(all="ignore"):
        for start in range(0, call.batch, step):
            block = slice(start, start + step)
            arrays = {name: tile.data[block] for name, tile in tiles.items()}
            regions = {name: _part(tile.region, block) for name, tile in tiles.items()}
            evaluate(np, call.instruction, call.rules, element, arrays, regions)


def _part(region: Region, block: slice) -> Region:
    rows, cols = (n if isinstance(n, int) else n[block] for n in region)
    return Region(rows, cols)


def evaluate(
    xp: Any,
    instruction: Instruction,
    rules: Numerics,
    element: ElementType,
    arrays: Mapping[str, Any],
    regions: Mapping[str, Region],
) -> None:
    """The formula of ``instruction`` on arrays ``[batch, rows, cols]`` of the library ``xp``, written into each dst.

    ``element`` is the element type of the values. Counts in ``regions`` are ints, or integer arrays of ``xp``
    on the device of the arrays. Every operand is brought onto one grid that holds them all.
    """
    involved = [arrays[o.name] for o in (*instruction.dsts, *instruction.sources)]
    rows, cols = (max(x.shape[axis] for x in involved) for axis in (1, 2))
    planes = {o.name: plane(xp, arrays[o.name], regions[o.name], rows, cols) for o in instruction.sources}
    results = instruction.reference(xp, rules, element, **planes)
    for operand, result in zip(instruction.dsts, results, strict=True):
        dst = arrays[operand.name][:, : result.shape[1], : result.shape[2]]
        result = result[:, : dst.shape[1], : dst.shape[2]]
        dst[...] = xp.where(_inside(xp, dst, regions[operand.name]), result, dst)


def plane(xp: Any, x: Any, region: Region, rows: int, cols: int) -> Plane:
    """A source on a grid of ``rows x cols`` that holds it, and where it is inside its valid region."""
    x = onto_grid(xp, x, rows, cols)
    return Plane(x, _inside(xp, x, region))


def onto_grid(xp: Any, x: Any, rows: int, cols: int) -> Any:
    """``x`` in the corner of tiles ``rows x cols``, zero around it."""
    if x.shape[1:] == (rows, cols):
        return x
    grid = xp.zeros((x.shape[0], rows, cols), dtype=x.dtype, device=x.device)
    grid[:, : x.shape[1], : x.shape[2]] = x
    return grid


def _inside(xp: Any, x: Any, region: Region) -> Any:
    """Where element (i, j) of each tile lies inside its valid region."""

    def below(extent: int, valid: Any, shape: tuple[int, int, int]) -> Any:
        index = xp.reshape(xp.arange(extent, dtype=xp.int32, device=x.device), shape)
        return index < (valid if isinstance(valid, int) else valid[:, None, None])

    return below(x.shape[1], region.rows, (1, -1, 1)) & below(x.shape[2], region.cols, (1, 1, -1))
