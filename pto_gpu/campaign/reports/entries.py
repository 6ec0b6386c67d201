"""What a report file is made of: one entry for each campaign, or for each file that was checked."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pto_gpu.campaign.check import Checked
from pto_gpu.campaign.explain.diagnose import Diagnosis
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.reports.data import diagnosis_data, result_data
from pto_gpu.campaign.reports.diagnosis import diagnosis_lines
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.settings import Campaign

#: Settings that every entry of a run has in common, as they are named in its data.
_COMMON: Final = ("target", "numerics", "undefined", "backend", "against", "seed")


class Verdict(StrEnum):
    """What became of an entry, the worst last."""

    EQUAL = "equal"
    NOT_STARTED = "not started"
    INTERRUPTED = "interrupted"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    MISMATCH = "mismatch"


@dataclass(frozen=True)
class Entry:
    """``name`` within ``instruction``, the verdict, the lines that say why, and the data of ``--json``.

    ``remarks``: what explains a mismatch. ``tiles``: what to draw, by what it is. ``again``: the command that runs the
    tile that was saved again.
    """

    instruction: str
    name: str
    verdict: Verdict
    lines: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    tiles: Mapping[str, SavedTile] = field(default_factory=dict)
    again: str | None = None

    @property
    def seconds(self) -> float:
        """How long it took; 0 where nobody measured."""
        return float(self.data.get("seconds", 0))


@dataclass(frozen=True)
class Report:
    """A whole run. ``settings``: what its entries have in common. ``machine``: versions and devices."""

    command: str
    status: int
    seconds: float
    entries: Sequence[Entry]
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    started: datetime
    line: str

    def counted(self, *verdicts: Verdict) -> int:
        """Entries with one of ``verdicts``."""
        return sum(e.verdict in verdicts for e in self.entries)

    def by_instruction(self) -> dict[str, list[Entry]]:
        """The entries of each instruction, in the order of the run."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.instruction, []).append(entry)
        return found


def of_result(
    result: Result, failing: SavedTile | None, saved: Path | None, found: Diagnosis | None, smaller: Path | None
) -> Entry:
    """The entry of a campaign that ran; its ``failing`` tile was ``saved``, and a ``smaller`` one."""
    if result.crash:
        verdict = Verdict.FAILED
    elif result.mismatched_elements:
        verdict = Verdict.MISMATCH
    else:
        verdict = Verdict.INTERRUPTED if result.interrupted else Verdict.EQUAL
    lines = [] if verdict is Verdict.EQUAL else report.result_lines(result)
    data = {**result_data(result, failing, saved), **diagnosis_data(found, smaller)}
    name = _name(result.campaign)
    told = {**_explained(found, result.first_failure), "again": _again(failing, saved)}
    return Entry(result.campaign.record.name, name, verdict, lines, data, **told)


def _again(failing: SavedTile | None, saved: Path | None) -> str | None:
    return report.replay_command(failing, saved) if failing and saved else None


def _explained(found: Diagnosis | None, failure: SavedTile | None) -> dict[str, Any]:
    shrunk = found.shrunk.tile if found and found.shrunk else None
    tiles = {"as it was found": failure, "made as small and simple as it can be": shrunk}
    return {"remarks": diagnosis_lines(found), "tiles": {what: tile for what, tile in tiles.items() if tile}}


def not_started(campaign: Campaign) -> Entry:
    """The entry of a campaign that a run did not get to."""
    record = campaign.record
    data = {"instruction": record.name, "types": list(campaign.dtypes), "target": campaign.options.target.name}
    return Entry(record.name, _name(campaign), Verdict.NOT_STARTED, data=data)


def of_checked(checked: Checked, data: Mapping[str, Any], found: Diagnosis | None, saved: Path | None) -> Entry:
    """The entry of a file that was compared; ``data``: that of ``--json``; its failing tile was ``saved``."""
    verdict = Verdict.EQUAL if checked.equal else Verdict.MISMATCH
    lines = [] if checked.equal else report.checked_lines(checked)
    told = {**_explained(found, checked.first_failure), "again": _again(checked.first_failure, saved)}
    return Entry(checked.instruction.name, str(checked.path), verdict, lines, data, **told)


def unreadable(label: str, message: str) -> Entry:
    """The entry of a file that could not be compared."""
    return Entry("files that cannot be compared", label, Verdict.UNREADABLE, [message])


def report_of(
    command: str, status: int, seconds: float, entries: Sequence[Entry], settings: Mapping[str, Any] | None = None
) -> Report:
    """The report of a run that ends now; ``settings``: default those in the data of the first entry."""
    from pto_gpu.listing import info_data

    if settings is None:
        first = entries[0].data
        drawn = not first.get("exhaustive")  # else there is no seed
        settings = {key: first[key] for key in _COMMON if key in first and (drawn or key != "seed")}
    started = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC)
    line = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    return Report(command, status, seconds, entries, settings, info_data(), started, line)


def _name(campaign: Campaign) -> str:
    return campaign.label.removeprefix(f"{campaign.record.name} ")
