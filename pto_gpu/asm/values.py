"""What the interpreter holds: tiles, the memory behind pointers, and views of it. All for one wave of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from pto_gpu import interop
from pto_gpu.errors import ConstraintError
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ElementType

#: Bytes of the tiles that are in memory at once; a batch runs in waves that keep to it.
WAVE_BYTES: Final = 256 << 20
#: Bytes that a program may ask of an array for one batch element.
MAX_ELEMENT_BYTES: Final = 256 << 20

ByteRange = tuple[int, int]


class Tile:
    """A tile that operations name. ``tiles`` None: it gets type and storage from the first operation that writes it."""

    __slots__ = ("name", "place", "tiles", "value", "written")

    def __init__(self, name: str, value: Any, tiles: TileBuf | None, *, written: bool) -> None:
        self.name = name
        self.value = value  # the SSA value that it came from
        self.tiles = tiles
        self.written = written
        self.place: View | None = None  # of an array, where it lies: a load or store has nothing to copy

    def bound(self) -> TileBuf:
        """The tiles, which are there."""
        assert self.tiles is not None
        return self.tiles


class WrittenBytes:
    """Which bytes of a Unified Buffer hold something. A part is ``(first, end)``, or None where nobody knows it."""

    def __init__(self) -> None:
        self._ranges: set[ByteRange | None] = set()

    def add(self, part: ByteRange | None) -> None:
        """Something was written to the bytes."""
        self._ranges.add(part)

    def meet(self, part: ByteRange | None) -> bool:
        """Whether something may have been written to one of the bytes."""
        if part is None or None in self._ranges:
            return bool(self._ranges)
        return any(first < part[1] and part[0] < end for first, end in filter(None, self._ranges))


class Array:
    """What is bound to a pointer or a view for the whole batch, or made where a program only stores to it.

    ``written``: the program stores to it; the array is then ours. ``data``: ``[batch, ...]``, None until it is made.
    """

    def __init__(self, name: str, element: ElementType, batch: int, device: str) -> None:
        self.name = name
        self.element = element
        self.batch = batch
        self.device = device
        self.data: Any = None
        self.written = False
        self.bound = False
        self.stored = False

    @property
    def elements(self) -> int:
        """Elements for each batch element."""
        return prod(self.data.shape[1:])

    def make(self, shape: Sequence[int], allocate: Any) -> None:
        """Zeros of ``shape`` for each element of the batch."""
        nbytes = prod(shape) * self.element.itemsize
        if nbytes > MAX_ELEMENT_BYTES:
            raise ConstraintError(f"%{self.name} takes {nbytes} bytes for each tile: allowed {MAX_ELEMENT_BYTES}")
        self.data = allocate(self.name, (self.batch, *shape), self.element)


class View:
    """Elements of the memory of each batch element: ``sizes`` of them, ``strides`` apart, from ``offset`` on."""

    __slots__ = ("array", "offset", "sizes", "strides")

    def __init__(self, array: Array, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.array = array
        self.offset = offset
        self.sizes = sizes
        self.strides = strides

    @property
    def end(self) -> int:
        """One past the last element that it touches, counted from the start of the memory."""
        if 0 in self.sizes:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))

    def part(self, offsets: Sequence[int], sizes: Sequence[int]) -> View:
        """``sizes`` elements from ``offsets`` on."""
        start = self.offset + sum(o * s for o, s in zip(offsets, self.strides, strict=True))
        return View(self.array, start, tuple(sizes), self.strides)

    def of(self, flat: Any) -> Any:
        """The elements ``[tiles, *sizes]``, where ``flat`` is the memory ``[tiles, elements]``."""
        shape = (flat.shape[0], *self.sizes)
        if isinstance(flat, np.ndarray):
            strides = (flat.strides[0], *(s * flat.itemsize for s in self.strides))
            return np.lib.stride_tricks.as_strided(flat[:, self.offset :], shape, strides)
        return flat.as_strided(shape, (flat.stride(0), *self.strides), flat.storage_offset() + self.offset)

    @property
    def grid(self) -> tuple[int, int]:
        """The elements as rows and columns: every dimension but the last is rows."""
        return prod(self.sizes[:-1]), self.sizes[-1]


def dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements lie one after the other, the last dimension fastest."""
    wanted = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return all(size < 2 or seen == want for size, seen, want in zip(sizes, strides, wanted, strict=True))


def zero_outside(tiles: TileBuf, data: Any) -> None:
    """Clear what lies outside the valid regions of ``tiles`` in ``data``, ``[tiles, rows, cols]``."""
    rows, cols = tiles.region
    if isinstance(rows, int) and isinstance(cols, int):
        data[:, rows:, :] = 0
        data[:, :, cols:] = 0
        return
    for axis, valid in ((1, rows), (2, cols)):
        index = np.arange(data.shape[axis]).reshape((-1, 1) if axis == 1 else (1, -1))
        outside = index >= (valid if isinstance(valid, int) else valid[:, None, None])
        if isinstance(data, np.ndarray):
            np.copyto(data, 0, where=np.broadcast_to(outside, data.shape), casting="unsafe")
        else:
            import torch

            data.masked_fill_(torch.from_numpy(np.broadcast_to(outside, data.shape).copy()).to(data.device), 0)


def flattened(data: Any) -> Any:
    """``data`` ``[tiles, ...]`` as ``[tiles, elements]``: a view where the memory allows."""
    return data.reshape(data.shape[0], -1) if data.shape[0] else data.reshape(0, prod(data.shape[1:]))


def moved(x: Any, device: str) -> Any:
    """``x`` on ``device``: itself where it is there, else a copy."""
    if isinstance(x, np.ndarray):
        if device == "cpu":
            return x
        return interop.to_torch(np.array(x)).to(device)
    return interop.to_numpy(x) if device == "cpu" else x


def device_of(x: Any) -> str:
    """Where an array is."""
    return "cpu" if isinstance(x, np.ndarray) else str(x.device)
