"""Element types, layouts and the static type of a tile."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import ml_dtypes
import numpy as np

from pto_gpu.errors import ConstraintError, LayoutError, TypeMismatch

#: A valid row or column count that the type leaves to run time.
DYNAMIC: Final = -1

#: Rows (or DN columns) and addresses are multiples of this many bytes.
BLOCK_BYTES: Final = 32

LOCATIONS: Final = ("vec", "mat", "left", "right", "acc", "bias", "scaling")
BLAYOUTS: Final = ("row_major", "col_major")
SLAYOUTS: Final = ("none_box", "row_major", "col_major")
FRACTALS: Final = (16, 32, 512, 1024)
PADS: Final = ("null", "zero", "max", "min")


@dataclass(frozen=True, eq=False)
class ElementType:
    """An element type: its short name, kind (``"f"``, ``"i"`` or ``"u"``), width and C++ spellings.

    ``canonical_nan`` is the bit pattern of a NaN that arithmetic makes, ``infinity`` that of +Inf; None for integers.
    """

    name: str
    kind: str
    bits: int
    aliases: tuple[str, ...]
    canonical_nan: int | None = None
    infinity: int | None = None

    @property
    def itemsize(self) -> int:
        """Size in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether NaN, infinities and signed zeros exist."""
        return self.kind == "f"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype (``ml_dtypes.bfloat16`` for bf16)."""
        if self.name == "bf16":
            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(f"{self.kind}{self.itemsize}")

    @cached_property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned NumPy dtype of the same width, for bitwise work."""
        return np.dtype(f"u{self.itemsize}")

    @cached_property
    def torch_name(self) -> str:
        """The attribute of ``torch`` that names this type."""
        words = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
        return words.get(self.name) or f"{'u' if self.kind == 'u' else ''}int{self.bits}"

    def __str__(self) -> str:
        return self.name


#: Every element type, by its short name.
ELEMENT_TYPES: Final[dict[str, ElementType]] = {
    t.name: t
    for t in (
        ElementType("f16", "f", 16, ("half", "float16_t", "float16"), 0x7E00, 0x7C00),
        ElementType("bf16", "f", 16, ("bfloat16_t", "bfloat16"), 0x7FC0, 0x7F80),
        ElementType("f32", "f", 32, ("float", "float32_t", "float32"), 0x7FC00000, 0x7F800000),
        ElementType("i8", "i", 8, ("int8_t", "int8")),
        ElementType("u8", "u", 8, ("uint8_t", "uint8", "ui8")),
        ElementType("i16", "i", 16, ("int16_t", "int16")),
        ElementType("u16", "u", 16, ("uint16_t", "uint16", "ui16")),
        ElementType("i32", "i", 32, ("int32_t", "int32", "int")),
        ElementType("u32", "u", 32, ("uint32_t", "uint32", "ui32")),
    )
}

_BY_SPELLING: Final = {spelling: t for t in ELEMENT_TYPES.values() for spelling in (t.name, *t.aliases)}


def resolve_element_type(name: str | ElementType) -> ElementType:
    """The element type called ``name`` (short name or C++ spelling)."""
    if isinstance(name, ElementType):
        return name
    found = _BY_SPELLING.get(name) if isinstance(name, str) else None
    if found is None:
        raise TypeMismatch(f"element type {name!r} is not known: allowed {', '.join(ELEMENT_TYPES)}")
    return found


def element_type_of(dtype: np.dtype[Any]) -> ElementType | None:
    """The element type whose NumPy dtype is ``dtype`` in native byte order, or None."""
    for candidate in ELEMENT_TYPES.values():
        if candidate.numpy == dtype and dtype.isnative:
            return candidate
    return None


def count(value: Any, what: str, bits: int = 63) -> int:
    """``value`` as an int of at most ``bits`` bits, or :class:`~pto_gpu.errors.TypeMismatch` naming ``what``."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeMismatch(f"{what} must be an integer: seen {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeMismatch(f"{what} must be an integer: seen {value!r}") from None
    if abs(number) >> bits:  # it may even have too many digits to be shown
        raise ConstraintError(f"{what} is out of range: seen a number of {number.bit_length()} bits, allowed {bits}")
    return number


def _word(value: Any, allowed: tuple[Any, ...], what: str) -> Any:
    if not isinstance(value, (str, int, np.integer)) or isinstance(value, bool) or value not in allowed:
        raise LayoutError(f"TileBufType: {what}={value!r} is not known: allowed {', '.join(map(str, allowed))}")
    return value


@dataclass(frozen=True)
class TileBufType:
    """The static type of a tile: ``TileBufType("f32", 16, 16)`` is a full 16x16 vec tile, row-major, unboxed.

    ``dtype``: an element type or one of its C++ spellings. ``rows``, ``cols``: capacity in elements.
    ``v_row``, ``v_col``: the valid region a tile has when none is given at run time; default full,
    :data:`DYNAMIC` if it must be given. ``blayout="col_major"`` with ``slayout="none_box"`` is DN.

    A row (row-major) or a column (column-major) of an unboxed tile takes a multiple of 32 bytes.

    Raises :class:`~pto_gpu.errors.TypeMismatch` for an unknown element type or a size that is no integer,
    :class:`~pto_gpu.errors.LayoutError` for a layout that a tile cannot have, and
    :class:`~pto_gpu.errors.ConstraintError` for a size or valid region out of range.
    """

    dtype: str
    rows: int
    cols: int
    v_row: int = None  # type: ignore[assignment]  # replaced by the capacity
    v_col: int = None  # type: ignore[assignment]
    loc: str = "vec"
    blayout: str = "row_major"
    slayout: str = "none_box"
    fractal: int = 512
    pad: str = "null"  # or its number in PADS

    def __post_init__(self) -> None:
        def put(field: str, value: Any) -> None:
            object.__setattr__(self, field, value)

        put("dtype", resolve_element_type(self.dtype).name)
        for field in ("rows", "cols"):
            put(field, count(getattr(self, field), f"TileBufType: {field}"))
            if getattr(self, field) <= 0:
                raise ConstraintError(f"TileBufType: {field}={getattr(self, field)} must be greater than 0")
        for field, capacity in (("v_row", self.rows), ("v_col", self.cols)):
            value = getattr(self, field)
            put(field, capacity if value is None else count(value, f"TileBufType: {field}"))
            if getattr(self, field) != DYNAMIC and not 0 <= getattr(self, field) <= capacity:
                raise ConstraintError(
                    f"TileBufType: {field}={value} is out of range: allowed 0 to {capacity}, or DYNAMIC"
                )
        _word(self.loc, LOCATIONS, "loc")
        _word(self.blayout, BLAYOUTS, "blayout")
        _word(self.slayout, SLAYOUTS, "slayout")
        _word(self.fractal, FRACTALS, "fractal")
        pad: Any = self.pad
        if isinstance(pad, int) and not isinstance(pad, bool) and 0 <= pad < len(PADS):
            put("pad", PADS[pad])
        _word(self.pad, PADS, "pad")
        self._check_block()
        # A type is looked up on every call: hash it once.
        put(
            "_hash",
            hash((self.dtype, self.rows, self.cols, self.v_row, self.v_col, self.loc, self.blayout, self.slayout)),
        )

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # The stored hash holds in one process only, so pickling makes the type anew.
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def _check_block(self) -> None:
        if self.slayout != "none_box":
            return
        field, extent = ("cols", self.cols) if self.blayout == "row_major" else ("rows", self.rows)
        size = extent * self.element.itemsize
        if size % BLOCK_BYTES:
            raise LayoutError(
                f"TileBufType: a {self.blayout} tile of {self.dtype} with {field}={extent} has {size} bytes a "
                f"{'row' if field == 'cols' else 'column'}: allowed multiples of {BLOCK_BYTES} bytes"
            )

    @cached_property
    def element(self) -> ElementType:
        """The element type."""
        return ELEMENT_TYPES[self.dtype]

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one tile's storage (capacity, not valid region)."""
        return self.rows * self.cols * self.element.itemsize

    @property
    def layout(self) -> str:
        """``"ND"``, ``"DN"`` or ``"boxed"``."""
        if self.slayout != "none_box":
            return "boxed"
        return "ND" if self.blayout == "row_major" else "DN"

    def __str__(self) -> str:
        layout = "" if self.layout == "ND" else f" {self.layout}"
        return f"{self.dtype} {self.rows}x{self.cols}{layout}"


def smallest_row_multiple(element: ElementType, extent: int) -> int:
    """The smallest extent of at least ``extent`` elements that fills whole 32-byte blocks."""
    step = BLOCK_BYTES // element.itemsize
    return -(-extent // step) * step
