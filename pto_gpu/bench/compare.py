"""What changed between two runs, and by how much beyond their spreads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pto_gpu.bench.results import Run
from pto_gpu.bench.timing import Timed

#: What of the machine is expected to differ.
_MOMENTARY: Final = ("load before", "load after")


class Change(NamedTuple):
    """One measurement in both runs."""

    label: str
    before: Timed
    after: Timed

    @property
    def ratio(self) -> float:
        """Above 1: slower than before."""
        return self.after.seconds / self.before.seconds

    @property
    def beyond(self) -> float:
        """Gap between the middle halves of the samples, as a fraction of the time before; 0 where they overlap."""
        gap = max(self.after.low - self.before.high, self.before.low - self.after.high, 0.0)
        return gap / self.before.seconds

    @property
    def text(self) -> str:
        """``12.0 -> 18.0 ms, 1.50 times the time (0.45 beyond the spread)``."""
        unit, factor = ("ms", 1e3) if self.before.seconds >= 1e-3 else ("us", 1e6)
        times = f"{self.before.seconds * factor:.3g} -> {self.after.seconds * factor:.3g} {unit}"
        how = f"{self.ratio:.2f} times as long" if self.ratio > 1 else f"{1 / self.ratio:.2f} times faster"
        return f"{self.label}: {times}, {how}, {self.beyond:.0%} of the time before lies beyond the spread"


class Comparison(NamedTuple):
    """``slower`` and ``faster``: beyond the spread, most first. ``same``: how many are within it."""

    slower: list[Change]
    faster: list[Change]
    same: int
    only_before: int
    only_after: int
    differences: list[str]


def compare(before: Run, after: Run) -> Comparison:
    """What ``after`` measured against what ``before`` did."""
    old, new = _times(before), _times(after)
    changes = [Change(new[key][0], old[key][1], new[key][1]) for key in new if key in old]
    changed = sorted((c for c in changes if c.beyond > 0), key=lambda c: -c.beyond)
    return Comparison(
        slower=[c for c in changed if c.ratio > 1],
        faster=[c for c in changed if c.ratio <= 1],
        same=len(changes) - len(changed),
        only_before=len(old.keys() - new.keys()),
        only_after=len(new.keys() - old.keys()),
        differences=_differences(before.machine, after.machine),
    )


def _times(run: Run) -> dict[tuple[Any, ...], tuple[str, Timed]]:
    found: dict[tuple[Any, ...], tuple[str, Timed]] = {row.key: (row.label, row.time) for row in run.rows}
    return found | {("start-up", s.name): (s.name, s.time) for s in run.startup}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    names = [n for n in dict.fromkeys((*before, *after)) if n not in _MOMENTARY]
    return [f"{n}: {before.get(n)} -> {after.get(n)}" for n in names if before.get(n) != after.get(n)]


def comparison_lines(found: Comparison, old_date: str) -> list[str]:
    """For people."""
    lines = [f"against the run of {old_date}:"]
    lines += [f"  another machine or version: {text}" for text in found.differences]
    for word, changes in (("slower", found.slower), ("faster", found.faster)):
        lines += [f"  {word}: {change.text}" for change in changes]
    lines.append(f"  {len(found.slower)} slower, {len(found.faster)} faster, {found.same} within the spread")
    if found.only_before or found.only_after:
        lines.append(f"  only in the old run: {found.only_before}; only in this one: {found.only_after}")
    return lines
