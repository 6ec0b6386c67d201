"""What a campaign's tiles are, as a fingerprint: whether another version of the program would draw the same."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from pto_gpu import backends
from pto_gpu.campaign.run import call_of
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.campaign.tiles.storage import Buffers, bits, block_tiles

#: Tiles of each storage plan that the fingerprint is made of.
_PROBED: Final = 64


def fingerprint(campaign: Campaign) -> str:
    """A hash over some tiles of each storage plan: operands, valid regions, and the results of the reference.

    It does not depend on the number of tiles. Another one means other tiles, or another reference.
    """
    found = hashlib.sha256()
    step = block_tiles(campaign.grid)
    for first in (0, step):
        drawn = draw(campaign, first, min(_PROBED, step))
        expected = drawn.poisoned_dsts(Buffers().tiles, "expected")
        tiles = {**expected, **drawn.sources}
        backends.load("numpy").run(call_of(campaign, drawn.logical(tiles)))
        for name, tile in tiles.items():
            found.update(name.encode())
            found.update(bits(tile.data).tobytes())
            for count in tile.region:
                found.update(np.asarray(count, np.int32).tobytes())
    return found.hexdigest()
