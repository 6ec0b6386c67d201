"""Valid regions: one pair of counts for a whole batch, or one pair for each tile."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pto_gpu.errors import ConstraintError, TypeMismatch
from pto_gpu.types import count


class Region(NamedTuple):
    """Valid rows and columns: each an int (uniform), or an ``int32[batch]`` NumPy array."""

    rows: Any
    cols: Any

    @property
    def uniform(self) -> bool:
        """Whether every tile of the batch has the same region."""
        return isinstance(self.rows, int) and isinstance(self.cols, int)

    @property
    def empty(self) -> Any:
        """Where the region has no element: a bool, or one for each tile."""
        return (self.rows == 0) | (self.cols == 0)

    def differs(self, other: Region) -> Any:
        """Where the regions are not equal."""
        return (self.rows != other.rows) | (self.cols != other.cols)

    def exceeds(self, other: Region) -> Any:
        """Where this region is larger than ``other`` in some dimension."""
        return (self.rows > other.rows) | (self.cols > other.cols)

    def of_tile(self, tile: int) -> tuple[int, int]:
        """The counts of one tile."""
        rows, cols = (n if isinstance(n, int) else int(n[tile]) for n in self)
        return rows, cols


def checked_counts(value: Any, batch: int, capacity: int, what: str) -> int | np.ndarray[Any, np.dtype[np.int32]]:
    """``value`` as a valid count: an int, or a private read-only ``int32[batch]``, in 0 to ``capacity``.

    ``what`` names operand and field in errors. A caller's array is copied (four bytes a tile), so that
    changing it later cannot move a checked region out of the tile.
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        seen = count(value, what)
        if not 0 <= seen <= capacity:
            raise ConstraintError(f"{what}={seen} is out of range: allowed 0 to {capacity}")
        return seen
    array = _integer_array(value, what)
    if array.ndim == 0:
        return checked_counts(int(array), batch, capacity, what)
    if array.shape != (batch,):
        raise ConstraintError(f"{what} has shape {array.shape}: allowed one integer, or [{batch}] (one for each tile)")
    outside = (array < 0) | (array > capacity)
    if outside.any():
        first = int(outside.argmax())
        raise ConstraintError(
            f"{what} is out of range: {int(outside.sum())} of {batch} tiles break this, first tile {first} "
            f"(seen {int(array[first])}, allowed 0 to {capacity})"
        )
    private = array.astype(np.int32, copy=True)
    private.flags.writeable = False
    return private


def _integer_array(value: Any, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeMismatch(f"{what}: a masked array is not allowed: pass its .data")
    if hasattr(value, "detach"):  # a torch tensor, wherever it lies
        if value.is_floating_point():  # NumPy may not even know the type
            raise TypeMismatch(f"{what} must be integers: seen {value.dtype} tensor")
        try:
            value = value.detach().cpu().numpy()
        except (TypeError, RuntimeError) as error:  # sparse, meta, quantised, functional tensors
            raise TypeMismatch(f"{what}: this tensor has no plain integers: {_first_line(error)}") from None
    elif hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # a CuPy array
        value = value.get()
    if not isinstance(value, (np.ndarray, list, tuple)):
        count(value, what)  # raises: neither an integer nor an array of them
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        raise TypeMismatch(f"{what} must be integers: seen a nested {type(value).__name__}") from None
    if array.dtype.kind not in "iu":
        if array.size == 0 and not isinstance(value, np.ndarray):
            return array.astype(np.int32)
        raise TypeMismatch(f"{what} must be integers: seen {array.dtype} array")
    return array


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
