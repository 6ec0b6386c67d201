"""The tiles that benchmarks run on: random values, and full, random or tiny valid regions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import pto_gpu as pto
from pto_gpu.isa.record import Instruction, Kind, Operand, Role
from pto_gpu.types import ElementType


@dataclass(frozen=True)
class Workload:
    """Tiles for one instruction on one combination of element types, and the bytes that it has to move."""

    instruction: Instruction
    signature: tuple[str, ...]
    tiles: dict[str, pto.TileBuf]
    nbytes: int

    def full(self) -> Workload:
        """The same tiles, valid everywhere."""
        tiles = {name: tile.with_valid(tile.type.rows, tile.type.cols) for name, tile in self.tiles.items()}
        return _workload(self.instruction, self.signature, tiles)

    @property
    def label(self) -> str:
        """Instruction and element types."""
        return f"{self.instruction.name} {'/'.join(self.signature)}"


def values(rng: np.random.Generator, element: ElementType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Ordinary values of both signs, without NaN."""
    if element.is_float:
        return rng.standard_normal(shape, dtype=np.float32).astype(element.numpy)
    low = -100 if element.kind == "i" else 0
    return rng.integers(low, 100, shape).astype(element.numpy)


def regions(rng: np.random.Generator, kind: str, batch: int, rows: int, cols: int) -> dict[str, tuple[Any, Any]]:
    """Valid counts of dst and of both sources: one covers dst, the other a random part of it."""
    if kind == "full":
        return dict.fromkeys(("dst", "src0", "src1"), (rows, cols))
    largest = (min(rows, 4), min(cols, 4)) if kind == "tiny" else (rows, cols)
    dst = rng.integers(1, np.array(largest) + 1, (batch, 2)).astype(np.int32)
    part = (rng.random((batch, 2)) * (dst + 1)).astype(np.int32)
    first = rng.random(batch) < 0.5
    src0, src1 = np.where(first[:, None], dst, part), np.where(first[:, None], part, dst)
    return {name: (v[:, 0].copy(), v[:, 1].copy()) for name, v in (("dst", dst), ("src0", src0), ("src1", src1))}


def make(
    instruction: Instruction,
    signature: tuple[str, ...],
    batch: int,
    rows: int,
    cols: int,
    valid: str = "random",
    seed: int = 0,
) -> Workload:
    """``batch`` tiles of ``rows x cols``; ``valid``: full, random or tiny."""
    rng = np.random.default_rng(seed)
    counts = regions(rng, valid, batch, rows, cols)
    partial = instruction.valid_pattern.startswith("partial")
    tiles = {}
    for operand in instruction.operands:
        if operand.role is Role.TMP:
            continue
        dtype = signature[1] if operand.kind is Kind.INDEX else signature[0]
        ty = pto.TileBufType(dtype, rows, cols)
        side = operand.name.partition("_")[0]
        valid_row, valid_col = counts[side if partial or operand.role is Role.DST else "dst"]
        tiles[operand.name] = _tile(rng, operand, instruction, ty, batch, valid_row, valid_col)
    return _workload(instruction, signature, tiles)


def _workload(instruction: Instruction, signature: tuple[str, ...], tiles: dict[str, pto.TileBuf]) -> Workload:
    sizes = {name: tile.type.element.itemsize for name, tile in tiles.items()}
    batch = next(iter(tiles.values())).batch
    nbytes = instruction.bytes_moved({name: tile.region for name, tile in tiles.items()}, sizes, batch)
    return Workload(instruction, signature, tiles, nbytes)


def _tile(
    rng: np.random.Generator,
    operand: Operand,
    instruction: Instruction,
    ty: pto.TileBufType,
    batch: int,
    valid_row: Any,
    valid_col: Any,
) -> pto.TileBuf:
    if operand.role is Role.SRC:
        return pto.TileBuf.from_array(values(rng, ty.element, (batch, ty.rows, ty.cols)), ty, valid_row, valid_col)
    if instruction.valid_pattern == "rows":
        ty = pto.TileBufType(ty.dtype, ty.rows, 1, blayout="col_major")
        valid_col = 1
    return pto.TileBuf.full(ty, 0, batch, valid_row=valid_row, valid_col=valid_col)  # touches every page
