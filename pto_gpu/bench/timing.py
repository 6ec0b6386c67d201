"""How long something takes: samples by ``torch.utils.benchmark``, on a GPU by events with a flushed L2."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pto_gpu.cores import available_cores

#: Sampling ends when the spread is below this fraction of the median, or the time is over.
SPREAD: Final = 0.05
_LEAST_SAMPLES: Final = 3


class Timed(NamedTuple):
    """Seconds of one call: median, quartiles and the fastest of ``samples``."""

    seconds: float
    low: float
    high: float
    best: float
    samples: int

    @property
    def spread(self) -> float:
        """The interquartile range as a fraction of the median."""
        return (self.high - self.low) / self.seconds


def timed(run: Callable[[], object], limit: float, *, on_gpu: bool = False) -> Timed:
    """Time ``run`` for about ``limit`` seconds or less, after calls that do not count."""
    return summary(_on_gpu(run, limit) if on_gpu else _on_host(run, limit))


def summary(samples: Sequence[float]) -> Timed:
    """Median, quartiles and best of samples."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75)).tolist()
    return Timed(middle, low, high, min(samples), len(samples))


def _on_host(run: Callable[[], object], limit: float) -> list[float]:
    from torch.utils.benchmark import Timer

    timer = Timer("run()", globals={"run": run}, num_threads=available_cores())
    measured = timer.adaptive_autorange(threshold=SPREAD, min_run_time=limit / 4, max_run_time=limit)
    while len(measured.times) < _LEAST_SAMPLES:  # one call takes longer than the limit
        more = timer.adaptive_autorange(threshold=SPREAD, max_run_time=limit)
        measured = type(measured).merge([measured, more])[0]
    return list(measured.times)


def _on_gpu(run: Callable[[], object], limit: float) -> list[float]:
    from triton.testing import do_bench

    milliseconds = do_bench(run, warmup=25, rep=int(limit * 1e3), return_mode="all")
    return [t / 1e3 for t in milliseconds]


class Copy(NamedTuple):
    """Copies of one operand: ``plain`` is ``np.copyto`` in one thread, ``threaded`` in as many as the cpu backend has.

    ``nbytes``: read and written by one copy. On a GPU both are the copy on the device.
    """

    plain: Timed
    threaded: Timed
    nbytes: int


def copies(source: Any, limit: float, threads: int | None) -> Copy:
    """Time copies of ``source``: a NumPy array, or a tensor on a GPU."""
    if not isinstance(source, np.ndarray):
        target = source.clone()
        on_device = timed(lambda: target.copy_(source), limit, on_gpu=True)
        return Copy(on_device, on_device, 2 * source.nbytes)
    into = np.zeros_like(source)
    plain = timed(lambda: np.copyto(into, source), limit)
    count = min(threads or available_cores(), len(source))
    if count == 1:
        return Copy(plain, plain, 2 * source.nbytes)
    parts = [slice(i * len(source) // count, (i + 1) * len(source) // count) for i in range(count)]
    with ThreadPoolExecutor(count) as pool:
        threaded = timed(lambda: [*pool.map(lambda part: np.copyto(into[part], source[part]), parts)], limit)
    return Copy(plain, threaded, 2 * source.nbytes)


def extra_memory(run: Callable[[], object]) -> int | None:
    """Bytes that one call takes beside what the process has already; None where the system does not say (not Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
        before = _status("VmRSS")
        run()
        return max(0, _status("VmHWM") - before)
    except (OSError, LookupError):
        return None


def peak_memory() -> int | None:
    """The most memory that this process had, in bytes, since :func:`extra_memory` last looked."""
    try:
        return _status("VmHWM")
    except (OSError, LookupError):
        return None


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent ``k`` of ``seconds ~ sizes ** k``, by least squares on logarithms; 1 is linear."""
    return statistics.linear_regression(np.log(sizes).tolist(), np.log(seconds).tolist()).slope
