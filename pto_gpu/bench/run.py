"""Measure the groups of a table, one after the other."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from pto_gpu.bench.providers import PROVIDERS, Provider, difference
from pto_gpu.bench.results import LEAST_BYTES, Row, Run
from pto_gpu.bench.startup import start_up
from pto_gpu.bench.table import Group
from pto_gpu.bench.timing import Copies, extra_memory, peak_memory, timed
from pto_gpu.bench.workload import Workload, make
from pto_gpu.defaults import options
from pto_gpu.errors import PtoError
from pto_gpu.isa import instruction
from pto_gpu.listing import info_data

#: Seconds for the samples of one provider, and for those of a copy.
LIMIT, QUICK_LIMIT, COPY_LIMIT = 1.0, 0.2, 0.1
REPEATS, QUICK_REPEATS = 5, 2
Advance = Callable[[int, str], None]


def measure(groups: Sequence[Group], *, quick: bool, advance: Advance = lambda done, what: None) -> Run:
    """Measure every group, then the start-up; after Ctrl-C, what was measured until then.

    ``advance`` is told how many groups are done, and what comes next.
    """
    start = time.perf_counter()
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = Run(now, {**info_data(), "processor": _processor(), "load before": _load()}, quick)
    try:
        for done, group in enumerate(groups):
            advance(done, group.label)
            _measure_group(run, group, QUICK_LIMIT if quick else LIMIT)
        done = len(groups)
        for found in start_up(QUICK_REPEATS if quick else REPEATS, lambda name: advance(done, name)):
            run.startup.append(found)
    except PtoError as error:  # of a fresh process: what was measured before is still good
        run.notes.append(f"start-up left out: {error}")
    except KeyboardInterrupt:
        run.interrupted = True
    run.seconds = time.perf_counter() - start
    run.machine["load after"] = _load()
    return run


def _measure_group(run: Run, group: Group, limit: float) -> None:
    record = instruction(group.instruction)
    what = f"{group.instruction} {'/'.join(group.signature)} {group.rows}x{group.cols}"
    try:
        host = make(record, group.signature, group.batch, group.rows, group.cols, group.regions)
    except (PtoError, MemoryError) as error:  # not every element type has every shape, nor every machine the memory
        run.notes.append(f"{group.sweep}: {what} left out: {error}")
        return
    for on_gpu in (False, True):
        providers = [PROVIDERS[p] for p in group.providers if PROVIDERS[p].on_gpu is on_gpu]
        if providers:
            work = host.to("cuda") if on_gpu else host
            _measure_providers(run, group, work, providers, limit)
    run.peak_bytes = max(run.peak_bytes or 0, peak_memory() or 0) or None


def _measure_providers(run: Run, group: Group, work: Workload, providers: Sequence[Provider], limit: float) -> None:
    copies = Copies(work.tiles[work.instruction.assembly[0]].data, group.threads)
    copies.sample(COPY_LIMIT * limit)
    with options(threads=group.threads) if group.threads else contextlib.nullcontext():
        for provider in providers:
            try:
                row = _row(group, work, provider, copies, limit)
            except Exception as error:  # a compiler that is not there must not take the others' rows along
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                run.notes.append(f"{group.sweep}: {work.label}: {provider.name} left out: {reason}")
                continue
            if row is None:
                run.notes.append(f"{group.sweep}: {work.label}: {provider.name} has no code for it")
            else:
                run.rows.append(row)


def _row(group: Group, work: Workload, provider: Provider, copies: Copies, limit: float) -> Row | None:
    call = provider.prepare(work)
    if call is None:
        return None
    problem = difference(call, work)
    # Smaller temporaries come out of memory that the process has kept, and cannot be seen.
    extra = extra_memory(call) if group.memory and not work.on_gpu and work.nbytes >= LEAST_BYTES else None
    time_taken = timed(call, limit, on_gpu=work.on_gpu)
    copies.sample(COPY_LIMIT * limit)  # before and after: a disturbance of one is not taken for the memory's speed
    return Row(
        sweep=group.sweep,
        instruction=group.instruction,
        elements="/".join(group.signature),
        rows=group.rows,
        cols=group.cols,
        regions=group.regions,
        batch=group.batch,
        provider=provider.name,
        threads=group.threads,
        time=time_taken,
        nbytes=work.nbytes,
        line_bytes=work.line_bytes,
        copy=copies.copy,
        extra_bytes=extra,
        problem=problem,
    )


def _processor() -> str:
    """What the processor calls itself."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return "unknown"


def _load() -> Any:
    """Processes that wanted a core in the last minute: above the cores of this run, others were at work."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
