"""Runs of a benchmark as tests make them up: nothing is timed."""

from typing import Any

from pto_gpu.bench.results import Row, Run, StartUp
from pto_gpu.bench.timing import Copy, Timed

MACHINE = {"pto-gpu": "0", "numpy": "2.0", "processor": "a slow one", "cores": 2, "gpus": [], "load before": 0.1}
MACHINE["load after"] = 0.2


def time(seconds: float, spread: float = 0.02) -> Timed:
    half = seconds * spread / 2
    return Timed(seconds, seconds - half, seconds + half, seconds - 2 * half, 9)


def row(sweep: str, provider: str, seconds: float, **more: Any) -> Row:
    """A row on 100 000 tiles of 32x32 TPARTMIN f32 that moves 1 GB; copying as much takes 0.1 s, in threads 0.08."""
    copy = Copy(time(0.1), time(0.08), 1_000_000_000)
    usual = {
        "instruction": "TPARTMIN",
        "elements": "f32",
        "rows": 32,
        "cols": 32,
        "regions": "random",
        "batch": 100_000,
        "threads": None,
        "nbytes": 1_000_000_000,
        "line_bytes": 1_000_000_000,
        "copy": copy,
    }
    return Row(sweep=sweep, provider=provider, time=time(seconds), **{**usual, **more})


def made_up() -> Run:
    """A run with rows of every sweep."""
    rows = []
    for name, elements, faster in (("TPARTMIN", "f32", 25), ("TPARTMIN", "i8", 14), ("TROWMIN", "f16", 12)):
        what = {"instruction": name, "elements": elements}
        rows += [row("types", "numpy", 2.0, **what), row("types", "cpu", 2.0 / faster, **what)]
        rows.append(row("full tiles", "cpu", 0.125, regions="full", **what))
    rows += [row("providers", p, 0.2 + n, batch=10_000) for n, p in enumerate(("numpy loop", "numpy", "torch", "cpu"))]
    rows += [row("valid regions", p, 0.3, regions="tiny", nbytes=1000) for p in ("numpy", "cpu")]
    rows += [row("tile size", "cpu", 0.1 + 1 / n, rows=n, cols=n, regions="full") for n in (8, 16, 32)]
    for provider, each in (("numpy", 1e-5), ("cpu", 1e-6)):
        for n in (10**k for k in range(7)):
            small = {"batch": n, "rows": 8, "cols": 8, "nbytes": 800 * n, "line_bytes": 800 * n}
            rows.append(row("batch", provider, 1e-5 + each * n, **small, extra_bytes=5_000_000))
    rows += [row("threads", "cpu", 0.8 / n, threads=n) for n in (1, 2, 4)]
    rows.append(row("one tile", "cpu", 20e-6, batch=1, rows=16, cols=16, regions="full", nbytes=3072))
    startup = [StartUp("pto-gpu --help", time(0.2), 0.5), StartUp("first cpu call", time(2.0))]
    notes = ["tile size: TROWMIN f16 8x8 left out: too narrow"]
    return Run("2026-01-02T03:04:05+00:00", dict(MACHINE), False, rows, startup, notes, 99.0, 10**9)
