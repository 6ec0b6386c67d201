"""The operations of the ``pto`` dialect: one for each record of :mod:`pto_gpu.isa`, and those around them.

An operation on tiles has three forms in text (:mod:`pto_gpu.asm.reading`). In the IR, one in the destination-passing
form has ``outs`` and no result; one in the synchronous form has the property ``sync``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from pto_gpu.asm import reading, writing
from pto_gpu.asm.types import VIEW_TYPES, TileBufAttr, is_integer, is_tile, tile_type
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction, Kind
from pto_gpu.types import DYNAMIC


class TileOp(IRDLOperation):
    """An operation that reads ``ins`` and makes tiles: its results, or what it writes to ``outs``.

    ``tmp``: the scratch tile, where the text has one.
    """

    ins = var_operand_def()
    tmp = opt_operand_def()
    outs = var_operand_def()
    res = var_result_def()
    sync = opt_prop_def(UnitAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    #: Names of the operands that are read, in text order; of the scratch tile, if there can be one; of the tiles made.
    SOURCES: ClassVar[tuple[str, ...]] = ()
    SCRATCH: ClassVar[str | None] = None
    MADE: ClassVar[tuple[str, ...]] = ()
    #: Whether it moves data, with clauses that would change how.
    TRANSFER: ClassVar[bool] = False

    @classmethod
    def spread(cls, single: Attribute, results: Sequence[Attribute], count: int) -> list[Attribute]:
        """The type of each of ``count`` operands where the text has one for all of them."""
        return [single] * count

    @classmethod
    def make(
        cls,
        ins: Sequence[SSAValue],
        tmp: SSAValue | None,
        outs: Sequence[SSAValue],
        results: Sequence[Attribute],
        *,
        sync: bool,
        attributes: dict[str, Attribute] | None = None,
    ) -> TileOp:
        """A new operation."""
        return cls(
            operands=[ins, [] if tmp is None else [tmp], outs],
            result_types=[results],
            properties={"sync": UnitAttr() if sync else None},
            attributes=attributes or {},
        )

    def complete_segments(self) -> None:
        """Make our groups of operands where a generic form has none, or one for each operand as compilers do."""
        sizes = self.properties.get("operandSegmentSizes")
        if isinstance(sizes, DenseArrayBase):
            seen = sizes.get_values()
            if len(seen) == 3 or not set(seen) <= {0, 1} or sum(seen) != len(self.operands):
                return
        outs = 0 if self.results else len(self.MADE)
        sources = len(self.operands) - outs
        tmp = int(self.SCRATCH is not None and sources == len(self.SOURCES) + 1)
        if sources >= 0:
            groups = [sources - tmp, tmp, outs]
            self.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, groups)

    @property
    def targets(self) -> tuple[SSAValue, ...]:
        """The tiles made: results, or outs."""
        return tuple(self.outs) or tuple(self.res)

    def verify_(self) -> None:
        """Counts and kinds of the operands; what the target allows is checked elsewhere."""
        wanted = len(self.SOURCES)
        if len(self.ins) != wanted:
            either = f" or {wanted + 1} with {self.SCRATCH}" if self.SCRATCH else ""
            raise VerifyException(
                f"{self.name} has {len(self.ins)} source operands: allowed {wanted}{either} ({', '.join(self.SOURCES)})"
            )
        if self.outs and self.res:
            raise VerifyException(f"{self.name} has both outs and results")
        if len(self.targets) != len(self.MADE):
            raise VerifyException(
                f"{self.name} makes {len(self.targets)} tiles: allowed {len(self.MADE)} ({', '.join(self.MADE)})"
            )
        self._check_kinds()

    def _check_kinds(self) -> None:
        named = [*zip(self.SOURCES, self.ins, strict=True), *zip(self.MADE, self.targets, strict=True)]
        if self.tmp is not None:
            named.append((self.SCRATCH or "tmp", self.tmp))
        for name, value in named:
            if not is_tile(value.type):
                raise VerifyException(f"{name} must be a tile: seen {value.type}")

    @classmethod
    def parse(cls, parser: Parser) -> TileOp:
        """Any of the three forms."""
        return reading.parse_tile_op(cls, parser)

    def print(self, printer: Printer) -> None:
        """The form that the operation is in."""
        writing.print_tile_op(self, printer)


class InstructionOp(TileOp):
    """The operation of one record."""

    RECORD: ClassVar[Instruction]

    @classmethod
    def spread(cls, single: Attribute, results: Sequence[Attribute], count: int) -> list[Attribute]:
        """The one type is that of the first source; sources of another kind have that of the result of their kind."""
        record = cls.RECORD
        first = record.by_name[record.assembly[0]].kind
        by_kind: dict[Kind, Attribute] = {o.kind: r for o, r in zip(record.dsts, results, strict=True)}
        kinds = [record.by_name[name].kind for name in record.assembly]
        types = [single if kind is first else by_kind.get(kind, reading.OPEN) for kind in kinds]
        return [*types, *[reading.OPEN] * (count - len(types))][:count]

    @property
    def operands_by_name(self) -> dict[str, SSAValue]:
        """The value of each operand that is there, by its name in the record."""
        named = dict(zip(self.SOURCES, self.ins, strict=True))
        named |= zip(self.MADE, self.targets, strict=True)
        if self.tmp is not None and self.SCRATCH is not None:
            named[self.SCRATCH] = self.tmp
        return named


def _instruction_op(record: Instruction) -> type[InstructionOp]:
    fields = {
        "__doc__": f"{record.name}: {record.summary}.",
        "__annotations__": dict.fromkeys(("RECORD", "SOURCES", "SCRATCH", "MADE"), ClassVar),
        "name": f"pto.{record.name.lower()}",
        "RECORD": record,
        "SOURCES": record.assembly,
        "SCRATCH": record.tmp.name if record.tmp else None,
        "MADE": tuple(o.name for o in record.dsts),
    }
    made: type[InstructionOp] = irdl_op_definition(type(f"{record.name.title()}Op", (InstructionOp,), fields))
    return made


@cache
def instruction_ops() -> dict[str, type[InstructionOp]]:
    """The operation of every record, by the record's name."""
    return {name: _instruction_op(record) for name, record in instructions().items()}


@irdl_op_definition
class LoadOp(TileOp):
    """Copies a part of a view into the valid region of a tile."""

    name = "pto.tload"
    TRANSFER: ClassVar[bool] = True
    SOURCES: ClassVar[tuple[str, ...]] = ("src",)
    MADE: ClassVar[tuple[str, ...]] = ("dst",)

    def _check_kinds(self) -> None:
        if not isinstance(self.ins[0].type, VIEW_TYPES):
            raise VerifyException(f"src must be a view: seen {self.ins[0].type}")
        if not is_tile(self.targets[0].type):
            raise VerifyException(f"dst must be a tile: seen {self.targets[0].type}")


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Copies the valid region of a tile into a part of a view."""

    name = "pto.tstore"
    src = operand_def()
    dst = operand_def()
    #: How it is written: UnitAttr for the one with ins and outs.
    dps = opt_prop_def(UnitAttr)
    sync = opt_prop_def(UnitAttr)

    def complete_segments(self) -> None:
        """Forget the groups of a compiler's generic form: it has one more, for a scalar that is not there."""
        sizes = self.properties.get("operandSegmentSizes")
        if isinstance(sizes, DenseArrayBase) and tuple(sizes.get_values()) == (1, 1, 0):
            del self.properties["operandSegmentSizes"]

    def verify_(self) -> None:
        """Kinds of the operands."""
        if not is_tile(self.src.type):
            raise VerifyException(f"src must be a tile: seen {self.src.type}")
        if not isinstance(self.dst.type, VIEW_TYPES):
            raise VerifyException(f"dst must be a view: seen {self.dst.type}")

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        """Any of the three forms."""
        return reading.parse_store(cls, parser)

    def print(self, printer: Printer) -> None:
        """The form that the operation is in."""
        writing.print_store(self, printer)


@irdl_op_definition
class AllocTileOp(IRDLOperation):
    """A tile: with ``addr`` at that address of the Unified Buffer, else with storage of its own."""

    name = "pto.alloc_tile"
    addr = opt_operand_def()
    valid_row = opt_operand_def()
    valid_col = opt_operand_def()
    res = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def verify_(self) -> None:
        """A valid row or column is given exactly where the type leaves it open."""
        if not is_tile(self.res.type):
            raise VerifyException(f"alloc_tile makes a tile: seen {self.res.type}")
        for name, operand in (("addr", self.addr), ("valid_row", self.valid_row), ("valid_col", self.valid_col)):
            if operand is not None and not is_integer(operand.type):
                raise VerifyException(f"{name} must be an integer: seen {operand.type}")
        ty = tile_type(self.res.type)
        if ty is None or not isinstance(self.res.type, TileBufAttr):
            if self.addr is not None or self.valid_row is not None or self.valid_col is not None:
                raise VerifyException("addr, valid_row and valid_col need a complete !pto.tile_buf type")
            return
        for name, operand, extent in (
            ("valid_row", self.valid_row, ty.v_row),
            ("valid_col", self.valid_col, ty.v_col),
        ):
            if extent == DYNAMIC and operand is None:
                raise VerifyException(f"{name} must be given: the type has ? there")
            if extent != DYNAMIC and operand is not None:
                raise VerifyException(f"{name} is given, but the type says {extent}: write ? there")

    @classmethod
    def parse(cls, parser: Parser) -> AllocTileOp:
        """``alloc_tile [addr = %a] [valid_row = %r] [valid_col = %c] : type``."""
        return reading.parse_alloc(cls, parser)

    def print(self, printer: Printer) -> None:
        """As it is parsed."""
        writing.print_alloc(self, printer)


@irdl_op_definition
class AssignOp(IRDLOperation):
    """Binds a tile to an address of the Unified Buffer; the result is the same tile."""

    name = "pto.tassign"
    tile = operand_def()
    addr = opt_operand_def()
    #: The address where it is written as ``@tile(0x1000)``.
    at = opt_prop_def(IntegerAttr)
    res = opt_result_def()
    dps = opt_prop_def(UnitAttr)
    sync = opt_prop_def(UnitAttr)

    def verify_(self) -> None:
        """Kinds of the operands, and the type of the result."""
        if not is_tile(self.tile.type):
            raise VerifyException(f"tassign binds a tile: seen {self.tile.type}")
        if (self.addr is None) == (self.at is None):
            raise VerifyException("tassign needs one address")
        if self.addr is not None and not is_integer(self.addr.type):
            raise VerifyException(f"the address must be an integer: seen {self.addr.type}")
        if self.res is not None and self.res.type != self.tile.type:
            raise VerifyException(f"the result must have the type of the tile, {self.tile.type}: seen {self.res.type}")

    @classmethod
    def parse(cls, parser: Parser) -> AssignOp:
        """Any of its forms."""
        return reading.parse_assign(cls, parser)

    def print(self, printer: Printer) -> None:
        """The form that the operation is in."""
        writing.print_assign(self, printer)


@irdl_op_definition
class SetValidShapeOp(IRDLOperation):
    """Changes the valid region of a tile whose type leaves it to run time."""

    name = "pto.set_validshape"
    tile = operand_def()
    rows = operand_def()
    cols = operand_def()

    def verify_(self) -> None:
        """The type leaves rows and columns to run time."""
        for name, operand in (("rows", self.rows), ("cols", self.cols)):
            if not is_integer(operand.type):
                raise VerifyException(f"{name} must be an integer: seen {operand.type}")
        if not is_tile(self.tile.type):
            raise VerifyException(f"set_validshape works on a tile: seen {self.tile.type}")
        ty = tile_type(self.tile.type)
        if ty is not None and (ty.v_row, ty.v_col) != (DYNAMIC, DYNAMIC):
            raise VerifyException(f"the valid region of {self.tile.type} is fixed: write valid=?x? in its type")

    @classmethod
    def parse(cls, parser: Parser) -> SetValidShapeOp:
        """``set_validshape %tile, %rows, %cols : type``, and ``, i32`` if the counts are no indices."""
        tile, rows, cols = reading.parse_values(parser, 3)
        parser.parse_punctuation(":")
        value = parser.resolve_operand(tile, parser.parse_type())
        return cls(operands=[value, *reading.parse_counts(parser, [rows, cols])])

    def print(self, printer: Printer) -> None:
        """As it is parsed."""
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)
        writing.print_count_types(printer, [self.rows, self.cols])
