"""A run as tables of text: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pto_gpu.bench.goals import LEAST_TILES, goals_of, speed_ups, wanted_speed_up
from pto_gpu.bench.providers import CPU, NUMPY, PROVIDERS
from pto_gpu.bench.results import Row, Run
from pto_gpu.bench.table import BATCH, FULL, ONE, REGION, RIVALS, SIZE, THREADS, TYPES
from pto_gpu.bench.timing import Timed, slope


class Table(NamedTuple):
    """Text in columns. ``columns`` that start with ``<`` are to the left, the others to the right."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


#: Tiles from which the slope of time against batch is taken: fewer cost less than the call itself.
SLOPE_FROM = 1000

_SPREAD = "Times are medians, ± half the range of the middle half of the samples."


def tables(run: Run) -> list[Table]:
    """Every table that the run has rows for."""
    made = (
        types_table(run),
        _by_provider(run, RIVALS),
        _by_provider(run, REGION),
        _sizes(run),
        _batches(run),
        _threads(run),
        overhead_table(run),
    )
    return [table for table in made if table.rows]


def types_table(run: Run) -> Table:
    """Every element type: against vectorised NumPy on random regions, against the copy on full tiles."""
    full = {(r.instruction, r.elements, r.provider): r for r in run.of_sweep(FULL)}
    rows = []
    for row in run.of_sweep(TYPES):
        if row.provider == NUMPY:
            continue
        key = (row.instruction, row.elements)
        faster = speed_ups(run, TYPES, row.provider).get(key)
        baseline = next(
            (r for r in run.of_sweep(TYPES) if (r.instruction, r.elements, r.provider) == (*key, NUMPY)), None
        )
        rows.append(
            (
                f"{row.instruction} {row.elements}",
                row.provider,
                milliseconds(baseline.time) if baseline else "-",
                milliseconds(row.time),
                "-" if faster is None else f"{faster:.1f}",
                _verdict(row, faster),
                *_fractions(full.get((*key, row.provider))),
            )
        )
    note = (
        f"{_shape_text(run.of_sweep(TYPES))}, random valid regions; the fractions of the copy on full tiles. {_SPREAD} "
        "Plain copy: np.copyto of one operand, one thread; fastest copy: as many threads as the backend has."
    )
    columns = ("<instruction", "<by", "NumPy ms", "ms", "times faster", "<target", "of plain copy", "of fastest copy")
    return Table("Against vectorised NumPy and against a copy", note, columns, rows)


def summary_table(run: Run) -> Table:
    """One row for each instruction: the least and the most of its element types, on the cpu backend."""
    faster = speed_ups(run, TYPES, CPU)
    full = [r for r in run.of_sweep(FULL) if r.provider == CPU]
    one = {r.instruction: r.time for r in run.of_sweep(ONE) if r.provider == CPU}
    slopes = {
        key[0]: batch_slope(group)
        for key, group in _grouped([r for r in run.of_sweep(BATCH) if r.provider == CPU], lambda r: (r.instruction,))
    }
    rows = []
    for name in dict.fromkeys(name for name, _ in faster):
        ratios = sorted((ratio, elements) for (op, elements), ratio in faster.items() if op == name)
        copied = sorted(f for r in full if r.instruction == name and (f := r.of_copy(r.copy.plain)) is not None)
        rows.append(
            (
                name,
                " to ".join(dict.fromkeys(f"{ratio:.0f} ({elements})" for ratio, elements in (ratios[0], ratios[-1]))),
                " to ".join(dict.fromkeys(fraction(f) for f in (copied[:1] + copied[-1:]))) or "-",
                f"{microseconds(one[name])} us" if name in one else "-",
                "-" if (exponent := slopes.get(name)) is None else f"{exponent:.2f}",
            )
        )
    columns = ("<instruction", "times faster than NumPy", "of a plain copy, full tiles", "one small tile", "slope")
    shape = _shape_text(run.of_sweep(TYPES))
    note = (
        f"The cpu backend on {shape}, random valid regions, against vectorised NumPy: the least and the most of the "
        f"element types. Copy: np.copyto. Small tile: {_shape_text(run.of_sweep(ONE))}. "
        f"Slope: k of time ~ batch^k, from {SLOPE_FROM} tiles on."
    )
    return Table("Summary", note, columns, rows)


def _verdict(row: Row, faster: float | None) -> str:
    wanted = wanted_speed_up(row.instruction, row.elements)
    if row.provider != CPU or faster is None or wanted is None:
        return ""
    if row.batch < LEAST_TILES:
        return f"({wanted:g})"
    return f"{wanted:g} {'met' if faster >= wanted else 'MISSED'}"


def _fractions(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    return fraction(row.of_copy(row.copy.plain)), fraction(row.of_copy(row.fastest_copy))


def _by_provider(run: Run, sweep: str) -> Table:
    found = run.of_sweep(sweep)
    rows = []
    for key, group in _grouped(found, lambda r: (r.instruction, r.elements, r.regions)):
        slow = next((r.time.seconds for r in group if r.provider == NUMPY), None)
        for row in group:
            faster = "-" if slow is None else f"{slow / row.time.seconds:.2f}"
            what = PROVIDERS[row.provider].what if row.provider in PROVIDERS else row.provider
            memory = fraction(row.of_copy(row.fastest_copy))
            rows.append((f"{key[0]} {key[1]}", row.regions, what, milliseconds(row.time), faster, memory))
    title = {RIVALS: "Every way to compute it", REGION: "Full and tiny valid regions"}[sweep]
    note = f"{_shape_text(found)}. Fractions count whole cache lines that hold valid elements."
    columns = ("<instruction", "<regions", "<computed by", "ms", "times NumPy's speed", "of fastest copy")
    return Table(title, note, columns, rows)


def _sizes(run: Run) -> Table:
    found = run.of_sweep(SIZE)
    sizes = list(dict.fromkeys((r.rows, r.cols) for r in found))
    rows = []
    for key, group in _grouped(found, lambda r: (r.instruction, r.elements, r.provider)):
        by_size = {(r.rows, r.cols): fraction(r.of_copy(r.fastest_copy)) for r in group}
        rows.append((f"{key[0]} {key[1]}", key[2], *(by_size.get(size, "-") for size in sizes)))
    columns = ("<instruction", "<by", *(f"{r}x{c}" for r, c in sizes))
    return Table("Fraction of the fastest copy against tile size", "Full tiles, operands of one size.", columns, rows)


def _batches(run: Run) -> Table:
    found = run.of_sweep(BATCH)
    batches = list(dict.fromkeys(r.batch for r in found))
    rows = []
    for key, group in _grouped(found, lambda r: (r.instruction, r.elements, r.provider)):
        times = {r.batch: microseconds(r.time) for r in group}
        extra = group[-1].extra_bytes
        memory = "-" if extra is None else f"{extra / 1e6:.1f}"
        exponent = batch_slope(group)
        shown = "-" if exponent is None else f"{exponent:.3f}"
        rows.append((f"{key[0]} {key[1]}", key[2], *(times.get(n, "-") for n in batches), shown, memory))
    note = (
        f"{_shape_text(found, batch=False)}, us a call. Slope: k of time ~ batch^k from {SLOPE_FROM} tiles on. "
        "MB: memory that the largest call takes beside its operands."
    )
    columns = (
        "<instruction",
        "<by",
        *(f"{n:g}" if n < 1e5 else f"1e{len(str(n)) - 1}" for n in batches),
        "slope",
        "MB",
    )
    return Table("Time against batch", note, columns, rows)


def batch_slope(rows: Iterable[Row]) -> float | None:
    """The exponent of time against batch, from :data:`SLOPE_FROM` tiles on; None for fewer than two batches."""
    large = [r for r in rows if r.batch >= SLOPE_FROM]
    if len({r.batch for r in large}) < 2:
        return None
    return slope([r.batch for r in large], [r.time.seconds for r in large])


def _threads(run: Run) -> Table:
    found = run.of_sweep(THREADS)
    counts = list(dict.fromkeys(r.threads or 0 for r in found))
    rows = []
    for key, group in _grouped(found, lambda r: (r.instruction, r.elements)):
        times = {r.threads or 0: r.time for r in group}
        one = times[counts[0]].seconds
        rows.append((" ".join(key), *(f"{milliseconds(t)} ({one / t.seconds:.2f}x)" for t in times.values())))
    columns = ("<instruction", *(f"{n} thread{'s' if n > 1 else ''}, ms" for n in counts))
    return Table("Threads of the cpu backend", f"{_shape_text(found)}, random valid regions.", columns, rows)


def overhead_table(run: Run) -> Table:
    """One call on one tile, and what is paid before the first result."""
    wanted = {goal.what: goal for goal in goals_of(run)}
    rows = []
    for row in run.of_sweep(ONE):
        what = f"{row.instruction} {row.elements}: one {row.rows}x{row.cols} tile"
        goal = wanted.get(what) if row.provider == CPU else None
        verdict = f"{goal.wanted:g} us {'met' if goal.met else 'MISSED'}" if goal else ""
        rows.append((f"{what}, {row.provider}", f"{microseconds(row.time)} us", verdict))
    for start in run.startup:
        goal = wanted.get(start.name)
        verdict = f"{goal.wanted:g} s {'met' if goal.met else 'MISSED'}" if goal else ""
        rows.append((start.name, f"{start.time.seconds:.3f} s", verdict))
    note = "One call includes every check. Start-up is timed in fresh processes."
    return Table("Overhead", note, ("<what", "median", "<target"), rows)


def goal_lines(run: Run) -> list[str]:
    """How many targets are met, and which are not."""
    goals = goals_of(run)
    if not goals:
        return []
    missed = [g for g in goals if not g.met]
    lines = [f"targets: {len(goals) - len(missed)} of {len(goals)} met"]
    for goal in missed:
        bound = "at least" if goal.at_least else "at most"
        lines.append(
            f"  missed: {goal.what}: {goal.seen:.3g} {goal.unit}".rstrip() + f" (wanted {bound} {goal.wanted:g})"
        )
    return lines


def machine_lines(run: Run) -> list[str]:
    """When and where the run was, and the speed of the copies in it."""
    m = run.machine
    versions = ", ".join(f"{k} {m[k]}" for k in ("pto-gpu", "python", "numpy", "numba", "torch", "triton") if m.get(k))
    gpus = f", {', '.join(m['gpus'])}" if m.get("gpus") else ""
    lines = [f"{run.date}: {m.get('processor')}, {m.get('cores')} cores{gpus}; {versions}"]
    rates = [r.copy.nbytes / r.fastest_copy.seconds / 1e9 for r in run.rows if r.copy.nbytes >= 1 << 26]
    if rates:
        lines.append(f"fastest copy of large operands: {min(rates):.1f} to {max(rates):.1f} GB/s during the run")
    peak = f", at most {run.peak_bytes / 1e6:.0f} MB of memory" if run.peak_bytes else ""
    load = f", load {m['load before']} before and {m['load after']} after" if m.get("load before") is not None else ""
    return [*lines, f"took {run.seconds:.0f} s{peak}{load}"]


def markdown(table: Table) -> str:
    """The table as Markdown, without title and note."""
    heads = [c.removeprefix("<") for c in table.columns]
    marks = ["---" if c.startswith("<") else "--:" for c in table.columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *table.rows))


def milliseconds(time: Timed) -> str:
    """``12.3 ± 0.1``."""
    return _with_spread(time, 1e3)


def microseconds(time: Timed) -> str:
    """The median alone."""
    return f"{time.seconds * 1e6:.3g}" if time.seconds < 1e-3 else f"{time.seconds * 1e6:.0f}"


def fraction(value: float | None) -> str:
    """Two digits, or a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def _with_spread(time: Timed, unit: float) -> str:
    middle, half = time.seconds * unit, (time.high - time.low) / 2 * unit
    digits = max(0, 2 - len(str(int(middle)))) + (middle < 100)
    return f"{middle:.{digits}f} ± {half:.{digits}f}"


def _shape_text(rows: list[Row], *, batch: bool = True) -> str:
    def text(row: Row) -> str:
        shape = f"{row.rows}x{row.cols}"
        count = f"{row.batch:_} ".replace("_", " ") if batch else ""
        return f"{count}{'tile' if batch and row.batch == 1 else 'tiles'} of {shape}"

    return ", ".join(dict.fromkeys(map(text, rows)))


def _grouped(rows: list[Row], key: Callable[[Row], tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], list[Row]]]:
    for value in dict.fromkeys(key(r) for r in rows):
        yield value, [r for r in rows if key(r) == value]
