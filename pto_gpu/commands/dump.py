"""``pto-gpu validate --dump``: tiles to be run elsewhere, instead of a run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pto_gpu.commands.output import EQUAL, print_json
from pto_gpu.errors import ConstraintError

if TYPE_CHECKING:
    from pto_gpu.campaign.settings import Campaign

Dump = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Run nothing: write operands and golden results there, to be run elsewhere."),
]
DumpFormat = Annotated[str | None, typer.Option(help="Of --dump: npz (default), or bin with a manifest.toml.")]


def refuse_with_dump(choices: Mapping[str, Any]) -> None:
    """Raise for the first option that was given; None or False: it was not."""
    for name, value in choices.items():
        if value is not None and value is not False:
            raise ConstraintError(f"{name} is not for --dump, which writes random tiles and runs nothing")


def write_dump(
    combinations: Sequence[tuple[str, tuple[str, ...], Mapping[str, Any]]],
    directory: Path | None,
    form: str | None,
    *,
    json: bool,
) -> int:
    """Write each combination of instruction, element types and settings, and say how to check the results."""
    from pto_gpu.campaign.files.export import DEFAULT_TILES, FORMATS, dump_path, export
    from pto_gpu.campaign.reports import text as report
    from pto_gpu.campaign.settings import Campaign

    if directory is None:
        raise ConstraintError("--dump-format needs --dump DIR")
    if form is not None and form not in FORMATS:
        raise ConstraintError(f"--dump-format {form!r} is not known: allowed {', '.join(FORMATS)}")
    campaigns = []
    for op, dtypes, settings in combinations:
        tiles = DEFAULT_TILES if settings["tiles"] is None else settings["tiles"]
        campaigns.append(Campaign(op, dtypes, **{**settings, "tiles": tiles}))
    form = form or FORMATS[0]
    paths = export(campaigns, directory, form)
    out = report.printer(to_stderr=json)
    for campaign in campaigns:
        what = f"{campaign.label}: {report.counted(campaign.tiles, 'tile')}, seed {campaign.seed}"
        out.print(f"{dump_path(campaign, directory, form)}: {what}")
    out.print(f"when dst is there: {_check_command(campaigns[0], paths)}")
    if json:
        dumps = [
            {"instruction": c.record.name, "types": list(c.dtypes), "shape": list(c.grid), "tiles": c.tiles}
            for c in campaigns
        ]
        print_json({"status": EQUAL, "files": [str(p) for p in paths], "dumps": dumps})
    return EQUAL


def _check_command(campaign: Campaign, paths: Sequence[Path]) -> str:
    """How the results are to be compared, under the rules that the golden ones were computed with."""
    if paths[0].suffix == ".toml":  # which has them
        return f"pto-gpu check {paths[0]}"
    options = (
        ("--target", campaign.options.target.name, "a5"),
        ("--numerics", campaign.options.numerics.label, "isa"),
        ("--undefined", campaign.undefined, "error"),
    )
    return " ".join(
        ["pto-gpu check", *(f"{name} {value}" for name, value, usual in options if value != usual), "FILE..."]
    )
