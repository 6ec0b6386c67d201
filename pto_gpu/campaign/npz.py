"""Reading ``.npz`` files that others wrote: one clear error for whatever can be wrong with them."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from pto_gpu.errors import FileError
from pto_gpu.interop import NumPyArray


def read_npz(path: Path) -> dict[str, NumPyArray]:
    """Every array of the file; pickled objects are never loaded. Raises FileError for an unreadable file."""
    try:
        with path.open("rb") as file:  # NumPy leaves a file open that it opened itself and could not read
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise FileError(f"{path}: one array, not an .npz of named arrays")
            with archive:
                return {name: _array(path, name, archive) for name in archive.files}
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError) as error:
        raise FileError(f"{path}: not an .npz file, or a damaged one: {_first_line(error)}") from None


def _array(path: Path, name: str, archive: np.lib.npyio.NpzFile) -> NumPyArray:
    try:
        array = archive[name]
    except ValueError as error:
        raise FileError(f"{path}: array {name} cannot be read: {_first_line(error)}") from None
    if not isinstance(array, np.ndarray):
        raise FileError(f"{path}: {name} is not an array")
    return array


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
