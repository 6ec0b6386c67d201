"""Manual mode: one Unified Buffer for each batch element, and TASSIGN."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from pto_gpu import interop
from pto_gpu.defaults import current_options
from pto_gpu.errors import AddressError, ConstraintError, TypeMismatch
from pto_gpu.regions import Region
from pto_gpu.tilebuf import Memory, TileBuf, check_tile_type, region_of
from pto_gpu.types import ELEMENT_TYPES, TileBufType, count


class _Segment:
    """Bytes ``[low, high)`` of the Unified Buffer, for the whole batch; storage is made at first use."""

    def __init__(self, low: int, high: int, allocator: str) -> None:
        self.low = low
        self.high = high
        self.allocator = allocator
        self.storage: Any = None
        self.replaced = False  # merged into a larger segment: views of this one are stale
        self._exports: list[weakref.ref[Any]] = []

    def materialise(self, batch: int, device: str) -> Any:
        if self.storage is None:
            shape = (batch, self.high - self.low)
            self.storage = interop.allocate(shape, ELEMENT_TYPES["u8"], device, zero=True, allocator=self.allocator)
        return self.storage

    def export_root(self) -> Any:
        """An array over the storage that every view made from it keeps alive, so that live views can be told."""
        if not self.storage.size:
            return self.storage  # an empty batch: nothing to show
        root = np.frombuffer(memoryview(self.storage).cast("B"), np.uint8)
        self._exports = [r for r in self._exports if r() is not None]
        self._exports.append(weakref.ref(root))
        return root

    @property
    def exported(self) -> bool:
        return any(r() is not None for r in self._exports)


class UnifiedBuffer:
    """The on-chip vector memory of ``batch`` cores, byte-addressed from 0 (192 KiB on a2a3, 256 KiB on a5).

    Only the bytes at addresses in use take memory. Fresh bytes are zero. ``target``: default that of the options.
    ``allocator="cupy"`` takes the memory of a GPU from CuPy's pool instead of torch's.

    Raises ConstraintError for a negative batch or an unknown target or allocator, BackendError for a device or
    library that is not there.
    """

    def __init__(
        self, batch: int = 1, target: str | None = None, device: Any = "cpu", allocator: str | None = None
    ) -> None:
        self.batch = count(batch, "UnifiedBuffer: batch")
        if self.batch < 0:
            raise ConstraintError(f"UnifiedBuffer: batch={batch} must not be negative")
        self.target = current_options().override(target=target).target
        self.device = interop.resolve_device(device)
        self.allocator = interop.resolve_allocator(allocator, self.device)
        self._segments: list[_Segment] = []
        #: Held by a call on tiles of this buffer, and by a TASSIGN: memory must not grow under a call that runs.
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeMismatch("UnifiedBuffer: cannot be copied or pickled: copy what its tiles' .numpy() shows")

    def tile(self, type: TileBufType, valid_row: Any = None, valid_col: Any = None) -> UbTile:
        """A declared tile without an address; bind it with :func:`TASSIGN`. Arguments as in ``TileBuf.from_array``."""
        what = "UnifiedBuffer.tile"
        check_tile_type(type, what)
        return UbTile(self, type, region_of(type, self.batch, valid_row, valid_col, what))

    @property
    def nbytes(self) -> int:
        """Bytes of memory held for the addresses in use, over the whole batch."""
        return self.batch * sum(s.high - s.low for s in self._segments)

    def _reserve(self, low: int, high: int) -> None:
        """Make ``[low, high)`` lie in one segment; content of segments that grow together is kept."""
        touched = [s for s in self._segments if s.low < high and low < s.high]
        if len(touched) == 1 and touched[0].low <= low and high <= touched[0].high:
            return
        if any(s.exported for s in touched):
            raise AddressError(
                f"TASSIGN: bytes 0x{low:x} to 0x{high:x} join memory that an array from .numpy() or .torch() still "
                "shows: drop that array, or assign every tile before taking views"
            )
        start, end = min([low, *(s.low for s in touched)]), max([high, *(s.high for s in touched)])
        merged = _Segment(start, end, self.allocator)
        for segment in touched:
            segment.replaced = True
            if segment.storage is not None:
                storage = merged.materialise(self.batch, self.device)
                storage[:, segment.low - merged.low : segment.high - merged.low] = segment.storage
        self._segments = [s for s in self._segments if s not in touched]
        self._segments.append(merged)

    def _segment_at(self, address: int) -> _Segment:
        return next(s for s in self._segments if s.low <= address < s.high)


class UbTile(TileBuf):
    """A tile in a Unified Buffer; it has memory once TASSIGN gave it an address."""

    __slots__ = ("_address", "_segment", "ub")

    def __init__(self, ub: UnifiedBuffer, type: TileBufType, region: Region) -> None:
        """Not for callers: see :meth:`UnifiedBuffer.tile`."""
        super().__init__(type, None, ub.batch, ub.device, region)
        self.ub = ub
        self._address: int | None = None
        self._segment: _Segment | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeMismatch("a tile of a UnifiedBuffer cannot be copied or pickled: copy what its .numpy() shows")

    @property
    def address(self) -> int | None:
        """Byte address in the Unified Buffer, or None before TASSIGN."""
        return self._address

    def bound_address(self) -> int:
        """The address; raises AddressError before TASSIGN."""
        if self._address is None:
            raise AddressError(f"{self.type} tile has no address: bind it with TASSIGN first")
        return self._address

    def with_valid(self, valid_row: Any, valid_col: Any) -> UbTile:
        """The same tile (same address) with other valid regions."""
        other = UbTile(self.ub, self.type, region_of(self.type, self.batch, valid_row, valid_col, "TileBuf.with_valid"))
        other._address = self._address
        return other

    def _refresh(self) -> _Segment:
        address = self.bound_address()
        with self.ub.lock:
            if self._segment is None or self._segment.replaced:
                segment = self.ub._segment_at(address)
                self._data = self._view(segment, segment.materialise(self.batch, self.device))
                self._memory = None
                self.backend_cache = {}
                self._segment = segment
            return self._segment

    def _view(self, segment: _Segment, storage: Any) -> Any:
        ty = self.type
        offset, size = self.bound_address() - segment.low, ty.element.itemsize
        row, col = (ty.cols, 1) if ty.blayout == "row_major" else (1, ty.rows)
        pitch = segment.high - segment.low
        shape = (self.batch, ty.rows, ty.cols)
        if self.device == "cpu":
            strides = (pitch, row * size, col * size)
            buffer = storage if self.batch else np.empty(offset + ty.nbytes, np.uint8)
            return np.ndarray(shape, ty.element.numpy, buffer=buffer, offset=offset, strides=strides)
        import torch

        flat = storage.view(-1).view(getattr(torch, ty.element.torch_name))
        return flat.as_strided(shape, (pitch // size, row, col), offset // size)

    @property
    def data(self) -> Any:
        """The logical ``[batch, rows, cols]`` view of the bytes at this tile's address."""
        self._refresh()
        return self._data

    @property
    def memory(self) -> Memory:
        """As :attr:`TileBuf.memory`, for the current address."""
        self._refresh()
        return TileBuf.memory.fget(self)  # type: ignore[attr-defined,no-any-return]

    def numpy(self) -> interop.NumPyArray:
        """The tile's bytes as a NumPy array; while it lives, its memory cannot grow by another TASSIGN."""
        if self.device != "cpu":
            return interop.to_numpy(self.data)
        with self.ub.lock:
            segment = self._refresh()
            view: interop.NumPyArray = self._view(segment, segment.export_root())
        return view

    def torch(self) -> Any:
        """The tile's bytes as a torch tensor; while it lives, its memory cannot grow by another TASSIGN."""
        return interop.to_torch(self.numpy() if self.device == "cpu" else self.data)


def TASSIGN(tile: TileBuf, address: int) -> TileBuf:
    """Bind ``tile`` to a byte address of its Unified Buffer and return it; rebinding is allowed.

    The address is a multiple of 32 and ``address + size of the tile's capacity`` lies within the Unified
    Buffer. Tiles whose bytes overlap share them. Raises AddressError otherwise, and TypeMismatch for what
    is no tile of a :class:`UnifiedBuffer`. Pages: the manual-mode example of every instruction.
    """
    if not isinstance(tile, TileBuf):
        raise TypeMismatch(f"TASSIGN: tile must be a TileBuf: seen {type(tile).__name__}")
    if not isinstance(tile, UbTile):
        raise AddressError("TASSIGN: tile is not declared in a UnifiedBuffer: make it with UnifiedBuffer.tile()")
    address = count(address, "TASSIGN: address")
    target, size = tile.ub.target, tile.type.nbytes
    if address < 0:
        raise AddressError(f"TASSIGN: address={address} must not be negative")
    if address % target.alignment:
        raise AddressError(f"TASSIGN: address=0x{address:x} is not aligned: allowed multiples of {target.alignment}")
    if address + size > target.ub_bytes:
        raise AddressError(
            f"TASSIGN: address=0x{address:x} plus {size} bytes of a {tile.type} tile ends at 0x{address + size:x}: "
            f"the Unified Buffer of {target.name} ends at 0x{target.ub_bytes:x}"
        )
    with tile.ub.lock:
        tile.ub._reserve(address, address + size)
        tile._address = address
        tile._segment = None
    return tile
