"""The tiles of a campaign: operands, valid regions and where they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.categories import tables
from pto_gpu.campaign.tiles.exhaustive import enumerate_tiles
from pto_gpu.campaign.tiles.generate import draw_elements
from pto_gpu.campaign.tiles.storage import Allocate, Buffers, Slot, bits, logical_view, plan_of, poison, slots
from pto_gpu.campaign.tiles.valid import draw_regions
from pto_gpu.isa.record import Kind, Role
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ELEMENT_TYPES


@dataclass
class Drawn:
    """Some tiles: sources, and what is needed to make dst. The counts are as in a campaign's result."""

    sources: dict[str, TileBuf]
    slots: list[Slot]
    regions: dict[str, Region]
    valid_kinds: Mapping[str, int]
    operand_kinds: Mapping[str, int]
    batch: int

    def poisoned_dsts(self, allocate: Allocate, whose: str) -> dict[str, TileBuf]:
        """New dst tiles, in buffers of their own for each ``whose``."""
        dsts = {}
        for slot in self.slots:
            if slot.operand.role is Role.DST:
                name = slot.operand.name
                tiles = poison(allocate(f"{whose} {name}", slot.storage, self.batch))
                dsts[name] = tiles.with_valid(*self.regions[name])
        return dsts

    def logical(self, tiles: Mapping[str, TileBuf]) -> dict[str, TileBuf]:
        """``tiles`` cut to their logical shape, in the order of the operands."""
        return {
            slot.operand.name: logical_view(tiles[slot.operand.name], slot.logical, self.regions[slot.operand.name])
            for slot in self.slots
        }


def draw(campaign: Campaign, first: int, n: int, allocate: Allocate | None = None) -> Drawn:
    """Tiles ``first`` to ``first + n - 1``, which must lie in one block; ``allocate``: default new memory."""
    allocate = allocate or Buffers().tiles
    if campaign.space is not None:
        enumerated = enumerate_tiles(campaign, campaign.space, first, n, allocate)
        return Drawn(*enumerated, valid_kinds={}, operand_kinds={}, batch=n)
    record, shape = campaign.record, campaign.grid
    itemsize = ELEMENT_TYPES[campaign.dtypes[0]].itemsize
    regions, valid_kinds = draw_regions(record, shape, itemsize, campaign.seed, first, n, campaign.undefined)
    placed = slots(record, campaign.dtypes, shape, plan_of(first, shape))
    sources: dict[str, TileBuf] = {}
    kinds: Counter[str] = Counter()
    for slot in placed:
        name = slot.operand.name
        if slot.operand.role is not Role.SRC:
            continue
        how = record.draws[name]
        partner = bits(sources[how.like].data) if how.like else None
        table = tables(slot.logical.dtype, how.pattern, how.like is not None)
        tiles = allocate(name, slot.storage, n)
        cols = np.broadcast_to(np.asarray(regions[name].cols, np.int32), (n,))
        profiles = draw_elements(bits(tiles.data), shape, campaign.seed, first, slot.place, table, partner, cols)
        sources[name] = tiles.with_valid(*regions[name])
        if slot.operand.kind is Kind.VALUE:
            found = np.bincount(profiles.ravel(), minlength=len(table.profiles)).tolist()
            unit = " rows" if table.by_row else ""
            kinds.update({p + unit: c for p, c in zip(table.profiles, found, strict=True) if c})
    return Drawn(sources, placed, regions, valid_kinds, kinds, n)
