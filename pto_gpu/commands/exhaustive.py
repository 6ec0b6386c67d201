"""``pto-gpu validate --exhaustive``: what goes with it, and which element types are small enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from pto_gpu.errors import ConstraintError

Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="Every combination of operand values of 8 and 16 bits, not random tiles.")
]

Combination = tuple[str, tuple[str, ...]]


def refuse_with_exhaustive(choices: Mapping[str, Any]) -> None:
    """Raise for the first option that was given; None: it was not."""
    for name, value in choices.items():
        if value is not None:
            raise ConstraintError(f"{name} is not for --exhaustive, which takes every combination of values once")


def small_enough(combinations: Sequence[Combination], *, named: bool) -> tuple[list[Combination], list[str]]:
    """The combinations whose values can all be taken, and why the others cannot.

    Raises ConstraintError for one of the others if the user has ``named`` the element type, or if there is none.
    """
    from pto_gpu.campaign.tiles.space import space_of
    from pto_gpu.isa import instruction

    small: list[Combination] = []
    left_out: list[str] = []
    for op, dtypes in combinations:
        try:
            space_of(instruction(op), dtypes)
        except ConstraintError as error:
            if named:
                raise
            left_out.append(str(error))
        else:
            small.append((op, dtypes))
    if not small:
        raise ConstraintError(left_out[0])
    return small, left_out
