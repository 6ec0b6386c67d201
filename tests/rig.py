"""Runs one call on tiles that lie in larger poisoned arrays, and compares every byte with the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import oracle
import pytest
from conftest import Backend
from special_values import draw, uint

import pto_gpu as pto
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction, Kind, Role

POISON = 0x5A
#: A valid region for each tile: rows and columns, int32[batch].
Region = tuple[np.ndarray, np.ndarray]


class Case(NamedTuple):
    """An instruction with element types."""

    record: Instruction
    signature: tuple[str, ...]

    def kind(self, operand: str) -> Kind:
        return next(o.kind for o in self.record.operands if o.name == operand)

    def dtype(self, operand: str) -> str:
        return {Kind.VALUE: self.signature[0], Kind.INDEX: self.signature[-1], Kind.SCRATCH: self.signature[0]}[
            self.kind(operand)
        ]

    @property
    def operands(self) -> list[str]:
        """Without tmp."""
        return [o.name for o in self.record.operands if o.role is not Role.TMP]

    @property
    def sources(self) -> list[str]:
        return [o.name for o in self.record.sources]

    @property
    def dsts(self) -> list[str]:
        return [o.name for o in self.record.dsts]


def cases(target: str = "a5", pattern: str | None = None) -> list[Any]:
    """Every instruction and element type of a target, as pytest parameters."""
    return [
        pytest.param(Case(record, signature), id=f"{name}-{'-'.join(signature)}")
        for name, record in instructions().items()
        for signature in record.element_types[target]
        if pattern is None or record.valid_pattern.startswith(pattern)
    ]


def legal(dtype: str, extent: int) -> int:
    """The smallest extent of at least ``extent`` elements that fills 32-byte blocks."""
    step = 256 // (np.dtype(uint(dtype)).itemsize * 8)
    return -(-extent // step) * step


def tile_type(dtype: str, rows: int, cols: int, layout: str = "ND") -> pto.TileBufType:
    """A legal type that holds at least ``rows x cols``."""
    if layout == "DN":
        return pto.TileBufType(dtype, legal(dtype, rows), cols, blayout="col_major")
    return pto.TileBufType(dtype, rows, legal(dtype, cols))


def types_for(
    case: Case, rows: int, cols: int, *, grow: bool = False, layouts: str | Mapping[str, str] = "ND"
) -> dict[str, pto.TileBufType]:
    """A type for each operand. ``grow``: every operand gets another capacity and row stride."""
    types = {}
    for k, name in enumerate(case.operands):
        layout = layouts if isinstance(layouts, str) else layouts.get(name, "ND")
        r, c = (rows + (5 * k) % 7, cols + 16 * ((3 * k) % 5)) if grow else (rows, cols)
        if name == "dst" and case.record.family == "row_reduce":
            c = 1
        types[name] = tile_type(case.dtype(name), r, c, layout)
    return types


def poisoned(count: int, rows: int, cols: int, dtype: Any) -> np.ndarray:
    """An array whose every byte is POISON."""
    return np.full((count, rows, cols * np.dtype(dtype).itemsize), POISON, np.uint8).view(dtype)


class Slab:
    """A batch of tiles inside a larger array: one more row, and ``margin`` more columns."""

    def __init__(self, ty: pto.TileBufType, bits: np.ndarray, device: str = "cpu", margin: int = 16) -> None:
        self.type = ty
        column_major = ty.blayout == "col_major"
        major, minor = (ty.cols, ty.rows) if column_major else (ty.rows, ty.cols)
        base = poisoned(len(bits), major + 1, minor + margin, uint(ty.dtype))
        base[:, :major, :minor] = bits.swapaxes(1, 2) if column_major else bits
        self._window = (slice(None), slice(0, major), slice(0, minor))
        self._column_major = column_major
        self.before = base.copy()
        self._base: Any = base
        if device != "cpu":
            import torch

            self._base = torch.from_numpy(base.view(np.uint8)).to(device)

    def tiles(self, rows: Any, cols: Any, ty: pto.TileBufType | None = None) -> pto.TileBuf:
        """The tiles; ``ty`` is another type for the same memory, with elements of the same size."""
        ty = ty or self.type
        if isinstance(self._base, np.ndarray):
            view: Any = self._base.view(ty.element.numpy)
        else:
            import torch

            view = self._base.view(getattr(torch, ty.element.torch_name))
        view = view[self._window]
        return pto.TileBuf.from_array(view.swapaxes(1, 2) if self._column_major else view, ty, rows, cols)

    def inside(self, base: np.ndarray) -> np.ndarray:
        """The tiles of an array that is laid out like this slab's."""
        window = base[self._window]
        return window.swapaxes(1, 2) if self._column_major else window

    def after(self) -> np.ndarray:
        """Every bit of the larger array, now."""
        if isinstance(self._base, np.ndarray):
            return self._base
        host: np.ndarray = self._base.cpu().numpy()
        return host.view(self.before.dtype)


def expected(
    case: Case, bits: Mapping[str, np.ndarray], regions: Mapping[str, Region], rules: oracle.Rules
) -> dict[str, np.ndarray]:
    """What the oracle makes of each dst, elements outside the valid region as they were."""
    results = {name: bits[name].copy() for name in case.dsts}
    for t in range(len(bits[case.operands[0]])):
        tiles = {n: oracle.Tile(bits[n][t].tolist(), int(regions[n][0][t]), int(regions[n][1][t])) for n in bits}
        oracle.ORACLES[case.record.name](case.signature[0], rules, **tiles)
        for name in case.dsts:
            results[name][t] = tiles[name].bits
    return results


def per_tile(regions: Mapping[str, tuple[int, int]], batch: int) -> dict[str, Region]:
    return {n: (np.full(batch, r, np.int32), np.full(batch, c, np.int32)) for n, (r, c) in regions.items()}


def rules_of(numerics: Any) -> oracle.Rules:
    if isinstance(numerics, str):
        return oracle.RULE_SETS[numerics]
    return oracle.Rules(numerics.nan, numerics.tie, numerics.zero)


def check(
    case: Case,
    types: Mapping[str, pto.TileBufType],
    bits: Mapping[str, np.ndarray],
    regions: Mapping[str, Region],
    backend: Backend,
    *,
    numerics: Any = "isa",
    uniform: bool = False,
    **keywords: Any,
) -> None:
    """Run ``case`` and compare all memory, bit for bit, with the oracle."""
    slabs = {n: Slab(types[n], bits[n], backend.device, margin=16 + 32 * k) for k, n in enumerate(case.operands)}
    tiles = []
    for name in case.operands:
        rows, cols = regions[name]
        tiles.append(slabs[name].tiles(int(rows[0]), int(cols[0])) if uniform else slabs[name].tiles(rows, cols))
    result = getattr(pto, case.record.name)(*tiles, backend=backend.name, numerics=numerics, **keywords)
    returned = result if isinstance(result, tuple) else (result,)
    written = [tile for tile, name in zip(tiles, case.operands, strict=True) if name in case.dsts]
    assert all(a is b for a, b in zip(returned, written, strict=True))
    wanted = expected(case, bits, regions, rules_of(numerics))
    for name, slab in slabs.items():
        want = slab.before.copy()
        if name in wanted:
            slab.inside(want)[...] = wanted[name]
        assert_same(slab.after(), want, f"{case.record.name} {name} {types[name]} {numerics}")


def assert_same(seen: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """Equal bit for bit, or the first differences in hex."""
    seen, wanted = as_bits(seen), as_bits(wanted)
    assert seen.shape == wanted.shape, what
    wrong = np.argwhere(seen != wanted)
    lines = [f"{at.tolist()}: seen {seen[tuple(at)]:#x}, expected {wanted[tuple(at)]:#x}" for at in wrong[:5]]
    assert not lines, f"{what}: {len(wrong)} elements differ\n" + "\n".join(lines)


def as_bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.itemsize}")


def draw_bits(
    rng: np.random.Generator, case: Case, types: Mapping[str, pto.TileBufType], batch: int
) -> dict[str, np.ndarray]:
    """Random content for every operand; values of later sources often repeat those of the first (ties)."""
    bits = {n: draw(rng, ty.dtype, (batch, ty.rows, ty.cols)) for n, ty in types.items()}
    values = [n for n in case.sources if case.kind(n) is Kind.VALUE]
    for name in values[1:]:
        a, b = bits[values[0]], bits[name]
        rows, cols = (min(a.shape[axis], b.shape[axis]) for axis in (1, 2))
        same = rng.random((batch, rows, cols)) < 0.3
        b[:, :rows, :cols] = np.where(same, a[:, :rows, :cols], b[:, :rows, :cols])
    return bits


def full_regions(case: Case, types: Mapping[str, pto.TileBufType], batch: int) -> dict[str, Region]:
    """The largest legal region that all operands hold."""
    rows = min(ty.rows for ty in types.values())
    cols = min(types[n].cols for n in (case.sources if case.record.valid_pattern == "rows" else case.operands))
    counts = {n: (rows, 1 if case.record.valid_pattern == "rows" and n in case.dsts else cols) for n in types}
    return per_tile(counts, batch)


def legal_regions(
    rng: np.random.Generator, case: Case, types: Mapping[str, pto.TileBufType], batch: int
) -> dict[str, Region]:
    """Random regions that the page defines, following the record's valid pattern; full, empty and 1 are frequent."""
    regions = [dict(_legal_regions(rng, case, types)) for _ in range(batch)]
    return {
        name: (
            np.array([r[name][0] for r in regions], np.int32),
            np.array([r[name][1] for r in regions], np.int32),
        )
        for name in types
    }


def _extent(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.choice([low, min(1, high), high, max(low, high - 1), rng.integers(low, high + 1)]))


def _legal_regions(
    rng: np.random.Generator, case: Case, types: Mapping[str, pto.TileBufType]
) -> Iterator[tuple[str, tuple[int, int]]]:
    pattern = case.record.valid_pattern
    rows, cols = (min(getattr(ty, field) for ty in types.values()) for field in ("rows", "cols"))
    if pattern == "rows":
        src, dst = types["src"], types["dst"]
        height = _extent(rng, 1, min(src.rows, dst.rows))
        yield "src", (height, _extent(rng, 1, src.cols))
        yield "dst", (height, _extent(rng, 1, dst.cols))
        return
    whole = (_extent(rng, 0, rows), _extent(rng, 0, cols))
    if pattern == "same":
        yield from ((name, whole) for name in types)
        return
    limits = (rows, cols) if pattern == "partial_any" else whole
    part = (_extent(rng, 0, limits[0]), _extent(rng, 0, limits[1]))
    first = bool(rng.integers(2))
    for name in types:
        of = name.partition("_")[0]
        yield name, {"dst": whole, "src0": whole if first else part, "src1": part if first else whole}[of]
