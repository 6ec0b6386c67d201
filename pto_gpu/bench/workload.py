"""The tiles that benchmarks run on: random values, and full, random or tiny valid regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction, Kind, Operand, Role, ValidPattern
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ElementType, TileBufType

#: Which valid regions a workload can have.
REGIONS: Final = ("full", "random", "tiny")
#: Rows and columns that a tiny region has at most.
TINY: Final = 4
#: Elements that are drawn; a larger operand repeats them, since drawing would take longer than measuring.
_DRAWN: Final = 1 << 22
#: What memory moves at once.
LINE_BYTES: Final = {"cpu": 64, "gpu": 32}


@dataclass(frozen=True)
class Workload:
    """Tiles for one instruction on one combination of element types.

    ``nbytes``: valid elements read and written, from the record. ``line_bytes``: the same in whole cache lines (64
    bytes; sectors of 32 bytes on a GPU) that hold valid elements, where rows start on such a line.
    """

    instruction: Instruction
    signature: tuple[str, ...]
    tiles: Mapping[str, TileBuf]
    nbytes: int
    line_bytes: int

    @property
    def batch(self) -> int:
        """Tiles of each operand."""
        return next(iter(self.tiles.values())).batch

    @property
    def on_gpu(self) -> bool:
        """Whether the tiles lie in the memory of a GPU."""
        return next(iter(self.tiles.values())).device != "cpu"

    @property
    def label(self) -> str:
        """Instruction and element types."""
        return f"{self.instruction.name} {'/'.join(self.signature)}"

    def head(self, count: int) -> dict[str, TileBuf]:
        """The first ``count`` tiles, copied to host memory of their own."""
        tiles = {}
        for name, tile in self.tiles.items():
            region = (n if isinstance(n, int) else n[:count] for n in tile.region)
            first = TileBuf(tile.type, tile.data[:count], min(count, tile.batch), tile.device, tile.region)
            tiles[name] = TileBuf.from_array(first.numpy().copy(order="K"), tile.type, *region)
        return tiles

    def to(self, device: str) -> Workload:
        """The same tiles copied to ``device``."""
        tiles = {}
        for name, tile in self.tiles.items():
            moved = TileBuf.empty(tile.type, tile.batch, device, *tile.region)
            moved.torch().copy_(tile.torch())
            tiles[name] = moved
        return workload_of(self.instruction, self.signature, tiles)


def values(rng: np.random.Generator, element: ElementType, shape: tuple[int, ...]) -> NumPyArray:
    """Ordinary values of both signs, without NaN."""
    if element.is_float:
        return rng.standard_normal(shape, dtype=np.float32).astype(element.numpy)
    low = -100 if element.kind == "i" else 0
    return rng.integers(low, 100, shape).astype(element.numpy)


def regions(rng: np.random.Generator, kind: str, batch: int, rows: int, cols: int) -> dict[str, tuple[Any, Any]]:
    """Valid counts of dst and of both sources: one covers dst, the other a random part of it."""
    if kind == "full":
        return dict.fromkeys(("dst", "src0", "src1"), (rows, cols))
    largest = (min(rows, TINY), min(cols, TINY)) if kind == "tiny" else (rows, cols)
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
    """``batch`` tiles of ``rows x cols`` in host memory; ``valid``: one of :data:`REGIONS`.

    Raises LayoutError for a shape that a tile of these element types cannot have.
    """
    rng = np.random.default_rng(seed)
    counts = regions(rng, valid, batch, rows, cols)
    partial = instruction.valid_pattern in (ValidPattern.PARTIAL, ValidPattern.PARTIAL_ANY)
    tiles = {}
    for operand in instruction.operands:
        if operand.role is Role.TMP:
            continue
        dtype = signature[1] if operand.kind is Kind.INDEX else signature[0]
        ty = TileBufType(dtype, rows, cols)
        side = operand.name.partition("_")[0]
        valid_row, valid_col = counts[side if partial or operand.role is Role.DST else "dst"]
        tiles[operand.name] = _tile(rng, operand, instruction, ty, batch, valid_row, valid_col)
    return workload_of(instruction, signature, tiles)


def workload_of(instruction: Instruction, signature: tuple[str, ...], tiles: Mapping[str, TileBuf]) -> Workload:
    """A workload of these tiles, with the bytes counted."""
    sizes = {name: tile.type.element.itemsize for name, tile in tiles.items()}
    first = next(iter(tiles.values()))
    line = LINE_BYTES["cpu" if first.device == "cpu" else "gpu"]
    counted = {name: tile.region for name, tile in tiles.items()}
    lines = {name: _whole_lines(tile, line) for name, tile in tiles.items()}
    nbytes, line_bytes = (instruction.bytes_moved(r, sizes, first.batch) for r in (counted, lines))
    return Workload(instruction, signature, tiles, nbytes, line_bytes)


def _whole_lines(tile: TileBuf, line: int) -> Region:
    """The region with its columns rounded up to whole lines, but not past the row: what the memory has to move."""
    step = line // tile.type.element.itemsize
    rows, cols = tile.region
    rounded = np.minimum(-(-np.asarray(cols) // step) * step, tile.type.cols)
    return Region(rows, int(rounded) if rounded.ndim == 0 else rounded)


def _tile(
    rng: np.random.Generator,
    operand: Operand,
    instruction: Instruction,
    ty: TileBufType,
    batch: int,
    valid_row: Any,
    valid_col: Any,
) -> TileBuf:
    if operand.role is Role.SRC:
        drawn = values(rng, ty.element, (min(batch, max(1, _DRAWN // (ty.rows * ty.cols))), ty.rows, ty.cols))
        x = np.empty((batch, ty.rows, ty.cols), ty.element.numpy)
        for start in range(0, batch, len(drawn)):
            x[start : start + len(drawn)] = drawn[: batch - start]
        return TileBuf.from_array(x, ty, valid_row, valid_col)
    if instruction.valid_pattern is ValidPattern.ROWS:
        ty = TileBufType(ty.dtype, ty.rows, 1, blayout="col_major")
        valid_col = 1
    return TileBuf.full(ty, 0, batch, valid_row=valid_row, valid_col=valid_col)  # touches every page
