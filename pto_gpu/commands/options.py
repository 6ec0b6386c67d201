"""Options that several commands share, and what their text means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pto_gpu.defaults import UNDEFINED
from pto_gpu.errors import ConstraintError
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS


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


def combinations_of(ops: Sequence[str], dtypes: Sequence[str], target: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every (instruction, element types) to run, each once; no ``ops``: all, no ``dtypes``: all of the target."""
    found = [one for dtype in dtypes or (None,) for one in _of_type(ops, dtype, target)]
    ops_in_order = [op for op, _ in found]
    return sorted(dict.fromkeys(found), key=lambda one: ops_in_order.index(one[0]))


def _of_type(ops: Sequence[str], dtype: str | None, target: str) -> list[tuple[str, tuple[str, ...]]]:
    from pto_gpu.isa import instruction, instructions
    from pto_gpu.targets import resolve_target
    from pto_gpu.types import resolve_element_type

    wanted = tuple(resolve_element_type(t).name for t in dtype.split("/")) if dtype is not None else ()
    known, name = instructions(), resolve_target(target).name
    found = []
    for op in dict.fromkeys(instruction(op).name for op in ops) or known:
        allowed = known[op].element_types[name]
        matching = [s for s in allowed if s[: len(wanted)] == wanted]
        if ops and not matching:
            types = ", ".join("/".join(s) for s in allowed)
            raise ConstraintError(f"{op}: element type {dtype} is not supported on {name}: allowed {types}")
        found += [(op, s) for s in matching]
    if not found:
        raise ConstraintError(f"no instruction supports element type {dtype} on {name}")
    return found
