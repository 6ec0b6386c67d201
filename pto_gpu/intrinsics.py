"""The callables: one in-place intrinsic and one value form for each record in :mod:`pto_gpu.isa`."""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any

from pto_gpu import backends
from pto_gpu.checks import check_call, check_together
from pto_gpu.defaults import Options, current_options
from pto_gpu.errors import TypeMismatch
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Call, Instruction, Role
from pto_gpu.memory import UbTile
from pto_gpu.numerics import Numerics
from pto_gpu.tilebuf import TileBuf


def execute(instruction: Instruction, tiles: Mapping[str, TileBuf], options: Options) -> None:
    """Check one call and run it on the backend of ``options``; nothing is written if a check fails."""
    call = Call(instruction, tiles, options.numerics, options.undefined, options.target.name, options.threads)
    buffers = {id(tile.ub): tile.ub for tile in tiles.values() if isinstance(tile, UbTile)}
    if not buffers:
        _check_and_run(call, options.backend)
        return
    with contextlib.ExitStack() as held:
        for _, buffer in sorted(buffers.items()):  # in one order, so that two calls cannot wait for each other
            held.enter_context(buffer.lock)
        _check_and_run(call, options.backend)


def _check_and_run(call: Call, backend: str) -> None:
    check_call(call)
    run = backends.runner(backend, call)
    if call.batch:
        run(call)


class _Callable(ABC):
    """What the two forms share: operands by position or name, then the four keywords."""

    def __init__(
        self, instruction: Instruction, name: str, operands: tuple[str, ...], optional: frozenset[str]
    ) -> None:
        self.instruction = instruction
        self.__name__ = self.__qualname__ = name
        self.__module__ = "pto_gpu"
        self._operands = operands
        self._optional = optional
        self.__signature__ = _signature(operands, optional)

    def __repr__(self) -> str:
        return f"<{self.__name__}{self.__signature__}>"

    def __reduce__(self) -> str:
        return self.__name__  # pickled by name, as a function is

    def __call__(
        self,
        *operands: TileBuf | None,
        target: str | None = None,
        backend: str | None = None,
        numerics: str | Numerics | None = None,
        undefined: str | None = None,
        **named: TileBuf | None,
    ) -> Any:
        """Check and run; the docstring of each intrinsic says what it does."""
        options = current_options().override(target, backend, numerics, undefined)
        results = self._run(self._bind(operands, named), options)
        return results[0] if len(results) == 1 else results

    @abstractmethod
    def _run(self, tiles: dict[str, TileBuf], options: Options) -> tuple[TileBuf, ...]:
        """Run on bound operands and return the destinations."""

    def _bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, TileBuf]:
        name, operands = self.instruction.name, self._operands
        if len(args) > len(operands):
            raise TypeMismatch(f"{name}: {len(args)} operands given: allowed {len(operands)} ({', '.join(operands)})")
        tiles = dict(zip(operands, args, strict=False))
        for key, value in named.items():
            if key not in operands:
                raise TypeMismatch(
                    f"{name}: {key!r} is no operand or keyword: allowed {', '.join(self.__signature__.parameters)}"
                )
            if key in tiles:
                raise TypeMismatch(f"{name}: {key} is given twice")
            tiles[key] = value
        for operand in operands:
            tile = tiles.get(operand)
            if tile is None and operand in self._optional:
                tiles.pop(operand, None)
            elif not isinstance(tile, TileBuf):
                seen = "nothing" if operand not in tiles else type(tile).__name__
                raise TypeMismatch(f"{name}: {operand} must be a TileBuf: seen {seen}")
        return tiles


class Intrinsic(_Callable):
    """An instruction in place: operands in C++ order, returns dst (the pair if there are two)."""

    def __init__(self, instruction: Instruction) -> None:
        names = tuple(o.name for o in instruction.operands)
        optional = frozenset(o.name for o in instruction.with_role(Role.TMP))
        super().__init__(instruction, instruction.name, names, optional)
        self.__doc__ = _doc(instruction, "Writes dst's valid region and nothing else; returns dst.")

    def _run(self, tiles: dict[str, TileBuf], options: Options) -> tuple[TileBuf, ...]:
        execute(self.instruction, tiles, options)
        return tuple([tiles[o.name] for o in self.instruction.dsts])


class ValueForm(_Callable):
    """An instruction as a value (AS Level 1): sources in text order, returns new tiles."""

    def __init__(self, instruction: Instruction) -> None:
        names = instruction.value_names or instruction.assembly
        super().__init__(instruction, instruction.name.lower(), names, frozenset())
        self.__doc__ = _doc(instruction, "Allocates the result: zero outside its valid region.")

    def _run(self, tiles: dict[str, TileBuf], options: Options) -> tuple[TileBuf, ...]:
        record = self.instruction
        tiles = {operand: tiles[name] for operand, name in zip(record.assembly, self._operands, strict=True)}
        check_together(record, tiles, options.target.name)  # else the result has no valid region
        types = {name: tile.type for name, tile in tiles.items()}
        regions = {name: tile.region for name, tile in tiles.items()}
        first = tiles[record.assembly[0]]
        results = tuple(
            TileBuf.zeros(r.type, first.batch, first.device, r.region.rows, r.region.cols)
            for r in record.result(types, regions)
        )
        dsts = dict(zip((o.name for o in record.dsts), results, strict=True))
        execute(record, {**dsts, **tiles}, options)
        return results


def _signature(operands: tuple[str, ...], optional: frozenset[str]) -> inspect.Signature:
    empty, either = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [inspect.Parameter(o, either, default=None if o in optional else empty) for o in operands]
    words = ("target", "backend", "numerics", "undefined")
    keywords = [inspect.Parameter(w, inspect.Parameter.KEYWORD_ONLY, default=None) for w in words]
    return inspect.Signature([*positional, *keywords])


def _doc(instruction: Instruction, form: str) -> str:
    types = "; ".join(
        f"{target}: {', '.join('/'.join(s) for s in allowed)}" for target, allowed in instruction.element_types.items()
    )
    return (
        f"{instruction.name}: {instruction.summary}.\n\n{form} Every operand is a TileBuf of one batch on one device.\n"
        f"Element types: {types}.\n"
        "Keywords: target, backend, numerics, undefined; defaults from pto_gpu.options.\n"
        "Raises ConstraintError, LayoutError, AddressError or TypeMismatch before anything is written.\n"
        f"Page: {instruction.page}."
    )


@cache
def intrinsics() -> dict[str, Intrinsic | ValueForm]:
    """Every callable by its public name: TPARTMIN and tpartmin, and so on."""
    table: dict[str, Intrinsic | ValueForm] = {}
    for name, record in instructions().items():
        table[name] = Intrinsic(record)
        table[name.lower()] = ValueForm(record)
    return table
