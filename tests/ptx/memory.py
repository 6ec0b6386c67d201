"""The memory that a kernel was given, and nothing beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


#: The writer of what every warp may read.
_BEFORE_THE_BARRIER = np.int64(-1)


class AccessError(Exception):
    """An access that a GPU would refuse, or that leaves the memory of every argument."""


class GlobalMemory:
    """Host memory at its own addresses. ``spans``: first address and bytes of each piece that may be touched."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        merged: list[list[int]] = []
        for start, size in sorted(span for span in spans if span[1]):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], start + size)
            else:
                merged.append([start, start + size])
        self.starts = np.array([start for start, _ in merged], np.uint64)
        self.ends = np.array([end for _, end in merged], np.uint64)
        self.pieces = [
            np.frombuffer((ctypes.c_uint8 * (end - start)).from_address(start), np.uint8) for start, end in merged
        ]

    def load(self, addresses: Array, size: int) -> Array:
        """``size`` bytes at each address: uint8 ``[addresses, size]``."""
        found = np.empty((len(addresses), size), np.uint8)
        for piece, here, offsets in self._places(addresses, size):
            found[here] = piece[offsets]
        return found

    def store(self, addresses: Array, data: Array) -> None:
        """The rows of ``data`` to the addresses."""
        for piece, here, offsets in self._places(addresses, data.shape[1]):
            piece[offsets] = data[here]

    def _places(self, addresses: Array, size: int) -> Iterable[tuple[Array, Array, Array]]:
        """For each piece of memory: which of the addresses lie in it, and their bytes there."""
        if len(addresses) == 0:
            return
        if (addresses % np.uint64(size)).any():
            raise AccessError(f"{size} bytes at an address that is not a multiple of {size}")
        which = np.searchsorted(self.starts, addresses, side="right") - 1
        outside = (which < 0) | (addresses + np.uint64(size) > self.ends[which])
        if outside.any():
            raise AccessError(f"{size} bytes at {int(addresses[outside][0]):#x}, which is no argument's memory")
        for number in np.unique(which):
            here = np.flatnonzero(which == number)
            first = (addresses[here] - self.starts[number]).astype(np.int64)
            yield self.pieces[number], here, first[:, None] + np.arange(size)


class SharedMemory:
    """A piece for each CTA. What a warp wrote, other warps may read after a barrier only."""

    def __init__(self, ctas: int, size: int) -> None:
        self.bytes = np.zeros((ctas, size), np.uint8)
        self.writer = np.full((ctas, size), _BEFORE_THE_BARRIER)

    def load(self, ctas: Array, warps: Array, addresses: Array, size: int) -> Array:
        """``size`` bytes at an address of each CTA: uint8 ``[addresses, size]``."""
        place = ctas[:, None], self._offsets(addresses, size)
        writer = self.writer[place]
        if ((writer != _BEFORE_THE_BARRIER) & (writer != warps[:, None])).any():
            raise AccessError("shared memory that another warp wrote, and no barrier in between")
        return self.bytes[place]

    def store(self, ctas: Array, warps: Array, addresses: Array, data: Array) -> None:
        """The rows of ``data`` to the addresses of the CTAs."""
        place = ctas[:, None], self._offsets(addresses, data.shape[1])
        self.bytes[place] = data
        self.writer[place] = warps[:, None]

    def barrier(self, ctas: Array) -> None:
        """All warps of these CTAs have come to it."""
        self.writer[ctas] = _BEFORE_THE_BARRIER

    def _offsets(self, addresses: Array, size: int) -> Array:
        if (addresses % size).any():
            raise AccessError(f"{size} bytes of shared memory at an address that is not a multiple of {size}")
        if (addresses + size > self.bytes.shape[1]).any():
            raise AccessError(f"{size} bytes beyond the {self.bytes.shape[1]} of shared memory")
        return addresses.astype(np.int64)[:, None] + np.arange(size)
