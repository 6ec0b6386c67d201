"""The command line. Heavy imports are inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import io
import json as json_format
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pto_gpu import __version__
from pto_gpu.defaults import BACKENDS, UNDEFINED
from pto_gpu.errors import ConstraintError, FileError, PtoError
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS

if TYPE_CHECKING:
    from pto_gpu.campaign.results import Result
    from pto_gpu.campaign.saved import SavedTile
    from pto_gpu.campaign.settings import Campaign
    from pto_gpu.isa.record import Instruction

EQUAL, MISMATCH, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
#: More is no tile, and no size that an array can have.
_SHAPE_DIGITS: Final = 9

# Newer typer carries its own click: its base of all usage errors is had through a public subclass.
_UsageError: Final[type[Any]] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app: Final = typer.Typer(
    name="pto-gpu",
    help="Bulk execution and validation of PTO tile instructions.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


Target = Annotated[str, typer.Option(help=f"{_either(TARGETS)}.")]
NumericsName = Annotated[
    str, typer.Option("--numerics", help=f"{', '.join(NUMERICS)}, or nan/tie/zero such as number/src0/keep.")
]
Undefined = Annotated[str, typer.Option(help=f"Valid regions that a page leaves undefined: {_either(UNDEFINED)}.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and all else on stderr.")]
Save = Annotated[Path, typer.Option(help="Directory that a failing tile is saved in.")]


def main() -> None:
    """The console script: exit status 0 equal, 1 a mismatch, 2 a usage or input error, 130 after Ctrl-C."""
    _escape_what_cannot_be_encoded()
    try:
        status = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except PtoError as error:
        status = _error(str(error))
    except _UsageError as error:
        status = _error(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        with suppress(OSError):
            print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer and rich exit when the reader of a pipe has gone
        status = _error("the output was not read to its end")
    except MemoryError as error:
        status = _error(_out_of_memory(error))
    except OSError as error:
        status = _error(str(error))
    _drop_what_cannot_be_written()
    sys.exit(status or 0)


def _error(message: str) -> int:
    with suppress(OSError):  # the status still tells
        print("error: " + " ".join(message.split("\n")), file=sys.stderr)
    return BAD_INPUT


def _out_of_memory(error: MemoryError) -> str:
    return f"out of memory: {error}" if str(error) else "out of memory"


def _escape_what_cannot_be_encoded() -> None:
    """Any file name can be printed, whatever the encoding of the streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_what_cannot_be_written() -> None:
    """Otherwise the interpreter would try again when it ends, and change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # closed by whoever started this process
            continue
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(f"pto-gpu {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise ConstraintError("no command given: see pto-gpu --help")


@app.command()
def validate(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type, such as f32 or f16/u16; default all.")] = None,
    shape: Annotated[str | None, typer.Option(help="Tile shape ROWSxCOLS; default 16x16, or the smallest.")] = None,
    tiles: Annotated[int | None, typer.Option(help="Tiles for each combination of element types.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the operands: 0 to 2**64 - 1.")] = None,
    target: Target = "a5",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    backend: Annotated[
        str, typer.Option(help=f"Under test: {_either(b for b in BACKENDS if b != 'numpy')}; numpy is the reference.")
    ] = "auto",
    workers: Annotated[int | None, typer.Option(help="Threads; default every core.")] = None,
    save: Save = Path("failures"),
    json: Json = False,
) -> int:
    """Run instructions on random tiles and compare every bit with the reference."""
    from pto_gpu.campaign import report
    from pto_gpu.campaign.settings import DEFAULT_SEED, DEFAULT_TILES, Campaign

    settings: dict[str, Any] = {
        "target": target,
        "numerics": numerics,
        "undefined": undefined,
        "backend": backend,
        "workers": workers,
        "shape": _shape(shape) if shape is not None else None,
        "tiles": DEFAULT_TILES if tiles is None else tiles,
        "seed": DEFAULT_SEED if seed is None else seed,
    }
    campaigns = [Campaign(op, dtypes, **settings) for op, dtypes in _combinations(ops or [], dtype, target)]
    out = report.printer(to_stderr=json)
    start = time.perf_counter()
    results, data = [], []
    for result in _run_all(campaigns):
        out.print("\n".join(report.result_lines(result)))
        path = _save(result.first_failure, save, out.print)
        results.append(result)
        data.append(report.result_data(result, path))
    seconds = time.perf_counter() - start
    out.print("\n".join(report.coverage_lines(results, seconds, campaigns[len(results) :])))
    status = EQUAL if all(r.equal for r in results) else MISMATCH
    if any(r.interrupted for r in results):
        status = INTERRUPTED
    if json:
        _print_json({"status": status, "seconds": round(seconds, 3), "campaigns": data})
    return status


def _run_all(campaigns: Sequence[Campaign]) -> Iterator[Result]:
    """The results one after the other, up to and including one that Ctrl-C ended."""
    from pto_gpu.campaign.run import run_campaign

    for place, campaign in enumerate(campaigns, 1):
        with _progress(f"{place}/{len(campaigns)} {campaign.label}", campaign.tiles) as advance:
            result = run_campaign(campaign, progress=advance)
        yield result
        if result.interrupted:
            return


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal, gone when the block ends; else nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _save(failure: SavedTile | None, directory: Path, show: Callable[[str], None]) -> Path | None:
    """Save the failing tile, if there is one, and show how to run it again."""
    from pto_gpu.campaign import report, saved

    if failure is None:
        return None
    try:
        path = saved.save(failure, directory)
    except FileError as error:  # the mismatch still has to be reported
        show(f"  the failing tile was not saved: {error}")
        return None
    show("\n".join(report.reproducer_lines(failure, path)))
    return path


def _shape(text: str) -> tuple[int, int]:
    rows, x, cols = text.lower().partition("x")
    if not (x and rows.isdecimal() and cols.isdecimal()):
        raise ConstraintError(f"--shape {text!r} is no shape: allowed ROWSxCOLS, such as 16x16")
    if max(len(rows), len(cols)) > _SHAPE_DIGITS:
        raise ConstraintError(
            f"--shape is out of range: allowed at most {_SHAPE_DIGITS} digits for rows and for columns"
        )
    return int(rows), int(cols)


def _instruction(text: str) -> Instruction:
    """The instruction called ``text``; the error for an unknown one names the nearest."""
    import difflib

    from pto_gpu.isa import instruction, instructions

    try:
        return instruction(text)
    except ConstraintError as error:
        near = difflib.get_close_matches(text.upper(), instructions(), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConstraintError(f"{error}{hint}") from None


def _combinations(ops: Sequence[str], dtype: str | None, target: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every (instruction, element types) to run."""
    from pto_gpu.isa import instructions
    from pto_gpu.targets import resolve_target
    from pto_gpu.types import resolve_element_type

    wanted = tuple(resolve_element_type(t).name for t in dtype.split("/")) if dtype is not None else ()
    known, name = instructions(), resolve_target(target).name
    found = []
    for op in dict.fromkeys(_instruction(op).name for op in ops) or known:
        allowed = known[op].element_types[name]
        matching = [s for s in allowed if s[: len(wanted)] == wanted]
        if ops and not matching:
            types = ", ".join("/".join(s) for s in allowed)
            raise ConstraintError(f"{op}: element type {dtype} is not supported on {name}: allowed {types}")
        found += [(op, s) for s in matching]
    if not found:
        raise ConstraintError(f"no instruction supports element type {dtype} on {name}")
    return found


def _print_json(data: Any) -> None:
    print(json_format.dumps(data, indent=2, allow_nan=False))


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="[OP] FILE...", help="An instruction, if file names do not start with it.")
    ],
    target: Target = "a5",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    outside: Annotated[
        str, typer.Option(help="dst outside its valid region: zero (compared with 0) or ignore.")
    ] = "zero",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Element type of values stored as bare bits; default bf16 for uint16 if the file name says bf16."
        ),
    ] = None,
    save: Save = Path("failures"),
    json: Json = False,
) -> int:
    """Compare dumps made elsewhere (.npz) with the reference."""
    from pto_gpu.campaign import dumps, report
    from pto_gpu.campaign.saved import OUTSIDE
    from pto_gpu.defaults import current_options
    from pto_gpu.types import resolve_element_type

    if outside not in OUTSIDE:
        raise ConstraintError(f"--outside {outside!r} is not known: allowed {', '.join(OUTSIDE)}")
    op = None
    if not _names_a_file(files[0]):
        op, files = _instruction(files[0]), files[1:]
    if not files:
        raise FileError("no file given: pto-gpu check [OP] FILE...")
    options = current_options().override(target, None, numerics, undefined)
    element = resolve_element_type(dtype) if dtype is not None else None
    out = report.printer(to_stderr=json)
    data: list[dict[str, Any]] = []
    for path in map(Path, files):
        try:
            checked = dumps.check_dump(path, op or dumps.instruction_of(path), options, outside, element)
        except (PtoError, MemoryError) as error:  # the other files still get their verdicts
            message = f"{path}: {_out_of_memory(error)}" if isinstance(error, MemoryError) else str(error)
            _error(message)
            data.append({"file": str(path), "error": message})
            continue
        out.print("\n".join(report.checked_lines(checked)))
        saved = _save(checked.first_failure, save, out.print)
        data.append({**report.checked_data(checked), "saved": str(saved) if saved else None})
    if any(d["error"] is not None for d in data):
        status = BAD_INPUT
    else:
        status = EQUAL if all(d["equal"] for d in data) else MISMATCH
    if json:
        _print_json({"status": status, "numerics": options.numerics.label, "files": data})
    return status


def _names_a_file(text: str) -> bool:
    return "." in text or os.sep in text or os.path.exists(text)  # Path.exists raises for a long name


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A failure that validate or check saved.")],
    backend: Annotated[
        str | None, typer.Option(help=f"Under test: {_either(BACKENDS)}; default the one that failed, none for a dump.")
    ] = None,
    json: Json = False,
) -> int:
    """Run one saved failure again, or take the result that a dump held, and compare with the reference."""
    from pto_gpu.campaign import report, run, saved

    tile = saved.load(file)
    comparison, name = run.replay(tile, backend)
    out = report.printer(to_stderr=json)
    what = f"{tile.instruction.name} {'/'.join(tile.instruction.signature(tile.types))}"
    where = "the result stored from the dump" if name is None else f"backend {name}"
    verdict = f"MISMATCH, {report.differ_text(comparison.elements)}" if comparison.elements else "equal now"
    lines = report.mismatch_lines(what, comparison.mismatches, comparison.elements, comparison.categories)
    out.print("\n".join([f"{what} {tile.origin} tile {tile.tile}, {where}: {verdict}", *lines]))
    status = MISMATCH if comparison.elements else EQUAL
    if json:
        mismatches = [report.mismatch_data(m) for m in comparison.mismatches]
        _print_json(
            {"status": status, "instruction": tile.instruction.name, "compared": where, "mismatches": mismatches}
        )
    return status


@app.command("list")
def list_instructions(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Instructions; default all.")] = None,
    json: Json = False,
) -> int:
    """Show instructions: operands, element types on each target, constraints."""
    from pto_gpu import listing
    from pto_gpu.isa import instructions

    records = [_instruction(op) for op in ops or instructions()]
    if json:
        _print_json({"instructions": [listing.instruction_data(r) for r in records]})
    else:
        print("\n\n".join("\n".join(listing.instruction_lines(r)) for r in records))
    return EQUAL


@app.command()
def info(json: Json = False) -> int:
    """Show versions, machine and devices: what a bug report needs."""
    from pto_gpu import listing

    data = listing.info_data()
    if json:
        _print_json(data)
    else:
        width = max(map(len, data))
        print("\n".join(f"{key:{width}}  {value}" for key, value in data.items()))
    return EQUAL
