"""The command line: what every command has in common. Each is a module of :mod:`pto_gpu.commands`."""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from pto_gpu import __version__
from pto_gpu.campaign import THREADS
from pto_gpu.commands.bench import BenchCommand, bench
from pto_gpu.commands.check import check
from pto_gpu.commands.listing import info, list_instructions
from pto_gpu.commands.output import INTERRUPTED, error_line, error_lines, out_of_memory
from pto_gpu.commands.replay import replay
from pto_gpu.commands.run import run
from pto_gpu.commands.validate import validate
from pto_gpu.errors import AsmError, ConstraintError, PtoError

#: What a call under test may take after Ctrl-C.
_GRACE_SECONDS: Final = 4.0

# Newer typer carries its own click: its base of all usage errors is had through a public subclass.
_UsageError: Final[type[Any]] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app: Final = typer.Typer(
    name="pto-gpu",
    help="Bulk execution and validation of PTO tile instructions.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (validate, run, check, replay):
    app.command()(command)
app.command(cls=BenchCommand)(bench)
app.command()(info)
app.command("list")(list_instructions)


def main() -> None:
    """The console script: exit status 0 equal, 1 a mismatch, 2 a usage or input error, 130 after Ctrl-C."""
    _escape_what_cannot_be_encoded()
    try:
        status = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except AsmError as error:  # source lines with carets under them
        status = error_lines(str(error))
    except PtoError as error:
        status = error_line(str(error))
    except _UsageError as error:
        status = error_line(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        with suppress(OSError):
            print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer and rich exit when the reader of a pipe has gone
        status = error_line("the output was not read to its end")
    except MemoryError as error:
        status = error_line(out_of_memory(error))
    except OSError as error:
        status = error_line(str(error))
    _drop_what_cannot_be_written()
    if _hangs():
        os._exit(status or 0)  # the interpreter would wait for it
    sys.exit(status or 0)


def _hangs() -> bool:
    """Whether what is under test has not come back some seconds after Ctrl-C ended its campaign."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in threads:
        thread.join(_GRACE_SECONDS / len(threads))
    return any(thread.is_alive() for thread in threads)


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
