"""``pto-gpu list`` and ``pto-gpu info``."""

from __future__ import annotations

from typing import Annotated

import typer

from pto_gpu.commands.options import Json
from pto_gpu.commands.output import EQUAL, print_json


def list_instructions(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    json: Json = False,
) -> int:
    """Show instructions: operands, element types on each target, constraints."""
    from pto_gpu import listing
    from pto_gpu.isa import instruction, instructions

    records = [instruction(op) for op in ops or instructions()]
    if json:
        print_json({"instructions": [listing.instruction_data(r) for r in records]})
    else:
        print("\n\n".join("\n".join(listing.instruction_lines(r)) for r in records))
    return EQUAL


def info(json: Json = False) -> int:
    """Show versions, machine and devices: what a bug report needs."""
    from pto_gpu import listing

    data = listing.info_data()
    if json:
        print_json(data)
    else:
        width = max(map(len, data))
        print("\n".join(f"{key:{width}}  {value}" for key, value in data.items()))
    return EQUAL
