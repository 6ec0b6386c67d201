"""Dumps made elsewhere, as tiles: the operands of a call and the result somebody got, in an ``.npz``.

Its arrays: every source and dst under its operand name, ``[batch, rows, cols]`` or ``[rows, cols]``, and
valid regions ``<operand>_valid`` (``src0_valid`` serves ``src0_val`` and ``src0_idx``), integers ``[batch, 2]`` or
``[2]``: rows, columns. A source without one has dst's, except that of a row reduction, whose dst has one column: it
needs its own.
No other arrays but those that are not read, ``tmp`` and the ``golden_<dst>`` that ``pto-gpu validate --dump`` writes: a
misspelt region would otherwise be taken for an absent one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from pto_gpu.array_files import read_npz
from pto_gpu.campaign.files.raw import counted_tiles, region_names, region_problem
from pto_gpu.campaign.files.saved import METADATA
from pto_gpu.errors import ConstraintError, FileError
from pto_gpu.interop import NumPyArray
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Family, Instruction, Kind, Operand, Role, ValidPattern
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ELEMENT_TYPES, ElementType, TileBufType, element_type_of, smallest_row_multiple


def instruction_of(path: Path) -> Instruction:
    """The instruction that a file is named after (``tpartmin_f32.npz``)."""
    word = path.name.lower().split("_")[0].removesuffix(".npz").upper()
    found = instructions().get(word)
    if found is None:
        if not os.path.exists(path):  # Path.exists raises for a long name
            raise FileError(f"{path}: no such file")
        raise FileError(
            f"{path}: the name does not start with an instruction: name it first, as in `pto-gpu check TPARTMIN FILE` "
            f"(allowed {', '.join(instructions())})"
        )
    return found


def read_dump(path: Path, instruction: Instruction) -> dict[str, NumPyArray]:
    """The arrays of a dump; raises FileError for a file that is none of ``instruction``."""
    return read_npz(path, lambda names: _check_names(path, instruction, names))


def tiles_of(
    path: Path, instruction: Instruction, arrays: Mapping[str, NumPyArray], dtype: ElementType | None
) -> dict[str, TileBuf]:
    """The dsts and sources that ``arrays`` hold; ``path`` is what errors are about.

    ``dtype``: the element type of values that are bare bits.
    """
    _check_shapes(path, instruction, arrays)
    tiles = {o.name: _tile(path, instruction, o, arrays, dtype) for o in (*instruction.dsts, *instruction.sources)}
    if not tiles[instruction.dsts[0].name].batch:
        raise FileError(f"{path}: no tiles to compare")
    return tiles


def _check_names(path: Path, instruction: Instruction, names: Collection[str]) -> None:
    """Refuse a file with too few or too many arrays."""
    if METADATA in names:
        raise FileError(f"{path}: a saved failure: use pto-gpu replay")
    operands = (*instruction.dsts, *instruction.sources)
    known = (*operands, *(o for o in instruction.operands if o.role is Role.TMP))
    allowed = list(dict.fromkeys([*(o.name for o in known), *(name for o in known for name in region_names(o))]))
    allowed += [f"golden_{o.name}" for o in instruction.dsts]
    unknown = [repr(name) for name in names if name not in allowed]
    if unknown:
        raise FileError(f"{path}: {instruction.name} has no array {', '.join(unknown)}: allowed {', '.join(allowed)}")
    missing = [o.name for o in operands if o.name not in names]
    if missing:
        needed = ", ".join(o.name for o in operands)
        hint = " (dst is what the implementation under test computed)" if operands[0].name in missing else ""
        raise FileError(f"{path}: {instruction.name} needs arrays {needed}: missing {', '.join(missing)}{hint}")


def _check_shapes(path: Path, instruction: Instruction, arrays: Mapping[str, NumPyArray]) -> None:
    """Refuse arrays that cannot hold the same number of tiles."""
    operands = (*instruction.dsts, *instruction.sources)
    first = operands[0].name
    like = arrays[first].shape
    for operand in operands:
        shape = arrays[operand.name].shape
        wanted = "rows, 1" if instruction.family is Family.ROW_REDUCE and operand.role is Role.DST else "rows, cols"
        if len(shape) not in (2, 3) or 0 in shape[-2:]:
            raise FileError(
                f"{path}: {operand.name} has shape {list(shape)}: allowed [batch, {wanted}], or [{wanted}] for one tile"
            )
        if len(shape) != len(like):
            reduced = f", {first} [batch, rows, 1]" if instruction.family is Family.ROW_REDUCE else ""
            raise FileError(
                f"{path}: {first} has shape {list(like)}, {operand.name} has {list(shape)}: "
                f"allowed [batch, rows, cols]{reduced}, or all of them without batch"
            )
        if len(shape) == 3 and shape[0] != like[0]:
            raise FileError(f"{path}: {operand.name} has {counted_tiles(shape[0])}, {first} has {like[0]}")


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
    x = _as_elements(path, operand, x, dtype)
    element = element_type_of(x.dtype)
    if element is None:
        raise FileError(
            f"{path}: {operand.name} has dtype {x.dtype}: no element type (for bf16 bits name --dtype bf16)"
        )
    valid = _valid(path, instruction, operand, arrays, len(x))
    rows, cols = x.shape[1:]
    problem = region_problem(operand, valid, (rows, cols))
    if problem is not None:
        raise ConstraintError(problem)
    if cols == 1:  # a column: DN, which takes whole blocks of rows
        ty = TileBufType(element.name, smallest_row_multiple(element, rows), 1, blayout="col_major")
        column = TileBuf.zeros(ty, len(x), "cpu", 0, 0)
        column.data[:, :rows] = x
        return column.with_valid(valid[:, 0], valid[:, 1])
    return TileBuf.from_array(x, TileBufType(element.name, rows, cols), valid[:, 0], valid[:, 1])


def _as_elements(path: Path, operand: Operand, x: NumPyArray, dtype: ElementType | None) -> NumPyArray:
    if operand.kind is not Kind.VALUE:
        return x
    named = dtype
    if named is None and "bf16" in re.split(r"[^a-z0-9]", path.stem.lower()):
        dtype = ELEMENT_TYPES["bf16"]
    if dtype is None or x.dtype == dtype.numpy:
        return x
    if x.dtype not in (dtype.bits_dtype, np.dtype(f"V{dtype.itemsize}")):
        if named is None:
            return x
        raise FileError(f"{path}: {operand.name} has dtype {x.dtype}: these are no bits of {dtype}")
    return np.ascontiguousarray(x).view(dtype.numpy)


def _valid(
    path: Path, instruction: Instruction, operand: Operand, arrays: Mapping[str, NumPyArray], batch: int
) -> NumPyArray:
    """Valid rows and columns int[batch, 2]: the operand's own, or dst's where a source may have dst's."""
    from_dst = [instruction.dsts[0]] if instruction.valid_pattern is not ValidPattern.ROWS else []
    names = [name for o in (operand, *from_dst) for name in region_names(o)]
    name = next((n for n in names if n in arrays), None)
    if name is None:
        either = " or ".join(dict.fromkeys(names))
        raise FileError(f"{path}: missing array {either}, int32 [{batch}, 2]: valid rows and columns of {operand.name}")
    valid = arrays[name]
    if valid.shape == (2,):
        valid = np.broadcast_to(valid, (batch, 2))
    if valid.shape != (batch, 2) or valid.dtype.kind not in "iu":
        raise FileError(
            f"{path}: {name} is {valid.dtype}{list(valid.shape)}: allowed integers [{batch}, 2] (rows, columns)"
        )
    return valid
