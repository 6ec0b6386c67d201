"""Inputs to arguments: arrays to tiles, pointers and views; numbers to scalars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType
from xdsl.interpreters.builtin import scalar_attr
from xdsl.ir import SSAValue

from pto_gpu import interop
from pto_gpu.asm.diagnostics import Diagnostic, asm_error, asm_error_at
from pto_gpu.asm.parser import Parsed
from pto_gpu.asm.types import TILE_TYPES, VIEW_TYPES, PtrAttr, element_of, is_tile, tile_type, view_shape
from pto_gpu.asm.values import Array
from pto_gpu.errors import ConstraintError, PtoError, TypeMismatch, nearest
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import DYNAMIC, ELEMENT_TYPES, ElementType, TileBufType, count, element_type_of

VALID_SUFFIX = "_valid"


@dataclass
class Bound:
    """What each argument is for the whole batch: a TileBuf (None: made by the program), an Array or a scalar."""

    values: dict[SSAValue, Any]
    batch: int
    device: str


def input_names(parsed: Parsed, arguments: list[SSAValue]) -> list[str]:
    """The names that inputs may have."""
    names = [parsed.name_of(v) for v in arguments]
    return names + [f"{parsed.name_of(v)}{VALID_SUFFIX}" for v in arguments if is_tile(v.type)]


def bind(
    parsed: Parsed,
    arguments: list[SSAValue],
    inputs: Mapping[str, Any],
    needed: set[SSAValue],
    written: set[SSAValue],
) -> Bound:
    """The inputs of a run; raises AsmError for one that is missing, unknown, or does not fit its argument."""
    _check_names(parsed, arguments, inputs)
    names = {parsed.name_of(v) for v in arguments}
    problems = []
    values: dict[SSAValue, Any] = {}
    for value in arguments:
        name = parsed.name_of(value)
        try:
            regions = f"{name}{VALID_SUFFIX}"
            valid = inputs.get(regions) if regions not in names else None
            values[value] = _bind_one(name, value, inputs.get(name), valid, value in needed, value in written)
        except PtoError as error:
            problems.append(Diagnostic(str(error), parsed.span_of(value)))
    if problems:
        raise asm_error(problems)
    batch = _batch(parsed, values)
    devices = {v.device for v in values.values() if isinstance(v, (TileBuf, Array)) and v.device != "cpu"}
    if len(devices) > 1:
        raise asm_error_at(f"inputs lie on {', '.join(sorted(devices))}: allowed one GPU", parsed.span_of(arguments[0]))
    for one in values.values():
        if isinstance(one, Array):
            one.batch = batch
    return Bound(values, batch, next(iter(devices), "cpu"))


def _check_names(parsed: Parsed, arguments: list[SSAValue], inputs: Mapping[str, Any]) -> None:
    allowed = input_names(parsed, arguments)
    for name in inputs:
        if name in allowed:
            continue
        if not isinstance(name, str):
            raise TypeMismatch(f"inputs must have names: seen {type(name).__name__}")
        names = ", ".join(parsed.name_of(v) for v in arguments) or "none"
        message = f"there is no input {name!r}: allowed {names}{nearest(name, allowed)}"
        raise asm_error_at(message, parsed.span_of(parsed.module))


def _bind_one(name: str, value: SSAValue, given: Any, valid: Any, needed: bool, written: bool) -> Any:
    ty = value.type
    if isinstance(ty, TILE_TYPES):
        if given is None:
            if needed:
                raise ConstraintError(f"input {name} is missing: a tile, {ty}")
            if valid is not None:
                raise ConstraintError(f"input {name} is missing, but {name}{VALID_SUFFIX} is given")
            return None
        return _tile(name, value, given, valid)
    if isinstance(ty, (PtrAttr, *VIEW_TYPES)):
        return _array(name, value, given, written=written)
    if given is None:
        raise ConstraintError(f"input {name} is missing: a scalar, {ty}")
    return scalar(name, ty, given)


# -- tiles ----------------------------------------------------------------------------------------------------


def _tile(name: str, value: SSAValue, given: Any, valid: Any) -> TileBuf:
    what = f"input {name}"
    stated = tile_type(value.type)
    if isinstance(given, TileBuf):
        if valid is not None:
            raise ConstraintError(
                f"{what}: a TileBuf has valid regions of its own: {name}{VALID_SUFFIX} is not allowed"
            )
        rows, cols, data, ty = given.valid_row, given.valid_col, given.data, given.type
        if stated is not None:
            _check_same_type(what, stated, ty)
            ty = stated
    else:
        ty = stated or _type_of(what, given, value)
        data = _bits(given, ty.element)
        rows, cols = _counts(what, valid)
    if stated is not None:
        rows, cols = _kept(what, "row", rows, stated.v_row), _kept(what, "col", cols, stated.v_col)
    full = (n if n is not None else extent for n, extent in ((rows, ty.rows), (cols, ty.cols)))
    try:
        return TileBuf.from_array(data, ty, *full)
    except PtoError as error:
        raise type(error)(f"{what}: {str(error).removeprefix('TileBuf.from_array: ')}") from None


def _kept(what: str, axis: str, seen: Any, said: int) -> Any:
    """The count of the input, which must be that of the type where the type has one."""
    if said == DYNAMIC:
        return seen
    if seen is None or np.all(np.asarray(seen) == said):
        return said
    raise ConstraintError(f"{what}: the type says valid_{axis}={said}: write ? there to take it from the input")


def _check_same_type(what: str, stated: TileBufType, seen: TileBufType) -> None:
    if (stated.dtype, stated.rows, stated.cols, stated.layout) != (seen.dtype, seen.rows, seen.cols, seen.layout):
        raise TypeMismatch(f"{what}: a tile of {seen}: the program says {stated}")


def _type_of(what: str, given: Any, value: SSAValue) -> TileBufType:
    """The type of a tile that takes it from the array: ND, or DN for a column that cannot be ND."""
    shape = getattr(given, "shape", None)
    if shape is None or len(shape) not in (2, 3):
        seen = type(given).__name__ if shape is None else f"shape {list(shape)}"
        raise TypeMismatch(f"{what}: an array [batch, rows, cols] or a TileBuf is needed: seen {seen}")
    element = _element_of(what, given)
    said = element_of(value.type)
    if said is not None and said is not element:
        raise TypeMismatch(f"{what}: array of {element}: the program says {said}")
    rows, cols = int(shape[-2]), int(shape[-1])
    try:
        return TileBufType(element.name, rows, cols, blayout="col_major" if cols == 1 else "row_major")
    except PtoError as error:
        raise type(error)(f"{what}: {error}") from None


def _element_of(what: str, given: Any) -> ElementType:
    if interop.is_torch(given):
        word = str(given.dtype).removeprefix("torch.")
        found = next((e for e in ELEMENT_TYPES.values() if e.torch_name == word), None)
    else:
        found = element_type_of(np.dtype(given.dtype))
    if found is None:
        raise TypeMismatch(f"{what}: array of {given.dtype}: allowed {', '.join(ELEMENT_TYPES)}")
    return found


def _bits(given: Any, element: ElementType) -> Any:
    """Bits of bf16 that a file holds as 16-bit integers or as raw bytes are read as bf16."""
    if isinstance(given, np.ndarray) and element.name == "bf16" and given.dtype in (np.dtype("u2"), np.dtype("V2")):
        return given.view(element.numpy)
    return given


def _counts(what: str, valid: Any) -> tuple[Any, Any]:
    """Rows and columns from integers ``[batch, 2]`` or ``[2]``."""
    if valid is None:
        return None, None
    try:
        array = np.asarray(valid)
    except ValueError:  # rows of different lengths
        raise TypeMismatch(f"{what}{VALID_SUFFIX}: allowed integers [batch, 2] or [2] (rows, columns)") from None
    if array.shape[-1:] != (2,) or array.ndim > 2 or array.dtype.kind not in "iu":
        raise TypeMismatch(
            f"{what}{VALID_SUFFIX} is {array.dtype}{list(array.shape)}: "
            "allowed integers [batch, 2] or [2] (rows, columns)"
        )
    return (int(array[0]), int(array[1])) if array.ndim == 1 else (array[:, 0], array[:, 1])


# -- memory and scalars ---------------------------------------------------------------------------------------


def _array(name: str, value: SSAValue, given: Any, *, written: bool) -> Array:
    what = f"input {name}"
    element = element_of(value.type)
    assert element is not None  # a pointer and a view say it
    array = Array(name, element, 0, "cpu")
    array.written = written
    if given is None:
        if not written:
            raise ConstraintError(f"input {name} is missing: an array [batch, ...] of {element}")
        return array
    data, array.device = interop.adopt(_bits(given, element), element, what)
    if data.ndim < 1:
        raise TypeMismatch(f"{what}: an array [batch, ...] is needed: seen a scalar")
    if isinstance(value.type, VIEW_TYPES):
        _check_sizes(what, view_shape(value).sizes, tuple(data.shape[1:]))
    array.data, array.bound = data, True
    return array


def _check_sizes(what: str, stated: tuple[int, ...], seen: tuple[int, ...]) -> None:
    if len(stated) != len(seen) or any(s not in (DYNAMIC, n) for s, n in zip(stated, seen, strict=True)):
        shown = ", ".join("?" if s == DYNAMIC else str(s) for s in stated)
        raise ConstraintError(f"{what}: shape [batch, {', '.join(map(str, seen))}]: the program says [batch, {shown}]")


def scalar(name: str, ty: Any, given: Any) -> Any:
    """The value of a scalar argument of type ``ty``."""
    what = f"input {name}"
    if isinstance(given, np.ndarray) and given.ndim == 0:
        given = given[()]
    if isinstance(ty, AnyFloat):
        if isinstance(given, (bool, str, bytes)) or not isinstance(given, (int, float, np.integer, np.floating)):
            raise TypeMismatch(f"{what} must be a number, {ty}: seen {type(given).__name__}")
        try:
            return scalar_attr(float(given), ty, 64)
        except OverflowError:
            raise ConstraintError(
                f"{what} does not fit {ty}: seen an integer of {int(given).bit_length()} bits"
            ) from None
    if not isinstance(ty, (IndexType, IntegerType)):
        raise TypeMismatch(f"{what}: a value of type {ty} cannot be bound")
    if isinstance(given, (bool, np.bool_)) and ty == IntegerType(1):
        given = int(given)
    number, width = count(given, what), 64 if isinstance(ty, IndexType) else ty.width.data
    if not -(1 << (width - 1)) <= number < 1 << width:
        raise ConstraintError(f"{what}={number} does not fit {ty}")
    return scalar_attr(number, ty, 64)


def _batch(parsed: Parsed, values: Mapping[SSAValue, Any]) -> int:
    """The number of tiles that all inputs have; 1 if there is no input."""
    first = None
    for value, one in values.items():
        batch = one.batch if isinstance(one, TileBuf) else None
        if isinstance(one, Array) and one.data is not None:
            batch = int(one.data.shape[0])
        if batch is None:
            continue
        name = parsed.name_of(value)
        if first is None:
            first = (name, batch)
        elif batch != first[1]:
            message = f"input {name} has a batch of {batch}: allowed {first[1]}, that of {first[0]}"
            raise asm_error_at(message, parsed.span_of(value))
    return first[1] if first is not None else 1
