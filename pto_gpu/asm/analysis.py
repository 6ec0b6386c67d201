"""Which tiles and arrays of a function are read, written, handed on: from the IR alone, without running it."""

from __future__ import annotations

from xdsl.dialects import func, scf
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from pto_gpu.asm.ops import AssignOp, InstructionOp, LoadOp, SetValidShapeOp, StoreOp, TileOp
from pto_gpu.asm.types import is_tile, tile_type
from pto_gpu.asm.view_ops import MakeTensorViewOp, PartitionViewOp
from pto_gpu.isa.record import Family

_HANDING_ON = (scf.YieldOp, scf.ConditionOp, func.ReturnOp, func.CallOp)


def written_arguments(
    function: func.FuncOp,
    functions: dict[str, func.FuncOp],
    known: dict[func.FuncOp, set[SSAValue]] | None = None,
) -> set[SSAValue]:
    """Tiles, pointers and views among the arguments that ``function``, or one that it calls, writes or stores to.

    ``known`` holds what is known of other functions so far.
    """
    known = {} if known is None else known
    if function in known:
        return known[function]
    written = known[function] = set()
    if function.is_declaration:
        return written
    for op in function.walk():
        if isinstance(op, TileOp):
            for value in op.outs:
                written |= roots(value)
        elif isinstance(op, StoreOp):
            written |= roots(op.dst)
        elif isinstance(op, func.CallOp):
            callee = functions[op.callee.string_value()]
            inner = written_arguments(callee, functions, known)
            if callee.is_declaration:
                continue
            for parameter, value in zip(callee.args, op.arguments, strict=True):
                if parameter in inner:
                    written |= roots(value)
    return written


def roots(value: SSAValue) -> set[SSAValue]:
    """The arguments of the function that ``value`` may be, or be a view of."""
    found: set[SSAValue] = set()
    seen: set[SSAValue] = set()
    left = [value]
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        if isinstance(one, BlockArgument):
            owner = one.block.parent_op()
            if owner is None or isinstance(owner, func.FuncOp):
                found.add(one)
            else:
                left += _carried(owner)
        elif isinstance(one, OpResult):
            left += _origins(one.op)
    return found


def _origins(op: Operation) -> list[SSAValue]:
    if isinstance(op, AssignOp):
        return [op.tile]
    if isinstance(op, PartitionViewOp):
        return [op.src]
    if isinstance(op, MakeTensorViewOp):
        return [op.ptr]
    if isinstance(op, (LoadOp, TileOp)):
        return []
    return _carried(op)


def _carried(op: Operation) -> list[SSAValue]:
    """What a loop, a branch or a call may hand on."""
    values = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            if block.last_op is not None:
                values += block.last_op.operands
    return values


def origin(value: SSAValue) -> SSAValue:
    """The tile that ``value`` is another name of."""
    while isinstance(value, OpResult) and isinstance(value.op, AssignOp):
        value = value.op.tile
    return value


def handed_on(function: func.FuncOp) -> set[SSAValue]:
    """Tiles that get another name: carried into or round a loop, returned, given to a function."""
    found = set()
    for op in function.walk():
        if _hands_on(op):
            found |= {origin(v) for v in op.operands if is_tile(v.type)}
    return found


def _hands_on(op: Operation) -> bool:
    return isinstance(op, _HANDING_ON) or (bool(op.regions) and not isinstance(op, func.FuncOp))


def partly_written(function: func.FuncOp) -> set[SSAValue]:
    """Tiles whose valid region can hold elements that nothing wrote: it grows, or a reduction fills one column."""
    found = set()
    for op in function.walk():
        if isinstance(op, SetValidShapeOp):
            found.add(origin(op.tile))
        elif isinstance(op, InstructionOp) and op.RECORD.family is Family.ROW_REDUCE:
            found |= {origin(v) for v in op.targets if not _single_column(v)}
    return found


def _single_column(value: SSAValue) -> bool:
    ty = tile_type(value.type)
    return ty is not None and ty.cols == 1


def final_tiles(function: func.FuncOp) -> list[SSAValue]:
    """Tiles of the outermost block that nothing reads after they were last written, in the order of the text."""
    block = function.body.block
    last_read: dict[SSAValue, int] = {}
    last_write: dict[SSAValue, int] = {}
    for place, outer in enumerate(block.ops):
        if outer.regions:  # what a loop or a branch hands on
            last_write |= {v: place for v in outer.results if is_tile(v.type)}
        for op in outer.walk():
            reads, writes = _touched(op)
            last_read |= {origin(v): place for v in reads}
            last_write |= {origin(v): place for v in writes}
    mine = [v for v in last_write if _belongs(v, function)]
    return [v for v in mine if last_read.get(v, -1) <= last_write[v]]


def _touched(op: Operation) -> tuple[list[SSAValue], list[SSAValue]]:
    if isinstance(op, TileOp):
        return list(op.ins), list(op.targets)
    if _hands_on(op):
        return [v for v in op.operands if is_tile(v.type)], []
    return ([op.src], []) if isinstance(op, StoreOp) else ([], [])


def _belongs(value: SSAValue, function: func.FuncOp) -> bool:
    block = value.block if isinstance(value, BlockArgument) else value.owner.parent
    return block is function.body.block


def top_level_tiles(function: func.FuncOp) -> list[SSAValue]:
    """Every tile of the outermost block: arguments, and results of its operations."""
    block = function.body.block
    values: list[SSAValue] = [*block.args, *(r for op in block.ops for r in op.results)]
    return [v for v in values if is_tile(v.type)]


def is_after(op: Operation, first: Operation) -> bool:
    """Whether ``op``, or what it is nested in, stands after ``first`` in the same block."""
    outer: Operation | None = op
    while outer is not None and outer.parent is not first.parent:
        outer = outer.parent_op()
    return outer is not None and first.is_before_in_block(outer)
