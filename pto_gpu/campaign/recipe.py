"""What a campaign's tiles are, as a fingerprint: whether another version of the program would draw the same."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from pto_gpu import backends
from pto_gpu.campaign.draw import Drawn, draw
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.storage import Allocate, Buffers, bits, block_tiles
from pto_gpu.isa.record import Call
from pto_gpu.tilebuf import TileBuf

#: Tiles of each storage plan that the fingerprint is made of.
_PROBED: Final = 64


def expect(campaign: Campaign, drawn: Drawn, allocate: Allocate) -> dict[str, TileBuf]:
    """What the reference makes of ``drawn``: every dst, in memory of its own."""
    options = campaign.options
    expected = drawn.poisoned_dsts(allocate, "expected")
    tiles = drawn.logical({**expected, **drawn.sources})
    # Not checked: the call on the backend under test is, and has the same types and regions.
    call = Call(campaign.record, tiles, options.numerics, options.undefined, options.target.name, 1)
    backends.load("numpy").run(call)
    return expected


def fingerprint(campaign: Campaign) -> str:
    """A hash over some tiles of each storage plan: operands, valid regions, and the results that are expected.

    It does not depend on the number of tiles. Another one means other tiles, or another reference.
    """
    found = hashlib.sha256()
    step = block_tiles(campaign.grid)
    for first in (0, step):
        drawn = draw(campaign, first, min(_PROBED, step))
        tiles = {**drawn.sources, **expect(campaign, drawn, Buffers().tiles)}
        for name, tile in tiles.items():
            found.update(name.encode())
            found.update(bits(tile.data).tobytes())
            for count in tile.region:
                found.update(np.asarray(count, np.int32).tobytes())
    return found.hexdigest()
