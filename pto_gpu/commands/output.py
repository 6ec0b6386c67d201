"""What commands print beside their report: exit status, errors, JSON, a progress bar, saved failures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_gpu.errors import FileError

if TYPE_CHECKING:
    from pto_gpu.campaign.explain.diagnose import Diagnosis
    from pto_gpu.campaign.files.saved import SavedTile

EQUAL, MISMATCH, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def error_line(message: str) -> int:
    """Print an error as one line on stderr; returns the exit status that goes with it."""
    return error_lines(" ".join(message.split("\n")))


def error_lines(message: str) -> int:
    """Print an error with the lines that it has on stderr; returns the exit status that goes with it."""
    with suppress(OSError):  # the status still tells
        print(f"error: {message}", file=sys.stderr)
    return BAD_INPUT


def out_of_memory(error: MemoryError) -> str:
    """What to say about ``error``."""
    return f"out of memory: {error}" if str(error) else "out of memory"


def print_json(data: Any) -> None:
    """Print the one object of ``--json`` on stdout."""
    print(json.dumps(data, indent=2, allow_nan=False))


def printed_on_stderr(wanted: bool) -> AbstractContextManager[Any]:
    """Somebody's function may print, and the stdout of ``--json`` is for one object."""
    return redirect_stdout(sys.stderr) if wanted else nullcontext()


@contextmanager
def progress_bar(
    label: str, total: int, rate: Callable[[int, float], str] = lambda done, seconds: "", *, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal, gone when the block ends; else nothing is shown.

    ``rate`` makes text of what was done in so many seconds.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    begun: list[tuple[int, float]] = []  # what a journal had done is not to be in the rate

    def measured(done: int) -> str:
        if not begun:
            begun.append((done, time.perf_counter()))
        before, start = begun[0]
        return rate(done - before, time.perf_counter() - start) if done > before else ""

    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(label, total=total, rate="")
        yield lambda done: bar.update(task, completed=done, rate=measured(done))


def save_failure(failure: SavedTile | None, directory: Path, show: Callable[[str], None]) -> Path | None:
    """Save the failing tile, if there is one, and show how to run it again."""
    from pto_gpu.campaign.files import saved
    from pto_gpu.campaign.reports import text as report

    if failure is None:
        return None
    try:
        path = saved.save(failure, directory)
    except FileError as error:  # the mismatch still has to be reported
        show(f"  the failing tile was not saved: {error}")
        return None
    show(f"  {report.again_text(failure)}: {report.replay_command(failure, path)}")
    return path


def save_with_shrunk(
    failure: SavedTile | None, found: Diagnosis | None, directory: Path, show: Callable[[str], None]
) -> tuple[Path | None, Path | None]:
    """Save the failing tile and the shrunk one, and show how to run again the smaller of them."""
    from pto_gpu.campaign.files import saved
    from pto_gpu.campaign.reports import text as report

    shrunk = found.shrunk.tile if found and found.shrunk else None
    if found and found.explanation:
        failure, shrunk = (t and replace(t, causes=found.explanation.causes) for t in (failure, shrunk))
    smaller = save_failure(shrunk, directory, show)
    if failure is None or smaller is None:
        return save_failure(failure, directory, show), None
    try:
        path = saved.save(failure, directory)
    except FileError as error:
        show(f"  the tile as it was first was not saved: {error}")
        return None, smaller
    show(f"  the tile as it was first: {report.replay_command(failure, path)}")
    return path, smaller
