"""Operands of a call in files of their own, as public test generators write them: ``.bin`` and ``.npy``.

A ``.bin`` is elements and nothing else, row by row, little-endian, the tiles of a batch one after the other. With the
layout ``capacity`` a tile has all its rows and columns in the file, with ``valid`` its valid region only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from pto_gpu.array_files import map_npy, opened
from pto_gpu.errors import ConstraintError, FileError, TypeMismatch, nearest
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Family, Instruction, Kind, Operand, Role
from pto_gpu.types import ELEMENT_TYPES, ElementType, element_type_of, resolve_element_type, smallest_row_multiple

LAYOUTS: Final = ("capacity", "valid")
#: More is no tile, and no size that an array can have.
_DIGITS: Final = 9

Pair = tuple[int, int]


def rows_by_cols(text: str, what: str) -> Pair:
    """Rows and columns of ``16x16``; ``what`` starts the error."""
    rows, x, cols = text.lower().partition("x")
    if not (x and rows.isdecimal() and cols.isdecimal()):
        raise ConstraintError(f"{what} {text!r} is no shape: allowed ROWSxCOLS, such as 16x16")
    if max(len(rows), len(cols)) > _DIGITS:
        raise ConstraintError(f"{what} is out of range: allowed at most {_DIGITS} digits for rows and for columns")
    return int(rows), int(cols)


def counted_tiles(n: int) -> str:
    """``1 tile``, ``2 tiles``."""
    return "1 tile" if n == 1 else f"{n} tiles"


def side_names(operand: Operand) -> list[str]:
    """What may stand for an operand where its values and indices agree: ``src0_val``, ``src0``."""
    return list(dict.fromkeys((operand.name, operand.name.removesuffix("_val").removesuffix("_idx"))))


def region_names(operand: Operand) -> list[str]:
    """What the valid region of an operand may be called: ``src0_val_valid``, ``src0_valid``."""
    return [f"{name}_valid" for name in side_names(operand)]


def region_problem(operand: Operand, valid: NumPyArray, shape: Pair) -> str | None:
    """What is wrong with valid regions int[tiles, 2] of tiles of ``shape``."""
    wrong = ((valid < 0) | (valid > np.array(shape))).any(axis=1)
    if not wrong.any():
        return None
    first = int(wrong.argmax())
    return (
        f"{operand.name}'s valid region {_by(valid[first].tolist())} is out of range: {int(wrong.sum())} of "
        f"{counted_tiles(len(valid))} break this, first tile {first}, allowed up to {_by(shape)}"
    )


@dataclass(frozen=True)
class RawOperands:
    """Where the operands of a call lie, and what the files do not say themselves.

    ``files``: by operand; ``<operand>_valid`` holds ``int32 [tiles, 2]``, the valid rows and columns of each tile.
    ``dtypes``: element type of the values, and of the indices if the instruction has any. ``shapes``, ``valid``: rows
    and columns by operand (``src0`` is for ``src0_val`` and ``src0_idx``); those of None are for every operand that
    has none of its own, except that the dst of a row reduction is one column of as many rows. ``tiles``: how many
    there must be, if that is known.
    """

    instruction: Instruction
    files: Mapping[str, Path]
    dtypes: tuple[str, ...] = ()
    shapes: Mapping[str | None, Pair] = field(default_factory=dict)
    valid: Mapping[str | None, Pair] = field(default_factory=dict)
    layout: str = "capacity"
    tiles: int | None = None

    def __post_init__(self) -> None:
        record = self.instruction
        used = (*record.dsts, *record.sources)
        operands = [o.name for o in used]
        sides = list(dict.fromkeys(name for o in used for name in side_names(o)))
        files = [*operands, *dict.fromkeys(name for o in used for name in region_names(o))]
        for name in self.files:
            if name not in files:
                hint = nearest(name, files, cutoff=0.5)
                raise ConstraintError(f"{record.name} has no operand {name!r}: allowed {', '.join(files)}{hint}")
        for what, mapping in (("shape", self.shapes), ("valid", self.valid)):
            for named in mapping:
                if named is not None and named not in sides:
                    hint = nearest(named, sides, cutoff=0.5)
                    raise ConstraintError(
                        f"{what}: {record.name} has no operand {named!r}: allowed {', '.join(sides)}{hint}"
                    )
        missing = [name for name in operands if name not in self.files]
        if missing:
            raise ConstraintError(
                f"{record.name} needs a file for each of {', '.join(operands)}: missing {', '.join(missing)}"
            )
        if self.tiles is not None and self.tiles < 1:
            raise ConstraintError(f"tiles={self.tiles} must be at least 1: no tile compared is no success")
        if self.layout not in LAYOUTS:
            raise ConstraintError(f"layout {self.layout!r} is not known: allowed {', '.join(LAYOUTS)}")

    def given(self, operand: Operand, pairs: Mapping[str | None, Pair]) -> Pair | None:
        """The rows and columns of ``operand`` in ``shapes`` or ``valid``."""
        named = next((pairs[name] for name in side_names(operand) if name in pairs), None)
        if named is not None or None not in pairs:
            return named
        rows, cols = pairs[None]
        reduced = self.instruction.family is Family.ROW_REDUCE and operand.role is Role.DST
        return (rows, 1) if reduced else (rows, cols)


def element_types(record: Instruction, text: str | None, target: str) -> tuple[str, ...]:
    """Element types of values and indices from ``f16`` or ``f16/u16``; () for None."""
    if text is None:
        return ()
    wanted = tuple(resolve_element_type(word).name for word in text.split("/"))
    allowed = record.element_types[target]
    matching = [s for s in allowed if s[: len(wanted)] == wanted]
    if len(matching) != 1:
        types = ", ".join("/".join(s) for s in matching or allowed)
        problem = "leaves the indices open" if matching else f"is not supported on {target}"
        raise TypeMismatch(f"{record.name}: element type {text} {problem}: allowed {types}")
    return matching[0]


def read_operands(raw: RawOperands) -> dict[str, NumPyArray]:
    """The arrays that an ``.npz`` of the same call would have; raises FileError for files that do not fit."""
    arrays: dict[str, NumPyArray] = {}
    first: tuple[Path, int] | None = None
    for operand in (*raw.instruction.dsts, *raw.instruction.sources):
        path = raw.files[operand.name]
        array, valid = _Reader(raw, operand, path).read()
        if first is not None and len(array) != first[1]:
            raise FileError(f"{path}: holds {counted_tiles(len(array))} of {operand.name}, {first[0]} holds {first[1]}")
        first = first or (path, len(array))
        arrays[operand.name] = array
        arrays[f"{operand.name}_valid"] = valid
    if first is not None and raw.tiles is not None and first[1] != raw.tiles:
        raise FileError(f"{first[0]}: holds {counted_tiles(first[1])}, expected {raw.tiles}")
    return arrays


class _Reader:
    """Reads the file of one operand. What is known about it comes from the options, or from an ``.npy`` itself."""

    def __init__(self, raw: RawOperands, operand: Operand, path: Path) -> None:
        self.raw, self.operand, self.path = raw, operand, path
        kinds = [k for k in (Kind.VALUE, Kind.INDEX) if any(o.kind is k for o in raw.instruction.operands)]
        types = dict(zip(kinds, raw.dtypes, strict=False))
        self.element = ELEMENT_TYPES[types[operand.kind]] if operand.kind in types else None

    def read(self) -> tuple[NumPyArray, NumPyArray]:
        """Elements [tiles, rows, cols] at capacity, and valid regions int[tiles, 2]."""
        shape, valid = self.raw.given(self.operand, self.raw.shapes), self.raw.given(self.operand, self.raw.valid)
        if valid is None and self.takes_dsts_region:
            valid = self.raw.given(self.raw.instruction.dsts[0], self.raw.valid)
        regions = self._regions()
        x = self._elements()
        if x.ndim in (2, 3):  # an .npy says its own shape
            own = (x.shape[-2], x.shape[-1])
            named = shape if self.raw.layout == "capacity" else valid
            if named is not None and named != own:
                raise FileError(
                    f"{self.path}: {self.operand.name} has shape {list(x.shape)}: expected tiles of {_by(named)} "
                    f"({self.raw.layout} layout)"
                )
            if self.raw.layout == "capacity":
                shape = own
            elif regions is None:
                valid = own
        elif x.ndim != 1:
            raise FileError(
                f"{self.path}: {self.operand.name} has shape {list(x.shape)}: allowed [tiles, rows, cols], "
                "[rows, cols] or one axis"
            )
        element, x = self._typed(x)
        if shape is None:
            shape = self._smallest(element, valid, regions)
        return self._tiles(x, element, shape, valid or shape, regions)

    @property
    def takes_dsts_region(self) -> bool:
        """Whether the operand has the valid region of dst where nobody gave it one."""
        return self.operand.role is Role.SRC and self.raw.instruction.family is not Family.ROW_REDUCE

    def _smallest(self, element: ElementType, valid: Pair | None, regions: NumPyArray | None) -> Pair:
        """The smallest capacity that holds the valid regions, where nobody said what it is."""
        if self.raw.layout == "capacity" or (valid is None and regions is None):
            raise FileError(
                f"{self.path}: the shape of {self.operand.name} is not known: name it, as in --shape 16x64"
                + ("" if self.raw.layout == "capacity" else ", or its valid region, as in --valid 16x60")
            )
        rows, cols = valid or (1, 1)
        if regions is not None and len(regions):
            rows, cols = (max(1, int(n)) for n in regions.max(axis=0))
        column = self.raw.instruction.family is Family.ROW_REDUCE and self.operand.role is Role.DST and cols == 1
        return rows, cols if column else smallest_row_multiple(element, cols)

    def _tiles(
        self, x: NumPyArray, element: ElementType, shape: Pair, valid: Pair, regions: NumPyArray | None
    ) -> tuple[NumPyArray, NumPyArray]:
        x = np.ascontiguousarray(x).reshape(-1)
        if regions is None:
            self._check_inside(np.array([valid]), shape)
            if self.raw.layout == "valid":
                inside = self._cut(x, element, valid, "valid region of")
                full = _zeros((len(inside), *shape), x.dtype)
                full[:, : valid[0], : valid[1]] = inside
            else:
                full = self._cut(x, element, shape, "")
            return full, np.broadcast_to(np.array(valid, np.int32), (len(full), 2))
        self._check_inside(regions, shape)
        if self.raw.layout == "capacity":
            return self._cut(x, element, shape, ""), regions
        sizes = regions.astype(np.int64).prod(axis=1)
        self._check_size(x, element, int(sizes.sum()), f"the valid regions of {counted_tiles(len(regions))}")
        full, start = _zeros((len(regions), *shape), x.dtype), 0
        for tile, (rows, cols) in enumerate(regions.tolist()):
            full[tile, :rows, :cols] = x[start : start + rows * cols].reshape(rows, cols)
            start += rows * cols
        return full, regions

    def _cut(self, x: NumPyArray, element: ElementType, shape: Pair, what: str) -> NumPyArray:
        """``x`` as tiles of ``shape``."""
        size = shape[0] * shape[1]
        if not size:
            raise FileError(f"{self.path}: {what or 'shape'} {_by(shape)} has no element: no tiles to compare")
        if not x.size or x.size % size:
            step = size * element.itemsize
            text = f"{what} {_by(shape)}".strip()
            raise FileError(
                f"{self.path}: {self.operand.name} has {x.nbytes} bytes: expected a multiple of {step}, "
                f"one tile of {element} {text}"
                + (f" ({-(-x.nbytes // step) * step} for whole tiles)" if x.size else "")
            )
        return x.reshape(-1, *shape)

    def _check_size(self, x: NumPyArray, element: ElementType, elements: int, what: str) -> None:
        if x.size != elements:
            raise FileError(
                f"{self.path}: {self.operand.name} has {x.nbytes} bytes: expected {elements * element.itemsize}, "
                f"{element} of {what}"
            )

    def _check_inside(self, valid: NumPyArray, shape: Pair) -> None:
        problem = region_problem(self.operand, valid, shape)
        if problem is not None:
            raise ConstraintError(f"{self.path}: {problem}")

    def _regions(self) -> NumPyArray | None:
        """The regions of each tile, if there is a file of them: the operand's own, else dst's if nothing was said."""
        names = [name for name in region_names(self.operand) if name in self.raw.files]
        if any(name in self.raw.valid for name in side_names(self.operand)):
            if names:
                raise ConstraintError(f"valid: {self.operand.name} has a valid region and a file of them, {names[0]}")
            return None
        if not names and self.takes_dsts_region and None not in self.raw.valid:
            names = [name for name in region_names(self.raw.instruction.dsts[0]) if name in self.raw.files]
        if not names:
            return None
        path = self.raw.files[names[0]]
        if path.suffix == ".npy":
            x = np.array(map_npy(path))
            if x.ndim == 2 and x.shape[1] == 2 and x.dtype.kind in "iu":
                return x
            raise FileError(f"{path}: {names[0]} is {x.dtype}{list(x.shape)}: allowed integers [tiles, 2]")
        content = _bytes(path)
        if not content or len(content) % 8:
            raise FileError(f"{path}: {names[0]} has {len(content)} bytes: expected a multiple of 8, two int32 a tile")
        return np.frombuffer(content, "<i4").astype(np.int32).reshape(-1, 2)

    def _elements(self) -> NumPyArray:
        """The whole file: an array of its own shape, or one axis of elements, whatever those of a ``.bin`` are."""
        if self.path.suffix == ".npy":
            return np.array(map_npy(self.path))
        if self.element is None:
            raise FileError(
                f"{self.path}: the element type of {self.operand.name} is not known: name it, as in --dtype f16"
            )
        content, size = _bytes(self.path), self.element.itemsize
        if len(content) % size:
            raise FileError(
                f"{self.path}: {self.operand.name} has {len(content)} bytes: expected a multiple of {size}, "
                f"one {self.element}"
            )
        x = np.frombuffer(content, self.element.bits_dtype.newbyteorder("<"))
        return x.astype(self.element.bits_dtype, copy=sys.byteorder != "little").view(self.element.numpy)

    def _typed(self, x: NumPyArray) -> tuple[ElementType, NumPyArray]:
        """``x`` as elements: of its own type, or those that its bits were said to be."""
        own = element_type_of(x.dtype)
        if self.element is None or own is self.element:
            if own is None:
                raise FileError(
                    f"{self.path}: {self.operand.name} has dtype {x.dtype}: no element type "
                    "(for bits of an element type name it, as in --dtype bf16)"
                )
            return own, x
        if x.dtype not in (self.element.bits_dtype, np.dtype(f"V{self.element.itemsize}")):
            raise FileError(
                f"{self.path}: {self.operand.name} has dtype {x.dtype}: these are no bits of {self.element}"
            )
        return self.element, np.ascontiguousarray(x).view(self.element.numpy)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NumPyArray:
    try:
        return np.zeros(shape, dtype)
    except ValueError:  # more than an array can have at all
        raise MemoryError(f"tiles of {_by(shape[1:])}") from None


def _by(pair: Iterable[Any]) -> str:
    return "x".join(map(str, pair))


def _bytes(path: Path) -> bytes:
    with opened(path, pipes=True) as file:
        return file.read()
