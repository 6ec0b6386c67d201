"""The ways to write the type of a tile; all of them mean a TileBufType, or an open type that the input completes.

- keyed: ``loc=vec, dtype=f32, rows=16, cols=16, v_row=16, v_col=?, blayout=row_major, slayout=none_box, ...``
- compact: ``vec, 16x16xf32, valid=16x?, blayout=col_major``
- of the pages: ``f32, 16, 16``, ``loc=vec, f32, 16, 16, RowMajor, NoneBox, None, Zero``, ``16x16xf32``, and ``...``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pto_gpu.errors import LayoutError, PtoError
from pto_gpu.types import (
    BLAYOUTS,
    DYNAMIC,
    FRACTALS,
    LOCATIONS,
    PADS,
    SLAYOUTS,
    ElementType,
    TileBufType,
    resolve_element_type,
)

#: Reports an error about characters ``start`` to ``end`` of the text between the angle brackets.
Fail = Callable[[str, int, int], NoReturn]


@dataclass(frozen=True)
class OpenTile:
    """A tile type that says nothing, or the element type only: the rest is taken from the bound input."""

    dtype: str | None = None


TileData = TileBufType | OpenTile


@dataclass(frozen=True)
class _Item:
    text: str
    start: int
    end: int


_SHAPE: Final = re.compile(r"(\?|\d+)\s*x\s*(\?|\d+)\s*x\s*([A-Za-z]\w*)")
_PAIR: Final = re.compile(r"(\?|-?\d+)\s*x\s*(\?|-?\d+)")
_COMMENT: Final = re.compile(r"//[^\n]*")
_DIGITS: Final = 18

#: Words of the pages by position, after element type, rows and columns.
_POSITIONS: Final = ("blayout", "slayout", "fractal", "pad")
_WORDS: Final[dict[str, dict[str, str | int]]] = {
    "blayout": {"RowMajor": "row_major", "ColMajor": "col_major"},
    "slayout": {"NoneBox": "none_box", "RowMajor": "row_major", "ColMajor": "col_major"},
    "fractal": {"None": 512},
    "pad": {"Zero": "zero", "Null": "null", "Invalid": "null", "Max": "max", "Min": "min"},
}
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {"loc": LOCATIONS, "blayout": BLAYOUTS, "slayout": SLAYOUTS, "pad": PADS}
_KEYS: Final = (
    *("loc", "dtype", "rows", "cols", "v_row", "v_col", "valid"),
    *("blayout", "slayout", "fractal", "pad", "compact"),
)


def element_type(spelling: str) -> ElementType:
    """The element type called ``spelling``: ours and C++ names, and MLIR's ``ui8``, ``si8``."""
    return resolve_element_type(spelling[1:] if re.fullmatch(r"si\d+", spelling) else spelling)


def mlir_name(dtype: str) -> str:
    """How MLIR spells an element type."""
    return f"u{dtype.replace('u', 'i')}" if dtype.startswith("u") else dtype


def tile_data(body: str, fail: Fail, *, valid_from_input: bool) -> TileData:
    """The type that ``body``, the text between the angle brackets, means.

    ``valid_from_input``: whether a type without a valid region takes that from the input (``!pto.tile``), or is full.
    """
    items = _items(body, fail)
    if [item.text for item in items] == ["..."]:
        return OpenTile()
    reader = _Reader(fail)
    for place, item in enumerate(items):
        reader.read(item, place)
    return reader.finish(items, valid_from_input=valid_from_input)


def _items(body: str, fail: Fail) -> list[_Item]:
    clean = _COMMENT.sub(lambda m: " " * len(m[0]), body)
    items, start = [], 0
    for part in clean.split(","):
        text = part.strip()
        left = start + len(part) - len(part.lstrip())
        if not text:
            fail("a tile type has an empty field", min(start, len(body)), min(start + max(1, len(part)), len(body)))
        items.append(_Item(text, left, left + len(text)))
        start += len(part) + 1
    return items


class _Reader:
    """Collects the fields of one type, in whichever spelling."""

    def __init__(self, fail: Fail) -> None:
        self.fail = fail
        self.fields: dict[str, int | str] = {}
        self.open_shape = False
        self.positional = 0  # of the words after the shape

    def read(self, item: _Item, place: int) -> None:
        key, equals, value = item.text.partition("=")
        if equals:
            at = item.text.index("=") + 1
            inner = value.strip()
            left = item.start + at + len(value) - len(value.lstrip())
            self._keyed(key.strip(), _Item(inner, left, left + len(inner)), item)
        elif place == 0 and item.text in LOCATIONS:
            self._put("loc", item.text, item)
        elif match := _SHAPE.fullmatch(item.text):
            self._shape(match, item)
        elif "dtype" not in self.fields:
            self._put("dtype", self._element(item), item)
        elif "rows" not in self.fields or "cols" not in self.fields:
            self._put("cols" if "rows" in self.fields else "rows", self._size(item), item)
        else:
            self._word(item)

    def _keyed(self, key: str, value: _Item, item: _Item) -> None:
        text = value.text
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = text[1:-1]
        if key not in _KEYS:
            self.fail(f"tile types have no field {key!r}: allowed {', '.join(_KEYS)}", item.start, item.end)
        if key == "valid":
            pair = _PAIR.fullmatch(text)
            if pair is None:
                self.fail(f"valid={text} is no valid region: allowed ROWSxCOLS, such as 16x?", value.start, value.end)
            for field, word in zip(("v_row", "v_col"), pair.groups(), strict=True):
                self._put(field, self._count(word, value), item)
        elif key in ("v_row", "v_col"):
            self._put(key, self._count(text, value), item)
        elif key in ("rows", "cols"):
            self._put(key, self._size(value), item)
        elif key == "dtype":
            self._put(key, self._element(value), item)
        elif key in _ALLOWED and text in _ALLOWED[key]:
            self._put(key, text, item)
        else:
            self._numbered(key, text, value, item)

    def _numbered(self, key: str, text: str, value: _Item, item: _Item) -> None:
        """Fields that are numbers: fractal, pad, compact."""
        known: dict[str, Sequence[int]] = {"fractal": FRACTALS, "pad": range(len(PADS)), "compact": (0,)}
        numbers = known.get(key, ())
        if text not in map(str, numbers):
            shown = ", ".join(map(str, (*numbers, *_ALLOWED.get(key, ()))))
            self.fail(f"{key}={text} is not supported: allowed {shown}", value.start, value.end)
        self._put(key, int(text), item)

    def _shape(self, match: re.Match[str], item: _Item) -> None:
        rows, cols, dtype = match.groups()
        at = item.start + match.start(3)
        self._put("dtype", self._element(_Item(dtype, at, at + len(dtype))), item)
        if "?" in (rows, cols):
            self.open_shape = True
            return
        self._put("rows", self._size(_Item(rows, item.start, item.end)), item)
        self._put("cols", self._size(_Item(cols, item.start, item.end)), item)

    def _word(self, item: _Item) -> None:
        if self.positional >= len(_POSITIONS):
            self.fail(f"{item.text!r} is one field too many for a tile type", item.start, item.end)
        field = _POSITIONS[self.positional]
        self.positional += 1
        words = _WORDS[field]
        if item.text not in words:
            self.fail(f"{field} {item.text!r} is not supported: allowed {', '.join(words)}", item.start, item.end)
        self._put(field, words[item.text], item)

    def _put(self, field: str, value: int | str, item: _Item) -> None:
        if field in self.fields:
            self.fail(f"{field} is given twice", item.start, item.end)
        self.fields[field] = value

    def _element(self, item: _Item) -> str:
        try:
            return element_type(item.text).name
        except PtoError as error:
            self.fail(str(error), item.start, item.end)

    def _size(self, item: _Item) -> int:
        if not re.fullmatch(r"\d+", item.text) or len(item.text) > _DIGITS:
            self.fail(f"{item.text!r} is no size: allowed a positive number", item.start, item.end)
        return int(item.text)

    def _count(self, text: str, item: _Item) -> int:
        if text in ("?", "-1"):
            return DYNAMIC
        return self._size(_Item(text, item.start, item.end))

    def finish(self, items: list[_Item], *, valid_from_input: bool) -> TileData:
        """The type that the fields make."""
        first, last, fields = items[0], items[-1], dict(self.fields)
        fields.pop("compact", None)
        if self.open_shape:
            if set(fields) != {"dtype"}:
                self.fail("a tile with ? in its shape has no other fields", first.start, last.end)
            return OpenTile(str(fields["dtype"]))
        missing = [field for field in ("dtype", "rows", "cols") if field not in fields]
        if missing:
            self.fail(f"the tile type lacks {', '.join(missing)}", first.start, last.end)
        if valid_from_input:
            fields = {"v_row": DYNAMIC, "v_col": DYNAMIC, **fields}
        try:
            return _made(fields, or_column=valid_from_input)
        except PtoError as error:
            self.fail(str(error), first.start, last.end)


def _made(fields: dict[str, int | str], *, or_column: bool) -> TileBufType:
    """The type; ``or_column``: a shape of one column without a layout is DN where ND is impossible."""
    try:
        return TileBufType(**fields)  # type: ignore[arg-type]  # the fields are of the types that _Reader put
    except LayoutError:
        if not or_column or "blayout" in fields or fields["cols"] != 1:
            raise
    return TileBufType(**fields, blayout="col_major")  # type: ignore[arg-type]


def spelled(data: TileData, *, valid_from_input: bool) -> str:
    """The text between the angle brackets: the compact spelling, without what is the default."""
    if isinstance(data, OpenTile):
        return "..." if data.dtype is None else f"?x?x{mlir_name(data.dtype)}"
    ty, shape = data, f"{data.rows}x{data.cols}x{mlir_name(data.dtype)}"
    parts = []
    free = (DYNAMIC, DYNAMIC) if valid_from_input else (ty.rows, ty.cols)
    if (ty.v_row, ty.v_col) != free:
        parts.append("valid=" + "x".join("?" if n == DYNAMIC else str(n) for n in (ty.v_row, ty.v_col)))
    default = TileBufType(ty.dtype, 32, 32)
    for field in ("blayout", "slayout", "fractal"):
        if getattr(ty, field) != getattr(default, field):
            parts.append(f"{field}={getattr(ty, field)}")
    if ty.pad != default.pad:
        parts.append(f"pad={PADS.index(ty.pad)}")
    if valid_from_input and not parts and ty.loc == default.loc:
        return shape
    return ", ".join([ty.loc, shape, *parts])
