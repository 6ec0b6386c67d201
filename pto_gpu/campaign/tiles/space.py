"""How an exhaustive campaign lays out every combination of operand values in tiles.

What an instruction combines follows from its record. Two value sources: every pair (a, b); tile a holds a in all of
the first source, and every b in the second. One source of a row reduction: every value as a row of one valid
column, then every pair as a row of two. One source otherwise: every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pto_gpu.errors import ConstraintError
from pto_gpu.isa.record import Family, Instruction, Kind
from pto_gpu.types import BLOCK_BYTES, ELEMENT_TYPES

#: Wider elements have too many pairs: 2**64 of 32 bits would take centuries.
MAX_BITS: Final = 16
_ROWS: Final = {8: 8, 16: 64}  # of a tile that holds every value once
_REDUCED_ROWS: Final = {8: 256, 16: 1024}


@dataclass(frozen=True)
class Space:
    """Combinations of values of ``bits`` bits in tiles.

    ``shape``: rows and columns of a tile that are valid in the largest tile. ``places``: combinations in a tile.
    ``singles``: the first tiles, which hold one value a place; ``pairs``: the tiles after them, with two.
    ``reduces``: a place is a row, and its values lie side by side in one source. ``sources``: the value sources.
    """

    bits: int
    shape: tuple[int, int]
    places: int
    singles: int
    pairs: int
    reduces: bool
    sources: tuple[str, ...]

    @property
    def tiles(self) -> int:
        """Tiles that hold every combination once."""
        return self.singles + self.pairs

    @property
    def total(self) -> int:
        """Combinations."""
        return self.tiles * self.places

    @property
    def unit(self) -> str:
        """What a combination is called."""
        if self.reduces:
            return "row"
        return "pair" if self.pairs else "value"

    @property
    def everything(self) -> str:
        """What has been compared when every tile has been."""
        if self.reduces:
            return f"every value of {self.sources[0]} in a row of one column and every pair in a row of two"
        return f"every {self.unit} of {' and '.join(self.sources)}"


def space_of(instruction: Instruction, dtypes: tuple[str, ...]) -> Space:
    """The space of an instruction on element types; raises ConstraintError where it is too large."""
    element = ELEMENT_TYPES[dtypes[0]]
    sources = tuple(o.name for o in instruction.sources if o.kind is Kind.VALUE)
    reduces = instruction.family is Family.ROW_REDUCE
    values = 2 if reduces else len(sources)
    if values > 2 or element.bits > MAX_BITS:
        allowed = f"element types of up to {MAX_BITS} bits, and one or two value operands"
        raise ConstraintError(
            f"{instruction.name} {'/'.join(dtypes)}: 2**{values * element.bits} combinations of values are too many "
            f"for an exhaustive campaign: allowed {allowed}"
        )
    count = 1 << element.bits
    if not reduces:
        rows = _ROWS[element.bits]
        single, pairs = (count, 0) if values == 1 else (0, count * count)
        return Space(element.bits, (rows, count // rows), count, single // count, pairs // count, False, sources)
    rows = _REDUCED_ROWS[element.bits]
    shape = (rows, BLOCK_BYTES // element.itemsize)
    return Space(element.bits, shape, rows, count // rows, count * count // rows, True, sources)
