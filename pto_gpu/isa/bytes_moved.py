"""The fewest bytes an instruction can move: each valid input element read once, each output element written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pto_gpu.isa.record import Regions
from pto_gpu.regions import Region

BytesMoved = Callable[[Regions, Mapping[str, int], int], int]


def _area(rows: Any, cols: Any, batch: int) -> int:
    """Elements over all tiles of the batch."""
    return int(np.broadcast_to(np.asarray(rows, np.int64) * cols, batch).sum())


def _inside(region: Region, dst: Region, batch: int) -> int:
    return _area(np.minimum(region.rows, dst.rows), np.minimum(region.cols, dst.cols), batch)


def clipped_to(dst: str, *sources: str) -> BytesMoved:
    """Sources are read inside ``dst``'s valid region only, and all of that is written."""

    def moved(regions: Regions, sizes: Mapping[str, int], batch: int) -> int:
        written = _area(*regions[dst], batch) * sizes[dst]
        return written + sum(_inside(regions[s], regions[dst], batch) * sizes[s] for s in sources)

    return moved


def together(*parts: BytesMoved) -> BytesMoved:
    """The sum of several counts."""

    def moved(regions: Regions, sizes: Mapping[str, int], batch: int) -> int:
        return sum(part(regions, sizes, batch) for part in parts)

    return moved


def row_fold(dst: str, source: str) -> BytesMoved:
    """All of ``source``'s valid region is read, one element a row is written."""

    def moved(regions: Regions, sizes: Mapping[str, int], batch: int) -> int:
        read = _area(*regions[source], batch) * sizes[source]
        return read + _area(regions[source].rows, 1, batch) * sizes[dst]

    return moved
