"""The fewest bytes an instruction can move: each valid input element read once, each output written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_gpu.isa.record import Regions
from pto_gpu.regions import Region


def _area(rows: Any, cols: Any) -> int:
    """Elements over all tiles; a uniform region counts one tile."""
    return int(np.sum(np.asarray(rows, np.int64) * cols))


def _inside(region: Region, dst: Region) -> int:
    return _area(np.minimum(region.rows, dst.rows), np.minimum(region.cols, dst.cols))


def clipped_to(dst: str, *sources: str) -> Any:
    """Sources are read inside ``dst``'s valid region only, and all of that is written."""

    def moved(regions: Regions, sizes: Mapping[str, int]) -> int:
        written = _area(*regions[dst]) * sizes[dst]
        return written + sum(_inside(regions[s], regions[dst]) * sizes[s] for s in sources)

    return moved


def together(*parts: Any) -> Any:
    """The sum of several counts."""

    def moved(regions: Regions, sizes: Mapping[str, int]) -> int:
        return sum(part(regions, sizes) for part in parts)

    return moved


def row_fold(dst: str, source: str) -> Any:
    """All of ``source``'s valid region is read, one element a row is written."""

    def moved(regions: Regions, sizes: Mapping[str, int]) -> int:
        return _area(*regions[source]) * sizes[source] + _area(regions[source].rows, 1) * sizes[dst]

    return moved
