"""``pto-gpu replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pto_gpu.commands.options import Json, either
from pto_gpu.commands.output import EQUAL, MISMATCH, print_json
from pto_gpu.defaults import BACKENDS


def replay(
    file: Annotated[Path, typer.Argument(help="A failure that validate or check saved.")],
    backend: Annotated[
        str | None, typer.Option(help=f"Under test: {either(BACKENDS)}; default the one that failed, none for a dump.")
    ] = None,
    json: Json = False,
) -> int:
    """Run one saved failure again, or take the result that a dump held, and compare with the reference."""
    from pto_gpu.campaign import report, run, saved

    tile = saved.load(file)
    comparison, name = run.replay(tile, backend)
    out = report.printer(to_stderr=json)
    what = f"{tile.instruction.name} {'/'.join(tile.instruction.signature(tile.types))}"
    where = "the result stored from the dump" if name is None else f"backend {name}"
    verdict = f"MISMATCH, {report.differ_text(comparison.elements)}" if comparison.elements else "equal now"
    lines = report.mismatch_lines(what, comparison.mismatches, comparison.elements, comparison.categories)
    out.print("\n".join([f"{what} {tile.origin} tile {tile.tile}, {where}: {verdict}", *lines]))
    status = MISMATCH if comparison.elements else EQUAL
    if json:
        mismatches = [report.mismatch_data(m) for m in comparison.mismatches]
        print_json(
            {"status": status, "instruction": tile.instruction.name, "compared": where, "mismatches": mismatches}
        )
    return status
