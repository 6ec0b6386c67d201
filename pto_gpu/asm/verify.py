"""What can be said against a program before it runs, for one target: every error, each at its operation.

The operations are walked in the order of the text, with what is known of each tile. The rules on tiles are those of
the Python calls, with their messages. That the program is well formed was checked before, by ``structure``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from xdsl.dialects import func
from xdsl.interpreter import Interpreter
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.ir import Region as IrRegion
from xdsl.utils.exceptions import DiagnosticException

from pto_gpu.asm import scalars
from pto_gpu.asm.analysis import origin
from pto_gpu.asm.diagnostics import Diagnostic, sentence
from pto_gpu.asm.ops import (
    AllocTileOp,
    AssignOp,
    InstructionOp,
    LoadOp,
    SetValidShapeOp,
    StoreOp,
    TileOp,
)
from pto_gpu.asm.parser import Parsed
from pto_gpu.asm.static_values import Constants, StaticTile, static_tile
from pto_gpu.asm.types import element_of, is_tile, view_shape
from pto_gpu.asm.values import WAVE_BYTES, WrittenBytes
from pto_gpu.asm.view_ops import MakeTensorViewOp, PartitionViewOp
from pto_gpu.asm.view_rules import part_problems, transfer_problems, view_problems
from pto_gpu.checks import check_call, region_problems, type_problems
from pto_gpu.errors import PtoError
from pto_gpu.isa.record import Call
from pto_gpu.memory import UnifiedBuffer
from pto_gpu.numerics import resolve_numerics
from pto_gpu.tilebuf import check_tile_type, region_of


class Verifier:
    """The walk over one program for one target.

    ``needed``: arguments that are read before anything wrote them. ``shapes``: of the memory behind pointers, as far
    as the program says it; None where it says different ones.
    """

    def __init__(
        self, parsed: Parsed, target: str, undefined: str, scalars_given: Mapping[SSAValue, Any] | None = None
    ) -> None:
        self.parsed = parsed
        self.target = target
        self.undefined = undefined
        self.problems: list[Diagnostic] = []
        self.needed: set[SSAValue] = set()
        self.shapes: dict[SSAValue, tuple[int, ...] | None] = {}
        self._buffer = UnifiedBuffer(1, target)
        self._tiles: dict[SSAValue, StaticTile] = {}
        self._ub_written = WrittenBytes()
        interpreter = Interpreter(parsed.module)
        for one in scalars.functions():
            interpreter.register_implementations(one)
        self._constants = Constants(interpreter, scalars_given or {})

    def run(self) -> None:
        """Walk every function."""
        for function in self.parsed.functions.values():
            if function.is_declaration:
                continue
            self._ub_written = WrittenBytes()
            for argument in function.args:
                if is_tile(argument.type):
                    self._define(argument, argument=True)
            self._walk(function.body)

    def _walk(self, region: IrRegion) -> None:
        for block in region.blocks:
            for op in block.ops:
                self._visit(op)

    def _visit(self, op: Operation) -> None:
        kind = InstructionOp if isinstance(op, InstructionOp) else type(op)
        visit = self._visitors.get(kind)
        try:
            if visit is not None:
                visit(op)
            elif op.regions:
                self._nested(op)
            elif type(op) in self._scalar_ops:
                self._constants.fold(op)
        except PtoError as error:
            self._problem(op, str(error))
        except (DiagnosticException, ArithmeticError, AssertionError, ValueError) as error:
            self._problem(op, f"{op.name}: {sentence(str(error)) or 'cannot be computed'}")
        for result in op.results:
            if is_tile(result.type) and result not in self._tiles:
                self._define(result).written = True

    @cached_property
    def _visitors(self) -> dict[type[Operation], Callable[[Any], None]]:
        return {
            InstructionOp: self._instruction,
            AllocTileOp: self._alloc,
            AssignOp: self._assign,
            SetValidShapeOp: self._set_valid,
            LoadOp: self._load,
            StoreOp: self._store,
            MakeTensorViewOp: self._make_view,
            PartitionViewOp: self._partition,
            func.CallOp: self._call,
        }

    @cached_property
    def _scalar_ops(self) -> set[type[Operation]]:
        return {op for op in scalars.supported() if op.name.startswith("arith.")}

    def _problem(self, op: Operation, message: str) -> None:
        self.problems.append(Diagnostic(message, self.parsed.span_of(op)))

    def _all(self, op: Operation, problems: Iterable[str]) -> None:
        for problem in problems:
            self._problem(op, f"{op.name}: {problem}")

    # -- tiles --------------------------------------------------------------------------------------------

    def _define(self, value: SSAValue, *, argument: bool = False) -> StaticTile:
        tile = static_tile(self.parsed.name_of(value), value, argument=argument)
        self._tiles[value] = tile
        if tile.type is not None and tile.type.loc != "vec" and origin(value) is value:
            at = value.op if isinstance(value, OpResult) else value
            message = f"%{tile.name} lies in {tile.type.loc} memory: allowed vec"
            self.problems.append(Diagnostic(message, self.parsed.span_of(at)))
        return tile

    def _tile(self, value: SSAValue) -> StaticTile:
        found = self._tiles.get(value)
        if found is None:  # carried by a loop or a branch
            found = self._define(value)
            found.written = True
        return found

    def _read(self, op: Operation, value: SSAValue) -> StaticTile:
        tile = self._tile(value)
        if tile.argument and not tile.written:
            self.needed.add(value)
        elif not (self._ub_written.meet(tile.byte_range) if tile.in_ub else tile.written):
            self._problem(op, f"{op.name}: %{tile.name} is read, but nothing wrote it")
            return self._write(value)  # one report is enough
        tile.written = True
        return tile

    def _write(self, value: SSAValue) -> StaticTile:
        tile = self._tile(value)
        tile.written = True
        if tile.in_ub:
            self._ub_written.add(tile.byte_range)
        return tile

    def _fits(self, op: Operation, tile: StaticTile) -> bool:
        if tile.type is None or tile.type.nbytes <= WAVE_BYTES:
            return True
        self._problem(op, f"{op.name}: %{tile.name} takes {tile.type.nbytes} bytes: allowed {WAVE_BYTES}")
        tile.type = None
        return False

    def _alloc(self, op: AllocTileOp) -> None:
        tile = self._define(op.res)
        if not self._fits(op, tile) or tile.type is None:
            return
        if op.valid_row is not None:
            tile.rows = self._constants[op.valid_row]
        if op.valid_col is not None:
            tile.cols = self._constants[op.valid_col]
        if op.addr is not None:
            tile.set_address(self._constants[op.addr])
        self._settle(op, tile)

    def _settle(self, op: Operation, tile: StaticTile) -> None:
        """Raise for a valid region or an address that the tile cannot have; it is then taken as unknown."""
        if tile.type is None:
            return
        try:
            check_tile_type(tile.type, op.name)
            if tile.region is not None:
                region_of(tile.type, 1, *tile.region, op.name)
            tile.tiles(self._buffer)
        except PtoError:
            tile.type = None
            raise

    def _assign(self, op: AssignOp) -> None:
        tile = self._tile(op.tile)
        if op.res is not None:
            self._tiles[op.res] = tile
        moves = not tile.in_ub and (tile.argument or tile.written)
        tile.set_address(op.at.value.data if op.at is not None else self._constants[op.addr])
        if moves:  # what is bound to it, or was written, moves to the address
            written = tile.written
            self._write(op.tile)
            tile.written = written
        self._settle(op, tile)

    def _set_valid(self, op: SetValidShapeOp) -> None:
        tile = self._tile(op.tile)
        tile.set_region(self._constants[op.rows], self._constants[op.cols])
        self._settle(op, tile)

    # -- instructions -------------------------------------------------------------------------------------

    def _instruction(self, op: InstructionOp) -> None:
        record, values = op.RECORD, op.operands_by_name
        tiles = {name: self._read(op, values[name]) for name in op.SOURCES}
        if op.tmp is not None:
            tiles[str(op.SCRATCH)] = self._tile(op.tmp)
        for name in op.MADE:
            tiles[name] = self._made(op, values[name])
        self._take_results(op, tiles)
        self._check(op, {o.name: tiles[o.name] for o in record.operands if o.name in tiles})
        for name in op.MADE:
            self._write(values[name])

    def _made(self, op: TileOp, value: SSAValue) -> StaticTile:
        tile = self._tile(value) if op.outs else self._define(value)
        self._fits(op, tile)
        return tile

    def _take_results(self, op: InstructionOp, tiles: dict[str, StaticTile]) -> None:
        """What the record says about results whose type, or valid region, the text leaves open."""
        made = [tiles[name] for name in op.MADE]
        if op.outs or all(t.type is not None and t.region is not None for t in made):
            return
        types = {name: tiles[name].type for name in op.SOURCES}
        regions = {name: tiles[name].region for name in op.SOURCES}
        if None in types.values() or None in regions.values():
            return
        for tile, result in zip(made, op.RECORD.result(types, regions), strict=True):  # type: ignore[arg-type]  # no None
            tile.type = tile.type or result.type
            rows, cols = result.region
            tile.set_region(rows if tile.rows is None else tile.rows, cols if tile.cols is None else tile.cols)

    def _check(self, op: InstructionOp, tiles: dict[str, StaticTile]) -> None:
        """The rules of the record on what is known."""
        record = op.RECORD
        types = {name: tile.type for name, tile in tiles.items() if tile.type is not None}
        if len(types) < len(tiles):
            return
        found: list[PtoError] = list(type_problems(record, types, self.target))
        if not found:
            buffers = {name: tile.tiles(self._buffer) for name, tile in tiles.items()}
            if None not in buffers.values():
                check_call(Call(record, buffers, resolve_numerics("isa"), self.undefined, self.target))
                return
            regions = {name: tile.region for name, tile in tiles.items() if tile.region is not None}
            found += region_problems(record, regions, types, self.target, self.undefined, 1)
        for problem in found:
            self._problem(op, str(problem))

    # -- memory -------------------------------------------------------------------------------------------

    def _load(self, op: LoadOp) -> None:
        tile = self._made(op, op.targets[0])
        self._check_transfer(op, tile, op.ins[0], op.targets[0])
        self._write(op.targets[0])

    def _store(self, op: StoreOp) -> None:
        self._check_transfer(op, self._read(op, op.src), op.dst, op.src)

    def _check_transfer(self, op: Operation, tile: StaticTile, view: SSAValue, value: SSAValue) -> None:
        shape, element = view_shape(view), element_of(value.type)
        dtype = element.name if element is not None else None
        self._all(op, transfer_problems(shape.sizes, shape.dtype, dtype, tile.region))

    def _make_view(self, op: MakeTensorViewOp) -> None:
        sizes = self._constants.all(op.shape)
        if None not in sizes and isinstance(op.ptr, BlockArgument):
            known = tuple(n or 0 for n in sizes)
            self.shapes[op.ptr] = known if self.shapes.get(op.ptr, known) == known else None
        self._all(op, view_problems(view_shape(op.res).sizes, sizes, self._constants.all(op.strides)))

    def _partition(self, op: PartitionViewOp) -> None:
        offsets, sizes = self._constants.all(op.offsets), self._constants.all(op.sizes)
        self._all(op, part_problems(view_shape(op.src).sizes, view_shape(op.res).sizes, offsets, sizes))

    # -- control flow -------------------------------------------------------------------------------------

    def _nested(self, op: Operation) -> None:
        """Regions that may run or not: tiles that they move or reshape are unknown when each starts, and afterwards."""
        for region in op.regions:
            self._forget(op)
            self._walk(region)
        self._forget(op)

    def _forget(self, op: Operation) -> None:
        for inner in op.walk():
            if isinstance(inner, SetValidShapeOp) and inner.tile in self._tiles:
                self._tiles[inner.tile].set_region(None, None)
            elif isinstance(inner, AssignOp) and inner.tile in self._tiles:
                self._tiles[inner.tile].set_address(None)
            elif isinstance(inner, func.CallOp):
                self._call(inner)

    def _call(self, op: func.CallOp) -> None:
        """The function may do anything to the tiles that it is given."""
        for value in op.arguments:
            if not is_tile(value.type) or value not in self._tiles:
                continue
            tile = self._tiles[value]
            if tile.argument and not tile.written:
                self.needed.add(value)
            self._write(value)
            tile.set_region(None, None)
            if tile.in_ub:
                tile.set_address(None)
        self._ub_written.add(None)  # a function may give its tiles addresses
