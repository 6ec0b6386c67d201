"""A report as one HTML page that needs nothing else: no script, no network, no font of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from pto_gpu.campaign.reports.entries import Entry, Report, Verdict
from pto_gpu.campaign.reports.picture import pictures
from pto_gpu.campaign.reports.text import counted
from pto_gpu.isa import instructions
from pto_gpu.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from jinja2 import Template

#: Operand profiles are counted in rows where this ends their name, else in tiles.
_ROWS: Final = " rows"
_VERDICTS: Final = list(Verdict)


@dataclass
class Cell:
    """One signature in the matrix: the worst verdict among its entries."""

    dtypes: tuple[str, ...]
    entries: list[Entry] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict, or None where nothing was run."""
        return max((e.verdict for e in self.entries), key=_VERDICTS.index, default=None)

    @property
    def tiles(self) -> int:
        """Tiles that were compared."""
        return sum(e.data.get("tiles", 0) for e in self.entries)


@dataclass(frozen=True)
class Line:
    """A line of the matrix: an instruction on a target, and for each value type the signatures that start with it."""

    instruction: str
    target: str
    cells: Mapping[str, Sequence[Cell]]


@dataclass(frozen=True)
class Bars:
    """Counts of one kind, to be drawn side by side; ``of``: what a share is of, or None where shares add up to 1."""

    title: str
    unit: str
    counts: Mapping[str, int]
    of: int | None = None

    def share(self, count: int) -> float:
        """``count`` as a part of the whole."""
        return count / (self.of or sum(self.counts.values()))

    @property
    def largest(self) -> int:
        """The longest bar."""
        return max(self.counts.values())


def html_page(report: Report) -> bytes:
    """The report as an HTML page in UTF-8."""
    lines = matrix(report)
    names = [t for t in ELEMENT_TYPES if any(t in line.cells for line in lines)]
    compared = [e for e in report.entries if "tiles" in e.data]
    page = _template().render(
        report=report,
        headline=headline(report),
        ok=all(e.verdict is Verdict.EQUAL for e in report.entries),
        matrix=lines,
        value_types=names,
        compared=compared,
        tiles=sum(e.data["tiles"] for e in compared),
        wrong=sum(e.data["mismatched_elements"] for e in compared),
        wrong_tiles=sum(e.data["mismatched_tiles"] for e in compared),
        rate=max((e.data.get("tiles_per_second", 0) for e in compared), default=0),
        coverage=coverage(report),
        problems=[e for e in report.entries if e.verdict not in (Verdict.EQUAL, Verdict.NOT_STARTED)],
        symbols=_SYMBOLS,
        pictures=pictures,
        number=number,
    )
    return page.encode("utf-8", "backslashreplace")  # names of files may hold what UTF-8 cannot


#: A verdict is told by its sign as well as by its colour.
_SYMBOLS: Final = {
    Verdict.EQUAL: "\N{CHECK MARK}",
    Verdict.MISMATCH: "\N{BALLOT X}",
    Verdict.FAILED: "!",
    Verdict.UNREADABLE: "!",
    Verdict.INTERRUPTED: "\N{CIRCLE WITH LEFT HALF BLACK}",
    Verdict.NOT_STARTED: "\N{WHITE CIRCLE}",
}


def number(value: float) -> str:
    """``1 234 567``, with narrow spaces that do not break."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def headline(report: Report) -> str:
    """The whole run in a few words."""
    what = "combination" if report.command == "validate" else "file"
    all_of_them = counted(len(report.entries), what)
    if bad := report.counted(Verdict.MISMATCH, Verdict.FAILED):
        return f"{bad} of {all_of_them} {'differs' if bad == 1 else 'differ'} from the reference"
    if bad := report.counted(Verdict.UNREADABLE):
        return f"{bad} of {all_of_them} could not be compared"
    equal = report.counted(Verdict.EQUAL)
    if equal < len(report.entries):
        return f"Interrupted after {equal} of {all_of_them}: no difference so far"
    exact = not any(e.data.get("tolerated_elements") for e in report.entries)
    how = "bit for bit" if exact else "within the tolerance"
    return f"{all_of_them}: {'equal' if equal == 1 else 'all equal'} to the reference, {how}"


def matrix(report: Report) -> list[Line]:
    """Instructions of the run by value types: what the records allow on the target, with what became of it."""
    found: dict[tuple[str, str], dict[tuple[str, ...], Cell]] = {}
    for entry in report.entries:
        record = instructions().get(entry.instruction)
        if record is None:
            continue
        target = entry.data.get("target") or report.settings["target"]
        cells = found.setdefault((record.name, target), {s: Cell(s) for s in record.element_types[target]})
        signature = tuple(entry.data["types"])
        cells.setdefault(signature, Cell(signature)).entries.append(entry)
    lines = []
    for (name, target), cells in found.items():
        by_value: dict[str, list[Cell]] = {}
        for cell in cells.values():
            by_value.setdefault(cell.dtypes[0], []).append(cell)
        lines.append(Line(name, target, by_value))
    return lines


def coverage(report: Report) -> list[Bars]:
    """How often each kind of operand and of valid region was drawn, over the whole run."""
    profiles: Counter[str] = Counter()
    regions: Counter[str] = Counter()
    for entry in report.entries:
        profiles.update(entry.data.get("operand_profiles", {}))
        regions.update(entry.data.get("valid_regions", {}))
    rows = {kind.removesuffix(_ROWS): n for kind, n in profiles.items() if kind.endswith(_ROWS)}
    tiles = {kind: n for kind, n in profiles.items() if not kind.endswith(_ROWS)}
    other = {kind: n for kind, n in regions.items() if kind.startswith("other ")}
    main = {kind: n for kind, n in regions.items() if kind not in other}
    bars = [
        Bars("Valid regions", "tiles", main, sum(e.data.get("tiles", 0) for e in report.entries)),
        Bars("Valid region of the other source", "tiles", other),
        Bars("Value operands", "operand tiles", tiles),
        Bars("Rows of reductions", "rows", rows),
    ]
    return [b for b in bars if sum(b.counts.values())]


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pto_gpu.campaign.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")
