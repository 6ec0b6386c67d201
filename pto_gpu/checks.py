"""Everything that can refuse a call. All of it runs before a byte is written, for the whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pto_gpu.errors import AddressError, ConstraintError, LayoutError, PtoError, TypeMismatch
from pto_gpu.isa.record import Call, Instruction, Operand, RegionRule, Regions, Role, TypeRule, Types
from pto_gpu.memory import UbTile
from pto_gpu.targets import TARGETS
from pto_gpu.tilebuf import Memory, TileBuf
from pto_gpu.types import TileBufType

Rule = TypeRule | RegionRule


def check_call(call: Call) -> None:
    """Raise the first rule that ``call`` breaks: types, batch and device, memory, valid regions."""
    instruction, tiles = call.instruction, call.tiles
    check_together(instruction, tiles, call.target)
    types = {name: tile.type for name, tile in tiles.items()}
    check_types(instruction, types, call.target)
    check_memory(call)
    regions = {name: tile.region for name, tile in tiles.items()}
    check_regions(instruction, regions, types, call.target, call.undefined, call.batch)


def _holds(rule: Rule, target: str, present: Mapping[str, Any]) -> bool:
    """Whether ``rule`` is one for this target and for operands that are there."""
    return (not rule.targets or target in rule.targets) and all(name in present for name in rule.operands)


# -- static types -------------------------------------------------------------------------------------


def check_types(instruction: Instruction, types: Types, target: str) -> None:
    """Raise the first rule on static types that is broken on ``target``."""
    _check_types(instruction, target, tuple(types.items()))


@lru_cache(maxsize=4096)
def _check_types(instruction: Instruction, target: str, types: tuple[tuple[str, TileBufType], ...]) -> None:
    # Cached, for the types are the same from call to call; an error is no result and is raised each time.
    for problem in type_problems(instruction, dict(types), target):
        raise problem


def type_problems(instruction: Instruction, types: Types, target: str) -> list[PtoError]:
    """Every rule on static types that is broken on ``target``, as the errors that a call would raise."""
    problems: list[PtoError] = []
    name = instruction.name
    firsts: dict[str, Operand] = {}
    for operand in instruction.operands:
        if operand.role is Role.TMP or operand.name not in types:
            continue
        first = firsts.setdefault(operand.kind, operand)
        seen, wanted = types[operand.name].dtype, types[first.name].dtype
        if seen != wanted:
            problems.append(
                TypeMismatch(f"{name}: {operand.name} has element type {seen}: allowed {wanted}, that of {first.name}")
            )
    allowed = instruction.element_types[target]
    signature = instruction.signature(types)
    if not problems and signature not in allowed:
        operands = " and ".join(o.name for o in firsts.values())
        problems.append(
            TypeMismatch(
                f"{name}: element type {'/'.join(signature)} of {operands} is not supported on {target}: "
                f"allowed {', '.join('/'.join(s) for s in allowed)}"
            )
        )
    for operand in instruction.operands:
        if operand.name in types and types[operand.name].layout == "boxed":
            problems.append(
                LayoutError(f"{name}: {operand.name}.slayout must be none_box: seen {types[operand.name].slayout}")
            )
    for rule in instruction.type_rules:
        seen_here = rule.seen(types) if _holds(rule, target, types) else None
        if seen_here:
            problems.append(rule.error(f"{name}: {rule.text}{_on(rule, target)}: {seen_here}"))
    return problems


def _on(rule: Rule, target: str) -> str:
    return f" on {target}" if rule.targets else ""


# -- batch, device, memory ------------------------------------------------------------------------------


def check_together(instruction: Instruction, tiles: Mapping[str, TileBuf], target: str) -> None:
    """Raise unless the tiles lie in memory of ``target`` and are of one batch, on one device."""
    name, first = instruction.name, None
    for operand, tile in tiles.items():
        if isinstance(tile, UbTile):
            if tile.address is None:
                raise AddressError(f"{name}: {operand} has no address: bind it with TASSIGN first")
            end, limit = tile.address + tile.type.nbytes, TARGETS[target].ub_bytes
            if end > limit:
                raise AddressError(
                    f"{name}: {operand} {_where(tile)} lies outside the Unified Buffer of {target}: "
                    f"allowed up to 0x{limit:x}"
                )
        if first is None:
            first, batch, device = operand, tile.batch, tile.device
        elif tile.batch != batch:
            raise ConstraintError(f"{name}: {operand} has a batch of {tile.batch}: allowed {batch}, that of {first}")
        elif tile.device != device:
            raise ConstraintError(f"{name}: {operand} is on {tile.device}: allowed {device}, the device of {first}")


def check_memory(call: Call) -> None:
    """Raise where a dst cannot be written, or shares memory that it must not share."""
    instruction, tiles = call.instruction, call.tiles
    name = instruction.name
    for operand in instruction.dsts:
        dst = tiles[operand.name]
        if not dst.writable:
            raise LayoutError(f"{name}: {operand.name} is read-only memory: allowed memory that can be written")
        if dst.memory.self_overlapping:
            raise LayoutError(f"{name}: elements of {operand.name} share memory: allowed one place for each element")
    for written, other, may_coincide in instruction.conflicts:
        dst, tile = tiles[written], tiles[other]
        if _apart(dst, tile) or (may_coincide and _coincide(dst, tile)):
            continue
        raise AddressError(
            f"{name}: {written} {_where(dst)} overlaps {other} {_where(tile)}: "
            f"allowed apart{', or exactly the same tile' if may_coincide else ''}"
        )
    if call.target in instruction.manual_disjoint:
        _check_manual_disjoint(call)


def _check_manual_disjoint(call: Call) -> None:
    bound = [(name, tile) for name, tile in call.tiles.items() if isinstance(tile, UbTile)]
    for i, (a, tile_a) in enumerate(bound):
        for b, tile_b in bound[i + 1 :]:
            if not _apart(tile_a, tile_b):
                raise AddressError(
                    f"{call.instruction.name}: {a} {_where(tile_a)} overlaps {b} {_where(tile_b)}: "
                    f"on {call.target} no two operands may overlap in manual mode"
                )


def _where(tile: TileBuf) -> str:
    if isinstance(tile, UbTile):
        start = tile.bound_address()
        return f"(bytes 0x{start:x} to 0x{start + tile.type.nbytes:x})"
    return f"({tile.type})"


def _apart(a: TileBuf, b: TileBuf) -> bool:
    """Whether no byte belongs to both."""
    if isinstance(a, UbTile) and isinstance(b, UbTile):
        if a.ub is not b.ub or a.batch == 0:
            return True
        start_a, start_b = a.bound_address(), b.bound_address()
        return start_a + a.type.nbytes <= start_b or start_b + b.type.nbytes <= start_a
    here, there = a.memory, b.memory
    if here.high <= there.low or there.high <= here.low:
        return True
    try:
        return not np.shares_memory(_shadow(a), _shadow(b), max_work=100_000)  # type: ignore[arg-type]  # stub
    except np.exceptions.TooHardError:
        return False  # cannot be told in reasonable time: take it as shared


class _Shadow:
    """Address and strides of a batch, for NumPy to reason about; its memory is never read."""

    def __init__(self, tile: TileBuf) -> None:
        memory, size = tile.memory, tile.type.element.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": (tile.batch, tile.type.rows, tile.type.cols),
            "typestr": f"|V{size}",
            "data": (memory.address, True),
            "strides": tuple(s * size for s in memory.strides),
        }


def _shadow(tile: TileBuf) -> Any:
    return tile.data if tile.device == "cpu" else np.asarray(_Shadow(tile))


def _coincide(a: TileBuf, b: TileBuf) -> bool:
    """Whether element (tile, i, j) of both is the same memory, for every element."""
    same_shape = (a.type.rows, a.type.cols, a.type.element.itemsize) == (
        b.type.rows,
        b.type.cols,
        b.type.element.itemsize,
    )
    return same_shape and a.memory.address == b.memory.address and _steps(a) == _steps(b)


def _steps(tile: TileBuf) -> tuple[int, ...]:
    memory: Memory = tile.memory
    extents = (tile.batch, tile.type.rows, tile.type.cols)
    return tuple(step if extent > 1 else 0 for step, extent in zip(memory.strides, extents, strict=True))


# -- valid regions --------------------------------------------------------------------------------------


def check_regions(
    instruction: Instruction, regions: Regions, types: Types, target: str, undefined: str, batch: int
) -> None:
    """Raise the first rule on valid regions that a tile of the batch breaks; an empty batch breaks none."""
    for problem in region_problems(instruction, regions, types, target, undefined, batch):
        raise problem


def region_problems(
    instruction: Instruction, regions: Regions, types: Types, target: str, undefined: str, batch: int
) -> Iterator[ConstraintError]:
    """Every rule on valid regions that a tile breaks, as the errors that a call would raise.

    Rules on operands that are missing from ``regions`` are left out; ``types`` has every operand.
    """
    if batch == 0:
        return
    for rule in instruction.region_rules:
        if (rule.undefined and undefined == "zero") or not _holds(rule, target, regions):
            continue
        broken = rule.broken(regions, types)
        if broken is False or not np.any(broken):
            continue
        yield ConstraintError(_region_message(instruction, rule, broken, regions, types, target, batch))


def _region_message(
    instruction: Instruction, rule: RegionRule, broken: Any, regions: Regions, types: Types, target: str, batch: int
) -> str:
    message = f"{instruction.name}: {rule.text}{_on(rule, target)}: "
    if batch == 1:
        message += f"seen {_show(rule, regions, types, 0)}"
    else:
        broken = np.broadcast_to(broken, batch)
        first = int(np.argmax(broken))
        message += f"{int(np.count_nonzero(broken))} of {batch} tiles break this, first tile {first} "
        message += f"({_show(rule, regions, types, first)})"
    return message + ("; undefined='zero' computes it as the simulator does" if rule.undefined else "")


def _show(rule: RegionRule, regions: Regions, types: Types, tile: int) -> str:
    if len(rule.operands) == 1:
        rows, cols = regions[rule.operands[0]].of_tile(tile)
        return f"valid_row={rows}, valid_col={cols}"
    shown = []
    for name in rule.operands:
        rows, cols = regions[name].of_tile(tile)
        capacity = f" of {types[name]}" if "tmp" in rule.operands else ""
        shown.append(f"{name} {rows}x{cols}{capacity}")
    return ", ".join(shown)
