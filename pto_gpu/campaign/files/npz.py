"""Reading ``.npz`` files that others wrote: one clear error for whatever can be wrong with them."""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from pto_gpu.errors import FileError
from pto_gpu.interop import NumPyArray

_ARRAY_MAGIC: Final = b"\x93NUMPY"
_ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_HEADERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path) -> dict[str, NumPyArray]:
    """Every array of the file; pickled objects are never loaded. Raises FileError for an unreadable file."""
    try:
        with path.open("rb") as file:
            return read_arrays(path, file)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_arrays(path: Path, file: IO[bytes]) -> dict[str, NumPyArray]:
    """As :func:`read_npz`, from an open file; ``path`` is what errors are about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python's parser thinks of a damaged header
            return _arrays(path, file)
    except (FileError, OSError):
        raise
    except Exception as error:  # decompressors and NumPy's header parser raise a dozen types, some undocumented
        raise FileError(f"{path}: a damaged .npz file: {first_line(error)}") from None


def _arrays(path: Path, file: IO[bytes]) -> dict[str, NumPyArray]:
    start = file.read(len(_ARRAY_MAGIC))
    if start == _ARRAY_MAGIC:
        raise FileError(f"{path}: one array, not an .npz of named arrays")
    if not start.startswith(_ZIP_MAGICS):
        raise FileError(f"{path}: not an .npz file" + ("" if start else ": it is empty"))
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        return {member.filename.removesuffix(".npy"): _array(path, archive, member) for member in archive.infolist()}


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


def first_line(error: BaseException) -> str:
    """The first line of a message, or the type of an error without one."""
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
