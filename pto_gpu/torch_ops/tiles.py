"""Tensors as tiles: their static types, the shapes of results, valid regions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from pto_gpu.checks import check_types
from pto_gpu.errors import ConstraintError, LayoutError, TypeMismatch
from pto_gpu.isa import instruction
from pto_gpu.isa.record import Instruction
from pto_gpu.regions import Region
from pto_gpu.torch_ops.arguments import Arguments, valid_names
from pto_gpu.types import ELEMENT_TYPES, TileBufType

#: The element type of a tensor.
ELEMENTS = {getattr(torch, e.torch_name): e for e in ELEMENT_TYPES.values()}


class Static(NamedTuple):
    """What follows from element types and tile shapes alone.

    ``types``: of sources and results. ``shapes``: rows and columns of each result, the valid region it has if every
    source is full; its type may have more, rounded up to whole 32-byte blocks.
    """

    types: Mapping[str, TileBufType]
    shapes: Mapping[str, tuple[int, int]]


def static_of(record: Instruction, call: Arguments) -> Static:
    """Check what can be checked without reading a tensor, and work out the results.

    Raises TypeMismatch, LayoutError or ConstraintError. Shapes may be symbolic: rows and columns become constants,
    the batch does not.
    """
    first, batch, device = "", 0, None
    described = []
    for name, x in (*call.dsts.items(), *call.sources.items()):
        argument = record.by_name[name].argument
        if x.dim() != 3:
            raise LayoutError(f"{record.name}: {argument} has {x.dim()} dimensions: allowed [batch, rows, cols]")
        if not first:
            first, batch, device = argument, x.shape[0], x.device
        elif x.device != device:
            raise ConstraintError(
                f"{record.name}: {argument} is on {x.device}: allowed {device}, the device of {first}"
            )
        _same_batch(f"{record.name}: {argument}", x, batch, first)
        described.append((name, x.dtype, int(x.shape[1]), int(x.shape[2])))
    for argument, group in zip(valid_names(record), record.region_groups, strict=True):
        valid = call.valid[group[0]]
        if valid is not None:
            _check_valid(f"{record.name}: {argument}", valid, batch, device, first)
    return _static(record.name, call.target, tuple(described))


def _same_batch(what: str, x: torch.Tensor, batch: Any, first: str) -> None:
    """Raise unless ``x`` has ``batch`` tiles; symbolic sizes must be equal at run time."""
    seen: Any = x.shape[0]
    if isinstance(seen, int) and isinstance(batch, int):
        if seen != batch:
            raise ConstraintError(f"{what} has a batch of {seen}: allowed {batch}, that of {first}")
    else:
        torch._check(seen == batch)  # type: ignore[no-untyped-call]


def _check_valid(what: str, valid: torch.Tensor, batch: Any, device: torch.device | None, first: str) -> None:
    if valid.dtype != torch.int32:
        raise TypeMismatch(f"{what} is {valid.dtype}: allowed torch.int32")
    if valid.dim() != 2 or valid.shape[1] != 2:
        raise ConstraintError(f"{what} has shape {list(valid.shape)}: allowed [batch, 2], rows and columns")
    if valid.device != device:
        raise ConstraintError(f"{what} is on {valid.device}: allowed {device}, the device of {first}")
    _same_batch(what, valid, batch, first)


@lru_cache(maxsize=4096)
def _static(name: str, target: str, described: tuple[tuple[str, torch.dtype, int, int], ...]) -> Static:
    record = instruction(name)
    shown = {n: (f"{name}: {record.by_name[n].argument}", dtype, r, c) for n, dtype, r, c in described}
    types = {n: tile_type(*shown[n]) for n in record.assembly}
    regions = {n: Region(ty.rows, ty.cols) for n, ty in types.items()}
    shapes = {}
    for operand, result in zip(record.dsts, record.result(types, regions), strict=True):
        shapes[operand.name] = shape = (int(result.region.rows), int(result.region.cols))
        given = shown.get(operand.name)
        types[operand.name] = result.type
        if given and (ELEMENTS.get(given[1]) is not result.type.element or given[2:] != shape):
            types[operand.name] = tile_type(*given)
    check_types(record, types, target)
    return Static(types, shapes)


@cache
def tile_type(what: str, dtype: torch.dtype, rows: int, cols: int) -> TileBufType:
    """The type of a tile ``rows x cols``: ND, or DN for a single column such as TROWMIN gives."""
    element = ELEMENTS.get(dtype)
    if element is None:
        raise TypeMismatch(f"{what} is {dtype}: allowed {', '.join(map(str, ELEMENTS))}")
    try:
        return TileBufType(element.name, rows, cols, blayout="col_major" if cols == 1 else "row_major")
    except LayoutError as error:
        raise LayoutError(f"{what}: {error}") from None


def regions_of(record: Instruction, call: Arguments, types: Mapping[str, TileBufType]) -> dict[str, Region]:
    """The valid regions of sources and results as torch arrays, on the device and without reading them.

    Counts outside a tile are brought into it, so that a kernel cannot leave its memory.
    """
    regions = {}
    for name, valid in call.valid.items():
        ty = types[name]
        if valid is None:
            regions[name] = Region(ty.rows, ty.cols)
        else:
            rows, cols = valid.unbind(1)
            regions[name] = Region(rows.clamp(0, ty.rows), cols.clamp(0, ty.cols))
    for operand, result in zip(record.dsts, record.result(types, regions), strict=True):
        ty = types[operand.name]
        regions[operand.name] = Region(_within(result.region.rows, ty.rows), _within(result.region.cols, ty.cols))
    return regions


def _within(count: Any, capacity: int) -> Any:
    return min(count, capacity) if isinstance(count, int) else count.clamp(max=capacity)
