"""Writing operations on tiles, each in the form that it is in; :mod:`pto_gpu.asm.reading` shows the forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, SSAValue
from xdsl.printer import Printer

if TYPE_CHECKING:
    from pto_gpu.asm.ops import AllocTileOp, AssignOp, StoreOp, TileOp


def print_tile_op(op: TileOp, printer: Printer) -> None:
    """The form that the operation is in, after its name."""
    operands = [*op.ins, *([op.tmp] if op.tmp is not None else [])]
    printer.print_string(" ")
    if op.outs:
        print_group(printer, "ins", operands)
        printer.print_string(" ")
        print_group(printer, "outs", op.outs)
    else:
        printer.print_list(operands, printer.print_operand)
        printer.print_string(" : ")
        types = [v.type for v in operands]
        shared = op.sync is not None and op.spread(types[0], [r.type for r in op.res], len(types)) == types
        print_types(printer, types, bare=shared)
        printer.print_string(" -> ")
        print_types(printer, [r.type for r in op.res], bare=len(op.res) == 1)
    printer.print_op_attributes(op.attributes)


def print_types(printer: Printer, types: Sequence[Attribute], *, bare: bool) -> None:
    """The types in parentheses; ``bare``: the first alone, without them."""
    if bare:
        printer.print_attribute(types[0])
        return
    with printer.in_parens():
        printer.print_list(types, printer.print_attribute)


def print_group(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    """``word(%a, %b : T, T)``."""
    printer.print_string(f"{word}(")
    printer.print_list(values, printer.print_operand)
    printer.print_string(" : ")
    printer.print_list([v.type for v in values], printer.print_attribute)
    printer.print_string(")")


def print_store(op: StoreOp, printer: Printer) -> None:
    """The form that the operation is in, after its name."""
    printer.print_string(" ")
    if op.dps is not None:
        print_group(printer, "ins", [op.src])
        printer.print_string(" ")
        print_group(printer, "outs", [op.dst])
        return
    printer.print_list([op.src, op.dst], printer.print_operand)
    printer.print_string(" : ")
    print_types(printer, [op.src.type, op.dst.type], bare=False)
    printer.print_string(" -> ()")


def print_alloc(op: AllocTileOp, printer: Printer) -> None:
    """The clauses that are there, and the type."""
    for word, value in (("addr", op.addr), ("valid_row", op.valid_row), ("valid_col", op.valid_col)):
        if value is not None:
            printer.print_string(f" {word} = ")
            printer.print_operand(value)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.res.type)
    print_count_types(printer, [v for v in (op.valid_row, op.valid_col) if v is not None])


def print_count_types(printer: Printer, counts: Sequence[SSAValue]) -> None:
    """``, i32`` where valid rows and columns are no indices."""
    if all(isinstance(v.type, IndexType) for v in counts):
        return
    for value in counts:
        printer.print_string(", ")
        printer.print_attribute(value.type)


def print_assign(op: AssignOp, printer: Printer) -> None:
    """The form that the operation is in, after its name."""
    printer.print_string(" ins(" if op.dps is not None else " ")
    printer.print_operand(op.tile)
    printer.print_string(", ")
    if op.at is not None:
        printer.print_string(
            f"@tile(0x{op.at.value.data:x})" if op.at.value.data >= 0 else f"@tile({op.at.value.data})"
        )
    else:
        assert op.addr is not None
        printer.print_operand(op.addr)
    printer.print_string(" : ")
    printer.print_attribute(op.tile.type)
    if op.addr is not None:
        printer.print_string(", ")
        printer.print_attribute(op.addr.type)
    if op.dps is not None:
        printer.print_string(")")
    if op.res is not None:
        printer.print_string(" -> ")
        printer.print_attribute(op.res.type)


def print_index_list(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    """``, word = [%a, %b]``."""
    printer.print_string(f", {word} = [")
    printer.print_list(values, printer.print_operand)
    printer.print_string("]")
