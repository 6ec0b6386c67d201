"""``pto-gpu validate``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pto_gpu.commands.dump import Dump, DumpFormat, refuse_with_dump, write_dump
from pto_gpu.commands.exhaustive import Exhaustive, refuse_with_exhaustive, small_enough
from pto_gpu.commands.options import Json, NumericsName, Save, Target, Undefined, combinations_of, either, shape_of
from pto_gpu.commands.output import EQUAL, INTERRUPTED, MISMATCH, print_json, progress_bar, save_with_shrunk
from pto_gpu.defaults import BACKENDS
from pto_gpu.errors import ConstraintError

if TYPE_CHECKING:
    from pto_gpu.campaign.against import Implementation
    from pto_gpu.campaign.results import Result
    from pto_gpu.campaign.settings import Campaign


def validate(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type, such as f32 or f16/u16; default all.")] = None,
    shape: Annotated[str | None, typer.Option(help="Tile shape ROWSxCOLS; default 16x16, or the smallest.")] = None,
    tiles: Annotated[int | None, typer.Option(help="Tiles for each combination of element types.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the operands: 0 to 2**64 - 1.")] = None,
    target: Target = "a5",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    backend: Annotated[str, typer.Option(help=f"Under test: {either(BACKENDS)}; numpy is the reference.")] = "auto",
    against: Annotated[
        str,
        typer.Option(
            help="What --backend is compared with: "
            f"{either(b for b in BACKENDS if b != 'auto')}. Or your own function to be tested in place of a backend, "
            "compared with numpy: package.module:function."
        ),
    ] = "numpy",
    exhaustive: Exhaustive = False,
    dump: Dump = None,
    dump_format: DumpFormat = None,
    workers: Annotated[int | None, typer.Option(help="Threads; default every core.")] = None,
    save: Save = Path("failures"),
    json: Json = False,
) -> int:
    """Run instructions on random tiles and compare every bit with the reference, or another backend."""
    from pto_gpu.campaign import explain_report, report
    from pto_gpu.campaign.diagnose import diagnose
    from pto_gpu.campaign.settings import DEFAULT_SEED, DEFAULT_TILES, Campaign

    execute = _implementation(against, backend)

    settings: dict[str, Any] = {
        "target": target,
        "numerics": numerics,
        "undefined": undefined,
        "backend": backend,
        "against": "numpy" if execute else against,
        "workers": workers,
        "shape": shape_of(shape) if shape is not None else None,
        "tiles": DEFAULT_TILES if tiles is None else tiles,
        "seed": DEFAULT_SEED if seed is None else seed,
        "exhaustive": exhaustive,
    }
    combinations = combinations_of(ops or [], dtype, target)
    left_out: list[str] = []
    if exhaustive:
        refuse_with_exhaustive({"--shape": shape, "--tiles": tiles, "--seed": seed})
        combinations, left_out = small_enough(combinations, named=dtype is not None)
    if dump is not None or dump_format is not None:
        sides = {"--backend": backend != "auto", "--against": against != "numpy"}
        refuse_with_dump({"--exhaustive": exhaustive, "--workers": workers, **sides})
        return write_dump(
            [(op, s, {**settings, "tiles": tiles}) for op, s in combinations], dump, dump_format, json=json
        )
    campaigns = [Campaign(op, dtypes, **settings) for op, dtypes in combinations]
    out = report.printer(to_stderr=json)
    start = time.perf_counter()
    results, data = [], []
    for result in _run_all(campaigns, execute):
        out.print("\n".join(report.result_lines(result)))
        found = diagnose(result, execute)
        if found:
            out.print("\n".join(explain_report.diagnosis_lines(found)))
        path, smaller = save_with_shrunk(result.first_failure, found, save, out.print)
        results.append(result)
        data.append({**report.result_data(result, path), **explain_report.diagnosis_data(found, smaller)})
    seconds = time.perf_counter() - start
    out.print("\n".join(report.coverage_lines(results, seconds, campaigns[len(results) :])))
    if left_out:
        out.print("\n".join(f"not covered: {text}" for text in left_out))
    status = EQUAL if all(r.equal for r in results) else MISMATCH
    if any(r.interrupted for r in results):
        status = INTERRUPTED
    if json:
        print_json({"status": status, "seconds": round(seconds, 3), "campaigns": data})
    return status


def _implementation(against: str, backend: str) -> Implementation | None:
    """The function that ``--against`` names, if it names one."""
    from pto_gpu.campaign.against import load

    if against in BACKENDS:
        return None
    if ":" not in against:
        raise ConstraintError(
            f"--against {against!r} is not known: allowed {', '.join(BACKENDS)}, or a function: package.module:function"
        )
    if backend != "auto":
        raise ConstraintError(
            f"--backend {backend}: {against} is the side under test, and compared with numpy: leave --backend out"
        )
    return load(against)


def _run_all(campaigns: Sequence[Campaign], execute: Implementation | None) -> Iterator[Result]:
    """The results one after the other, up to and including one that Ctrl-C ended."""
    from pto_gpu.campaign import report
    from pto_gpu.campaign.run import run_campaign

    for place, campaign in enumerate(campaigns, 1):
        label = f"{place}/{len(campaigns)} {campaign.label}"
        with progress_bar(label, campaign.tiles, report.rate_of(campaign)) as advance:
            result = run_campaign(campaign, execute, progress=advance)
        yield result
        if result.interrupted:
            return
