"""What is measured, as data: sweeps over instructions, element types, shapes, valid regions, batches and providers.

The instructions and their element types are those of the records; none is named here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pto_gpu.bench.providers import COMPILED, CPU, LOOP, NUMPY, PROVIDERS, TRITON
from pto_gpu.cores import available_cores
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction

#: The element type of a sweep that takes one; an instruction that does not have it is measured on its first.
USUAL_TYPE: Final = "f32"
TARGET: Final = "a5"


@dataclass(frozen=True)
class Sweep:
    """Every combination of what stands here.

    ``every_type``: all element types that an instruction has, or one. ``shapes``: rows and columns. ``elements``: of an
    operand, from which the batch follows where ``batches`` does not say it. ``each_thread``: with one thread of the cpu
    backend, two, and so on; else with all. ``memory``: what a call takes beside its operands is measured too.
    """

    name: str
    what: str
    providers: tuple[str, ...]
    regions: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    batches: tuple[int, ...] = ()
    elements: int = 0
    every_type: bool = False
    each_thread: bool = False
    memory: bool = False


TYPES, FULL, RIVALS, REGION, SIZE, BATCH, THREADS, ONE = (
    "types", "full tiles", "providers", "valid regions", "tile size", "batch", "threads", "one tile"
)  # fmt: skip

SWEEPS: Final = (
    Sweep(TYPES, "every type", (NUMPY, CPU, TRITON), ("random",), ((32, 32),), (100_000,), every_type=True),
    Sweep(FULL, "every type, full tiles", (CPU, TRITON), ("full",), ((32, 32),), (100_000,), every_type=True),
    Sweep(RIVALS, "every provider", tuple(PROVIDERS), ("random",), ((32, 32),), (10_000,)),
    Sweep(REGION, "full and tiny regions", (LOOP, NUMPY, CPU, TRITON), ("full", "tiny"), ((32, 32),), (10_000,)),
    Sweep(
        SIZE,
        "full tiles of growing size",
        (CPU, TRITON),
        ("full",),
        tuple((n, n) for n in (8, 16, 32, 64, 128, 256)),
        elements=1 << 25,
    ),
    Sweep(
        BATCH,
        "from one tile to a million",
        (NUMPY, CPU, TRITON),
        ("random",),
        ((8, 8),),
        tuple(10**n for n in range(7)),
        memory=True,
    ),
    Sweep(THREADS, "threads of the cpu backend", (CPU,), ("random",), ((32, 32),), (100_000,), each_thread=True),
    Sweep(ONE, "one call on one tile, checks included", (CPU, TRITON), ("full",), ((16, 16),), (1,)),
)

#: ``--quick`` takes this part of the largest batch and of the elements, and leaves out who needs long to get ready.
QUICK_BATCH: Final = 0.1
QUICK_ELEMENTS: Final = 0.5
QUICK_WITHOUT: Final = (COMPILED,)


@dataclass(frozen=True)
class Group:
    """What is measured on the same tiles, in the same minute, next to a copy."""

    sweep: str
    instruction: str
    signature: tuple[str, ...]
    rows: int
    cols: int
    regions: str
    batch: int
    providers: tuple[str, ...]
    threads: int | None = None
    memory: bool = False

    @property
    def label(self) -> str:
        """For a progress bar."""
        return f"{self.sweep}: {self.instruction} {'/'.join(self.signature)} {self.rows}x{self.cols} x {self.batch}"


def quick(sweep: Sweep) -> Sweep:
    """The same with fewer tiles and providers."""
    largest = max(1, int(max(sweep.batches, default=1) * QUICK_BATCH))
    return dataclasses.replace(
        sweep,
        batches=tuple(b for b in sweep.batches if b <= largest) or (largest,) * bool(sweep.batches),
        elements=int(sweep.elements * QUICK_ELEMENTS),
        providers=tuple(p for p in sweep.providers if p not in QUICK_WITHOUT),
    )


def signatures_of(record: Instruction, every_type: bool) -> tuple[tuple[str, ...], ...]:
    """The element types to measure: all of them, or the usual one."""
    allowed = record.element_types[TARGET]
    if every_type:
        return allowed
    return (next((s for s in allowed if s[0] == USUAL_TYPE), allowed[0]),)


def groups(
    sweeps: Sequence[Sweep],
    chosen: Sequence[tuple[str, tuple[str, ...]]] | None = None,
    *,
    gpu: bool = False,
) -> Iterator[Group]:
    """The sweeps written out. ``chosen``: instructions and element types, default all; ``gpu``: whether there is one.

    A sweep over one element type takes the first chosen one of an instruction where the usual one is not chosen.
    """
    for sweep in sweeps:
        providers = tuple(p for p in sweep.providers if gpu or not PROVIDERS[p].on_gpu)
        threads = range(1, available_cores() + 1) if sweep.each_thread else (None,)
        for name, record in instructions().items():
            signatures = _chosen_signatures(name, record, sweep.every_type, chosen)
            for signature, (rows, cols) in itertools.product(signatures, sweep.shapes):
                batches = sweep.batches or (max(1, sweep.elements // (rows * cols)),)
                for batch, region, n in itertools.product(batches, sweep.regions, threads):
                    where = (rows, cols, region, batch)
                    yield Group(sweep.name, name, signature, *where, providers, n, sweep.memory)


def _chosen_signatures(
    name: str, record: Instruction, every_type: bool, chosen: Sequence[tuple[str, tuple[str, ...]]] | None
) -> Sequence[tuple[str, ...]]:
    usual = signatures_of(record, every_type)
    if chosen is None:
        return usual
    mine = [signature for op, signature in chosen if op == name]
    return [s for s in usual if s in mine] or (mine if every_type else mine[:1])
