"""``pto-gpu bench``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from pto_gpu.commands.options import combinations_of
from pto_gpu.commands.output import EQUAL, INTERRUPTED, MISMATCH, print_json, progress_bar
from pto_gpu.errors import ConstraintError, FileError

if TYPE_CHECKING:
    from rich.console import Console

    from pto_gpu.bench.results import Run

#: It has every element type that there is.
TARGET: Final = "a5"
#: The file of ``--json`` that is stdout.
STDOUT: Final = Path("-")


class BenchCommand(TyperCommand):
    """``pto-gpu bench``, whose ``--json`` may go without a file: Typer has no such option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``, with ``-`` where a file may stand and does not."""
        return super().parse_args(ctx, _with_json_file(args))


def _with_json_file(arguments: Sequence[str]) -> list[str]:
    result: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        result.append(argument)
        if argument == "--json" and not _names_a_file(following):
            result.append(str(STDOUT))
    return result


def _names_a_file(text: str | None) -> bool:
    """Whether what follows ``--json`` is its file, and no other option or instruction."""
    from pto_gpu.isa import instructions

    if text is None or (text.startswith("-") and text != str(STDOUT)):
        return False
    return text.upper() not in instructions()


def bench(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    op: Annotated[list[str] | None, typer.Option(help="The same as OP.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="An element type, such as f32 or f16/u16, may be repeated; default all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer tiles and samples: under two minutes.")] = False,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="[FILE]",
            help="Write machine, versions and every measurement there; without FILE on stdout, and all else on stderr.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Write plots there; needs matplotlib.")] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Say what changed since the run of that --json.")
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--from", metavar="RUN.json", help="Measure nothing: show the run of that --json.")
    ] = None,
) -> int:
    """Measure every instruction against NumPy and against the copy bandwidth of this machine."""
    from pto_gpu.bench import plots, results

    if saved is not None:
        _refuse_with_saved({"OP": ops, "--op": op, "--dtype": dtype, "--quick": quick, "--json": json})
    wanted = _chosen([*(ops or ()), *(op or ())], dtype or [])
    old = results.read(compare) if compare is not None else None
    if json is not None and json != STDOUT:
        _refuse_unwritable_file(json)
    if plot is not None:
        plots.require_matplotlib()
        _refuse_unwritable_folder(plot)
    run = results.read(saved) if saved is not None else _measure(wanted, quick=quick)
    console = _console(to_stderr=json == STDOUT)
    _show(run, console)
    if json == STDOUT:
        print_json(results.to_data(run))
    elif json is not None:
        results.write(run, json)
    if plot is not None:
        console.print(*plots.draw_all(run, plot), sep="\n", soft_wrap=True)
    if old is not None:
        _show_changes(old, run, console)
    if run.interrupted and saved is None:
        return INTERRUPTED
    return MISMATCH if run.problems() else EQUAL


def _console(*, to_stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=to_stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 160  # a pipe has no width: lines must not be cut
    return console


def _show_changes(old: Run, run: Run, console: Console) -> None:
    from pto_gpu.bench.compare import compare, comparison_lines

    console.print("\n".join(comparison_lines(compare(old, run), old.date)), soft_wrap=True)


def _refuse_with_saved(choices: Mapping[str, Any]) -> None:
    """Raise for the first option that was given."""
    for name, value in choices.items():
        if value:
            raise ConstraintError(f"{name} is not for --from, which measures nothing")


def _chosen(ops: Sequence[str], dtypes: Sequence[str]) -> list[tuple[str, tuple[str, ...]]] | None:
    """Instructions and element types that were named; None: all."""
    return combinations_of(ops, dtypes, TARGET) if ops or dtypes else None


def _refuse_unwritable_file(path: Path) -> None:
    """Raise FileError now rather than after minutes of measuring; leaves no trace."""
    with _as_file_error(path):
        if path.exists():
            path.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()


def _refuse_unwritable_folder(path: Path) -> None:
    """The same for a directory that may have to be made."""
    with _as_file_error(path):
        there = next(p for p in (path, *path.parents) if p.exists())
        tempfile.TemporaryFile(dir=there).close()


@contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def _measure(wanted: Sequence[tuple[str, tuple[str, ...]]] | None, *, quick: bool) -> Run:
    from pto_gpu import backends
    from pto_gpu.bench import table
    from pto_gpu.bench.run import measure

    sweeps = [table.quick(s) if quick else s for s in table.SWEEPS]
    groups = list(table.groups(sweeps, wanted, gpu=backends.gpu() is not None))
    now = [""]
    with progress_bar("bench", len(groups) + 1, lambda done, seconds: now[0]) as advance:

        def show(done: int, what: str) -> None:
            now[0] = what
            advance(done)

        return measure(groups, quick=quick, advance=show)


def _show(run: Run, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from pto_gpu.bench.tables import goal_lines, machine_lines, tables

    for table in tables(run):
        shown = Table(title=table.title, caption=table.note, title_justify="left", caption_justify="left")
        for column in table.columns:
            left = column.startswith("<")
            shown.add_column(column.removeprefix("<"), justify="left" if left else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(cell, style="bold red" if "MISSED" in cell else "") for cell in row))
        console.print(shown)
    quick = ["quick run: targets hold for the full one"] if run.quick else []
    interrupted = ["interrupted: what was measured until then"] if run.interrupted else []
    problems = [f"ERROR: {text}" for text in run.problems()]
    lines = [*machine_lines(run), *run.notes, *quick, *goal_lines(run), *problems, *interrupted]
    console.print("\n".join(lines), soft_wrap=True)
