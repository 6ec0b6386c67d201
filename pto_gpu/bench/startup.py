"""What is paid before the first result, each time in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

from pto_gpu.bench.results import StartUp
from pto_gpu.bench.timing import summary
from pto_gpu.errors import BackendError

HELP_SECONDS, IMPORT_SECONDS = 0.5, 0.3

_HELP = "from pto_gpu.cli import main; main()"
_IMPORT = """
import time
import torch
start = time.perf_counter()
import pto_gpu
pto_gpu.TileBuf
print(time.perf_counter() - start)
"""
_FIRST_CALL = """
import time
import pto_gpu as pto
from pto_gpu.bench.workload import make
from pto_gpu.isa import instructions
record = next(iter(instructions().values()))
work = make(record, record.element_types["a5"][0], 1, 16, 16, "full")
start = time.perf_counter()
getattr(pto, record.name)(**work.tiles, backend="cpu")
print(time.perf_counter() - start)
"""


def start_up(repeats: int, advance: Callable[[str], None] = lambda name: None) -> Iterator[StartUp]:
    """Each cost, from ``repeats`` fresh processes; ``advance`` is told what comes next."""
    advance("pto-gpu --help")
    yield StartUp("pto-gpu --help", summary([_process_seconds() for _ in range(repeats)]), HELP_SECONDS)
    name = "import pto_gpu, with torch imported before"
    advance(name)
    yield StartUp(name, summary([_printed_seconds(_IMPORT) for _ in range(repeats)]), IMPORT_SECONDS)
    advance("first call")
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="pto-gpu-bench-") as cache:
            where = {"NUMBA_CACHE_DIR": cache}
            cold.append(_printed_seconds(_FIRST_CALL, where))
            warm.append(_printed_seconds(_FIRST_CALL, where))
    yield StartUp("first cpu call, nothing compiled before", summary(cold))
    yield StartUp("first cpu call, compiled by another process", summary(warm))


def _process_seconds() -> float:
    start = time.perf_counter()
    _run([sys.executable, "-c", _HELP, "--help"], {})
    return time.perf_counter() - start


def _printed_seconds(code: str, environment: Mapping[str, str] | None = None) -> float:
    return float(_run([sys.executable, "-c", code], environment or {}))


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise BackendError(f"a fresh process failed: {last}")
    return done.stdout
