"""The texts of tests/asm: several in a file, with the errors expected of each in comments at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent / "asm"
_DASHES = "// -----\n"
_ERROR = "// error: "


class Text(NamedTuple):
    """One text, and the errors expected of it: line, column, message."""

    body: str
    errors: tuple[tuple[int, int, str], ...]


def texts(name: str) -> list[Any]:
    """The texts of a file, as pytest parameters. The first line of a file says what it holds."""
    _, content = (HERE / name).read_text(encoding="utf-8").split("\n", 1)
    made = []
    for number, part in enumerate(content.split(_DASHES)):
        lines = part.split("\n")
        errors = []
        while lines[0].startswith(_ERROR):
            place, message = lines.pop(0).removeprefix(_ERROR).split(" ", 1)
            line, column = map(int, place.split(":"))
            errors.append((line, column, message))
        made.append(pytest.param(Text("\n".join(lines), tuple(errors)), id=f"{Path(name).stem}-{number}"))
    return made
