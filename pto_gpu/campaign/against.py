"""An implementation that somebody wrote in Python, as the side under test of a campaign.

The contract is one function of one argument, a :class:`TileCall`: it reads the sources from NumPy arrays and writes
dst in place. It is called with one batch after the other, never by two threads at a time, unless the function says
``function.concurrent = True``.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_gpu.campaign.tiles.storage import bits
from pto_gpu.errors import BackendError, ConstraintError, TypeMismatch, first_line
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Call
from pto_gpu.numerics import Numerics
from pto_gpu.regions import Region


@dataclass(frozen=True)
class TileCall:
    """What an implementation gets: one instruction on a batch of tiles.

    ``instruction``: its name, ``"TPARTMIN"``.
    ``arrays``: for each operand (named as in ``pto-gpu list``, without tmp) its storage ``[batch, rows, cols]``, of
    NumPy's element types, and ``ml_dtypes.bfloat16`` for bf16. Operands may differ in rows and columns, and arrays need
    not be contiguous. dst is full of the byte 0xA5 and is to be written in place, inside its valid region only. Sources
    must stay as they are, and hold noise outside their valid regions.
    ``valid``: for each operand ``int32[batch, 2]``, the valid rows and columns of each tile.
    ``numerics``: the rule set (``nan``, ``tie``, ``zero``). ``target``: ``"a5"`` or ``"a2a3"``.
    ``undefined``: ``"error"`` if no tile has valid regions that the page leaves open, ``"zero"`` if they are to be
    computed as the simulator does.
    """

    instruction: str
    arrays: Mapping[str, NumPyArray]
    valid: Mapping[str, NumPyArray]
    numerics: Numerics
    undefined: str
    target: str

    def inside(self, operand: str) -> NumPyArray:
        """bool[batch, rows, cols]: where an element of ``operand`` is inside its valid region."""
        _, rows, cols = self.arrays[operand].shape
        valid = self.valid[operand]
        result: NumPyArray = (np.arange(rows)[:, None] < valid[:, 0, None, None]) & (
            np.arange(cols) < valid[:, 1, None, None]
        )
        return result


class Implementation:
    """A function as what :func:`~pto_gpu.campaign.run.run_campaign` executes. ``label``: what reports call it."""

    def __init__(self, function: Callable[[TileCall], None], label: str | None = None) -> None:
        """``function`` keeps the contract of this module; raises TypeMismatch for what cannot be called."""
        self.label = label or _label_of(function)
        if not callable(function):
            raise TypeMismatch(f"{self.label} is a {type(function).__name__}: allowed a function of one TileCall")
        self._function = function
        concurrent = getattr(function, "concurrent", False) is True
        self._turn: Any = nullcontext() if concurrent else threading.Lock()

    def __call__(self, call: Call) -> None:
        """Run a call; raises BrokenContractError for whatever the function does against the contract."""
        names = [o.name for o in (*call.instruction.dsts, *call.instruction.sources)]
        arrays = {name: call.tiles[name].numpy() for name in names}
        regions = {name: _pairs(call.tiles[name].region, call.batch) for name in names}
        sources = [o.name for o in call.instruction.sources]
        before = {name: bits(arrays[name]).copy() for name in sources}
        given = TileCall(call.instruction.name, dict(arrays), regions, call.rules, call.undefined, call.target)
        with self._turn:
            returned = self._called(given)
        if returned is not None:
            raise BrokenContractError(
                f"{self.label} returned a {type(returned).__name__}: allowed None, results go into call.arrays"
            )
        for name in sources:
            if not np.array_equal(before[name], bits(arrays[name])):
                raise BrokenContractError(f"{self.label} wrote to {name}, a source: allowed dst only")
        for name, array in given.arrays.items():
            if array is not arrays.get(name):
                raise BrokenContractError(f"{self.label} put another array into call.arrays[{name!r}]: write into it")

    def _called(self, given: TileCall) -> Any:
        process = os.getpid()
        try:
            return self._function(given)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # test frameworks skip and fail by what is no Exception
            raise RaisedError(f"{self.label}: {_what_happened(error)}") from error
        finally:
            if os.getpid() != process:  # a forked child that the function did not end: it must not go on as we do
                os._exit(1)


class RaisedError(RuntimeError):
    """An implementation under test raised."""


class BrokenContractError(RuntimeError):
    """An implementation under test did what it must not."""


def load(spec: str) -> Implementation:
    """The implementation called ``package.module:function``; the current directory is searched first.

    Raises ConstraintError for other text, BackendError where it cannot be imported, TypeMismatch where it cannot be
    called.
    """
    module_name, colon, path = spec.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConstraintError(f"{spec!r} names no function: allowed package.module:function")
    found: Any = _imported(module_name)
    for place, part in enumerate(path.split(".")):
        holder = ".".join([module_name, *path.split(".")[:place]])
        try:
            found = getattr(found, part)
        except AttributeError:
            raise BackendError(f"{spec}: {holder} has no {part!r}") from None
        except Exception as error:  # a module or class may have a __getattr__ of its own
            raise BackendError(f"{spec}: {part!r} of {holder} cannot be had: {_what_happened(error)}") from error
    return Implementation(found, spec)


def _imported(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise BackendError(f"no module named {error.name} in {here} or among installed packages") from None
        raise BackendError(f"{name} cannot be imported: {_what_happened(error)}") from error
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise BackendError(f"{name} cannot be imported: {_what_happened(error)}") from error


def _what_happened(error: BaseException) -> str:
    """The error, and the last line of somebody's own code that it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename][1:]
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"


def _label_of(function: Any) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}:{name}" if module and name else type(function).__name__


def _pairs(region: Region, batch: int) -> NumPyArray:
    return np.stack([np.broadcast_to(np.asarray(n, np.int32), (batch,)) for n in region], axis=1)
