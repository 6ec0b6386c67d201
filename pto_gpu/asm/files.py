"""Programs, inputs and results in files: ``.pto`` text, ``.npy``, ``.npz``, raw ``.bin``.

A ``.npy`` or ``.bin`` input is mapped into memory, not read; a result is a mapped ``.npy`` that gets its name when
the run has ended well.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from pto_gpu.array_files import map_npy, opened, read_npz
from pto_gpu.asm.bind import VALID_SUFFIX
from pto_gpu.asm.program import Program, parse
from pto_gpu.errors import FileError, first_line
from pto_gpu.types import ELEMENT_TYPES, ElementType

#: A longer text is no program.
MAX_TEXT_BYTES: Final = 16 << 20
ARRAY_SUFFIXES: Final = (".npy", ".npz", ".bin")


def read_program(path: Path) -> Program:
    """Parse the file; raises FileError if it cannot be read, AsmError for its text."""
    with opened(path, pipes=True) as file:
        content = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise FileError(f"{path}: more than {MAX_TEXT_BYTES} bytes: no program")
    try:
        return parse(content.decode(), str(path))
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text: byte 0x{content[error.start]:02x} at {error.start}") from None


def read_inputs(program: Program, words: Sequence[str], function: str | None = None) -> dict[str, Any]:
    """The inputs that ``NAME=FILE``, ``NAME=NUMBER`` and ``FILE.npz`` (every array in it) name."""
    inputs: dict[str, Any] = {}
    for word in sorted(words, key=_is_raw):  # the shape of a raw file may depend on numbers
        name, equals, value = word.partition("=")
        if not (equals and name):
            found = _all_of(word)
        elif _is_raw(word):
            scalars = {key: x for key, x in inputs.items() if isinstance(x, (int, float))}
            found = {name: _raw(program, name, Path(value), scalars, function)}
        else:
            found = {name: _value(name, value)}
        for key, array in found.items():
            if key in inputs:
                raise FileError(f"--in {word}: {key} is given twice")
            inputs[key] = array
    return inputs


def _is_raw(word: str) -> bool:
    return word.endswith(".bin")


def _all_of(word: str) -> dict[str, Any]:
    path = Path(word)
    if path.suffix != ".npz":
        raise FileError(f"--in {word}: allowed NAME=FILE, NAME=NUMBER, or an .npz file of named arrays")
    return dict(read_npz(path))


def _value(name: str, value: str) -> Any:
    path = Path(value)
    if path.suffix not in ARRAY_SUFFIXES:
        return _number(name, value)
    if path.suffix == ".npy":
        return map_npy(path)
    arrays = read_npz(path)
    if name in arrays:
        return arrays[name]
    if len(arrays) != 1:
        raise FileError(f"{path}: has no array {name}: allowed {', '.join(arrays) or 'none'}")
    return next(iter(arrays.values()))


def _number(name: str, value: str) -> int | float:
    if len(value) <= 40 and value.isascii() and "_" not in value:
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    allowed = ", ".join(f"FILE{s}" for s in ARRAY_SUFFIXES)
    raise FileError(f"--in {name}={value[:60]}: neither a number nor a file: allowed {allowed}")


def _raw(program: Program, name: str, path: Path, scalars: dict[str, Any], function: str | None) -> Any:
    """Elements without a header: shape and type are those that the program says."""
    element: ElementType = ELEMENT_TYPES["i32"]  # of valid regions
    shape: tuple[int, ...] = (2,)
    if not name.endswith(VALID_SUFFIX) or name in program.inputs(function):
        element, shape = program.element_shape(name, scalars, function)
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        each = prod(shape) * element.itemsize
        if each == 0 or size % each:
            shown = "x".join(map(str, shape))
            raise FileError(f"{path}: {size} bytes are no whole number of {element} {shown} ({each} bytes each)")
        if size == 0:
            return np.empty((0, *shape), element.numpy)
        return np.memmap(file, element.numpy, mode="r").reshape(-1, *shape)


class ResultFiles:
    """The results of one run as ``NAME.npy`` in a directory, which is made. Nothing is left there if the run fails."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._work: Path | None = None
        self._made: list[Path] = []

    def __enter__(self) -> ResultFiles:
        try:
            self._made = [d for d in (self.directory, *self.directory.parents) if not d.exists()]
            self.directory.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=".pto-gpu-", dir=self.directory))
        except OSError as error:
            raise FileError(f"{self.directory}: cannot be written: {error.strerror or error}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
        if error is not None:
            with suppress(OSError):  # another process may use one of them by now
                for directory in self._made:
                    directory.rmdir()

    def allocate(self, name: str, shape: tuple[int, ...], element: ElementType) -> Any:
        """Zeros of ``shape`` that lie in a file."""
        assert self._work is not None
        if not prod(shape):  # an empty file cannot be mapped
            return np.zeros(shape, element.numpy)
        path = self._work / f"{name}.npy"
        try:
            return np.lib.format.open_memmap(path, mode="w+", dtype=element.numpy, shape=shape)
        except (OSError, ValueError) as error:
            raise FileError(f"{path.name}: cannot be written: {first_line(error)}") from None

    def save(self, results: dict[str, Any]) -> dict[str, Path]:
        """Give the files their names; returns where each result is."""
        assert self._work is not None
        paths = {}
        try:
            for name, array in results.items():
                written, paths[name] = self._work / f"{name}.npy", self.directory / f"{name}.npy"
                if isinstance(array, np.memmap):
                    array.flush()
                else:
                    np.save(written, array)
            for name, path in paths.items():
                (self._work / f"{name}.npy").replace(path)
        except OSError as error:
            raise FileError(f"{self.directory}: cannot be written: {error.strerror or error}") from None
        return paths
