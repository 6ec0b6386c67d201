"""``pto-gpu check``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pto_gpu.commands.options import Json, Save, either
from pto_gpu.commands.output import BAD_INPUT, EQUAL, MISMATCH, error_line, out_of_memory, print_json, save_with_shrunk
from pto_gpu.commands.reports import Html, Junit, ReportFiles
from pto_gpu.defaults import UNDEFINED
from pto_gpu.errors import ConstraintError, FileError, PtoError
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS

if TYPE_CHECKING:
    from pto_gpu.campaign.files.dumps import Checked
    from pto_gpu.campaign.reports.entries import Entry
    from pto_gpu.campaign.ulp import Tolerance
    from pto_gpu.defaults import Options
    from pto_gpu.isa.record import Instruction


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[OP] [FILE]...",
            help="An instruction, if file names do not start with it; dumps (.npz) and manifests (.toml).",
        ),
    ],
    operand: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="An operand in a file of its own, .bin or .npy; for each."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]RxC", help="Rows and columns of a tile, or of an operand's."),
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]RxC", help="Valid rows and columns; default the shape."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="What files hold of a tile: capacity (default) or valid (its region)."),
    ] = None,
    target: Annotated[str | None, typer.Option(help=f"{either(TARGETS)}; default a5.")] = None,
    numerics: Annotated[
        str | None, typer.Option(help=f"{', '.join(NUMERICS)}, or nan/tie/zero such as number/src0/keep; default isa.")
    ] = None,
    undefined: Annotated[
        str | None,
        typer.Option(help=f"Valid regions that a page leaves undefined: {either(UNDEFINED)}; default error."),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(help="dst outside its valid region: zero (compared with 0; default) or ignore."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Element type, such as f16 or f16/u16, of raw operands, and of values that an .npz has as bare bits "
            "(default bf16 for uint16 if the file name says bf16)."
        ),
    ] = None,
    ulp: Annotated[
        int | None,
        typer.Option(help="Units in the last place that a value may be off; default 0. -0 and +0 are 1 apart."),
    ] = None,
    nan: Annotated[
        str | None, typer.Option(help="NaN equals the same bits (bits, default) or every NaN (any).")
    ] = None,
    save: Save = Path("failures"),
    junit: Junit = None,
    html: Html = None,
    json: Json = False,
) -> int:
    """Compare dumps made elsewhere with the reference."""
    from pto_gpu.campaign.files.saved import OUTSIDE
    from pto_gpu.campaign.reports import entries
    from pto_gpu.campaign.reports import text as report
    from pto_gpu.campaign.ulp import Tolerance
    from pto_gpu.defaults import current_options

    if outside is not None and outside not in OUTSIDE:
        raise ConstraintError(f"--outside {outside!r} is not known: allowed {', '.join(OUTSIDE)}")
    options = current_options().override(target, None, numerics, undefined)
    given = {"target": target, "numerics": numerics, "undefined": undefined, "outside": outside, "ulp": ulp, "nan": nan}
    raw = {"operand": operand, "shape": shape, "valid": valid, "layout": layout}
    raw = {key: value for key, value in raw.items() if value is not None and value != []}
    jobs = _jobs(files, _Choices(options, given, Tolerance(ulp or 0, nan or "bits"), dtype, raw))
    reports = ReportFiles(junit, html, [("FILE", Path(name)) for name in files if _names_a_file(name)])
    out = report.printer(to_stderr=json)
    start = time.perf_counter()
    data, told = zip(*(_told(job, save, out.print) for job in jobs), strict=True)
    if any(d["error"] is not None for d in data):
        status = BAD_INPUT
    else:
        status = EQUAL if all(d["equal"] for d in data) else MISMATCH
    if json:
        rules = {d["numerics"] for d in data if d["error"] is None} or {options.numerics.label}
        print_json({"status": status, "numerics": rules.pop() if len(rules) == 1 else None, "files": data})
    settings = {**given, "target": options.target.name, "numerics": options.numerics.label}
    settings = {key: value for key, value in settings.items() if value is not None}
    seconds = time.perf_counter() - start
    reports.write(lambda: entries.report_of("check", status, seconds, told, settings))
    return status


def _told(job: _Job, save: Path, show: Callable[[str], None]) -> tuple[dict[str, Any], Entry]:
    """Compare one file, and say and save what was found: the data of ``--json``, and the entry of a report file."""
    from pto_gpu.campaign.explain.diagnose import diagnose_evidence
    from pto_gpu.campaign.reports import diagnosis as diagnosis_report
    from pto_gpu.campaign.reports import entries
    from pto_gpu.campaign.reports import text as report

    try:
        checked = job.run()
    except (PtoError, MemoryError) as error:  # the other files still get their verdicts
        message = f"{job.label}: {out_of_memory(error)}" if isinstance(error, MemoryError) else str(error)
        error_line(message)
        return {"file": job.label, "error": message}, entries.unreadable(job.label, message)
    found = diagnose_evidence(checked.evidence, checked.comparison)
    verdict, *details = report.checked_lines(checked)
    show("\n".join([verdict, *diagnosis_report.diagnosis_lines(found)]))
    saved, _ = save_with_shrunk(checked.first_failure, found, save, show)
    if details:  # last: the cause and the line that runs it again are wanted first
        show("\n".join(details))
    more = {"saved": str(saved) if saved else None, **diagnosis_report.diagnosis_data(found)}
    data = {**report.checked_data(checked), **more}
    return data, entries.of_checked(checked, data, found, saved)


@dataclass(frozen=True)
class _Choices:
    """What the command line says. ``given``: what wins over a manifest; ``raw``: options of raw operands, if any."""

    options: Options
    given: Mapping[str, Any]
    tolerance: Tolerance
    dtype: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class _Job:
    """One verdict to be had; ``run`` raises where there can be none."""

    label: str
    run: Callable[[], Checked]


def _jobs(files: Sequence[str], choices: _Choices) -> Iterator[_Job]:
    from pto_gpu.isa import instruction

    op = None if _names_a_file(files[0]) else instruction(files[0])
    files = files if op is None else files[1:]
    if "operand" in choices.raw:
        return iter([_raw_job(op, files, choices)])
    if choices.raw:
        raise ConstraintError(f"--{next(iter(choices.raw))} is for raw operands: name each with --operand NAME=FILE")
    if not files:
        raise FileError("no file given: pto-gpu check [OP] FILE...")
    return _file_jobs(op, files, choices)


def _file_jobs(op: Instruction | None, files: Sequence[str], choices: _Choices) -> Iterator[_Job]:
    for path in map(Path, files):
        if path.suffix == ".toml":
            yield from _manifest_jobs(path, op, choices)
        else:
            yield _Job(str(path), lambda path=path: _check_npz(path, op, choices))  # type: ignore[misc]


def _check_npz(path: Path, op: Instruction | None, choices: _Choices) -> Checked:
    from pto_gpu.campaign.files import dumps
    from pto_gpu.types import resolve_element_type

    if path.suffix in (".bin", ".npy") and path.is_file():
        raise FileError(f"{path}: one raw operand: name each of the instruction's, as in --operand src0={path}")
    record = op or dumps.instruction_of(path)
    element = resolve_element_type(choices.dtype) if choices.dtype is not None else None
    outside = choices.given["outside"] or "zero"
    return dumps.check_dump(path, record, choices.options, outside, element, choices.tolerance)


def _manifest_jobs(path: Path, op: Instruction | None, choices: _Choices) -> Iterator[_Job]:
    from pto_gpu.campaign.files import dumps
    from pto_gpu.campaign.files.manifest import Case, read_manifest

    def check_case(case: Case) -> Checked:
        return dumps.check_raw(f"{path}: {case.name}", case.name, case.raw, case.options, case.outside, case.tolerance)

    try:
        if op is not None or choices.dtype is not None:
            what = "--dtype" if op is None else op.name
            raise ConstraintError(f"{path}: a manifest names instructions and element types itself: leave out {what}")
        cases = read_manifest(path, choices.options, choices.given)
    except PtoError as error:
        yield _Job(str(path), lambda error=error: _refuse(error))  # type: ignore[misc]
        return
    for case in cases:
        yield _Job(f"{path}: {case.name}", lambda case=case: check_case(case))  # type: ignore[misc]


def _refuse(error: PtoError) -> Checked:
    raise error


def _raw_job(op: Instruction | None, files: Sequence[str], choices: _Choices) -> _Job:
    from pto_gpu.campaign.files import dumps
    from pto_gpu.campaign.files.raw import RawOperands, element_types

    if op is None or files:
        seen = f": seen {files[0]}" if files else ""
        raise ConstraintError(f"--operand needs the name of the instruction and no other file{seen}")
    dtypes = element_types(op, choices.dtype, choices.options.target.name)
    layout = choices.raw.get("layout", "capacity")
    raw = RawOperands(op, _operands(choices), dtypes, _pairs(choices, "shape"), _pairs(choices, "valid"), layout)
    label = str(raw.files[op.dsts[0].name])
    name = Path(label).stem
    outside = choices.given["outside"]
    return _Job(label, lambda: dumps.check_raw(label, name, raw, choices.options, outside, choices.tolerance))


def _operands(choices: _Choices) -> dict[str, Path]:
    """The files of ``--operand NAME=FILE``."""
    operands: dict[str, Path] = {}
    for text in choices.raw["operand"]:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise ConstraintError(f"--operand {text!r} is no operand: allowed NAME=FILE, such as src0=input1.bin")
        if name in operands:
            raise ConstraintError(f"--operand {name} is given twice")
        operands[name] = Path(file)
    return operands


def _pairs(choices: _Choices, option: str) -> dict[str | None, tuple[int, int]]:
    """Rows and columns of ``--shape`` or ``--valid`` by operand, None for every one."""
    from pto_gpu.campaign.files.raw import rows_by_cols

    found: dict[str | None, tuple[int, int]] = {}
    for text in choices.raw.get(option, ()):
        head, equals, tail = text.partition("=")
        name = head if equals else None
        if name in found:
            raise ConstraintError(f"--{option} {text!r} is given twice for {name or 'every operand'}")
        found[name] = rows_by_cols(tail if equals else head, f"--{option}")
    return found


def _names_a_file(text: str) -> bool:
    return "." in text or os.sep in text or os.path.exists(text)  # Path.exists raises for a long name
