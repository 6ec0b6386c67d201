"""What a run measured, as plain data that goes to a JSON file and comes back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from pto_gpu.bench.timing import Copy, Timed
from pto_gpu.errors import FileError

FORMAT: Final = "pto-gpu bench 1"
#: Below this many bytes moved the tiles lie in caches, and a fraction of the copy says nothing about memory.
LEAST_BYTES: Final = 1 << 26
#: What memory moves over what a copy counts, at most: a processor may read the lines that it is about to write. So
#: more than this over the copy is impossible, and what reads more than it writes may come to more than 1.
MOST_OF_A_COPY: Final = 1.5


@dataclass(frozen=True)
class Row:
    """One provider on one workload. Times in seconds a call; ``nbytes``, ``line_bytes`` as in a Workload.

    ``copy``: timed next to it. ``extra_bytes``: memory that a call took beside its operands, where that was measured.
    ``problem``: why the time must not be trusted: wrong results.
    """

    sweep: str
    instruction: str
    elements: str
    rows: int
    cols: int
    regions: str
    batch: int
    provider: str
    threads: int | None
    time: Timed
    nbytes: int
    line_bytes: int
    copy: Copy
    extra_bytes: int | None = None
    problem: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What two runs have in common where they measured the same."""
        where = (self.rows, self.cols, self.regions, self.batch, self.threads)
        return (self.sweep, self.instruction, self.elements, *where, self.provider)

    @property
    def label(self) -> str:
        """All of it in words."""
        threads = f", {self.threads} threads" if self.threads else ""
        what = f"{self.instruction} {self.elements} {self.rows}x{self.cols} x {self.batch}"
        return f"{self.sweep}: {what}, {self.regions}, {self.provider}{threads}"

    def of_copy(self, copy: Timed) -> float | None:
        """Bytes a second over those of ``copy``, whole cache lines counted; None where the tiles lie in caches."""
        if self.nbytes < LEAST_BYTES:
            return None
        return self.line_bytes / self.time.seconds / (self.copy.nbytes / copy.seconds)

    @property
    def fastest_copy(self) -> Timed:
        """The copy that took the least time: the limit of what memory moves."""
        return min(self.copy.plain, self.copy.threaded, key=lambda t: t.seconds)

    @property
    def above_copy(self) -> bool:
        """Whether it moves more bytes than memory does at the fastest copy that was seen: the count must be wrong."""
        if self.nbytes < LEAST_BYTES:
            return False
        limit = self.copy.nbytes / min(self.copy.plain.best, self.copy.threaded.best)
        return self.line_bytes / self.time.seconds > MOST_OF_A_COPY * limit


@dataclass(frozen=True)
class StartUp:
    """One of the costs before the first result: seconds in a fresh process, or of a call."""

    name: str
    time: Timed
    wanted: float | None = None


@dataclass
class Run:
    """Everything of one run. ``machine``: what `pto-gpu info` says, and the load around it."""

    date: str
    machine: dict[str, Any]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    startup: list[StartUp] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak_bytes: int | None = None
    interrupted: bool = False

    def of_sweep(self, name: str) -> list[Row]:
        """The rows of one sweep."""
        return [row for row in self.rows if row.sweep == name]

    def problems(self) -> list[str]:
        """What is wrong with the figures; such a run is not to be quoted."""
        wrong = [f"{row.label}: {row.problem}" for row in self.rows if row.problem]
        above = f"moves more than {MOST_OF_A_COPY} of the bytes a second of the fastest copy: the count must be wrong"
        return wrong + [f"{row.label}: {above}" for row in self.rows if row.above_copy]


def to_data(run: Run) -> dict[str, Any]:
    """``run`` as JSON-ready data, with the verdicts that follow from it."""
    from pto_gpu.bench.goals import goals_of

    data = {"format": FORMAT, **dataclasses.asdict(run)}
    for row, plain in zip(run.rows, data["rows"], strict=True):
        plain["time"], plain["copy"] = row.time._asdict(), _copy_data(row.copy)
    for start, plain in zip(run.startup, data["startup"], strict=True):
        plain["time"] = start.time._asdict()
    verdicts = [{**goal._asdict(), "met": goal.met} for goal in goals_of(run)]
    return {**data, "goals": verdicts, "problems": run.problems()}


def _copy_data(copy: Copy) -> dict[str, Any]:
    return {"plain": copy.plain._asdict(), "threaded": copy.threaded._asdict(), "nbytes": copy.nbytes}


def write(run: Run, path: Path) -> None:
    """Write ``run`` to ``path``; raises FileError where that fails."""
    try:
        path.write_text(json.dumps(to_data(run), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def read(path: Path) -> Run:
    """The run that :func:`write` wrote to ``path``; raises FileError for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise FileError(f"{path}: not a JSON file") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"{path}: not a file of pto-gpu bench --json (format {FORMAT!r})")
    try:
        parts = {f.name: data[f.name] for f in dataclasses.fields(Run)}
        parts["rows"] = [Row(**{**r, "time": Timed(**r["time"]), "copy": _copy(r["copy"])}) for r in data["rows"]]
        parts["startup"] = [StartUp(**{**s, "time": Timed(**s["time"])}) for s in data["startup"]]
        run = Run(**parts)
        for part in (run, *run.rows, *run.startup, *(row.copy for row in run.rows)):
            _check_fields(part)
        _check_numbers(time for row in run.rows for time in (row.time, row.copy.plain, row.copy.threaded))
        _check_numbers(start.time for start in run.startup)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: a damaged file of pto-gpu bench: {error}") from None
    return run


def _copy(data: Mapping[str, Any]) -> Copy:
    return Copy(Timed(**data["plain"]), Timed(**data["threaded"]), data["nbytes"])


def _check_fields(part: Any) -> None:
    """Raise ValueError for a field that is not of its type, or for a number that no run has."""
    for name, hint in get_type_hints(type(part)).items():
        value = getattr(part, name)
        kinds = tuple(get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,)))
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        if not (fits or (number and float in kinds)) or (number and not 0 <= value < 1 << 63):
            raise ValueError(
                f"{name} must be {hint if isinstance(hint, UnionType) else hint.__name__}: seen {value!r:.40}"
            )


def _check_numbers(times: Iterable[Timed]) -> None:
    for time in times:
        if not all(isinstance(x, (int, float)) and x > 0 for x in time):
            raise ValueError(f"times must be above zero: seen {time}")
