"""Where a diagnostic points, and how it is shown: file:line:col, the source line, a caret."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span

from pto_gpu.errors import AsmError

#: A longer source line, or message, is shown without its end.
_SHOWN_COLUMNS: Final = 200
_SHOWN_MESSAGE: Final = 500


@dataclass(frozen=True)
class Diagnostic:
    """One error: what is wrong, and the span of text that it is about."""

    message: str
    span: Span[str]

    def __post_init__(self) -> None:
        if len(self.message) > _SHOWN_MESSAGE:  # it may quote the text
            object.__setattr__(self, "message", self.message[:_SHOWN_MESSAGE] + " ...")

    @property
    def line(self) -> int:
        """Line number, from 1."""
        return self.span.get_location().line

    @property
    def column(self) -> int:
        """Column in characters, from 1."""
        return self.span.get_location().col

    def __str__(self) -> str:
        source = self.span.input
        start = source.get_start_of_line(self.span.start)
        line = source.content[start : source.get_end_of_line(self.span.start)].removesuffix("\r")
        offset = min(self.span.start - start, len(line))
        end = max(offset + 1, min(self.span.end - start, len(line)))
        shown = line if len(line) <= _SHOWN_COLUMNS else line[:_SHOWN_COLUMNS] + " ..."
        shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in shown)
        head = f"{self.span.get_location()}: {self.message}\n{shown}"
        if offset > _SHOWN_COLUMNS:
            return head
        before = "".join(_blank(c) for c in line[:offset])
        return f"{head}\n{before}{'^' * (min(end, _SHOWN_COLUMNS) - offset or 1)}"


def _blank(character: str) -> str:
    """White space as wide as ``character`` is on a terminal."""
    if character == "\t":
        return "\t"
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


def asm_error(diagnostics: Iterable[Diagnostic]) -> AsmError:
    """One error for all of ``diagnostics``, in the order of the text."""
    ordered = sorted(diagnostics, key=lambda d: d.span.start)
    return AsmError("\n".join(map(str, ordered)), tuple((d.line, d.column, d.message) for d in ordered))


def asm_error_at(message: str, span: Span[str]) -> AsmError:
    """One error at ``span``."""
    return asm_error([Diagnostic(message, span)])


def from_parse_error(error: ParseError) -> AsmError:
    """An error of xDSL's parser as one of ours."""
    span: Any = error.span
    return asm_error_at(sentence(error.msg), span)


def sentence(message: str) -> str:
    """A message of xDSL the way ours are: one line, no capital at the start, no mark at the end."""
    line = " ".join(message.split()).rstrip("!.")
    return line[:1].lower() + line[1:] if re.match(r"[A-Z][a-z]*(\s|$)", line) else line
