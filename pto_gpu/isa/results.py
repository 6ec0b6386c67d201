"""What the value forms allocate: type and valid region of each result."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from pto_gpu.isa.record import Regions, Result, Types
from pto_gpu.regions import Region
from pto_gpu.types import TileBufType, smallest_row_multiple


def same_as(source: str) -> Any:
    """One result with the type and the valid region of ``source``."""

    def result(types: Types, regions: Regions) -> tuple[Result, ...]:
        return (Result(types[source], regions[source]),)

    return result


def union_of(*pairs: tuple[str, str]) -> Any:
    """One result for each pair of sources: capacity and valid region of both together, layout of the first."""

    def result(types: Types, regions: Regions) -> tuple[Result, ...]:
        return tuple(Result(_union_type(types[a], types[b]), _union_region(regions[a], regions[b])) for a, b in pairs)

    return result


def row_column(source: str) -> Any:
    """A DN column with an element for each row of ``source``; rows rounded up to whole 32-byte blocks."""

    def result(types: Types, regions: Regions) -> tuple[Result, ...]:
        return (Result(_column_type(types[source]), Region(regions[source].rows, 1)),)

    return result


@lru_cache(maxsize=4096)
def _column_type(ty: TileBufType) -> TileBufType:
    return TileBufType(ty.dtype, smallest_row_multiple(ty.element, ty.rows), 1, blayout="col_major")


@lru_cache(maxsize=4096)
def _union_type(a: TileBufType, b: TileBufType) -> TileBufType:
    rows, cols = max(a.rows, b.rows), max(a.cols, b.cols)
    return replace(a, rows=rows, cols=cols, v_row=rows, v_col=cols)


def _union_region(a: Region, b: Region) -> Region:
    # An empty region adds nothing, whatever its other count is.
    if a.uniform and b.uniform:
        if a.empty or b.empty:
            return b if a.empty else a
        return Region(max(a.rows, b.rows), max(a.cols, b.cols))

    def pick(where: Any, x: Any, y: Any) -> Any:
        return y + (x - y) * where  # operators only: counts may be NumPy arrays or torch tensors

    def joined(x: Any, y: Any) -> Any:
        return pick(a.empty, y, pick(b.empty, x, pick(x > y, x, y)))

    return Region(joined(a.rows, b.rows), joined(a.cols, b.cols))
