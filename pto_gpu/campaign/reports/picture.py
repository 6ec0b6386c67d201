"""A failing tile as a picture: valid regions of the operands, and the elements of dst that are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.reports.text import element_text
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Kind, Operand

#: Rows and columns that a picture shows of a larger tile.
WINDOW: Final = 64
#: Rows and columns that a picture shows at least, if the tile has them.
_SMALL: Final = 8


@dataclass(frozen=True)
class Outline:
    """A valid region, and the operands that have it."""

    names: tuple[str, ...]
    rows: int
    cols: int


@dataclass(frozen=True)
class Wrong:
    """A wrong element: its place in the tile, and what it is and should be."""

    row: int
    col: int
    seen: str
    expected: str


@dataclass(frozen=True)
class Picture:
    """One dst of a tile, from element (``row``, ``col``) on: ``rows`` by ``cols`` of ``all_rows`` by ``all_cols``.

    ``wrong``: wrong elements in the picture; ``elsewhere``: how many are not in it.
    """

    operand: str
    tile: int
    row: int
    col: int
    rows: int
    cols: int
    all_rows: int
    all_cols: int
    outlines: tuple[Outline, ...]
    wrong: tuple[Wrong, ...]
    elsewhere: int

    @property
    def whole(self) -> bool:
        """Whether all of the tile is in the picture."""
        return (self.rows, self.cols) == (self.all_rows, self.all_cols)


def pictures(tile: SavedTile) -> list[Picture]:
    """A picture of each dst that has a wrong element."""
    found = []
    for operand in tile.instruction.dsts:
        wrong = _wrong(tile, operand)
        if wrong.any():
            found.append(_picture(tile, operand.name, np.argwhere(wrong).tolist()))
    return found


def _wrong(tile: SavedTile, operand: Operand) -> NumPyArray:
    """Where dst differs, as the comparison that saved the tile counted it."""
    seen, expected = tile.seen[operand.name], tile.expected[operand.name]
    rows, cols = tile.valid[operand.name]
    wrong: NumPyArray = seen != expected
    if tile.outside == "ignore":
        wrong[rows:] = False
        wrong[:, cols:] = False
    if operand.kind is Kind.VALUE:
        element = tile.types[operand.name].element
        wrong[:rows, :cols] &= ~tile.tolerance.accepts(seen[:rows, :cols], expected[:rows, :cols], element)
    return wrong


def _picture(tile: SavedTile, name: str, places: list[list[int]]) -> Picture:
    shapes = [(ty.rows, ty.cols) for ty in tile.types.values()]
    extents = [max(sizes) for sizes in zip(*shapes, strict=True)]
    used = [max(ends) for ends in zip(*tile.valid.values(), *[(r + 1, c + 1) for r, c in places], strict=True)]
    needed = [min(extent, max(_SMALL, end + 1)) for extent, end in zip(extents, used, strict=True)]
    (row, rows), (col, cols) = (_window(at, extent) for at, extent in zip(places[0], needed, strict=True))
    dtype, seen, expected = tile.types[name].dtype, tile.seen[name], tile.expected[name]
    shown = [(r, c) for r, c in places if row <= r < row + rows and col <= c < col + cols]
    return Picture(
        operand=name,
        tile=tile.tile,
        row=row,
        col=col,
        rows=rows,
        cols=cols,
        all_rows=extents[0],
        all_cols=extents[1],
        outlines=_outlines(tile),
        wrong=tuple(
            Wrong(r, c, element_text(int(seen[r, c]), dtype), element_text(int(expected[r, c]), dtype))
            for r, c in shown
        ),
        elsewhere=len(places) - len(shown),
    )


def _outlines(tile: SavedTile) -> tuple[Outline, ...]:
    operands: dict[tuple[int, int], list[str]] = {}
    for name, region in tile.valid.items():
        operands.setdefault(region, []).append(name)
    return tuple(Outline(tuple(names), *region) for region, names in operands.items())


def _window(at: int, extent: int) -> tuple[int, int]:
    """Where a picture begins and how much it shows, so that ``at`` is in it."""
    size = min(extent, WINDOW)
    return max(0, min(at - size // 2, extent - size)), size
