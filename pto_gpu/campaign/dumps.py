"""Checking dumps made elsewhere: an ``.npz`` with the operands of a call and the result somebody got.

Arrays: every source and dst under its operand name, ``[batch, rows, cols]`` or ``[rows, cols]``, and valid regions
``<operand>_valid`` (``src0_valid`` serves ``src0_val`` and ``src0_idx``), integers ``[batch, 2]`` or ``[2]``: rows,
columns. A source without one has dst's, except that of a row reduction, whose dst has one column: it needs its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pto_gpu import intrinsics
from pto_gpu.campaign.compare import Comparison, compare
from pto_gpu.campaign.npz import read_npz
from pto_gpu.campaign.saved import METADATA, SavedTile
from pto_gpu.defaults import Options
from pto_gpu.errors import ConstraintError, FileError, PtoError
from pto_gpu.interop import NumPyArray
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction, Kind, Operand
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ElementType, TileBufType, element_type_of, smallest_row_multiple


@dataclass(frozen=True)
class Checked:
    """A dump compared with the reference."""

    path: Path
    instruction: Instruction
    dtypes: tuple[str, ...]
    batch: int
    comparison: Comparison
    first_failure: SavedTile | None

    @property
    def equal(self) -> bool:
        """Whether no bit differs."""
        return not self.comparison.elements


def instruction_of(path: Path) -> Instruction:
    """The instruction that a file is named after (``tpartmin_f32.npz``)."""
    word = path.name.lower().split("_")[0].removesuffix(".npz").upper()
    found = instructions().get(word)
    if found is None:
        raise FileError(
            f"{path}: the name does not start with an instruction: name it first, as in `pto-gpu check TPARTMIN FILE` "
            f"(allowed {', '.join(instructions())})"
        )
    return found


def check_dump(
    path: Path, instruction: Instruction, options: Options, outside: str = "zero", dtype: ElementType | None = None
) -> Checked:
    """Compare the results in ``path`` with the reference under ``options``.

    ``outside``: ``"zero"`` if dst was zero before the run and all of it is to be compared, ``"ignore"`` to
    compare valid regions only. ``dtype``: the element type of values that a file holds as bare bits (bf16).

    Raises FileError for a file that cannot be used, and what the instruction raises for operands that it refuses.
    """
    arrays = read_npz(path)
    if METADATA in arrays:
        raise FileError(f"{path}: a saved failure: use pto-gpu replay")
    try:
        tiles = _tiles(path, instruction, arrays, dtype)
        batch = tiles[instruction.dsts[0].name].batch
        if not batch:
            raise FileError(f"{path}: no tiles to compare")
        seen = {o.name: tiles[o.name] for o in instruction.dsts}
        expected = {name: _zeros_like(t) for name, t in seen.items()}
        intrinsics.execute(instruction, {**tiles, **expected}, options.override(backend="numpy"))
    except FileError:
        raise
    except PtoError as error:
        raise type(error)(f"{path}: {error}") from None
    sources = {o.name: tiles[o.name] for o in instruction.sources}
    found = compare(instruction, sources, seen, expected, outside=outside == "zero")
    failure = None
    if found.elements:
        first = int(found.tiles[0])
        failure = SavedTile.of(
            instruction, options, tiles, expected, first, before=0, origin=path.stem, outside=outside
        )
    types = {name: t.type for name, t in tiles.items()}
    return Checked(path, instruction, instruction.signature(types), batch, found, failure)


def _zeros_like(tiles: TileBuf) -> TileBuf:
    return TileBuf.zeros(tiles.type, tiles.batch, "cpu", *tiles.region)


def _tiles(
    path: Path, instruction: Instruction, arrays: Mapping[str, NumPyArray], dtype: ElementType | None
) -> dict[str, TileBuf]:
    operands = (*instruction.dsts, *instruction.sources)
    missing = [o.name for o in operands if o.name not in arrays]
    if missing:
        needed = ", ".join(o.name for o in operands)
        raise FileError(f"{path}: {instruction.name} needs arrays {needed}: missing {', '.join(missing)}")
    return {o.name: _tile(path, instruction, o, arrays, dtype) for o in operands}


def _tile(
    path: Path,
    instruction: Instruction,
    operand: Operand,
    arrays: Mapping[str, NumPyArray],
    dtype: ElementType | None,
) -> TileBuf:
    x = arrays[operand.name]
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise FileError(
            f"{path}: {operand.name} has shape {list(x.shape)}: allowed [batch, rows, cols] or [rows, cols]"
        )
    x = _as_elements(path, operand, x, dtype)
    element = element_type_of(x.dtype)
    if element is None:
        raise FileError(
            f"{path}: {operand.name} has dtype {x.dtype}: no element type (for bf16 bits name --dtype bf16)"
        )
    valid = _valid(path, instruction, operand, arrays, len(x))
    rows, cols = x.shape[1:]
    if cols == 1:  # a column: DN, which takes whole blocks of rows
        ty = TileBufType(element.name, smallest_row_multiple(element, rows), 1, blayout="col_major")
        column = TileBuf.zeros(ty, len(x), "cpu", 0, 0)
        column.data[:, :rows] = x
        _check_range(path, operand, valid, (rows, cols))
        return column.with_valid(valid[:, 0], valid[:, 1])
    _check_range(path, operand, valid, (rows, cols))
    return TileBuf.from_array(x, TileBufType(element.name, rows, cols), valid[:, 0], valid[:, 1])


def _as_elements(path: Path, operand: Operand, x: NumPyArray, dtype: ElementType | None) -> NumPyArray:
    if dtype is None or operand.kind is not Kind.VALUE or x.dtype == dtype.numpy:
        return x
    if x.dtype not in (dtype.bits_dtype, np.dtype(f"V{dtype.itemsize}")):
        raise FileError(f"{path}: {operand.name} has dtype {x.dtype}: these are no bits of {dtype}")
    return np.ascontiguousarray(x).view(dtype.numpy)


def _valid(
    path: Path, instruction: Instruction, operand: Operand, arrays: Mapping[str, NumPyArray], batch: int
) -> NumPyArray:
    """Valid rows and columns int[batch, 2]: the operand's own, or dst's where a source may have dst's."""
    from_dst = [instruction.dsts[0]] if instruction.valid_pattern != "rows" else []
    names = [
        f"{n}_valid" for o in (operand, *from_dst) for n in (o.name, o.name.removesuffix("_val").removesuffix("_idx"))
    ]
    name = next((n for n in names if n in arrays), None)
    if name is None:
        raise FileError(f"{path}: no valid region of {operand.name}: allowed {' or '.join(dict.fromkeys(names))}")
    valid = arrays[name]
    if valid.shape == (2,):
        valid = np.broadcast_to(valid, (batch, 2))
    if valid.shape != (batch, 2) or valid.dtype.kind not in "iu":
        raise FileError(
            f"{path}: {name} is {valid.dtype}{list(valid.shape)}: allowed integers [{batch}, 2] (rows, columns)"
        )
    return valid


def _check_range(path: Path, operand: Operand, valid: NumPyArray, shape: tuple[int, int]) -> None:
    wrong = ((valid < 0) | (valid > np.array(shape))).any(axis=1)
    if wrong.any():
        first = int(wrong.argmax())
        raise ConstraintError(
            f"{operand.name}'s valid region is out of range: {int(wrong.sum())} of {len(valid)} tiles break this, "
            f"first tile {first} (seen {valid[first].tolist()}, allowed up to {list(shape)})"
        )
