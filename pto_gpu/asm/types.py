"""The types of the ``pto`` dialect: tiles, views of memory, pointers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, cast

from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, i64
from xdsl.ir import Attribute, Data, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from pto_gpu.asm.type_spellings import OpenTile, TileData, element_type, mlir_name, spelled, tile_data
from pto_gpu.errors import PtoError
from pto_gpu.types import DYNAMIC, ElementType, TileBufType

if TYPE_CHECKING:
    from pto_gpu.asm.parser import PtoParser

_VIEW: Final = re.compile(r"\s*((?:(?:\?|\d{1,18})\s*x\s*)+)([A-Za-z]\w*)\s*")
#: Dimensions of a view; NumPy has no more than 64.
_MAX_RANK: Final = 16


def pto_parser(parser: AttrParser) -> PtoParser:
    """The parser that xDSL hands to types and operations: ours, which can do more."""
    return cast("PtoParser", parser)


def _element(parser: AttrParser, spelling: str, start: int) -> str:
    try:
        return element_type(spelling).name
    except PtoError as error:
        pto_parser(parser).fail_at(str(error), start, start + len(spelling))


def _tile(parser: AttrParser, *, valid_from_input: bool) -> TileData:
    ours = pto_parser(parser)
    body, offset = ours.parse_angle_text()

    def fail(message: str, start: int, end: int) -> NoReturn:
        ours.fail_at(message, offset + start, offset + end)

    return tile_data(body, fail, valid_from_input=valid_from_input)


class _TileAttr(Data[TileData], TypeAttribute):
    """What both kinds of tile are written like."""

    VALID_FROM_INPUT: ClassVar[bool]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TileData:
        """The text between the angle brackets as a type."""
        return _tile(parser, valid_from_input=cls.VALID_FROM_INPUT)

    def print_parameter(self, printer: Printer) -> None:
        """The compact spelling."""
        printer.print_string(f"<{spelled(self.data, valid_from_input=self.VALID_FROM_INPUT)}>")


@irdl_attr_definition
class TileBufAttr(_TileAttr):
    """``!pto.tile_buf<...>``: a tile whose valid region is full, or what the type says."""

    name = "pto.tile_buf"
    VALID_FROM_INPUT: ClassVar[bool] = False


@irdl_attr_definition
class TileAttr(_TileAttr):
    """``!pto.tile<...>``: a tile whose valid region is that of the input, or of the operation that makes it."""

    name = "pto.tile"
    VALID_FROM_INPUT: ClassVar[bool] = True


@dataclass(frozen=True)
class ViewShape:
    """Sizes (DYNAMIC for ``?``) and element type of a view."""

    sizes: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        sizes = "".join(f"{'?' if n == DYNAMIC else n}x" for n in self.sizes)
        return f"{sizes}{mlir_name(self.dtype)}"


def _view(parser: AttrParser) -> ViewShape:
    ours = pto_parser(parser)
    body, offset = ours.parse_angle_text()
    match = _VIEW.fullmatch(body)
    if match is None:
        message = f"<{body.strip()}> is no shape: allowed sizes and an element type, such as <?x16xf32>"
        ours.fail_at(message, offset, offset + len(body))
    sizes = tuple(DYNAMIC if n.strip() == "?" else int(n) for n in match[1].split("x")[:-1])
    if len(sizes) > _MAX_RANK:
        ours.fail_at(f"a view of {len(sizes)} dimensions: allowed {_MAX_RANK}", offset, offset + len(body))
    return ViewShape(sizes, _element(parser, match[2], offset + match.start(2)))


class _ViewAttr(Data[ViewShape], TypeAttribute):
    """What both kinds of view are written like."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ViewShape:
        """Sizes and element type."""
        return _view(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Sizes and element type."""
        printer.print_string(f"<{self.data}>")


@irdl_attr_definition
class TensorViewAttr(_ViewAttr):
    """``!pto.tensor_view<?x32xf32>``: a strided view of the memory of a batch element."""

    name = "pto.tensor_view"


@irdl_attr_definition
class PartitionViewAttr(_ViewAttr):
    """``!pto.partition_tensor_view<16x32xf32>``: the part of a view that one load or store moves."""

    name = "pto.partition_tensor_view"


@irdl_attr_definition
class PtrAttr(Data[str], TypeAttribute):
    """``!pto.ptr<f32>``: the memory of a batch element, without a shape."""

    name = "pto.ptr"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """The element type."""
        body, offset = pto_parser(parser).parse_angle_text()
        text = body.strip()
        return _element(parser, text, offset + len(body) - len(body.lstrip()))

    def print_parameter(self, printer: Printer) -> None:
        """The element type."""
        printer.print_string(f"<{mlir_name(self.data)}>")


class _WordAttr(Data[str]):
    """``#pto.layout<nd>``: a word that compilers attach; it changes nothing here."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """The word."""
        with parser.in_angle_brackets():
            return parser.parse_identifier()

    def print_parameter(self, printer: Printer) -> None:
        """The word."""
        printer.print_string(f"<{self.data}>")


@irdl_attr_definition
class LayoutAttr(_WordAttr):
    """The layout that a compiler claims for a view; strides say what it is."""

    name = "pto.layout"


@irdl_attr_definition
class KernelKindAttr(_WordAttr):
    """Which core a function is for."""

    name = "pto.kernel_kind"


TILE_TYPES: Final = (TileBufAttr, TileAttr)
VIEW_TYPES: Final = (TensorViewAttr, PartitionViewAttr)
ATTRIBUTES: Final[list[type[Attribute]]] = [*TILE_TYPES, *VIEW_TYPES, PtrAttr, LayoutAttr, KernelKindAttr]

#: The type of an address.
ADDRESS: Final = i64


def tile_type(attribute: Attribute) -> TileBufType | None:
    """The type of a tile if its text says it; None for ``<...>`` and for what is no tile."""
    if isinstance(attribute, TILE_TYPES) and isinstance(attribute.data, TileBufType):
        return attribute.data
    return None


def view_shape(value: SSAValue) -> ViewShape:
    """Sizes and element type of a view."""
    assert isinstance(value.type, VIEW_TYPES)
    return value.type.data


def is_tile(attribute: Attribute) -> bool:
    """Whether values of this type are tiles."""
    return isinstance(attribute, TILE_TYPES)


def is_integer(attribute: Attribute) -> bool:
    """Whether values of this type are indices or integers."""
    return isinstance(attribute, (IndexType, IntegerType))


def is_scalar(attribute: Attribute) -> bool:
    """Whether values of this type are numbers."""
    return is_integer(attribute) or isinstance(attribute, AnyFloat)


def element_of(attribute: Attribute) -> ElementType | None:
    """The element type of a tile, view or pointer, if its text says it."""
    if isinstance(attribute, PtrAttr):
        return element_type(attribute.data)
    if isinstance(attribute, VIEW_TYPES):
        return element_type(attribute.data.dtype)
    if isinstance(attribute, TILE_TYPES) and attribute.data.dtype is not None:
        return element_type(attribute.data.dtype)
    return None


def merged(first: Attribute, second: Attribute) -> Attribute | None:
    """The type of a value that the text gives both types, or None where they contradict each other.

    Tile types may be written in full at one place and openly at another; the fuller one holds.
    """
    if first == second:
        return first
    if not isinstance(first, TILE_TYPES) or not isinstance(second, TILE_TYPES):
        return None
    a, b = first.data, second.data
    if isinstance(a, OpenTile) or isinstance(b, OpenTile):
        if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
            return None
        if isinstance(a, OpenTile) and isinstance(b, OpenTile):
            return first if a.dtype is not None else second
        return second if isinstance(a, OpenTile) else first
    if type(first) is type(second):
        return None
    if (a.dtype, a.rows, a.cols, a.layout) != (b.dtype, b.rows, b.cols, b.layout):
        return None
    return first if isinstance(first, TileBufAttr) else second
