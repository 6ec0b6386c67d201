"""The CPU backend against vectorised NumPy, against the copy bandwidth, and on one tile.

Run as ``python bench/cpu_targets.py``. Every ratio is of medians from this one run; the copy is timed next to what it
is compared with. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from baseline import BASELINES
from workload import Workload, make

from pto_gpu.intrinsics import intrinsics
from pto_gpu.isa import instruction, instructions

# The targets: speed-up over NumPy on random regions, fraction of the copy on full f32 tiles.
SPEED_UP = {("TPARTMIN", "f32"): 20.0, "TROWMIN": 10.0, None: 15.0}
FRACTION_OF_COPY = 0.7
ONE_TILE_MICROSECONDS = 25.0


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Median over ``repeats`` runs after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copy_seconds(work: Workload) -> tuple[float, int]:
    """Time of a plain copy of the first source, and the bytes that it moves."""
    source = work.tiles[work.instruction.assembly[0]].data
    target = np.zeros_like(source)
    return seconds(lambda: np.copyto(target, source), 5), 2 * source.nbytes


def call(work: Workload) -> Callable[[], object]:
    """One call of the instruction in place on its tiles."""
    intrinsic = intrinsics()[work.instruction.name]
    return lambda: intrinsic(**work.tiles, backend="cpu")


def wanted_speed_up(work: Workload) -> float:
    """The target for this instruction and element type."""
    name = work.instruction.name
    return SPEED_UP.get((name, work.signature[0]), SPEED_UP.get(name, SPEED_UP[None]))


def compare(batch: int, names: list[str]) -> bool:
    """Measure and print a row for each instruction and element type; whether every target is met."""
    row = "{:22} {:>9} {:>8} {:>18} {:>16}  {}"
    print(f"{batch} tiles of 32x32; speed-up on random valid regions, fraction of the copy on full tiles")
    print(row.format("instruction", "NumPy ms", "cpu ms", "speed-up", "of the copy", "met"))
    met = True
    for name, record in instructions().items():
        if names and name.lower() not in names:
            continue
        for signature in record.element_types["a5"]:
            work = make(record, signature, batch, 32, 32, "random")
            baseline = BASELINES[record.family, record.combine]
            slow = seconds(lambda b=baseline, w=work: b(**w.tiles), 1)
            fast = seconds(call(work), 7)
            full = work.full()
            copied, copied_bytes = copy_seconds(full)
            fraction = full.nbytes / seconds(call(full), 7) / (copied_bytes / copied)
            speed_up, wanted = slow / fast, wanted_speed_up(work)
            fraction_counts = signature[0] == "f32"
            good = speed_up >= wanted and (fraction >= FRACTION_OF_COPY or not fraction_counts)
            met &= good
            shown = f"{fraction:.2f}" + (f" (of {FRACTION_OF_COPY})" if fraction_counts else "")
            times = (f"{slow * 1e3:.0f}", f"{fast * 1e3:.1f}", f"{speed_up:.1f} (of {wanted:g})")
            print(row.format(work.label, *times, shown, "yes" if good else "NO"), flush=True)
    return met


def one_tile(names: list[str]) -> list[tuple[str, float]]:
    """Microseconds of one call on one 16x16 f32 tile, checks included: the best of seven rounds of 2000."""
    results = []
    for name, record in instructions().items():
        if names and name.lower() not in names:
            continue
        signature = next(s for s in record.element_types["a5"] if s[0] == "f32")
        run = call(make(record, signature, 1, 16, 16, "full"))
        run()
        rounds = []
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(2000):
                run()
            rounds.append((time.perf_counter() - start) / 2000 * 1e6)
        results.append((name, min(rounds)))
    return results


def main() -> int:
    """Print the table; exit status 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instructions", nargs="*", help="default: all")
    parser.add_argument("--tiles", type=int, default=100_000)
    arguments = parser.parse_args()
    names = [name.lower() for name in arguments.instructions]
    for name in names:
        instruction(name)
    met = compare(arguments.tiles, names)
    for name, microseconds in one_tile(names):
        met &= microseconds <= ONE_TILE_MICROSECONDS
        print(f"one 16x16 f32 tile, {name}: {microseconds:.1f} us (target {ONE_TILE_MICROSECONDS:g})")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
