"""The tiles of a campaign made on a device, bit for bit those of :mod:`pto_gpu.campaign.tiles.draw`.

Elements come from a Triton kernel that follows the recipe of :mod:`.generate`; valid regions from the
code that also draws them on the host. Nothing here waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from pto_gpu.backends import triton as backend
from pto_gpu.backends.triton_plan import HOST_BLOCK_BYTES, INTEGERS, VECTOR_BYTES, block_shape
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.categories import FORCE_NAN_FIRST, FORCE_NAN_LAST, Tables, tables
from pto_gpu.campaign.tiles.generate import PADDING_BYTE
from pto_gpu.campaign.tiles.storage import PLANS, POISON_BYTE, Slot, block_tiles, plan_of, slots
from pto_gpu.campaign.tiles.valid import VALID, VALID_BLOCKS, regions_of
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Kind, Role
from pto_gpu.kernels import generate as kernels
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.torch_arrays import TORCH
from pto_gpu.types import ELEMENT_TYPES, TileBufType

#: Bytes of an operand that a program makes, and its threads: one vector each, as more of them costs registers.
PROGRAM_BYTES: Final = 2048
THREADS: Final = PROGRAM_BYTES // VECTOR_BYTES
#: Tiles whose words a program makes.
WORD_TILES: Final = 128


class Part(NamedTuple):
    """The tiles of one storage plan, among tiles of a campaign that follow each other.

    They come in runs of ``run`` tiles, the first of which starts at tile ``first`` without ``offset`` of its tiles.
    """

    plan: str
    first: int
    offset: int
    n: int
    run: int

    @property
    def skip(self) -> int:
        """Tiles of other plans between two runs."""
        return self.run * (len(PLANS) - 1)

    def numbers(self, local: NumPyArray) -> NumPyArray:
        """The numbers in the campaign of the tiles at the places ``local`` of this part."""
        position = local + self.offset
        numbers: NumPyArray = self.first + position + position // self.run * self.skip
        return numbers


def parts(first: int, n: int, shape: tuple[int, int]) -> Iterator[Part]:
    """Tiles ``first`` to ``first + n - 1`` by storage plan."""
    run, end = block_tiles(shape), first + n
    for plan in PLANS:
        starts = [b for b in range(first // run * run, end, run) if plan_of(b, shape) == plan]
        if starts:
            offset = max(first - starts[0], 0)
            tiles = (len(starts) - 1) * run + min(end - starts[-1], run) - offset
            yield Part(plan, starts[0], offset, tiles, run)


@dataclass(frozen=True)
class Held:
    """Tiles on the device: all of their bytes as int64[n, words], and as signed integers [n, rows, cols]."""

    type: TileBufType
    words: torch.Tensor
    bits: torch.Tensor

    @property
    def elements(self) -> torch.Tensor:
        """The elements [n, rows, cols], on the same memory."""
        return self.bits.view(getattr(torch, self.type.element.torch_name))

    def tiles(self, region: Region) -> TileBuf:
        """The tiles with valid regions whose counts may be tensors, which only the Triton backend takes."""
        plain = TileBuf.from_array(self.elements, self.type)
        return TileBuf(self.type, plain.data, plain.batch, plain.device, region)


class DeviceBuffers:
    """Storage on one device that is used again for each wave."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._held: dict[str, torch.Tensor] = {}

    def tiles(self, name: str, ty: TileBufType, n: int) -> Held:
        """Tiles with arbitrary content; the previous ones of the same name are no longer to be used."""
        size = n * ty.nbytes // 8
        memory = self._held.get(name)
        if memory is None or memory.numel() < size:
            memory = self._held[name] = torch.empty(size, dtype=torch.int64, device=self.device)
        words = memory[:size].view(n, ty.nbytes // 8)
        flat = words.view(getattr(torch, INTEGERS[ty.element.itemsize]))
        across = ty.blayout == "col_major"
        bits = flat.view(n, ty.cols, ty.rows).transpose(1, 2) if across else flat.view(n, ty.rows, ty.cols)
        return Held(ty, words, bits)


@dataclass
class DeviceDrawn:
    """What was drawn for a part; counts are tensors without an axis. ``allocate``: (name, type) to new tiles."""

    slots: list[Slot]
    sources: dict[str, Held]
    regions: dict[str, Region]
    valid_kinds: dict[str, Any]
    operand_kinds: list[tuple[str, Any]]
    allocate: Callable[[str, TileBufType], Held]

    def poisoned_dsts(self, whose: str) -> dict[str, Held]:
        """New dst tiles, in buffers of their own for each ``whose``."""
        dsts = {}
        for slot in self.slots:
            if slot.operand.role is Role.DST:
                name = slot.operand.name
                dsts[name] = self.allocate(f"{whose} {name}", slot.storage)
                dsts[name].words.fill_(_signed(POISON_BYTE, 8))
        return dsts

    def logical(self, held: Mapping[str, Held]) -> dict[str, torch.Tensor]:
        """The elements of ``held`` cut to their logical shape; integers are signed, for torch can do little else."""
        result = {}
        for slot in self.slots:
            tiles = held[slot.operand.name]
            elements = tiles.elements if tiles.type.element.is_float else tiles.bits
            result[slot.operand.name] = elements[:, : slot.logical.rows, : slot.logical.cols]
        return result


def _signed(byte: int, itemsize: int) -> int:
    """The signed element whose bytes are all ``byte``."""
    return int.from_bytes(bytes([byte]) * itemsize, "little", signed=True)


def _as_i32(word: int) -> int:
    """A 32-bit word as the signed number that a kernel takes in 32 bits."""
    return word - (word >> 31 << 32)


def draw_on_device(campaign: Campaign, part: Part, buffers: DeviceBuffers) -> DeviceDrawn:
    """The sources and valid regions of ``part``, in ``buffers``; enqueued on the current stream, not waited for."""
    record, shape = campaign.record, campaign.grid
    drawn = regions_of(
        TORCH, _words(campaign, part, buffers.device), record, shape, ELEMENT_TYPES[campaign.dtypes[0]].itemsize,
        campaign.undefined,
    )  # fmt: skip

    def allocate(name: str, ty: TileBufType) -> Held:
        return buffers.tiles(f"{part.plan} {name}", ty, part.n)

    sources: dict[str, Held] = {}
    kinds = []
    placed = slots(record, campaign.dtypes, shape, part.plan)
    for slot in placed:
        if slot.operand.role is not Role.SRC:
            continue
        name = slot.operand.name
        how = record.draws[name]
        table = tables(slot.logical.dtype, how.pattern, how.like is not None)
        held = sources[name] = allocate(name, slot.storage)
        partner = sources[how.like] if how.like else None
        profiles = _elements(campaign, part, slot, held, partner, table, drawn.regions[name].cols)
        if slot.operand.kind is Kind.VALUE:
            unit = " rows" if table.by_row else ""
            kinds += [(p + unit, (profiles == k).sum()) for k, p in enumerate(table.profiles)]
    return DeviceDrawn(placed, sources, drawn.regions, drawn.kinds, kinds, allocate)


def _numbering(campaign: Campaign, part: Part) -> dict[str, int]:
    """The arguments by which a kernel finds the number of each tile."""
    return {
        "batch": part.n,
        "first": part.first,
        "offset": part.offset,
        "run": part.run,
        "skip": part.skip,
        "seed": campaign.seed,
    }


def _words(campaign: Campaign, part: Part, device: torch.device) -> torch.Tensor:
    """int64[n, VALID_BLOCKS, 4]: the words of the valid regions."""
    out = torch.empty((part.n, VALID_BLOCKS, 4), dtype=torch.int32, device=device)
    constants = {"BLOCKS": VALID_BLOCKS, "BT": 1 << 14 if backend.INTERPRETED else WORD_TILES}
    arguments = {"out": out, **_numbering(campaign, part), "c3": 256 * VALID, **constants}
    backend.launch_kernel(kernels.words, -(-part.n // constants["BT"]), THREADS, arguments, str(device))
    return out.to(torch.int64) & 0xFFFFFFFF


def _elements(
    campaign: Campaign, part: Part, slot: Slot, held: Held, partner: Held | None, table: Tables, valid_cols: Any
) -> torch.Tensor:
    """Fill ``held`` with the elements of an operand; the profile of each tile, or uint8[n, rows] of each row."""
    rows, cols = campaign.grid
    device = held.bits.device
    profiles = torch.empty((part.n, rows) if table.by_row else (part.n,), dtype=torch.uint8, device=device)
    if not isinstance(valid_cols, torch.Tensor):
        valid_cols = torch.full((part.n,), valid_cols, dtype=torch.int32, device=device)
    other = held if partner is None else partner
    constants = kernel_constants(campaign.grid, held.type, table, partner is not None)
    constants["WIDE"] = constants["BT"] * max(h.type.rows * h.type.cols for h in (held, other)) >= 1 << 31
    pattern = campaign.record.draws[slot.operand.name].pattern
    arguments = {
        "out": held.bits,
        "partner": other.bits,
        "profiles": profiles,
        "valid_cols": valid_cols,
        "operand": slot.place,
        "nan_mask": _as_i32(table.nan[0]),
        "nan_flip": _as_i32(table.nan[1]),
        **_tables_on(device, slot.logical.dtype, pattern, partner is not None),
        **_numbering(campaign, part),
        **_strides("out", held),
        **_strides("partner", other),
        **constants,
    }
    programs = math.prod(-(-n // constants[b]) for n, b in ((part.n, "BT"), (rows, "BR"), (cols, "BC")))
    backend.launch_kernel(kernels.generate, programs, THREADS, arguments, str(device))
    padding = _signed(PADDING_BYTE, held.type.element.itemsize)
    held.bits[:, :rows, cols:] = padding
    held.bits[:, rows:] = padding
    return profiles


def _strides(name: str, held: Held) -> dict[str, int]:
    """From tile to tile and from row to row, in vectors."""
    lanes = VECTOR_BYTES // held.type.element.itemsize
    return {f"{name}_b": held.type.rows * held.type.cols // lanes, f"{name}_r": held.type.cols // lanes}


def kernel_constants(grid: tuple[int, int], storage: TileBufType, table: Tables, has_partner: bool) -> dict[str, Any]:
    """What a launch of the generator is specialised on: nothing that differs between tiles, seeds and storage plans."""
    rows, cols = grid
    size = storage.element.itemsize
    bt, br, bc = block_shape(rows, cols, (HOST_BLOCK_BYTES if backend.INTERPRETED else PROGRAM_BYTES) // size)
    return {
        "SLOTS": len(table.row_profile if table.by_row else table.profile_of),
        "BY_ROW": table.by_row,
        "PARTNER": has_partner,
        "FIRST": FORCE_NAN_FIRST,
        "LAST": FORCE_NAN_LAST,
        "ROWS": rows,
        "COLS": cols,
        "BT": bt,
        "BR": br,
        "BC": bc,
        "VEC": VECTOR_BYTES // size,
        "WIDE": False,
    }


@cache
def _tables_on(device: torch.device, dtype: str, pattern: str, has_partner: bool) -> dict[str, torch.Tensor]:
    """The tables where the kernel reads them, as int32; they go to the device once."""
    table = tables(dtype, pattern, has_partner)
    found = {
        "profile_of": table.row_profile if table.by_row else table.profile_of,
        "force": table.row_force,
        "masks": table.masks,
        "flips": table.flips,
        "keep": table.keep,
        "flip": table.flip,
    }
    return {name: torch.tensor(array.astype(np.uint32).view(np.int32)).to(device) for name, array in found.items()}
