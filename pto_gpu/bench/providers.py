"""Who computes an instruction in a benchmark: NumPy in three ways, torch in two, and the fast backends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pto_gpu.backends.numpy import evaluate
from pto_gpu.bench.baseline import LOOPS, VECTORISED, Baselines
from pto_gpu.bench.workload import Workload
from pto_gpu.defaults import current_options
from pto_gpu.intrinsics import execute, intrinsics
from pto_gpu.numerics import resolve_numerics
from pto_gpu.regions import Region
from pto_gpu.types import ELEMENT_TYPES

Run = Callable[[], object]
#: Tiles whose dst is compared with the reference before anything is timed.
CHECKED_TILES: Final = 256


@dataclass(frozen=True)
class Provider:
    """``prepare(work)`` makes a call without arguments that computes ``work`` in place, or None where it has no code.

    ``on_gpu``: the tiles must lie on a GPU.
    """

    name: str
    what: str
    prepare: Callable[[Workload], Run | None]
    on_gpu: bool = False


def _written_by_hand(baselines: Baselines) -> Callable[[Workload], Run | None]:
    def prepare(work: Workload) -> Run | None:
        function = baselines.get((work.instruction.family, work.instruction.combine))
        if function is None:
            return None
        return functools.partial(function, **work.tiles)

    return prepare


def _backend(name: str) -> Callable[[Workload], Run | None]:
    def prepare(work: Workload) -> Run | None:
        intrinsic: Callable[..., object] = intrinsics()[work.instruction.name]
        return functools.partial(intrinsic, **work.tiles, backend=name)

    return prepare


def _reference_on_torch(compiled: bool) -> Callable[[Workload], Run | None]:
    def prepare(work: Workload) -> Run | None:
        import torch
        from array_api_compat import torch as xp

        element, rules = ELEMENT_TYPES[work.signature[0]], resolve_numerics("isa")
        # torch has next to nothing for u16 and u32: the formulas take the bits of unsigned elements as signed ones.
        arrays = {name: _signed(tile.torch()) for name, tile in work.tiles.items()}
        regions = {
            name: Region(*(n if isinstance(n, int) else torch.tensor(n, device=tile.device) for n in tile.region))
            for name, tile in work.tiles.items()
        }

        def run() -> None:
            evaluate(xp, work.instruction, rules, element, arrays, regions)

        return torch.compile(run, dynamic=False) if compiled else run

    return prepare


def _torch_operator(work: Workload) -> Run | None:
    import torch

    import pto_gpu.torch_ops  # noqa: F401  (registers the operators)

    record = work.instruction
    names = [o.name for o in record.dsts] + list(record.assembly)
    tensors = [work.tiles[name].torch() for name in names]
    for group in record.region_groups:
        tile = work.tiles[group[0]]
        counts = [np.broadcast_to(n, tile.batch) for n in tile.region]
        tensors.append(torch.tensor(np.stack(counts, 1), dtype=torch.int32, device=tile.device))
    return functools.partial(getattr(torch.ops.pto, f"{record.name.lower()}_out"), *tensors)


def _signed(x: Any) -> Any:
    import torch

    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32}.get(x.dtype)
    if x.dtype == torch.uint8:
        signed = torch.int8
    return x if signed is None else x.view(signed)


LOOP, NUMPY, REFERENCE = "numpy loop", "numpy", "reference"
EAGER, COMPILED, OPERATOR, CPU, TRITON = "torch", "torch.compile", "torch operator", "cpu", "triton"

#: In the order in which they are shown.
PROVIDERS: Final = {
    p.name: p
    for p in (
        Provider(LOOP, "NumPy, one tile after the other", _written_by_hand(LOOPS)),
        Provider(NUMPY, "vectorised NumPy, as a user would write it: the baseline", _written_by_hand(VECTORISED)),
        Provider(REFERENCE, "the reference of this package, on NumPy", _backend("numpy")),
        Provider(EAGER, "the reference on torch", _reference_on_torch(compiled=False)),
        Provider(COMPILED, "the reference on torch, compiled", _reference_on_torch(compiled=True)),
        Provider(OPERATOR, "the torch operator, eager, on the cpu backend", _torch_operator),
        Provider(CPU, "the cpu backend", _backend("cpu")),
        Provider(TRITON, "the triton backend", _backend("triton"), on_gpu=True),
    )
}


def difference(run: Run, work: Workload) -> str | None:
    """Run once; where dst of the first tiles is not what the reference computes (no operand has a NaN), say so."""
    for operand in work.instruction.dsts:
        work.tiles[operand.name].data[:CHECKED_TILES] = 0
    expected = work.head(CHECKED_TILES)
    run()
    seen = work.head(CHECKED_TILES)
    execute(work.instruction, expected, current_options().override(backend="numpy"))
    for operand in work.instruction.dsts:
        differ = (seen[operand.name].data != expected[operand.name].data).any(axis=(1, 2))
        if differ.any():
            return (
                f"{operand.name} is not what the reference computes in {int(differ.sum())} of the first {len(differ)} "
                f"tiles, first tile {int(np.argmax(differ))}"
            )
    return None
