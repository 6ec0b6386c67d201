"""What a Triton launch is specialised on: everything that is static about a call, and nothing that is not."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pto_gpu.isa.record import Call, Family, Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType

#: Bytes of one vector access.
VECTOR_BYTES: Final = 16
#: Warps of a program, and bytes that it reads: two sources get 64 bytes, four vectors, a thread each.
WARPS: Final = 4
BLOCK_BYTES: Final = 16384
#: The interpreter's cost is per program and hardly per element.
HOST_BLOCK_BYTES: Final = 1 << 17
#: Columns of a block are halved to waste less of the last one, but not below this.
MIN_SPLIT: Final = 128

#: The signed integers that stand for elements of a size.
INTEGERS: Final = {1: "int8", 2: "int16", 4: "int32"}


class Shape(NamedTuple):
    """How one operand lies in memory: capacity and strides in elements, and whether its base is 16-byte aligned."""

    rows: int
    cols: int
    strides: tuple[int, int, int]  # tile, row, column
    element: ElementType
    aligned: bool

    def swapped(self) -> Shape:
        """Rows and columns exchanged."""
        tile, row, col = self.strides
        return self._replace(rows=self.cols, cols=self.rows, strides=(tile, col, row))

    def one_row(self) -> Shape:
        """All rows as one; only where they follow each other."""
        return self._replace(rows=1, cols=self.rows * self.cols)

    @property
    def vector(self) -> int:
        """``VEC`` of :mod:`pto_gpu.kernels.block`."""
        if self.cols > 1 and self.strides[2] != 1:
            return 0
        lanes = VECTOR_BYTES // self.element.itemsize
        steps = [self.strides[0], self.strides[1] if self.rows > 1 else 0, self.cols]
        return lanes if self.aligned and not any(s % lanes for s in steps) else 1


@dataclass(frozen=True)
class Plan:
    """One specialisation. ``operands``: those the kernel takes. ``swapped``: rows and columns are exchanged."""

    family: str
    operands: tuple[str, ...]
    full: bool
    swapped: bool
    strides: Mapping[str, int]
    constants: Mapping[str, Any]

    def programs(self, batch: int) -> int:
        """Programs that cover ``batch`` tiles, all of them on the first axis of the grid, which has no 65535 limit."""
        c = self.constants
        blocks = -(-c["ROWS"] // c["BR"])
        if self.family != Family.ROW_REDUCE:
            blocks *= -(-c["COLS"] // c["BC"])
        return -(-batch // c["BT"]) * blocks


_plans: dict[tuple[Any, ...], Plan] = {}


def plan_of(call: Call, *, host: bool) -> Plan:
    """The plan of a call; made once for each combination of static facts."""
    instruction, tiles = call.instruction, call.tiles
    names = tuple(o.name for o in (*instruction.dsts, *instruction.sources))
    full = all(tuple(tiles[n].region) == (tiles[n].type.rows, tiles[n].type.cols) for n in names if _uniform(tiles[n]))
    full = full and all(_uniform(tiles[n]) for n in names)
    memories = [tiles[n].memory for n in names]
    facts = tuple((m.strides, m.address % VECTOR_BYTES == 0) for m in memories)
    key = (instruction.name, tuple(tiles[n].type for n in names), facts, call.rules, full, host)
    plan = _plans.get(key)
    if plan is None:
        shapes = {
            n: Shape(tiles[n].type.rows, tiles[n].type.cols, strides, tiles[n].type.element, aligned)
            for n, (strides, aligned) in zip(names, facts, strict=True)
        }
        if len(_plans) > 4096:  # types of a long fuzzing run must not pile up
            _plans.clear()
        plan = _plans[key] = make_plan(instruction, shapes, call.rules, full, HOST_BLOCK_BYTES if host else BLOCK_BYTES)
    return plan


def _uniform(tile: Any) -> bool:
    uniform: bool = tile.region.uniform
    return uniform


def make_plan(
    instruction: Instruction, shapes: Mapping[str, Shape], rules: Numerics, full: bool, block_bytes: int
) -> Plan:
    """The plan for operands of these shapes; ``full``: the region of every operand is its whole capacity."""
    first = shapes[instruction.dsts[0].name]
    swapped = False
    if instruction.family == Family.ROW_REDUCE:
        grid = shapes[instruction.sources[0].name]
    else:
        full = full and len({(s.rows, s.cols) for s in shapes.values()}) == 1
        swapped = _adjacent(s.swapped() for s in shapes.values()) > _adjacent(shapes.values())
        if swapped:
            shapes = {n: s.swapped() for n, s in shapes.items()}
        if full and all(s.vector and (s.rows == 1 or s.strides[1] == s.cols) for s in shapes.values()):
            shapes = {n: s.one_row() for n, s in shapes.items()}
        grid = shapes[instruction.dsts[0].name]
    sources = max(len(instruction.sources), 2)  # one source does not get more: it would take the registers of two
    elements = block_bytes // sources // max(s.element.itemsize for s in shapes.values())
    bt, br, bc = block_shape(grid.rows, grid.cols, elements)
    constants: dict[str, Any] = {"FULL": full, "ROWS": grid.rows, "COLS": grid.cols, "BT": bt, "BR": br, "BC": bc}
    constants |= combine_of(instruction) | rule_constants(first.element, rules)
    strides: dict[str, int] = {}
    for name, shape in shapes.items():
        vector = constants[f"{name}_vec"] = shape.vector
        for axis, step in zip("brc", shape.strides, strict=True):
            strides[f"{name}_{axis}"] = step // max(vector, 1)
    constants["WIDE"] = any(_reach(s, bt, br, bc) >= 1 << 31 for s in shapes.values())
    return Plan(instruction.family, tuple(shapes), full, swapped, strides, constants)


def _adjacent(shapes: Any) -> int:
    """How many operands have their columns next to each other."""
    return sum(s.strides[2] == 1 for s in shapes)


def _reach(shape: Shape, bt: int, br: int, bc: int) -> int:
    """The largest offset inside a block, in elements."""
    tile, row, col = (abs(s) for s in shape.strides)
    return tile * bt + row * br + max(col, 1) * bc


def block_shape(rows: int, cols: int, elements: int) -> tuple[int, int, int]:
    """Tiles, rows and columns of a block of about ``elements``; powers of two. A fixed rule, no tuning."""
    bc = min(_power_of_two(cols), elements)
    while bc > MIN_SPLIT and -(-cols // bc) * bc - cols > cols // 8:
        bc //= 2
    br = min(_power_of_two(rows), elements // bc)
    while br > 1 and -(-rows // br) * br - rows > rows // 8 and br * bc > MIN_SPLIT:
        br //= 2
    return max(1, elements // (br * bc)), br, bc


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def combine_of(instruction: Instruction) -> dict[str, Any]:
    """The compile-time functions that make the family's kernel this instruction."""
    module = importlib.import_module(f"pto_gpu.kernels.{instruction.family}")
    functions: dict[str, Any] = module.COMBINES[instruction.combine]
    return functions


def rule_constants(element: ElementType, rules: Numerics) -> dict[str, Any]:
    """The rule set as the kernels want it; see :mod:`pto_gpu.kernels.order`."""
    integers = "unsigned" if element.kind == "u" else "signed"
    return {
        "ORDER": rules.nan if element.is_float else integers,
        "TIE": rules.tie,
        "ZERO": rules.zero,
        "NAN_BITS": element.canonical_nan or 0,
    }
