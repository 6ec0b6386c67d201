"""Running a function of a program over a batch, in waves of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from xdsl.dialects import func
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import InterpretationError

from pto_gpu import interop
from pto_gpu.asm import analysis, scalars
from pto_gpu.asm.bind import Bound
from pto_gpu.asm.copy_elision import Transfers
from pto_gpu.asm.diagnostics import asm_error_at, sentence
from pto_gpu.asm.interpret import TileFunctions, Wave
from pto_gpu.asm.ops import AllocTileOp, TileOp
from pto_gpu.asm.parser import Parsed
from pto_gpu.asm.types import VIEW_TYPES, is_tile, tile_type, view_shape
from pto_gpu.asm.values import WAVE_BYTES, Array, Tile, View, device_of, moved, zero_outside
from pto_gpu.defaults import Options
from pto_gpu.errors import AsmError, BackendError, PtoError
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import DYNAMIC, ElementType, TileBufType

#: Operations that one wave may run; a loop that never ends stops here.
MAX_STEPS: Final = 1_000_000

#: A GPU has room for larger waves, and wants them.
GPU_WAVE_BYTES: Final = 4 << 30

#: Of a tile about which nothing is known.
_UNKNOWN_BYTES: Final = 64 << 10

#: ``allocate(name, shape, element)`` makes the array of a result for the whole batch, full of zeros.
Allocate = Callable[[str, tuple[int, ...], ElementType], Any]


class Runner:
    """One run: what is kept from wave to wave. ``outputs``: the tiles to return, by the name that they get."""

    def __init__(
        self,
        parsed: Parsed,
        function: func.FuncOp,
        bound: Bound,
        options: Options,
        outputs: Mapping[str, SSAValue],
        allocate: Allocate | None,
    ) -> None:
        self.parsed = parsed
        self.function = function
        self.bound = bound
        self.options = options
        self.outputs = outputs
        self.results: dict[str, Any] = {}
        self._allocate = allocate or self._zeros
        self._returned = {value: name for name, value in outputs.items()}
        self._tiles: dict[SSAValue, TileBuf] = {}
        self._fresh: set[SSAValue] = set()
        self._cleared: set[SSAValue] = set()
        for one in parsed.functions.values():
            if not one.is_declaration:
                self._fresh |= analysis.handed_on(one)
                self._cleared |= analysis.partly_written(one)
        self._transfers = Transfers(function)
        for value in self._returned:
            self._transfers.loaded.discard(value)
            self._transfers.stored.pop(value, None)
        self._device = self._choose_device()
        self._written = analysis.written_arguments(function, parsed.functions)
        for value, one in bound.values.items():
            if isinstance(one, Array) and one.written and one.bound:
                self._own(value, one)

    def _choose_device(self) -> str:
        """Where the tiles are: where the inputs are, or on the GPU that the backend asked for works on."""
        if self.bound.device != "cpu" or self.options.backend != "triton":
            return self.bound.device
        import torch

        return "cuda:0" if torch.cuda.is_available() else "cpu"

    def _zeros(self, name: str, shape: tuple[int, ...], element: ElementType) -> Any:
        return interop.allocate(shape, element, self.bound.device, zero=True)

    def _own(self, value: SSAValue, array: Array) -> None:
        """The program stores to this input: work on a copy, which becomes a result."""
        name = self.parsed.name_of(value)
        copy = self._make_array(name, tuple(array.data.shape), array.element)
        copy[...] = moved(array.data, device_of(copy))
        array.data = copy

    def _make_array(self, name: str, shape: tuple[int, ...], element: ElementType) -> Any:
        self.results[name] = self._allocate(name, shape, element)
        return self.results[name]

    # -- waves --------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Every wave; returns the arrays of the results by name."""
        for start, stop in self._waves():
            wave = Wave(
                start,
                stop,
                self._device,
                self.options,
                self._storage,
                self._make_array,
                self.parsed.names,
                self._transfers,
            )
            returned = self._run_wave(wave)
            for value, tile in zip(self._return_values(), returned, strict=False):
                if isinstance(tile, Tile):
                    wave.kept[value] = tile
            for name, value in self.outputs.items():
                self._collect(name, wave.kept.get(value), wave)
        order = [self.parsed.name_of(v) for v in self.function.args] + list(self.outputs)
        return {name: self.results[name] for name in dict.fromkeys(order) if name in self.results}

    def _return_values(self) -> Sequence[SSAValue]:
        last = self.function.body.block.last_op
        return tuple(last.operands) if last is not None else ()

    def _waves(self) -> Iterator[tuple[int, int]]:
        batch, cost = self.bound.batch, self._bytes_per_tile()
        budget = WAVE_BYTES if self._device == "cpu" else GPU_WAVE_BYTES
        if cost > budget:
            message = f"the tiles of one batch element take {cost} bytes: allowed {budget}"
            raise asm_error_at(message, self.parsed.span_of(self.function))
        step = max(1, budget // cost) if cost else max(1, batch)
        for start in range(0, max(1, batch), step):
            yield start, min(batch, start + step)

    def _bytes_per_tile(self) -> int:
        """Bytes of the tiles that the program makes for one element of the batch."""
        known = [b.type.nbytes for b in self.bound.values.values() if isinstance(b, TileBuf)]
        guess = max(known, default=_UNKNOWN_BYTES)  # where the type is known at run time only
        total = 0
        for function in self.parsed.functions.values():
            for op in function.walk():
                made = op.results if isinstance(op, (AllocTileOp, TileOp)) else ()
                for value in made:
                    if value in self._returned and self._device == "cpu":
                        continue
                    ty = tile_type(value.type)
                    copies = 3 if value in self._fresh else 1  # of one round of a loop, of the next, of the result
                    total += copies * (ty.nbytes if ty is not None else guess)
        for argument, one in self.bound.values.items():
            if is_tile(argument.type) and argument in self._written and argument not in self._returned:
                ty = one.type if isinstance(one, TileBuf) else tile_type(argument.type)
                total += ty.nbytes if ty is not None else guess
        return total if self._device == "cpu" else total + sum(known)

    def _run_wave(self, wave: Wave) -> PythonValues:
        interpreter = Interpreter(self.parsed.module)
        trace = _Trace(wave.kept, set(self.outputs.values()))
        interpreter.listeners = (trace,)
        for functions in scalars.functions():
            interpreter.register_implementations(functions)
        interpreter.register_implementations(TileFunctions(wave))
        arguments = tuple(self._argument(value, wave) for value in self.function.args)
        wave.kept.update((v, x) for v, x in zip(self.function.args, arguments, strict=True) if isinstance(x, Tile))
        try:
            return interpreter.call_op(self.function, arguments)
        except (AsmError, BackendError):
            raise
        except PtoError as error:
            raise self._failed(trace, str(error), wave) from error
        except RecursionError:
            raise self._failed(trace, "the program is nested too deeply", wave) from None
        except (InterpretationError, ArithmeticError, AssertionError, ValueError, KeyError) as error:
            name = trace.running[-1].name if trace.running else "program"
            raise self._failed(trace, f"{name}: {sentence(str(error)) or 'cannot be run'}", wave) from error

    def _failed(self, trace: _Trace, message: str, wave: Wave) -> AsmError:
        at = trace.running[-1] if trace.running else self.function
        if wave.batch < self.bound.batch:
            message += f" (tiles counted from {wave.start})"
        return asm_error_at(message, self.parsed.span_of(at))

    # -- arguments ----------------------------------------------------------------------------------------

    def _argument(self, value: SSAValue, wave: Wave) -> Any:
        one = self.bound.values[value]
        if isinstance(one, Array):
            return self._view(value, one) if isinstance(value.type, VIEW_TYPES) else one
        if not isinstance(one, TileBuf):
            return one if one is not None else wave.define(value, None, written=False)
        part = slice(wave.start, wave.stop)
        rows, cols = (n if isinstance(n, int) else n[part] for n in one.region)
        data = one.data[part]
        if value not in self._written:
            tiles = TileBuf.from_array(moved(data, self._device), one.type, rows, cols)
            return wave.define(value, tiles, written=True)
        tiles = self._storage(value, one.type, Region(rows, cols), wave)
        tiles.data[...] = moved(data, self._device)
        return wave.define(value, tiles, written=True)

    def _view(self, value: SSAValue, array: Array) -> View:
        stated = view_shape(value).sizes
        if array.data is None:
            if DYNAMIC in stated:
                message = f"input {array.name} is missing: its type leaves the sizes open"
                raise asm_error_at(message, self.parsed.span_of(value))
            array.make(stated, self._make_array)
        sizes = tuple(int(n) for n in array.data.shape[1:])
        return View(array, 0, sizes, tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes))))

    # -- storage and results ------------------------------------------------------------------------------

    def _storage(self, value: SSAValue, ty: TileBufType, region: Region, wave: Wave) -> TileBuf:
        """New tiles for ``value``: a part of the result, or memory that the last wave used for it."""
        name = self._returned.get(value)
        if name is not None and self._device == "cpu" and value not in self._fresh:
            return TileBuf.from_array(self._output(name, ty)[wave.start : wave.stop], ty, *region)
        if value in self._fresh:
            return TileBuf.zeros(ty, wave.batch, self._device, *region)
        held = self._tiles.get(value)
        if held is None or held.type != ty or held.batch < wave.batch:
            held = self._tiles[value] = TileBuf.zeros(ty, wave.batch, self._device, 0, 0)
        elif value in self._cleared:  # else elements of another wave could be seen where nothing is written
            held.data[...] = 0
        return TileBuf.from_array(held.data[: wave.batch], ty, *region)

    def _output(self, name: str, ty: TileBufType) -> Any:
        """The array ``[batch, rows, cols]`` of a result."""
        if name not in self.results:
            self._make_array(name, (self.bound.batch, ty.rows, ty.cols), ty.element)
        return self.results[name]

    def _collect(self, name: str, tile: Tile | None, wave: Wave) -> None:
        """Put the tiles of a wave into the result, zero outside of their valid regions."""
        if tile is None or tile.tiles is None or not tile.written:
            return
        tiles = tile.tiles
        target = self._output(name, tiles.type)[wave.start : wave.stop]
        if not _same_memory(tiles.data, target):
            target[...] = moved(tiles.data, "cpu" if self.bound.device == "cpu" else self._device)
        elif tile.value not in self._cleared and self.bound.values.get(tile.value) is None:
            return  # zeros to begin with, and only valid elements were written
        zero_outside(tiles, target)


def _same_memory(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])
    return a is b


class _Trace(Interpreter.Listener):
    """The operations that are running, the innermost last; stops a program that runs too many.

    ``wanted``: the values to return; the tiles that they name are put into ``kept``.
    """

    def __init__(self, kept: dict[SSAValue, Tile], wanted: set[SSAValue]) -> None:
        self.running: list[Operation] = []
        self._steps = 0
        self._kept = kept
        self._wanted = wanted

    def will_interpret_op(self, op: Operation, args: PythonValues) -> None:
        """Count and remember."""
        self.running.append(op)
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InterpretationError(f"the program runs more than {MAX_STEPS} operations")

    def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
        """Forget; keep the results that are to be returned."""
        self.running.pop()
        if self._wanted:
            self._kept.update((v, x) for v, x in zip(op.results, results, strict=True) if v in self._wanted)
