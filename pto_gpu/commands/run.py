"""``pto-gpu run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pto_gpu.commands.options import Json, NumericsName, Undefined, either
from pto_gpu.commands.output import EQUAL, print_json
from pto_gpu.defaults import BACKENDS
from pto_gpu.errors import FileError
from pto_gpu.targets import TARGETS

if TYPE_CHECKING:
    from pto_gpu.asm import Program


def run(
    file: Annotated[Path, typer.Argument(help="A PTO-AS program.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="NAME=FILE", help="An input: .npy, .npz, raw .bin, or a number; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory that each result is written to, as NAME.npy.")] = None,
    target: Annotated[
        str | None, typer.Option(help=f"{either(TARGETS)}; default the one that the program names, or a5.")
    ] = None,
    backend: Annotated[str, typer.Option(help=f"{either(BACKENDS)}.")] = "auto",
    numerics: NumericsName = "isa",
    undefined: Undefined = "error",
    function: Annotated[str | None, typer.Option(help="The function to run, if there are several.")] = None,
    outputs: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Tiles to return in place of those nothing reads.")
    ] = None,
    verify_only: Annotated[bool, typer.Option("--verify-only", help="Check the program and stop.")] = False,
    emit: Annotated[str | None, typer.Option(help="Print the program in this form and stop: sync, ssa or dps.")] = None,
    json: Json = False,
) -> int:
    """Run a PTO-AS program over a batch of tiles."""
    from pto_gpu.asm import files
    from pto_gpu.defaults import current_options, options

    program = files.read_program(file)
    current_options().override(target, backend, numerics, undefined)  # a word that is not allowed is refused first
    if emit is not None:
        print(program.emit(emit), end="")
        return EQUAL
    if verify_only:
        return _verify(program, file, target, undefined, json)
    if out is None:
        raise FileError("no directory for the results: name one with --out DIR")
    arrays = files.read_inputs(program, inputs or [], function)
    with files.ResultFiles(out) as results, options(target=target, backend=backend, numerics=numerics):
        found = program.run(
            arrays,
            target=target,
            undefined=undefined,
            function=function,
            outputs=outputs.split(",") if outputs is not None else None,
            allocate=results.allocate,
        )
        _report(found, results.save(found), json)
    return EQUAL


def _verify(program: Program, file: Path, target: str | None, undefined: str, json: bool) -> int:
    from pto_gpu.defaults import current_options, options

    with options(undefined=undefined):
        program.verify(target)
    name = target or program.target or current_options().target.name
    if json:
        print_json({"status": EQUAL, "file": str(file), "target": name, "inputs": program.inputs()})
    else:
        print(f"{file}: no errors on {name}")
    return EQUAL


def _report(results: dict[str, Any], paths: dict[str, Path], json: bool) -> None:
    from pto_gpu.types import element_type_of

    rows = {
        name: {"dtype": str(element_type_of(x.dtype)), "shape": list(x.shape), "file": str(paths[name])}
        for name, x in results.items()
    }
    if json:
        print_json({"status": EQUAL, "results": rows})
        return
    for name, row in rows.items():
        print(f"{name}  {row['dtype']} {row['shape']}  {row['file']}")
