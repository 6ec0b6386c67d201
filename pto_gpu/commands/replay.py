"""``pto-gpu replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pto_gpu.commands.options import Json, either
from pto_gpu.commands.output import EQUAL, MISMATCH, print_json, printed_on_stderr
from pto_gpu.defaults import BACKENDS
from pto_gpu.errors import ConstraintError


def replay(
    file: Annotated[Path, typer.Argument(help="A failure that validate or check saved.")],
    backend: Annotated[
        str | None,
        typer.Option(help=f"Under test: {either(BACKENDS)}; default the one that failed, none for a stored result."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Your own function to run in place of a backend: package.module:function.")
    ] = None,
    json: Json = False,
) -> int:
    """Run one saved failure again, or take the result stored in it, and compare as it was compared before."""
    from pto_gpu.campaign import reproduce
    from pto_gpu.campaign.against import load
    from pto_gpu.campaign.explain.diagnose import diagnose_evidence, evidence_of
    from pto_gpu.campaign.files import saved
    from pto_gpu.campaign.reports import text as report
    from pto_gpu.campaign.reports.data import diagnosis_data, mismatch_data
    from pto_gpu.campaign.reports.diagnosis import diagnosis_lines

    if backend is not None and against is not None:
        raise ConstraintError(f"--backend {backend} and --against {against}: allowed one of them")
    tile = saved.load(file)
    with printed_on_stderr(json):
        execute = load(against) if against is not None else None
        comparison, name, seen, raised = reproduce.replay(tile, backend, execute)
    found = diagnose_evidence(evidence_of(tile, seen), comparison) if comparison.elements else None
    out = report.printer(to_stderr=json)
    what = f"{tile.instruction.name} {'/'.join(tile.instruction.signature(tile.types))}"
    where = f"backend {name}" if against is None else str(name)
    if name is None:
        where = f"the result stored from {tile.implementation or 'the dump'}"
    status, verdict = EQUAL, "equal now"
    if raised is not None:
        status, verdict = MISMATCH, f"FAILED: {raised}"
    elif comparison.elements:
        status, verdict = MISMATCH, f"MISMATCH, {report.differ_text(comparison.elements)}"
    lines = diagnosis_lines(found)
    if tile.causes:
        lines.append(f"  when it was found, with the tiles around it: {'; or '.join(tile.causes)}")
    if tile.error is not None:
        lines.append(f"  when it was found, {report.raised_text(tile)}")
    lines += report.mismatch_lines(comparison.mismatches, comparison.elements, comparison.categories)
    out.print("\n".join([f"{what} {tile.origin} tile {tile.tile}, {where}: {verdict}", *lines]))
    if json:
        mismatches = [mismatch_data(m) for m in comparison.mismatches]
        data = {"status": status, "instruction": tile.instruction.name, "compared": where, "mismatches": mismatches}
        before = {"causes_when_found": list(tile.causes), "error_when_found": tile.error, "together": tile.together}
        print_json({**data, "crash": raised, **diagnosis_data(found), **before})
    return status
