"""What is known of a program before it runs: constants, and the type, valid region and address of its tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr
from xdsl.interpreter import Interpreter
from xdsl.ir import Operation, SSAValue

from pto_gpu.asm.types import tile_type
from pto_gpu.memory import TASSIGN, UnifiedBuffer
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import DYNAMIC, TileBufType


class StaticTile:
    """A tile as far as it is known. ``type`` None: open; a count of ``rows``, ``cols`` None: known at run time only.

    ``address`` None: none, or, with ``in_ub``, known at run time only. ``argument``: bound to an input.
    """

    def __init__(
        self, name: str, type: TileBufType | None, rows: int | None, cols: int | None, *, argument: bool = False
    ) -> None:
        self.name = name
        self.type = type
        self.rows = rows
        self.cols = cols
        self.in_ub = False
        self.address: int | None = None
        self.written = False
        self.argument = argument
        self._tiles: TileBuf | None = None

    @property
    def region(self) -> Region | None:
        """The valid region, if it is known."""
        return None if self.rows is None or self.cols is None else Region(self.rows, self.cols)

    def set_region(self, rows: int | None, cols: int | None) -> None:
        """Another valid region, or one that is not known."""
        self.rows, self.cols = rows, cols
        self._tiles = None

    def set_address(self, address: int | None) -> None:
        """An address of the Unified Buffer, None for one that is not known."""
        self.in_ub, self.address = True, address
        self._tiles = None

    def tiles(self, buffer: UnifiedBuffer) -> TileBuf | None:
        """A batch of one in the place of this tile, if everything about it is known."""
        region = self.region
        if self.type is None or region is None or (self.in_ub and self.address is None):
            return None
        if self._tiles is None:
            if self.in_ub:
                self._tiles = TASSIGN(buffer.tile(self.type, *region), self.address or 0)
            else:
                self._tiles = TileBuf.empty(self.type, 1, "cpu", *region)
        return self._tiles

    @property
    def byte_range(self) -> tuple[int, int] | None:
        """The bytes of the Unified Buffer that it takes, if they are known."""
        if not self.in_ub or self.address is None or self.type is None:
            return None
        return self.address, self.address + self.type.nbytes


def static_tile(name: str, value: SSAValue, *, argument: bool = False) -> StaticTile:
    """What the type of ``value`` says about the tile."""
    ty = tile_type(value.type)
    if ty is None:
        return StaticTile(name, None, None, None, argument=argument)
    rows, cols = (None if n == DYNAMIC else n for n in (ty.v_row, ty.v_col))
    return StaticTile(name, ty, rows, cols, argument=argument)


class Constants:
    """Scalars that follow from ``given``, computed by the interpreter's own implementations."""

    def __init__(self, interpreter: Interpreter, given: Mapping[SSAValue, Any]) -> None:
        self._interpreter = interpreter
        self._values: dict[SSAValue, Any] = dict(given)

    def fold(self, op: Operation) -> None:
        """Compute the results of a scalar operation whose operands are known; raises what that raises."""
        if any(v not in self._values for v in op.operands):
            return
        results = self._interpreter.run_op(op, tuple(self._values[v] for v in op.operands))
        self._values.update(zip(op.results, results, strict=True))

    def __getitem__(self, value: SSAValue | None) -> int | None:
        """The integer, if it is known."""
        found = self._values.get(value) if value is not None else None
        return found.value.data if isinstance(found, IntegerAttr) else None

    def all(self, values: Sequence[SSAValue]) -> list[int | None]:
        """The integers that are known."""
        return [self[v] for v in values]
