"""``pto-gpu check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from pto_gpu.commands.options import Json, NumericsName, Save, Target, Undefined, instruction_named
from pto_gpu.commands.output import BAD_INPUT, EQUAL, MISMATCH, error_line, out_of_memory, print_json, save_with_shrunk
from pto_gpu.errors import ConstraintError, FileError, PtoError


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="[OP] FILE...", help="An instruction, if file names do not start with it.")
    ],
    target: Target = "a5",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    outside: Annotated[
        str, typer.Option(help="dst outside its valid region: zero (compared with 0) or ignore.")
    ] = "zero",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Element type of values stored as bare bits; default bf16 for uint16 if the file name says bf16."
        ),
    ] = None,
    save: Save = Path("failures"),
    json: Json = False,
) -> int:
    """Compare dumps made elsewhere (.npz) with the reference."""
    from pto_gpu.campaign import dumps, explain_report, report
    from pto_gpu.campaign.diagnose import diagnose_evidence
    from pto_gpu.campaign.saved import OUTSIDE
    from pto_gpu.defaults import current_options
    from pto_gpu.types import resolve_element_type

    if outside not in OUTSIDE:
        raise ConstraintError(f"--outside {outside!r} is not known: allowed {', '.join(OUTSIDE)}")
    op = None
    if not _names_a_file(files[0]):
        op, files = instruction_named(files[0]), files[1:]
    if not files:
        raise FileError("no file given: pto-gpu check [OP] FILE...")
    options = current_options().override(target, None, numerics, undefined)
    element = resolve_element_type(dtype) if dtype is not None else None
    out = report.printer(to_stderr=json)
    data: list[dict[str, Any]] = []
    for path in map(Path, files):
        try:
            checked = dumps.check_dump(path, op or dumps.instruction_of(path), options, outside, element)
        except (PtoError, MemoryError) as error:  # the other files still get their verdicts
            message = f"{path}: {out_of_memory(error)}" if isinstance(error, MemoryError) else str(error)
            error_line(message)
            data.append({"file": str(path), "error": message})
            continue
        found = diagnose_evidence(checked.evidence, checked.comparison)
        out.print("\n".join([*report.checked_lines(checked), *explain_report.diagnosis_lines(found)]))
        saved, _ = save_with_shrunk(checked.first_failure, found, save, out.print)
        more = {"saved": str(saved) if saved else None, **explain_report.diagnosis_data(found)}
        data.append({**report.checked_data(checked), **more})
    if any(d["error"] is not None for d in data):
        status = BAD_INPUT
    else:
        status = EQUAL if all(d["equal"] for d in data) else MISMATCH
    if json:
        print_json({"status": status, "numerics": options.numerics.label, "files": data})
    return status


def _names_a_file(text: str) -> bool:
    return "." in text or os.sep in text or os.path.exists(text)  # Path.exists raises for a long name
