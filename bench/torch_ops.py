"""The torch operators: eager, compiled, and the reference formula as torch operations, eager and compiled.

Run as ``python bench/torch_ops.py [--device cuda] [--batch N]``. Every ratio is of two minima from this one run, of
repeats that take turns, since other programs may run on the machine. Takes about two minutes, most of it compilation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

import pto_gpu.torch_ops  # noqa: F401  (registers the operators)
from pto_gpu.bench.workload import Workload, make
from pto_gpu.intrinsics import intrinsics
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction
from pto_gpu.torch_ops.arguments import FORMULATIONS

Run = Callable[[], object]


def fastest(runs: Mapping[str, Run], device: str, seconds: float) -> dict[str, float]:
    """The shortest time of each run; they take turns for about ``seconds``, each once untimed before it is timed."""
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None

    def timed(run: Run) -> float:
        run()  # what is timed finds the caches as it left them itself
        wait()
        start = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - start

    best = {name: timed(run) for name, run in runs.items()}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            best[name] = min(best[name], timed(run))
    return best


def arguments(work: Workload, device: str) -> list[Any]:
    """The tensors of an operator, and a valid region for each group of its sources."""
    record = work.instruction
    tensors = [work.tiles[name].torch().to(device) for name in record.assembly]
    for group in record.region_groups:
        tile = work.tiles[group[0]]
        rows, cols = (torch.tensor(n, dtype=torch.int32).expand(tile.batch) for n in tile.region)
        tensors.append(torch.stack([rows, cols], 1).to(device))
    return tensors


def ways(record: Instruction, call: list[Any]) -> dict[str, Run]:
    """The same call in every way; each way compiled apart."""
    operator = getattr(torch.ops.pto, record.name.lower())

    functions = {}
    for formulation in FORMULATIONS:
        functions[f"{formulation} eager"] = eager = partial(operator, formulation=formulation)
        functions[f"{formulation} compiled"] = torch.compile(eager, fullgraph=True)
    return {name: partial(function, *call) for name, function in functions.items()}


def throughput(batch: int, device: str, cols: int) -> None:
    """Time relative to the kernel called eagerly; above 1 is slower."""
    print(f"\n{batch} tiles of 32x{cols} f32 with random valid regions on {device}, times relative to the eager kernel")
    print(f"{'instruction':14}{'eager us':>10}{'compiled':>12}{'torch eager':>14}{'torch compiled':>16}")
    for name, record in instructions().items():
        signature = next(s for s in record.element_types["a5"] if s[0] == "f32")
        torch._dynamo.reset()
        call = arguments(make(record, signature, batch, 32, cols), device)
        best = fastest(ways(record, call), device, 5)
        base = best["kernel eager"]
        ratios = (best[key] / base for key in ("kernel compiled", "torch eager", "torch compiled"))
        print(
            f"{name:14}{base * 1e6:10.0f}" + "".join(f"{r:{w}.2f}" for r, w in zip(ratios, (12, 14, 16), strict=True))
        )


def cost_of_a_call(device: str) -> None:
    """One 16x16 tile: what the ways into a kernel cost, relative to the intrinsic in place."""
    print(f"\none 16x16 f32 tile on {device}, times relative to the intrinsic in place")
    print(f"{'instruction':14}{'intrinsic us':>14}{'value form':>12}{'operator':>10}{'_out':>8}{'compiled':>10}")
    for name, record in instructions().items():
        signature = next(s for s in record.element_types["a5"] if s[0] == "f32")
        torch._dynamo.reset()
        work = make(record, signature, 1, 16, 16, "full")
        tiles = work.tiles
        if device != "cpu":
            tiles = {n: type(t).from_array(t.torch().to(device), t.type) for n, t in tiles.items()}
        sources = [tiles[n].torch() for n in record.assembly]
        operator, out = (getattr(torch.ops.pto, name.lower() + suffix) for suffix in ("", "_out"))
        results = operator(*sources)
        results = results if isinstance(results, tuple) else (results,)
        table = intrinsics()
        runs: dict[str, Run] = {
            "intrinsic": partial(table[name], **tiles),
            "value": partial(table[name.lower()], *(tiles[n] for n in record.assembly)),
            "operator": partial(operator, *sources),
            "out": partial(out, *results, *sources),
            "compiled": partial(torch.compile(partial(operator), fullgraph=True), *sources),
        }
        best = fastest(runs, device, 2)
        base = best["intrinsic"]
        widths = {"value": 12, "operator": 10, "out": 8, "compiled": 10}
        print(f"{name:14}{base * 1e6:14.1f}" + "".join(f"{best[key] / base:{w}.1f}" for key, w in widths.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--cols", type=int, default=32)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    cost_of_a_call(options.device)
    throughput(options.batch, options.device, options.cols)
    return 0


if __name__ == "__main__":
    sys.exit(main())
