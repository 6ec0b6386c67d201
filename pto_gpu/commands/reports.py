"""Report files of a command: JUnit XML and HTML."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pto_gpu.errors import ConstraintError, FileError

if TYPE_CHECKING:
    from pto_gpu.campaign.reports.entries import Report

Junit = Annotated[Path | None, typer.Option(help="Also write the report to this file, as JUnit XML.")]
Html = Annotated[Path | None, typer.Option(help="Also write the report to this file, as one HTML page.")]


@dataclass(frozen=True)
class ReportFiles:
    """Where reports go. Raises for a file that cannot be written, before hours are spent on what it should hold.

    ``taken``: files of the same command that a report must not replace, with what names them.
    """

    junit: Path | None
    html: Path | None
    taken: Sequence[tuple[str, Path]] = ()

    def __post_init__(self) -> None:
        places: dict[str, str] = {}
        for option, path in (*self.taken, ("--junit", self.junit), ("--html", self.html)):
            first = places.setdefault(os.path.realpath(path), option) if path is not None else option
            if first != option:
                raise ConstraintError(f"{first} and {option} name the same file: {path}")
        for path in (self.junit, self.html):
            if path is not None:
                _check_writable(path)

    def write(self, make: Callable[[], Report]) -> None:
        """Write the report that ``make`` makes, if it is wanted; raises FileError where that fails after all."""
        from pto_gpu.campaign.reports.html import html_page
        from pto_gpu.campaign.reports.junit import junit_xml

        if self.junit is None and self.html is None:
            return
        report = make()
        _write(self.junit, lambda: junit_xml(report))
        _write(self.html, lambda: html_page(report))


def _check_writable(path: Path) -> None:
    try:
        new = not path.exists()
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def _write(path: Path | None, make: Callable[[], bytes]) -> None:
    if path is None:
        return
    try:
        path.write_bytes(make())
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
