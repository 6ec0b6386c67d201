"""Where a campaign's tiles lie: capacities that differ between operands, and the memory behind them.

A tile's logical shape is the campaign's; its storage may be larger. Blocks of tiles take turns between two
plans. ``packed``: capacity is the logical shape, and a row reduction writes a DN column. ``padded``: every operand has
its own number of extra columns and rows, so that no two row strides agree, and a row reduction writes ND.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction, Kind, Operand, Role, ValidPattern
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import BLOCK_BYTES, ELEMENT_TYPES, TileBufType, smallest_row_multiple

#: Elements of one operand in a block of tiles: what a wave works on stays in cache.
BLOCK_ELEMENTS: Final = 1 << 18
PLANS: Final = ("packed", "padded")
#: What dst holds before a run, so that a write outside the valid region shows.
POISON_BYTE: Final = 0xA5


def block_tiles(shape: tuple[int, int]) -> int:
    """Tiles of a block: a fixed function of the logical shape, whatever the machine."""
    return max(1, BLOCK_ELEMENTS // (shape[0] * shape[1]))


def plan_of(tile: int, shape: tuple[int, int]) -> str:
    """The storage plan of a tile, by its number."""
    return PLANS[tile // block_tiles(shape) % len(PLANS)]


#: Makes storage: (name of the buffer, type, tiles) to tiles with arbitrary content.
Allocate = Callable[[str, TileBufType, int], TileBuf]


@dataclass(frozen=True)
class Slot:
    """One operand: its place in the instruction, logical shape and type of its storage."""

    operand: Operand
    place: int
    logical: TileBufType
    storage: TileBufType


def slots(instruction: Instruction, dtypes: tuple[str, ...], shape: tuple[int, int], plan: str) -> list[Slot]:
    """The operands of a campaign, without tmp. ``dtypes``: element types of values, and of indices."""
    by_kind = dict(zip((Kind.VALUE, Kind.INDEX), dtypes, strict=False))
    result = []
    for place, operand in enumerate(instruction.operands):
        if operand.role is Role.TMP:
            continue
        dtype = by_kind[operand.kind]
        step = BLOCK_BYTES // ELEMENT_TYPES[dtype].itemsize
        rows, cols = shape
        if operand.role is Role.DST and instruction.valid_pattern is ValidPattern.ROWS:
            rows = smallest_row_multiple(ELEMENT_TYPES[dtype], rows)
            logical = TileBufType(dtype, rows, 1, blayout="col_major")
            cols = step
        else:
            logical = TileBufType(dtype, rows, cols)
        padded = TileBufType(dtype, rows + place % 3, cols + (place + 1) * step)
        result.append(Slot(operand, place, logical, padded if plan == "padded" else logical))
    return result


def bits(x: NumPyArray) -> NumPyArray:
    """Elements as unsigned integers of the same width, sharing memory."""
    return x.view(np.dtype(f"u{x.itemsize}"))


class Buffers(threading.local):
    """Storage that a thread uses again for each of its waves: fresh pages from the system cost more than a fill."""

    def __init__(self) -> None:
        self._held: dict[str, TileBuf] = {}

    def tiles(self, name: str, ty: TileBufType, n: int) -> TileBuf:
        """Tiles with arbitrary content; the previous ones of the same name are no longer to be used."""
        held = self._held.get(name)
        if held is None or held.type != ty or held.batch != n:
            held = self._held[name] = TileBuf.empty(ty, n)
        return held


def per_tile(tiles: TileBuf) -> Region:
    """The valid regions as ``int64[batch]`` each, to reckon with."""
    rows, cols = (np.broadcast_to(np.asarray(n, np.int64), (tiles.batch,)) for n in tiles.region)
    return Region(rows, cols)


def inside(tiles: TileBuf) -> NumPyArray:
    """bool[batch, rows, cols]: where an element is in its valid region."""
    rows, cols = (n[:, None, None] for n in per_tile(tiles))
    result: NumPyArray = (np.arange(tiles.type.rows)[:, None] < rows) & (np.arange(tiles.type.cols) < cols)
    return result


def repeated(byte: int, itemsize: int) -> int:
    """The element whose bytes are all ``byte``."""
    return int.from_bytes(bytes([byte]) * itemsize, "little")


def poison(tiles: TileBuf) -> TileBuf:
    """Fill ``tiles`` with :data:`POISON_BYTE` and return them."""
    bits(tiles.data)[...] = repeated(POISON_BYTE, tiles.type.element.itemsize)
    return tiles


def logical_view(tiles: TileBuf, logical: TileBufType, region: Region) -> TileBuf:
    """The logical shape of larger storage, sharing its memory: what the reference works on."""
    view: Any = tiles.data[:, : logical.rows, : logical.cols]
    return TileBuf.from_array(view, logical, region.rows, region.cols)
