"""TileBuf: a batch of tiles of one type, with a valid region for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pto_gpu import interop
from pto_gpu.errors import ConstraintError, LayoutError, TypeMismatch
from pto_gpu.regions import Region, checked_counts
from pto_gpu.types import DYNAMIC, ElementType, TileBufType, count

if TYPE_CHECKING:
    import torch


class Memory(NamedTuple):
    """Where a batch lies: address of element [0, 0, 0], strides in elements, byte span it can touch.

    ``self_overlapping``: two elements can share memory (an expanded or sliding-window array).
    """

    address: int
    strides: tuple[int, int, int]
    low: int
    high: int
    self_overlapping: bool


class TileBuf:
    """A batch of tiles of one :class:`~pto_gpu.types.TileBufType`.

    Storage has the logical shape ``[batch, rows, cols]``; the valid region of a tile is its prefix
    ``valid_row x valid_col``. Make one with :meth:`from_array` (no copy), :meth:`empty`, :meth:`zeros`
    or :meth:`full`, or bind one to a Unified Buffer with :meth:`UnifiedBuffer.tile
    <pto_gpu.memory.UnifiedBuffer.tile>` and :func:`~pto_gpu.memory.TASSIGN`.
    """

    __slots__ = ("__weakref__", "_data", "_memory", "backend_cache", "batch", "device", "region", "type")

    type: TileBufType
    batch: int
    #: ``"cpu"`` or ``"cuda:N"``.
    device: str
    #: The valid regions as a :class:`~pto_gpu.regions.Region`.
    region: Region

    def __init__(self, type: TileBufType, data: Any, batch: int, device: str, region: Region) -> None:
        """Not for callers: use the class methods, which check their arguments."""
        self.type = type
        self.batch = batch
        self.device = device
        self.region = region
        self._data = data
        self._memory: Memory | None = None
        self.backend_cache: dict[str, Any] = {}  # what backends keep with these tiles, by a key of their own

    # -- construction -----------------------------------------------------------------------------

    @classmethod
    def from_array(cls, x: Any, type: TileBufType, valid_row: Any = None, valid_col: Any = None) -> TileBuf:
        """Tiles on the memory of ``x``, which is not copied.

        ``x``: NumPy, torch or CuPy array of shape ``[batch, rows, cols]`` (or ``[rows, cols]``: a batch of
        one) and of the type's element type; any strides. ``valid_row``, ``valid_col``: an integer, or
        ``int32[batch]``; default what the type says.

        Raises TypeMismatch for another element type, LayoutError for another shape, ConstraintError for a
        valid region out of range.
        """
        what = "TileBuf.from_array"
        check_tile_type(type, what)
        data, device = interop.adopt(x, type.element, what)
        if data.ndim == 2:
            data = data[None]
        if data.ndim != 3 or tuple(data.shape[1:]) != (type.rows, type.cols):
            raise LayoutError(f"{what}: shape {list(x.shape)}: the tile type needs [batch, {type.rows}, {type.cols}]")
        if isinstance(data, np.ndarray) and data.size:
            size = data.itemsize
            if any(s % size for s in data.strides) or data.__array_interface__["data"][0] % size:
                raise LayoutError(f"{what}: the elements do not lie on {size}-byte boundaries")
        batch = int(data.shape[0])
        return cls(type, data, batch, device, region_of(type, batch, valid_row, valid_col, what))

    @classmethod
    def empty(
        cls, type: TileBufType, batch: int = 1, device: Any = "cpu", valid_row: Any = None, valid_col: Any = None
    ) -> TileBuf:
        """New tiles with arbitrary content; arguments as in :meth:`from_array`. ``device``: cpu, cuda, cuda:N."""
        return cls._new("TileBuf.empty", type, batch, device, valid_row, valid_col, zero=False)

    @classmethod
    def zeros(
        cls, type: TileBufType, batch: int = 1, device: Any = "cpu", valid_row: Any = None, valid_col: Any = None
    ) -> TileBuf:
        """New tiles full of zero bits; arguments as in :meth:`empty`."""
        return cls._new("TileBuf.zeros", type, batch, device, valid_row, valid_col, zero=True)

    @classmethod
    def full(
        cls,
        type: TileBufType,
        value: float,
        batch: int = 1,
        device: Any = "cpu",
        valid_row: Any = None,
        valid_col: Any = None,
    ) -> TileBuf:
        """New tiles with every element ``value``, outside the valid region too; arguments as in :meth:`empty`."""
        what = "TileBuf.full"
        check_tile_type(type, what)
        fill = _fill_value(value, type.element, f"{what}: value")
        tiles = cls._new(what, type, batch, device, valid_row, valid_col, zero=False)
        tiles._data[...] = fill
        return tiles

    @classmethod
    def _new(
        cls, what: str, type: TileBufType, batch: int, device: Any, valid_row: Any, valid_col: Any, *, zero: bool
    ) -> TileBuf:
        check_tile_type(type, what)
        batch = count(batch, f"{what}: batch")
        if batch < 0:
            raise ConstraintError(f"{what}: batch={batch} must not be negative")
        region = region_of(type, batch, valid_row, valid_col, what)
        device = interop.resolve_device(device)
        major, minor = (type.rows, type.cols) if type.blayout == "row_major" else (type.cols, type.rows)
        data = interop.allocate((batch, major, minor), type.element, device, zero=zero)
        if type.blayout == "col_major":
            data = data.swapaxes(1, 2)
        return cls(type, data, batch, device, region)

    def with_valid(self, valid_row: Any, valid_col: Any) -> TileBuf:
        """The same tiles (same memory) with other valid regions; arguments as in :meth:`from_array`."""
        region = region_of(self.type, self.batch, valid_row, valid_col, "TileBuf.with_valid")
        return TileBuf(self.type, self._data, self.batch, self.device, region)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has memory of its own: addresses that were worked out for this one must not go along.
        return TileBuf, (self.type, self._data, self.batch, self.device, self.region)

    # -- views ------------------------------------------------------------------------------------

    @property
    def valid_row(self) -> Any:
        """Valid rows: an int, or a read-only ``int32[batch]`` NumPy array."""
        return self.region.rows

    @property
    def valid_col(self) -> Any:
        """Valid columns: an int, or a read-only ``int32[batch]`` NumPy array."""
        return self.region.cols

    @property
    def data(self) -> Any:
        """What backends work on, ``[batch, rows, cols]``: a NumPy array on the CPU, a torch tensor on a GPU.

        Elsewhere use :meth:`numpy`, :meth:`torch` or :meth:`cupy`: this array is the tiles' own, not a view of it,
        and that of a Unified Buffer tile is gone after a TASSIGN that makes its memory grow.
        """
        return self._data

    def numpy(self) -> interop.NumPyArray:
        """The tiles as a NumPy array ``[batch, rows, cols]``: a view on the CPU, a copy of GPU memory."""
        return interop.to_numpy(self.data)

    def torch(self) -> torch.Tensor:
        """The tiles as a torch tensor ``[batch, rows, cols]`` on their own device, sharing the memory."""
        return interop.to_torch(self.data)

    def cupy(self) -> Any:
        """The tiles as a CuPy array ``[batch, rows, cols]``, sharing the memory; only for tiles on a GPU."""
        return interop.to_cupy(self.data)

    @property
    def memory(self) -> Memory:
        """Address, strides in elements, and the byte span ``[low, high)`` that the batch can touch."""
        if self._memory is None:
            self._memory = _memory_of(self.data)
        return self._memory

    @property
    def writable(self) -> bool:
        """Whether an instruction may write to these tiles."""
        data = self.data
        return not isinstance(data, np.ndarray) or data.flags.writeable

    def __repr__(self) -> str:
        def show(n: Any) -> str:
            return str(n) if isinstance(n, int) else "per tile"

        return (
            f"TileBuf({self.type}, batch={self.batch}, device={self.device}, "
            f"valid_row={show(self.valid_row)}, valid_col={show(self.valid_col)})"
        )


def check_tile_type(type: Any, what: str) -> None:
    """Raise unless ``type`` is a TileBufType that tiles can have; ``what`` starts the message."""
    if not isinstance(type, TileBufType):
        raise TypeMismatch(f"{what}: type must be a TileBufType: seen {type.__class__.__name__}")
    if type.slayout != "none_box":
        raise LayoutError(f"{what}: slayout={type.slayout!r} is not supported: allowed none_box (ND and DN tiles)")


def _fill_value(value: Any, element: ElementType, what: str) -> int | float:
    if not element.is_float:
        info = np.iinfo(element.numpy)
        whole = count(value, f"{what} of {element}")
        if not info.min <= whole <= info.max:
            raise ConstraintError(f"{what}={whole} does not fit {element}: allowed {info.min} to {info.max}")
        return whole
    if isinstance(value, (str, bytes)):
        raise TypeMismatch(f"{what} of {element} must be a number: seen {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ConstraintError(f"{what}={value} does not fit {element}") from None
    except (TypeError, ValueError):
        raise TypeMismatch(f"{what} of {element} must be a number: seen {value!r}") from None
    with np.errstate(over="ignore"):
        stored = float(np.asarray(number).astype(element.numpy))
    if math.isinf(stored) and not math.isinf(number):
        raise ConstraintError(f"{what}={number} does not fit {element}: it would become {stored}")
    return number


def region_of(type: TileBufType, batch: int, valid_row: Any, valid_col: Any, what: str) -> Region:
    """The valid regions of ``batch`` tiles: the given counts, or those of the type."""

    def counts(value: Any, default: int, capacity: int, name: str) -> Any:
        if value is None:
            if default == DYNAMIC:
                raise ConstraintError(f"{what}: {name} must be given: the tile type leaves it to run time")
            value = default
        return checked_counts(value, batch, capacity, f"{what}: {name}")

    return Region(
        counts(valid_row, type.v_row, type.rows, "valid_row"),
        counts(valid_col, type.v_col, type.cols, "valid_col"),
    )


def _memory_of(data: Any) -> Memory:
    if isinstance(data, np.ndarray):
        size = data.itemsize
        address = int(data.__array_interface__["data"][0])
        strides = tuple(s // size for s in data.strides)
    else:
        size = data.element_size()
        address = data.data_ptr()
        strides = tuple(data.stride())
    low = high = address
    if 0 not in data.shape:
        reach = [s * (n - 1) * size for s, n in zip(strides, data.shape, strict=True)]
        low = address + sum(r for r in reach if r < 0)
        high = address + sum(r for r in reach if r > 0) + size
    step_tile, step_row, step_col = strides
    return Memory(address, (step_tile, step_row, step_col), low, high, _overlaps_itself(strides, data.shape))


def _overlaps_itself(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if 0 in shape:
        return False  # NumPy gives an empty array strides of 0
    reach = 1
    for step, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step < reach:
            return True
        reach += step * (extent - 1)
    return False
