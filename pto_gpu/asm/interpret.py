"""The operations of the ``pto`` dialect on xDSL's interpreter; each works on a whole wave of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import InterpretationError

from pto_gpu import intrinsics
from pto_gpu.asm.copy_elision import Transfers
from pto_gpu.asm.ops import (
    AllocTileOp,
    AssignOp,
    InstructionOp,
    LoadOp,
    SetValidShapeOp,
    StoreOp,
    instruction_ops,
)
from pto_gpu.asm.types import tile_type, view_shape
from pto_gpu.asm.values import (
    Array,
    ByteRange,
    Tile,
    View,
    WrittenBytes,
    dense,
    device_of,
    flattened,
    moved,
)
from pto_gpu.asm.view_ops import MakeTensorViewOp, PartitionViewOp
from pto_gpu.asm.view_rules import part_problems, transfer_problems, view_problems
from pto_gpu.defaults import Options
from pto_gpu.errors import LayoutError
from pto_gpu.isa.record import Result
from pto_gpu.memory import TASSIGN, UbTile, UnifiedBuffer
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf, check_tile_type, region_of
from pto_gpu.types import DYNAMIC, TileBufType


class Wave:
    """What the operations of one wave work on: tiles ``start`` to ``stop`` of the batch.

    ``storage(value, type, region)`` gives new tiles to a value of the program. ``allocate(name, shape, element)``
    makes an array for the whole batch.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        device: str,
        options: Options,
        storage: Callable[[SSAValue, TileBufType, Region, Wave], TileBuf],
        allocate: Callable[..., Any],
        names: Mapping[SSAValue, str],
        transfers: Transfers,
    ) -> None:
        self.start = start
        self.stop = stop
        self.device = device
        self.options = options
        self.storage = storage
        self.allocate = allocate
        self.names = names
        self.transfers = transfers
        self.kept: dict[SSAValue, Tile] = {}
        self._buffer: UnifiedBuffer | None = None
        self._written = WrittenBytes()

    @property
    def batch(self) -> int:
        """Tiles in the wave."""
        return self.stop - self.start

    @property
    def buffer(self) -> UnifiedBuffer:
        """The Unified Buffers of the wave."""
        if self._buffer is None:
            self._buffer = UnifiedBuffer(self.batch, self.options.target.name, self.device)
        return self._buffer

    def define(self, value: SSAValue, tiles: TileBuf | None, *, written: bool) -> Tile:
        """The tile that ``value`` names."""
        return Tile(self.names[value], value, tiles, written=written)

    def read(self, tile: Tile) -> TileBuf:
        """The tiles behind a source; raises for one that nothing wrote."""
        written = tile.written
        if isinstance(tile.tiles, UbTile):  # its bytes count: it may have been written at another address
            written = self._written.meet(_byte_range(tile.tiles))
        if tile.tiles is None or not written:
            raise InterpretationError(f"%{tile.name} is read, but nothing wrote it")
        return tile.tiles

    def wrote(self, tile: Tile) -> None:
        """Note that an operation has written to ``tile``."""
        tile.written = True
        if isinstance(tile.tiles, UbTile):
            self._written.add(_byte_range(tile.tiles))

    def bind(self, tile: Tile, address: int) -> None:
        """Move ``tile`` to an address; what an input holds goes along."""
        old = tile.tiles
        if old is None:
            ty = tile_type(tile.value.type)
            if ty is None:
                raise InterpretationError(f"%{tile.name} has no type yet: give it a complete !pto.tile_buf type")
            old = self.storage(tile.value, ty, _region(ty, ty.rows, ty.cols), self)
        if isinstance(old, UbTile):
            TASSIGN(old, address)
            return
        tile.tiles = TASSIGN(self.buffer.tile(old.type, *old.region), address)
        if tile.written:
            tile.tiles.data[...] = old.data
            self.wrote(tile)

    def flat(self, array: Array) -> Any:
        """The memory of the wave, ``[tiles, elements]``."""
        return flattened(array.data[self.start : self.stop])

    def leave_place(self, tile: Tile) -> None:
        """Give a tile that lies in an array storage of its own, before something else is written to it."""
        if tile.place is not None:
            old = tile.bound()
            tile.tiles, tile.place = self.storage(tile.value, old.type, old.region, self), None

    def inside(self, view: View, ty: TileBufType, region: Region) -> TileBuf | None:
        """Tiles that lie in ``view``, if the elements of both are the same; else a copy is needed."""
        array = view.array
        if view.sizes != (ty.rows, ty.cols) or tuple(region) != view.sizes or ty.dtype != array.element.name:
            return None
        data = view.of(self.flat(array))
        if device_of(data) != self.device:
            return None
        try:
            tiles = TileBuf.from_array(data, ty, *region)
        except LayoutError:  # elements that are not aligned
            return None
        return None if tiles.memory.self_overlapping and array.written else tiles


def _byte_range(tiles: UbTile) -> ByteRange:
    return tiles.bound_address(), tiles.bound_address() + tiles.type.nbytes


def _region(ty: TileBufType, rows: Any, cols: Any) -> Region:
    """The valid region that the type says; ``rows`` and ``cols`` where it leaves them open."""
    return Region(rows if ty.v_row == DYNAMIC else ty.v_row, cols if ty.v_col == DYNAMIC else ty.v_col)


def _refuse(problems: Iterable[str]) -> None:
    """Raise for the first problem, if there is one."""
    for problem in problems:
        raise InterpretationError(problem)


def _index(value: Any) -> int:
    number: int = value.value.data
    return number


def _run_instruction(functions: Any, interpreter: Interpreter, op: InstructionOp, args: PythonValues) -> PythonValues:
    wave: Wave = functions.wave
    sources, rest = args[: len(op.SOURCES)], args[len(op.SOURCES) :]
    tiles = {name: wave.read(tile) for name, tile in zip(op.SOURCES, sources, strict=True)}
    results = [wave.define(value, None, written=False) for value in op.res]
    if op.tmp is not None:
        scratch, rest = rest[0], rest[1:]
        if scratch.tiles is not None:  # an input that only serves as scratch may be left out
            tiles[str(op.SCRATCH)] = scratch.tiles
    dsts: list[Tile] = [*rest, *results]
    if any(dst.tiles is None for dst in dsts):
        _give_storage(wave, op, tiles, dsts)
    for dst in dsts:
        store = wave.transfers.stored.get(dst.value)
        if store is not None:
            _put_in_place(wave, dst, interpreter.get_values((store.dst,))[0])
    tiles |= {name: dst.bound() for name, dst in zip(op.MADE, dsts, strict=True)}
    intrinsics.execute(op.RECORD, tiles, wave.options)
    for dst in dsts:
        wave.wrote(dst)
    return tuple(results)


def _give_storage(wave: Wave, op: InstructionOp, tiles: Mapping[str, TileBuf], dsts: list[Tile]) -> None:
    """Storage for the dsts that have none: of the type in the text, and where that says nothing as the record says."""
    stated = [tile_type(dst.value.type) for dst in dsts]
    said: tuple[Result | None, ...] = (None,) * len(dsts)
    if any(ty is None or DYNAMIC in (ty.v_row, ty.v_col) for ty in stated):
        types = {name: tiles[name].type for name in op.SOURCES}
        said = op.RECORD.result(types, {name: tiles[name].region for name in op.SOURCES})
    for dst, ty, result in zip(dsts, stated, said, strict=True):
        if dst.tiles is not None:
            continue
        made = result.region if result is not None else Region(DYNAMIC, DYNAMIC)
        region = made if ty is None else _region(ty, *made)
        if ty is None:
            assert result is not None
            ty = result.type
        dst.tiles = wave.storage(dst.value, ty, region, wave)


def _put_in_place(wave: Wave, dst: Tile, view: View) -> None:
    """Let ``dst``, which is about to be written, lie where it will be stored."""
    old = dst.bound()
    tiles = wave.inside(view, old.type, old.region)
    if tiles is not None:
        dst.tiles, dst.place = tiles, view
    else:
        wave.leave_place(dst)


_INSTRUCTIONS = {f"run_{name}": impl(op)(_run_instruction) for name, op in instruction_ops().items()}


@register_impls
class TileFunctions(type("_Instructions", (InterpreterFunctions,), _INSTRUCTIONS)):  # type: ignore[misc]  # generated
    """The operations of the ``pto`` dialect on the tiles of one wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave

    @impl(AllocTileOp)
    def run_alloc(self, _: Interpreter, op: AllocTileOp, args: PythonValues) -> PythonValues:
        """A tile without content."""
        ty = tile_type(op.res.type)
        values = iter(args)
        address = _index(next(values)) if op.addr is not None else None
        given = [_index(next(values)) if v is not None else None for v in (op.valid_row, op.valid_col)]
        if ty is None:  # <...>: known when it is written
            return (self.wave.define(op.res, None, written=False),)
        check_tile_type(ty, op.name)
        counts = (extent if n is None else n for n, extent in zip(given, (ty.rows, ty.cols), strict=True))
        region = region_of(ty, self.wave.batch, *_region(ty, *counts), op.name)
        if address is None:
            return (self.wave.define(op.res, self.wave.storage(op.res, ty, region, self.wave), written=False),)
        tiles = TASSIGN(self.wave.buffer.tile(ty, *region), address)
        return (self.wave.define(op.res, tiles, written=False),)

    @impl(AssignOp)
    def run_assign(self, _: Interpreter, op: AssignOp, args: PythonValues) -> PythonValues:
        """Bind to an address; the result is the same tile."""
        self.wave.bind(args[0], op.at.value.data if op.at is not None else _index(args[1]))
        return (args[0],) if op.res is not None else ()

    @impl(SetValidShapeOp)
    def run_set_valid(self, _: Interpreter, op: SetValidShapeOp, args: PythonValues) -> PythonValues:
        """Another valid region."""
        tile, rows, cols = args
        if tile.tiles is None:
            raise InterpretationError(f"%{tile.name} has no storage yet")
        region = region_of(tile.tiles.type, self.wave.batch, _index(rows), _index(cols), op.name)
        tile.tiles = tile.tiles.with_valid(*region)
        return ()

    @impl(MakeTensorViewOp)
    def run_make_view(self, _: Interpreter, op: MakeTensorViewOp, args: PythonValues) -> PythonValues:
        """A view from the first element on; memory that is only stored to is made when its first view is."""
        array: Array = args[0]
        numbers = [_index(x) for x in args[1:]]
        sizes, strides = tuple(numbers[: len(op.shape)]), tuple(numbers[len(op.shape) :])
        _refuse(view_problems(view_shape(op.res).sizes, sizes, strides))
        view = View(array, 0, sizes, strides)
        if array.data is None:
            array.make(sizes if dense(sizes, strides) else (view.end,), self.wave.allocate)
        held = array.elements
        if view.end > held:
            raise InterpretationError(f"the view takes {view.end} of the {held} elements of %{array.name}")
        return (view,)

    @impl(PartitionViewOp)
    def run_partition(self, _: Interpreter, op: PartitionViewOp, args: PythonValues) -> PythonValues:
        """A part that lies in the view."""
        view: View = args[0]
        numbers = [_index(x) for x in args[1:]]
        offsets, sizes = numbers[: len(op.offsets)], numbers[len(op.offsets) :]
        _refuse(part_problems(view.sizes, view_shape(op.res).sizes, offsets, sizes))
        return (view.part(offsets, sizes),)

    @impl(LoadOp)
    def run_load(self, _: Interpreter, op: LoadOp, args: PythonValues) -> PythonValues:
        """Copy a part of a view into the valid region of a tile."""
        view: View = args[0]
        if view.array.data is None or (view.array.written and not view.array.bound and not view.array.stored):
            raise InterpretationError(f"%{view.array.name} is read, but nothing is bound to it or stored there")
        made = not op.outs
        tile: Tile = self.wave.define(op.res[0], None, written=False) if made else args[1]
        rows, cols = view.grid
        if tile.tiles is None:
            ty = tile_type(tile.value.type) or TileBufType(view.array.element.name, rows, cols)
            region = region_of(ty, self.wave.batch, *_region(ty, rows, cols), op.name)
            tile.tiles = self.wave.storage(tile.value, ty, region, self.wave)
        self._check_transfer(view, tile.tiles)
        lying = None
        if tile.value in self.wave.transfers.loaded and not view.array.written:
            lying = self.wave.inside(view, tile.tiles.type, tile.tiles.region)
        if lying is not None:
            tile.tiles, tile.place = lying, view
        else:
            self.wave.leave_place(tile)
            content = view.of(self.wave.flat(view.array)).reshape(self.wave.batch, rows, cols)
            tile.bound().data[:, :rows, :cols] = moved(content, self.wave.device)
        self.wave.wrote(tile)
        return (tile,) if made else ()

    @impl(StoreOp)
    def run_store(self, _: Interpreter, op: StoreOp, args: PythonValues) -> PythonValues:
        """Copy the valid region of a tile into a part of a view."""
        tiles, view = self.wave.read(args[0]), args[1]
        self._check_transfer(view, tiles)
        view.array.stored = True
        if args[0].place is view:
            return ()
        rows, cols = view.grid
        target = view.of(self.wave.flat(view.array))
        content = moved(tiles.data[:, :rows, :cols], device_of(target))
        target[...] = content.reshape(target.shape)
        return ()

    def _check_transfer(self, view: View, tiles: TileBuf) -> None:
        region = tiles.region if tiles.region.uniform else "another for each tile"
        _refuse(transfer_problems(view.sizes, view.array.element.name, tiles.type.dtype, region))
