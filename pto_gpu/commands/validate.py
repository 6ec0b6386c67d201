"""``pto-gpu validate``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pto_gpu.commands.dump import Dump, DumpFormat, refuse_with_dump, write_dump
from pto_gpu.commands.exhaustive import Exhaustive, refuse_with_exhaustive, small_enough
from pto_gpu.commands.options import (
    Journal,
    Json,
    NumericsName,
    Resume,
    Save,
    Target,
    Undefined,
    combinations_of,
    either,
    shape_of,
)
from pto_gpu.commands.output import (
    EQUAL,
    INTERRUPTED,
    MISMATCH,
    print_json,
    printed_on_stderr,
    progress_bar,
    save_with_shrunk,
)
from pto_gpu.commands.reports import Html, Junit, ReportFiles
from pto_gpu.defaults import BACKENDS
from pto_gpu.errors import ConstraintError

if TYPE_CHECKING:
    from pto_gpu.campaign.against import Implementation
    from pto_gpu.campaign.reports.entries import Entry
    from pto_gpu.campaign.results import Result
    from pto_gpu.campaign.series import Series


def validate(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="An element type, such as f32 or f16/u16, may be repeated; default all.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Tile shape ROWSxCOLS; default 16x16, or the smallest.")] = None,
    tiles: Annotated[int | None, typer.Option(help="Tiles for each combination of element types.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the operands: 0 to 2**64 - 1.")] = None,
    target: Target = "a5",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    backend: Annotated[
        str,
        typer.Option(
            help=f"Under test: {either(BACKENDS)}; numpy is the reference, auto triton where there is a GPU, else cpu."
        ),
    ] = "auto",
    against: Annotated[
        str,
        typer.Option(
            help="What --backend is compared with: "
            f"{either(BACKENDS)}. Or your own function to be tested in place of a backend, "
            "compared with numpy: package.module:function."
        ),
    ] = "numpy",
    exhaustive: Exhaustive = False,
    dump: Dump = None,
    dump_format: DumpFormat = None,
    workers: Annotated[int | None, typer.Option(help="Threads; default every core.")] = None,
    save: Save = Path("failures"),
    journal: Journal = None,
    resume: Resume = False,
    junit: Junit = None,
    html: Html = None,
    json: Json = False,
) -> int:
    """Run instructions on random tiles and compare every bit with the reference, or another backend."""
    from pto_gpu.campaign.ranks import leads
    from pto_gpu.campaign.series import series
    from pto_gpu.campaign.settings import DEFAULT_SEED, DEFAULT_TILES, Campaign

    with printed_on_stderr(json):
        execute = _implementation(against, backend)

    settings: dict[str, Any] = {
        "target": target,
        "numerics": numerics,
        "undefined": undefined,
        "backend": "cpu" if execute else backend,  # which a function takes the place of, whatever this machine has
        "against": "numpy" if execute else against,
        "workers": workers,
        "shape": shape_of(shape) if shape is not None else None,
        "tiles": DEFAULT_TILES if tiles is None else tiles,
        "seed": DEFAULT_SEED if seed is None else seed,
        "exhaustive": exhaustive,
    }
    combinations = combinations_of(ops or [], dtype or [], target)
    left_out: list[str] = []
    if exhaustive:
        refuse_with_exhaustive({"--shape": shape, "--tiles": tiles, "--seed": seed})
        combinations, left_out = small_enough(combinations, named=bool(dtype))
    if dump is not None or dump_format is not None:
        sides = {"--backend": backend != "auto", "--against": against != "numpy"}
        long = {"--journal": journal, "--resume": resume, "--junit": junit, "--html": html}
        refuse_with_dump({"--exhaustive": exhaustive, "--workers": workers, **sides, **long})
        return write_dump(
            [(op, s, {**settings, "tiles": tiles}) for op, s in combinations], dump, dump_format, json=json
        )
    campaigns = [Campaign(op, dtypes, **settings) for op, dtypes in combinations]
    taken = [("--journal", journal)] if journal else []
    files = ReportFiles(junit, html, taken) if leads() else ReportFiles(None, None)
    with series(campaigns, execute, journal, resume=resume) as runs:
        if runs.status is not None:
            return runs.status
        status = _run_and_report(runs, save, files, left_out, json=json)
        runs.finish(status)
    return status


def _run_and_report(runs: Series, save: Path, files: ReportFiles, left_out: Sequence[str], *, json: bool) -> int:
    """Run every campaign, say what was found wherever it is wanted, and return the exit status."""
    from pto_gpu.campaign.reports import entries
    from pto_gpu.campaign.reports import text as report

    out = report.printer(to_stderr=json, quiet=not runs.leads)
    start = time.perf_counter()
    results, found = [], []
    with printed_on_stderr(json):
        for result in _run_all(runs):
            results.append(result)
            verdict, *details = report.result_lines(result)
            out.print(verdict)
            if runs.leads:
                found.append(_told(result, runs, save, out.print))
            if details:  # last: the cause and the line that runs it again are wanted first
                out.print("\n".join(details))
            if result.interrupted:
                break
    seconds = max(time.perf_counter() - start, sum(r.seconds for r in results))  # a journal has those before
    left = runs.campaigns[len(results) :]
    out.print("\n".join(report.coverage_lines(results, seconds, left)))
    if left_out:
        out.print("\n".join(f"not covered: {text}" for text in left_out))
    status = EQUAL if all(r.equal for r in results) else MISMATCH
    if any(r.interrupted for r in results):
        status = INTERRUPTED
    if json and runs.leads:
        print_json({"status": status, "seconds": round(seconds, 3), "campaigns": [e.data for e in found]})
    files.write(lambda: entries.report_of("validate", status, seconds, [*found, *map(entries.not_started, left)]))
    return status


def _told(result: Result, runs: Series, save: Path, show: Callable[[str], None]) -> Entry:
    """Explain, show and save what differs, or crashed; Ctrl-C ends that, and the run."""
    from pto_gpu.campaign.explain.diagnose import diagnose
    from pto_gpu.campaign.reports import diagnosis as diagnosis_report
    from pto_gpu.campaign.reports import entries
    from pto_gpu.campaign.reproduce import crashed_tile

    found, failing = None, result.first_failure
    try:
        found = diagnose(result, runs.execute)
        failing = failing or crashed_tile(result, runs.execute)
    except KeyboardInterrupt:
        result.interrupted = True
    if found:
        show("\n".join(diagnosis_report.diagnosis_lines(found)))
    path, smaller = save_with_shrunk(failing, found, save, show)
    return entries.of_result(result, failing, path, found, smaller)


def _run_all(runs: Series) -> Iterator[Result]:
    """The results one after the other."""
    from pto_gpu.campaign.reports import text as report

    for number, campaign in enumerate(runs.campaigns):
        label = f"{number + 1}/{len(runs.campaigns)} {campaign.label}"
        rate = report.rate_of(campaign)
        with progress_bar(label, runs.tiles(number), rate, shown=runs.leads) as advance:
            result = runs.run(number, advance)
        yield result


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
