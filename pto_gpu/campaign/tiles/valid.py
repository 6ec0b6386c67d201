"""The valid regions of a campaign's tiles.

Stream ``VALID`` of the recipe in :mod:`pto_gpu.campaign.tiles.generate`: the counter is (block, tile low, tile high,
256 * VALID), so a region depends on seed, tile number, shape and element size only. Block 0 draws dst's region
(for the ``rows`` pattern src's): w0 picks the kind, w1 and w2 the counts, w3 the rest. Block 1 draws, for the
partial patterns, the region of the source that does not define dst: w0 picks the kind, w1 and w2 the counts,
and the lowest bit of w3 says which of the two sources it is. Block 2, only where the campaign computes undefined
regions: w0 below 2**29 makes all three regions of the tile arbitrary, from the halves of w1, w2 and w3.
A word w makes a count of 0 to n as ``(w * (n + 1)) >> 32``.

Written once, in the array-API style: campaigns on the host and on a device draw their regions with it.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

import numpy as np

from pto_gpu.campaign.tiles.compiled import row_words
from pto_gpu.isa.record import Instruction, Kind
from pto_gpu.regions import Region
from pto_gpu.types import BLOCK_BYTES

VALID: Final = 3
#: Blocks of the counter that a tile's regions are made of.
VALID_BLOCKS: Final = 3

# Weights of each table add up to 64.
_MAIN: Final = {
    "full": 18,
    "random": 20,
    "one row": 6,
    "one column": 6,
    "one off a 32-byte edge": 10,
    "empty": 4,
}
_OTHER: Final = {
    "other equal": 20,
    "other shorter in rows": 11,
    "other shorter in columns": 11,
    "other shorter in both": 11,
    "other inside": 7,
    "other empty": 4,
}
_OTHER_ANY: Final = {
    "other equal": 14,
    "other shorter in rows": 8,
    "other shorter in columns": 8,
    "other shorter in both": 8,
    "other empty": 4,
    "other longer in rows": 6,
    "other longer in columns": 6,
    "other longer in both": 6,
    "other anywhere": 4,
}
_OPEN = "undefined by the page"


class DrawnRegions(NamedTuple):
    """Valid regions of some tiles, for each operand, and how many tiles had each kind.

    The counts are ints, or arrays without an axis on the device of the regions.
    """

    regions: dict[str, Region]
    kinds: dict[str, Any]


def draw_regions(
    instruction: Instruction, shape: tuple[int, int], itemsize: int, seed: int, first_tile: int, n: int, undefined: str
) -> DrawnRegions:
    """The valid regions of ``n`` tiles of the logical ``shape`` (rows, cols) from ``first_tile`` onwards."""
    words = np.empty((n, VALID_BLOCKS, 4), np.uint32)
    row_words(words, np.uint64(seed), np.uint64(first_tile), np.uint64(256 * VALID))
    drawn = regions_of(np, words.astype(np.int64), instruction, shape, itemsize, undefined)
    return DrawnRegions(drawn.regions, {kind: int(count) for kind, count in drawn.kinds.items()})


def regions_of(
    xp: Any, words: Any, instruction: Instruction, shape: tuple[int, int], itemsize: int, undefined: str
) -> DrawnRegions:
    """The valid regions that ``words`` make: int64[n, VALID_BLOCKS, 4] of the library ``xp``, each 0 to 2**32 - 1."""
    pattern = instruction.valid_pattern
    main, kinds = _main(xp, words[:, 0], shape, BLOCK_BYTES // itemsize, may_be_empty=pattern != "rows")
    if pattern == "rows":
        return DrawnRegions(_by_role(instruction, Region(main.rows, 1), [main]), kinds)
    if pattern == "same":
        return DrawnRegions(_by_role(instruction, main, [main]), kinds)
    table = _OTHER_ANY if pattern == "partial_any" else _OTHER
    other, other_kinds = _other(xp, words[:, 1], main, shape, table)
    swap = (words[:, 1, 3] & 1) == 1
    dst, first, second = main, _where(xp, swap, other, main), _where(xp, swap, main, other)
    if undefined == "zero":
        dst, first, second, other_kinds = _open(xp, words[:, 2], shape, (dst, first, second), other_kinds)
    return DrawnRegions(_by_role(instruction, dst, [first, second]), {**kinds, **other_kinds})


def _by_role(instruction: Instruction, dst: Region, sources: list[Region]) -> dict[str, Region]:
    """An index tile has the region of its value tile, which stands at the same place."""
    regions = {o.name: dst for o in instruction.dsts}
    for kind in Kind:
        operands = [o for o in instruction.sources if o.kind is kind]
        for place, operand in enumerate(operands):
            regions[operand.name] = sources[min(place, len(sources) - 1)]
    return regions


def _count(word: Any, limit: Any) -> Any:
    """Counts of 0 to ``limit`` from words of 32 bits."""
    return (word * (limit + 1)) >> 32


def _kinds(xp: Any, word: Any, table: dict[str, int]) -> tuple[Any, dict[str, Any]]:
    """The place in ``table`` of each tile's kind, and how many tiles have it."""
    ends = list(itertools.accumulate(table.values()))[:-1]
    slot = word & 63
    # A sum of comparisons, for a table would have to be brought to the device.
    chosen = sum((xp.astype(slot >= end, xp.int64) for end in ends), xp.zeros_like(slot))
    found = chosen[:, None] == xp.arange(len(table), dtype=xp.int64, device=word.device)[None, :]
    return chosen, dict(zip(table, xp.sum(found, axis=0, dtype=xp.int64), strict=True))


def _region(xp: Any, rows: Any, cols: Any) -> Region:
    return Region(xp.astype(rows, xp.int32), xp.astype(cols, xp.int32))


def _where(xp: Any, mask: Any, a: Region, b: Region) -> Region:
    return _region(xp, xp.where(mask, a.rows, b.rows), xp.where(mask, a.cols, b.cols))


def _main(
    xp: Any, words: Any, shape: tuple[int, int], step: int, *, may_be_empty: bool
) -> tuple[Region, dict[str, Any]]:
    rows, cols = shape
    table = dict(_MAIN)
    if not may_be_empty:
        table["random"] += table.pop("empty")
    chosen, kinds = _kinds(xp, words[:, 0], table)
    random_rows, random_cols = 1 + _count(words[:, 1], rows - 1), 1 + _count(words[:, 2], cols - 1)
    edges = 1 + _count(words[:, 2], max(cols // step - 1, 0))
    off_edge = xp.clip(edges * step + 2 * (words[:, 3] & 1) - 1, 1, cols)
    nothing = words[:, 3] % 3  # 0: no row, 1: no column, 2: neither
    none = xp.zeros_like(random_rows)
    choices = {
        "full": (none + rows, none + cols),
        "random": (random_rows, random_cols),
        "one row": (none + 1, random_cols),
        "one column": (random_rows, none + 1),
        "one off a 32-byte edge": (random_rows, off_edge),
        "empty": (xp.where(nothing == 1, random_rows, none), xp.where(nothing == 0, random_cols, none)),
    }
    return _choose(xp, chosen, [choices[name] for name in table]), kinds


def _choose(xp: Any, chosen: Any, choices: list[tuple[Any, Any]]) -> Region:
    place = chosen[None, :]
    rows, cols = (xp.take_along_axis(xp.stack(counts), place, axis=0)[0] for counts in zip(*choices, strict=True))
    return _region(xp, rows, cols)


def _other(
    xp: Any, words: Any, main: Region, shape: tuple[int, int], table: dict[str, int]
) -> tuple[Region, dict[str, Any]]:
    rows, cols = shape
    chosen, kinds = _kinds(xp, words[:, 0], table)
    row, col = words[:, 1], words[:, 2]
    main_rows, main_cols = xp.astype(main.rows, xp.int64), xp.astype(main.cols, xp.int64)
    none = xp.zeros_like(row)
    fewer_rows, fewer_cols = (_count(w, xp.clip(n - 1, 0, None)) for w, n in ((row, main_rows), (col, main_cols)))
    more_rows = xp.clip(main_rows + 1 + _count(row, rows), 0, rows)
    more_cols = xp.clip(main_cols + 1 + _count(col, cols), 0, cols)
    odd = (row & 1) == 1
    choices = {
        "other equal": (main_rows, main_cols),
        "other shorter in rows": (fewer_rows, main_cols),
        "other shorter in columns": (main_rows, fewer_cols),
        "other shorter in both": (fewer_rows, fewer_cols),
        "other inside": (_count(row, main_rows), _count(col, main_cols)),
        "other empty": (xp.where(odd, none, main_rows), xp.where(odd, main_cols, none)),
        "other longer in rows": (more_rows, main_cols),
        "other longer in columns": (main_rows, more_cols),
        "other longer in both": (more_rows, more_cols),
        "other anywhere": (_count(row, rows), _count(col, cols)),
    }
    return _choose(xp, chosen, [choices[name] for name in table]), kinds


def _open(
    xp: Any, words: Any, shape: tuple[int, int], regions: tuple[Region, Region, Region], kinds: dict[str, Any]
) -> tuple[Region, Region, Region, dict[str, Any]]:
    """One tile in eight with three arbitrary regions."""
    here = words[:, 0] < 1 << 29
    result = []
    for i, region in enumerate(regions, 1):
        low, high = (words[:, i] & 0xFFFF) << 16, words[:, i] & 0xFFFF0000
        result.append(_where(xp, here, _region(xp, _count(low, shape[0]), _count(high, shape[1])), region))
    return result[0], result[1], result[2], {**kinds, _OPEN: xp.sum(here, dtype=xp.int64)}
