"""What the CPU backend is to reach, and whether a run shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pto_gpu.bench.providers import CPU, NUMPY
from pto_gpu.bench.results import Row, Run
from pto_gpu.bench.table import FULL, ONE, TYPES, USUAL_TYPE
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Family

#: Speed-up over vectorised NumPy on random valid regions: by family and element type, by family, for the rest.
SPEED_UP: Final = {(Family.PARTIAL, "f32"): 20.0, (Family.ROW_REDUCE, None): 10.0, (None, None): 15.0}
#: Of a plain array copy (one thread) in the same run, on full tiles of the usual type.
OF_COPY: Final = 0.7
ONE_TILE_SECONDS: Final = 25e-6
#: Tiles that the speed-up is promised for: fewer lie in caches, where NumPy's temporaries cost less.
LEAST_TILES: Final = 100_000


class Goal(NamedTuple):
    """One target. ``at_least``: whether ``seen`` must be ``wanted`` or more, else or less."""

    what: str
    seen: float
    wanted: float
    unit: str
    at_least: bool

    @property
    def met(self) -> bool:
        """Whether the run shows it."""
        return self.seen >= self.wanted if self.at_least else self.seen <= self.wanted


def speed_ups(run: Run, sweep: str, provider: str) -> dict[tuple[str, str], float]:
    """How many times faster than vectorised NumPy, by instruction and element types."""
    times = {(r.instruction, r.elements, r.provider): r.time.seconds for r in run.of_sweep(sweep)}
    return {
        (name, elements): times[name, elements, NUMPY] / seconds
        for (name, elements, by), seconds in times.items()
        if by == provider and (name, elements, NUMPY) in times
    }


def wanted_speed_up(name: str, elements: str) -> float | None:
    """The target for an instruction, or None for one that this version does not know."""
    record = instructions().get(name)
    if record is None:
        return None
    keys = ((record.family, elements.partition("/")[0]), (record.family, None), (None, None))
    return next(SPEED_UP[key] for key in keys if key in SPEED_UP)


def goals_of(run: Run) -> list[Goal]:
    """Every target that the run says something about."""
    return [*_speed_up_goals(run), *_copy_goals(run), *_one_tile_goals(run), *_start_up_goals(run)]


def _speed_up_goals(run: Run) -> Iterator[Goal]:
    large = [r for r in run.of_sweep(TYPES) if r.batch >= LEAST_TILES]
    kept = {(r.instruction, r.elements) for r in large}
    for (name, elements), seen in speed_ups(run, TYPES, CPU).items():
        wanted = wanted_speed_up(name, elements)
        if wanted is not None and (name, elements) in kept:
            yield Goal(f"{name} {elements}: times faster than NumPy", seen, wanted, "x", True)


def _copy_goals(run: Run) -> Iterator[Goal]:
    for row in run.of_sweep(FULL):
        seen = row.of_copy(row.copy.plain)
        if row.provider == CPU and _usual(row) and seen is not None and row.batch >= LEAST_TILES:
            yield Goal(f"{row.instruction} {row.elements}: of a plain copy, full tiles", seen, OF_COPY, "", True)


def _one_tile_goals(run: Run) -> Iterator[Goal]:
    for row in run.of_sweep(ONE):
        if row.provider == CPU:
            what = f"{row.instruction} {row.elements}: one {row.rows}x{row.cols} tile"
            yield Goal(what, row.time.seconds * 1e6, ONE_TILE_SECONDS * 1e6, "us", False)


def _start_up_goals(run: Run) -> Iterator[Goal]:
    for start in run.startup:
        if start.wanted is not None:
            yield Goal(start.name, start.time.seconds, start.wanted, "s", False)


def _usual(row: Row) -> bool:
    return row.elements.partition("/")[0] == USUAL_TYPE
