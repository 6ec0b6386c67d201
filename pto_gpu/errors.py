"""The exceptions a caller can meet; every one of them is a :class:`PtoError`."""

from __future__ import annotations

from collections.abc import Iterable


class PtoError(Exception):
    """Base of all errors raised on purpose by this package.

    A message names the instruction, the operand, what was seen and what is allowed; for a batch it
    also says how many tiles break the rule and gives the number of the first one.
    """


class ConstraintError(PtoError, ValueError):
    """A rule of an instruction page, or of a tile type, is broken."""


class LayoutError(ConstraintError):
    """A shape, layout or memory order that a tile or an instruction cannot have."""


class AddressError(ConstraintError):
    """A Unified Buffer address that is missing, misaligned, out of range or overlapping."""


class TypeMismatch(PtoError, TypeError):
    """An element type, or the type of an argument, that is not allowed here."""


class AsmError(PtoError, ValueError):
    """A PTO-AS program that does not parse, verify or run; the message carries file, line and column.

    ``diagnostics``: (line, column, message) of every error in it, in the order of the text; lines and columns from 1.
    """

    def __init__(self, message: str, diagnostics: tuple[tuple[int, int, str], ...] = ()) -> None:
        super().__init__(message, diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return str(self.args[0])


class BackendError(PtoError, RuntimeError):
    """The backend asked for cannot run on this machine or on these tiles."""


class FileError(PtoError, ValueError):
    """A file of tiles (a dump, a saved failure) that cannot be read or written."""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``; did you mean dtype?``, to end a message with, where a known word is like ``word`` (1: the same)."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def first_line(error: BaseException) -> str:
    """The first line of a message, or the type of an error without one."""
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
