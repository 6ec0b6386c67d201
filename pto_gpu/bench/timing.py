"""How long something takes: samples by ``torch.utils.benchmark``, on a GPU by events with a flushed L2."""

from __future__ import annotations

import statistics
import time
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
    """Time ``run`` for about ``limit`` seconds or less, three times at least, after calls that do not count."""
    return summary(_sampled(run, limit, on_gpu))


def summary(samples: Sequence[float]) -> Timed:
    """Median, quartiles and best of samples."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75)).tolist()
    return Timed(middle, low, high, min(samples), len(samples))


def _sampled(run: Callable[[], object], limit: float, on_gpu: bool) -> list[float]:
    if on_gpu:
        from triton.testing import do_bench

        return [t / 1e3 for t in do_bench(run, warmup=25, rep=int(limit * 1e3), return_mode="all")]
    from torch.utils.benchmark import Timer

    start = time.perf_counter()
    run()
    enough = _LEAST_SAMPLES - 0.5  # calls that take longer than the limit
    limit = max(limit, enough * (time.perf_counter() - start))
    timer = Timer("run()", globals={"run": run}, num_threads=available_cores())
    samples: list[float] = []
    while len(samples) < _LEAST_SAMPLES:  # many calls of a short one are a sample, which may take the whole limit
        samples += timer.adaptive_autorange(threshold=SPREAD, min_run_time=limit / 4, max_run_time=limit).times
    return samples


class Copy(NamedTuple):
    """Copies of one operand: ``plain`` is ``np.copyto`` in one thread, ``threaded`` in as many as the cpu backend has.

    ``nbytes``: read and written by one copy. On a GPU both are the copy on the device.
    """

    plain: Timed
    threaded: Timed
    nbytes: int


class Copies:
    """Copies of ``source`` (a NumPy array, or a tensor on a GPU) that are timed now and then, between other things."""

    def __init__(self, source: Any, threads: int | None) -> None:
        self._nbytes = 2 * source.nbytes
        self._on_gpu = not isinstance(source, np.ndarray)
        self._threads = 1 if self._on_gpu else min(threads or available_cores(), len(source))
        target = source.clone() if self._on_gpu else np.zeros_like(source)

        def plain() -> None:
            if self._on_gpu:
                target.copy_(source)
            else:
                np.copyto(target, source)

        def part(n: int) -> None:
            mine = slice(n * len(source) // self._threads, (n + 1) * len(source) // self._threads)
            np.copyto(target[mine], source[mine])

        self._plain, self._part = plain, part
        self._samples: tuple[list[float], list[float]] = ([], [])

    def sample(self, limit: float) -> None:
        """Time both copies for about ``limit`` seconds each."""
        plain, threaded = self._samples
        plain += _sampled(self._plain, limit, self._on_gpu)
        if self._threads > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                threaded += _sampled(lambda: [*pool.map(self._part, range(self._threads))], limit, False)

    @property
    def copy(self) -> Copy:
        """What was seen until now."""
        plain, threaded = self._samples
        return Copy(summary(plain), summary(threaded or plain), self._nbytes)


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
