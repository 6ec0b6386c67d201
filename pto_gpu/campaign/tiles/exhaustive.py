"""The tiles of an exhaustive campaign: every combination of operand values, instead of random ones.

Regions are those that the combinations need, and every operand has storage around them, so that a write outside
shows. Indices differ between the sides of a pair, and between neighbours, so that a wrong choice shows in them
without making the space larger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.generate import PADDING_BYTE
from pto_gpu.campaign.tiles.space import Space
from pto_gpu.campaign.tiles.storage import Allocate, Slot, bits, repeated, slots
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Kind, Role
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import BLOCK_BYTES, ELEMENT_TYPES, TileBufType


class Enumerated(NamedTuple):
    """Some tiles: sources, where every operand lies, and valid regions."""

    sources: dict[str, TileBuf]
    slots: list[Slot]
    regions: dict[str, Region]


def enumerate_tiles(campaign: Campaign, space: Space, first: int, n: int, allocate: Allocate) -> Enumerated:
    """Tiles ``first`` to ``first + n - 1`` of the space."""
    record = campaign.record
    placed = _reduction_slots(campaign) if space.reduces else slots(record, campaign.dtypes, space.shape, "padded")
    regions = _regions(campaign, space, first, n)
    high, low = _values(space, first, n)
    sources = {}
    indices = [o.name for o in record.sources if o.kind is Kind.INDEX]
    for slot in placed:
        name = slot.operand.name
        if slot.operand.role is not Role.SRC:
            continue
        tiles = allocate(name, slot.storage, n)
        out = bits(tiles.data)
        out[...] = repeated(PADDING_BYTE, out.itemsize)
        if slot.operand.kind is Kind.INDEX:
            out[:, : space.shape[0], : space.shape[1]] = _indices(space, indices.index(name), len(indices), out.dtype)
        elif space.reduces:
            rows, alone = space.shape[0], int(np.clip(space.singles - first, 0, n))
            out[:alone, :rows, 0], out[alone:, :rows, 0] = low[:alone], high[alone:, None]
            out[alone:, :rows, 1] = low[alone:]
        elif space.pairs and name == space.sources[0]:
            out[:, : space.shape[0], : space.shape[1]] = high[:, None, None]
        else:
            out[:, : space.shape[0], : space.shape[1]] = low.reshape(n, *space.shape)
        sources[name] = tiles.with_valid(*regions[name])
    return Enumerated(sources, placed, regions)


def _values(space: Space, first: int, n: int) -> tuple[NumPyArray, NumPyArray]:
    """The first value of the pairs of each tile [n], and the second (or the only) one of each place [n, places]."""
    tile = np.arange(first, first + n, dtype=np.int64)
    start = np.where(tile < space.singles, tile, tile - space.singles) * space.places
    unsigned = np.dtype(f"u{space.bits // 8}")
    mask = (1 << space.bits) - 1
    high = (start >> space.bits).astype(unsigned)
    low = (start & mask).astype(unsigned)[:, None] + np.arange(space.places, dtype=np.int64).astype(unsigned)
    return high, low


def _indices(space: Space, side: int, sides: int, dtype: np.dtype[np.generic]) -> NumPyArray:
    place = np.arange(space.shape[0] * space.shape[1], dtype=np.int64).reshape(space.shape)
    indices: NumPyArray = (place * sides + side).astype(dtype)  # the low bits
    return indices


def _regions(campaign: Campaign, space: Space, first: int, n: int) -> dict[str, Region]:
    record, (rows, cols) = campaign.record, space.shape
    if not space.reduces:
        return {o.name: Region(rows, cols) for o in (*record.dsts, *record.sources)}
    valid = np.where(np.arange(first, first + n) < space.singles, 1, 2).astype(np.int32)
    return {
        **{o.name: Region(rows, 1) for o in record.dsts},
        **{o.name: Region(rows, valid) for o in record.sources},
    }


def _reduction_slots(campaign: Campaign) -> list[Slot]:
    """Rows of at most two elements for the reference, which folds whole rows; in storage they fill a block."""
    by_kind = dict(zip((Kind.VALUE, Kind.INDEX), campaign.dtypes, strict=False))
    result = []
    rows, cols = campaign.grid
    for place, operand in enumerate(campaign.record.operands):
        if operand.role is Role.TMP:
            continue
        dtype = by_kind[operand.kind]
        step = BLOCK_BYTES // ELEMENT_TYPES[dtype].itemsize
        if operand.role is Role.DST:
            column = TileBufType(dtype, rows, 1, blayout="col_major")
            result.append(Slot(operand, place, column, TileBufType(dtype, rows + step, 1, blayout="col_major")))
        else:
            logical = TileBufType(dtype, rows, 2, blayout="col_major")  # a view: no tile of this type is allocated
            result.append(Slot(operand, place, logical, TileBufType(dtype, rows + 1, cols)))
    return result
