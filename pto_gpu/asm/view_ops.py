"""The operations of the ``pto`` dialect that make views of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from pto_gpu.asm import reading, writing
from pto_gpu.asm.types import VIEW_TYPES, LayoutAttr, PartitionViewAttr, PtrAttr, TensorViewAttr

#: Layouts that strides can say.
_STRIDED = ("nd", "dn")


def _print_operands(printer: Printer, op: IRDLOperation, source: SSAValue, lists: Mapping[str, Any]) -> None:
    """Up to the colon: what the view is of, the lists of index values by their names, attributes."""
    printer.print_string(" ")
    printer.print_operand(source)
    for word, values in lists.items():
        writing.print_index_list(printer, word, values)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")


@irdl_op_definition
class MakeTensorViewOp(IRDLOperation):
    """A view of the memory behind a pointer, from its first element on."""

    name = "pto.make_tensor_view"
    ptr = operand_def(PtrAttr)
    shape = var_operand_def(IndexType)
    strides = var_operand_def(IndexType)
    res = result_def(TensorViewAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def verify_(self) -> None:
        """As many sizes and strides as dimensions, and one element type."""
        view: Any = self.res.type
        rank = len(view.data.sizes)
        for name, operands in (("shape", self.shape), ("strides", self.strides)):
            if len(operands) != rank:
                raise VerifyException(f"{name} has {len(operands)} entries: the result has {rank} dimensions")
        if self.ptr.type != PtrAttr(view.data.dtype):
            raise VerifyException(f"ptr has type {self.ptr.type}: the view has elements of {view.data.dtype}")
        layout = self.attributes.get("layout")
        if isinstance(layout, LayoutAttr) and layout.data not in _STRIDED:
            raise VerifyException(f"layout {layout.data} is not supported: allowed {', '.join(_STRIDED)}")

    @classmethod
    def parse(cls, parser: Parser) -> MakeTensorViewOp:
        """``make_tensor_view %ptr, shape = [...], strides = [...] : type``."""
        (ptr,) = reading.parse_values(parser, 1)
        lists = []
        for word in ("shape", "strides"):
            parser.parse_optional_punctuation(",")  # some pages have none before strides
            lists.append(reading.parse_index_list(parser, word))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        pos = parser.pos
        ty = parser.parse_type()
        if not isinstance(ty, TensorViewAttr):
            parser.raise_error("a !pto.tensor_view type is expected", pos, parser.pos)
        pointer = parser.resolve_operand(ptr, PtrAttr(ty.data.dtype))
        return cls(operands=[pointer, *lists], result_types=[ty], attributes=attributes)

    def print(self, printer: Printer) -> None:
        """As it is parsed."""
        _print_operands(printer, self, self.ptr, {"shape": self.shape, "strides": self.strides})
        printer.print_attribute(self.res.type)


@irdl_op_definition
class PartitionViewOp(IRDLOperation):
    """A part of a view: ``sizes`` elements from ``offsets`` on."""

    name = "pto.partition_view"
    src = operand_def()
    offsets = var_operand_def(IndexType)
    sizes = var_operand_def(IndexType)
    res = result_def(PartitionViewAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def verify_(self) -> None:
        """As many offsets and sizes as dimensions, and one element type."""
        if not isinstance(self.src.type, VIEW_TYPES):
            raise VerifyException(f"partition_view takes a view: seen {self.src.type}")
        view: Any = self.src.type
        part: Any = self.res.type
        rank = len(view.data.sizes)
        for name, count in (("offsets", len(self.offsets)), ("sizes", len(self.sizes))):
            if count != rank:
                raise VerifyException(f"{name} has {count} entries: the view has {rank} dimensions")
        if len(part.data.sizes) != rank:
            raise VerifyException(f"the result has {len(part.data.sizes)} dimensions: the view has {rank}")
        if view.data.dtype != part.data.dtype:
            raise VerifyException(f"the result has elements of {part.data.dtype}: the view of {view.data.dtype}")

    @classmethod
    def parse(cls, parser: Parser) -> PartitionViewOp:
        """``partition_view %view, offsets = [...], sizes = [...] : type -> type``."""
        (view,) = reading.parse_values(parser, 1)
        lists = []
        for word in ("offsets", "sizes"):
            parser.parse_punctuation(",", f" before {word}")
            lists.append(reading.parse_index_list(parser, word))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        return cls(
            operands=[parser.resolve_operand(view, source), *lists], result_types=[result], attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        """As it is parsed."""
        _print_operands(printer, self, self.src, {"offsets": self.offsets, "sizes": self.sizes})
        printer.print_attribute(self.src.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)
