"""What a Triton launch is specialised on: everything that is static about a call, and nothing that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pto_gpu.isa.record import Call, Family, Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType

#: Bytes of one vector access.
VECTOR_BYTES: Final = 16
#: Bytes of each operand that a program works on, twice as many if there is one source, and its threads for each
#: source: two vectors a thread of one source or two, one vector of four. With more, ptxas spills pointers and masks.
BLOCK_BYTES: Final = 4096
THREADS_PER_SOURCE: Final = 64
#: The interpreter's cost is per program and hardly per element.
HOST_BLOCK_BYTES: Final = 1 << 16
#: Blocks are made smaller to pad less, but not below this many columns, or elements of several rows.
MIN_SPLIT: Final = 128

#: The signed integers that stand for elements of a size.
INTEGERS: Final = {1: "int8", 2: "int16", 4: "int32"}


class Block(NamedTuple):
    """What a program works on: bytes of each operand (see BLOCK_BYTES), and threads for each source."""

    bytes: int
    threads_per_source: int


class Machine(NamedTuple):
    """What a plan must know of where it runs.

    ``block``: what a program works on. ``native_minimum``: whether the minimum of floats that the hardware has is the
    one of the pages, see :mod:`pto_gpu.kernels.order`.
    """

    block: Block = Block(BLOCK_BYTES, THREADS_PER_SOURCE)
    native_minimum: bool = False


INTERPRETER: Final = Machine(Block(HOST_BLOCK_BYTES, THREADS_PER_SOURCE))


def machine_of(target: Any) -> Machine:
    """What plans must know of the ``GPUTarget`` that Triton compiles for."""
    return Machine(native_minimum=target.backend == "cuda" and target.arch >= 80)  # min.NaN came with sm_80


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
        lanes: int = VECTOR_BYTES // self.element.itemsize
        steps = [self.strides[0], self.strides[1] if self.rows > 1 else 0, self.cols]
        aligned = self.aligned and all(step % lanes == 0 for step in steps)
        return lanes if aligned else 1


@dataclass(frozen=True)
class Plan:
    """One specialisation. ``operands``: those the kernel takes. ``swapped``: rows and columns are exchanged."""

    machine: Machine
    family: str
    operands: tuple[str, ...]
    full: bool
    swapped: bool
    threads: int
    strides: Mapping[str, int]
    constants: Mapping[str, Any]

    def programs(self, batch: int) -> int:
        """Programs that cover ``batch`` tiles, all of them on the first axis of the grid, which has no 65535 limit."""
        c = self.constants
        blocks = -(-c["ROWS"] // c["BR"])
        if self.family != Family.ROW_REDUCE:
            blocks *= -(-c["COLS"] // c["BC"])
        programs: int = -(-batch // c["BT"]) * blocks
        return programs


_plans: dict[tuple[Any, ...], Plan] = {}


def plan_of(call: Call, machine: Machine) -> Plan:
    """The plan of a call; made once for each combination of static facts."""
    instruction, tiles = call.instruction, call.tiles
    names = tuple(o.name for o in (*instruction.dsts, *instruction.sources))
    # A row reduction's dst has src's rows, whatever its capacity, and one column that counts.
    whole = names[len(instruction.dsts) :] if instruction.family == Family.ROW_REDUCE else names
    full = all(tiles[n].region == (tiles[n].type.rows, tiles[n].type.cols) for n in whole if tiles[n].region.uniform)
    full = full and all(tiles[n].region.uniform for n in whole)
    memories = [tiles[n].memory for n in names]
    facts = tuple((m.strides, m.address % VECTOR_BYTES == 0) for m in memories)
    key = (instruction.name, tuple(tiles[n].type for n in names), facts, call.rules, full, machine)
    plan = _plans.get(key)
    if plan is None:
        shapes = {
            n: Shape(tiles[n].type.rows, tiles[n].type.cols, strides, tiles[n].type.element, aligned)
            for n, (strides, aligned) in zip(names, facts, strict=True)
        }
        if len(_plans) > 4096:  # types of a long fuzzing run must not pile up
            _plans.clear()
        plan = _plans[key] = make_plan(instruction, shapes, call.rules, full, machine)
    return plan


def make_plan(
    instruction: Instruction, shapes: Mapping[str, Shape], rules: Numerics, full: bool, machine: Machine
) -> Plan:
    """The plan for operands of these shapes; ``full``: everything is valid everywhere."""
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
    sources = len(instruction.sources)
    size = max(s.element.itemsize for s in shapes.values())
    elements = machine.block.bytes * (2 if sources == 1 else 1) // size
    bt, br, bc = block_shape(grid.rows, grid.cols, elements)
    constants: dict[str, Any] = {"FULL": full, "ROWS": grid.rows, "COLS": grid.cols, "BT": bt, "BR": br, "BC": bc}
    constants |= {"COMBINE": instruction.combine} | rule_constants(first.element, rules, machine)
    strides: dict[str, int] = {}
    for name, shape in shapes.items():
        vector = constants[f"{name}_vec"] = shape.vector
        for axis, step in zip("brc", shape.strides, strict=True):
            strides[f"{name}_{axis}"] = step // max(vector, 1)
    constants["WIDE"] = any(_reach(s, bt, br, bc) >= 1 << 31 for s in shapes.values())
    threads = machine.block.threads_per_source * max(sources, 2)
    return Plan(machine, instruction.family, tuple(shapes), full, swapped, threads, strides, constants)


def _adjacent(shapes: Any) -> int:
    """How many operands have their columns next to each other."""
    return sum(s.strides[2] == 1 for s in shapes)


def _reach(shape: Shape, bt: int, br: int, bc: int) -> int:
    """The largest offset inside a block, in elements."""
    tile, row, col = (abs(s) for s in shape.strides)
    return tile * bt + row * br + max(col, 1) * bc


def block_shape(rows: int, cols: int, elements: int) -> tuple[int, int, int]:
    """Tiles, rows and columns of a block of about ``elements``; powers of two. A fixed rule, no tuning."""
    bc = _split(cols, elements, MIN_SPLIT)
    br = _split(rows, elements // bc, max(1, MIN_SPLIT // bc))
    return max(1, elements // (br * bc)), br, bc


def _split(extent: int, limit: int, least: int) -> int:
    """The largest piece of ``extent``; a smaller one where that saves an eighth of what is padded on at the end."""
    best = size = min(1 << (extent - 1).bit_length(), limit)
    while size > least:
        size //= 2
        if -(-extent // size) * size * 8 <= -(-extent // best) * best * 7:
            best = size
    return best


def rule_constants(element: ElementType, rules: Numerics, machine: Machine) -> dict[str, Any]:
    """The rule set as the kernels want it; for ``ORDER`` see :mod:`pto_gpu.kernels.order`."""
    if not element.is_float:
        order = "unsigned" if element.kind == "u" else "signed"
    elif machine.native_minimum and rules.nan != "select":
        order = f"{rules.nan} native"
    else:
        order = rules.nan
    return {
        "ORDER": order,
        "NAN": rules.nan,
        "TIE": rules.tie,
        "ZERO": rules.zero,
        "NAN_BITS": element.canonical_nan or 0,
    }
