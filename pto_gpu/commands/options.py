"""Options that several commands share, and what their text means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pto_gpu.defaults import UNDEFINED
from pto_gpu.errors import ConstraintError
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS

if TYPE_CHECKING:
    from pto_gpu.isa.record import Instruction


def either(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}"


Target = Annotated[str, typer.Option(help=f"{either(TARGETS)}.")]
NumericsName = Annotated[
    str, typer.Option("--numerics", help=f"{', '.join(NUMERICS)}, or nan/tie/zero such as number/src0/keep.")
]
Undefined = Annotated[str, typer.Option(help=f"Valid regions that a page leaves undefined: {either(UNDEFINED)}.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and all else on stderr.")]
Save = Annotated[Path, typer.Option(help="Directory that a failing tile is saved in.")]
Journal = Annotated[
    Path | None, typer.Option(help="Store every wave of tiles in this new file, so that --resume can continue the run.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run of the --journal file, if it is there.")]


def shape_of(text: str) -> tuple[int, int]:
    """Rows and columns of ``16x16``."""
    from pto_gpu.campaign.files.raw import rows_by_cols

    return rows_by_cols(text, "--shape")


def instruction_named(text: str) -> Instruction:
    """The instruction called ``text``; the error for an unknown one names the nearest."""
    import difflib

    from pto_gpu.isa import instruction, instructions

    try:
        return instruction(text)
    except ConstraintError as error:
        near = difflib.get_close_matches(text.upper(), instructions(), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConstraintError(f"{error}{hint}") from None
