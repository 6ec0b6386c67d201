"""Reading ``.npz`` and ``.npy`` files that others wrote: one clear error for whatever can be wrong with them."""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import numpy as np

from pto_gpu.errors import FileError, first_line
from pto_gpu.interop import NumPyArray

_ARRAY_MAGIC: Final = b"\x93NUMPY"
_ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_HEADERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def opened(path: Path, *, pipes: bool = False) -> Iterator[BinaryIO]:
    """The file at ``path``; raises FileError for what cannot be read, and for a device, which may have no end.

    ``pipes``: a pipe will do, such as a shell's ``<(command)``; it is read to its end once somebody writes.
    """
    if "\0" in str(path):  # a manifest can say that
        raise FileError(f"{str(path)!r}: cannot be read: embedded null character")
    try:
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and stat.S_ISFIFO(mode))):
            raise FileError(f"{path}: cannot be read: not a regular file")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_npz(path: Path, check_names: Callable[[list[str]], None] = lambda names: None) -> dict[str, NumPyArray]:
    """Every array of the file; pickled objects are never loaded. Raises FileError for an unreadable file.

    ``check_names`` gets the names of the arrays before any is read: what it raises spares memory for unknown ones.
    """
    with opened(path) as file:
        return read_arrays(path, file, check_names)


def read_arrays(
    path: Path, file: IO[bytes], check_names: Callable[[list[str]], None] = lambda names: None
) -> dict[str, NumPyArray]:
    """As :func:`read_npz`, from an open file; ``path`` is what errors are about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python's parser thinks of a damaged header
            return _arrays(path, file, check_names)
    except (FileError, OSError):
        raise
    except Exception as error:  # decompressors and NumPy's header parser raise a dozen types, some undocumented
        raise FileError(f"{path}: a damaged .npz file: {first_line(error)}") from None


def map_npy(path: Path) -> NumPyArray:
    """The array of an ``.npy``, mapped: a header that claims more than the file holds is found before memory is taken.

    Raises FileError as :func:`read_npz` does.
    """
    with opened(path) as file:
        if file.read(len(_ZIP_MAGICS[0])) in _ZIP_MAGICS:
            raise FileError(f"{path}: an .npz file of named arrays, not an .npy")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array: NumPyArray = np.lib.format.open_memmap(path, mode="r")
                return array
        except OSError:
            raise
        except Exception as error:  # as in read_arrays
            raise FileError(f"{path}: not an .npy file: {first_line(error)}") from None


def _arrays(path: Path, file: IO[bytes], check_names: Callable[[list[str]], None]) -> dict[str, NumPyArray]:
    start = file.read(len(_ARRAY_MAGIC))
    if start == _ARRAY_MAGIC:
        raise FileError(f"{path}: one array, not an .npz of named arrays")
    if not start.startswith(_ZIP_MAGICS):
        raise FileError(f"{path}: not an .npz file" + ("" if start else ": it is empty"))
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        check_names(list(members))
        return {name: _array(path, archive, member) for name, member in members.items()}


def _array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NumPyArray:
    name = member.filename.removesuffix(".npy")
    if name == member.filename:
        raise FileError(f"{path}: {name} is not an array")
    try:
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise FileError(f"{path}: array {name} has format version {version}: allowed (1, 0) and (2, 0)")
            shape, _, dtype = _HEADERS[version](file)
        # NumPy takes the memory that a header claims before it reads what is there.
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise FileError(f"{path}: array {name} claims more elements than the file holds")
        with archive.open(member) as file:
            array: NumPyArray = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except FileError:
        raise
    except Exception as error:  # as in read_npz, but the name of the array is known
        raise FileError(f"{path}: array {name} cannot be read: {first_line(error)}") from None
