"""What people are told about a mismatch beyond where it is."""

from __future__ import annotations

from collections.abc import Sequence

from pto_gpu.campaign.compare import INDEX, NAN, OUTSIDE, SIGNED_ZERO, TIE, VALUE, Mismatch, value_of
from pto_gpu.campaign.explain.diagnose import Diagnosis, diagnose
from pto_gpu.campaign.explain.fault import listed
from pto_gpu.campaign.explain.search import Explanation
from pto_gpu.campaign.explain.shrink import Shrunk
from pto_gpu.campaign.reports.text import counted, element_text, result_lines
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.run import Execute

_PLAIN = {TIE: "ties", VALUE: "values", INDEX: "indices", OUTSIDE: "elements outside the valid region"}


def failure_text(result: Result, execute: Execute | None = None) -> str:
    """All that can be said about a campaign that is not equal, for the message of a test's ``assert``.

    ``execute``: what the campaign was run with, in place of a backend.
    """
    verdict, *places = result_lines(result)
    return "\n".join([verdict, *diagnosis_lines(diagnose(result, execute)), *places])


def diagnosis_lines(diagnosis: Diagnosis | None) -> list[str]:
    """A line or two under a mismatch."""
    if diagnosis is None:
        return []
    lines = [f"  {note}" for note in diagnosis.notes]
    if diagnosis.explanation is not None:
        lines += _explanation_lines(diagnosis.explanation, diagnosis.mismatches)
    if diagnosis.shrunk is not None:
        lines.append(_shrunk_line(diagnosis.shrunk))
    return lines


def _explanation_lines(found: Explanation, mismatches: Sequence[Mismatch]) -> list[str]:
    lines = []
    if found.agrees_with:
        names = ", ".join(f"`{name}`" for name in found.agrees_with)
        every = "all " if found.tiles > 1 else ""
        lines.append(
            f"  equals {names} in {every}{counted(found.tiles, 'tile')}; differs from `{found.asked}` in "
            f"{counted(found.elements, 'element')}: {where_text(mismatches)}"
        )
    if found.causes:
        several = " (each would give the same bits)" if len(found.causes) > 1 else ""
        lines.append(f"  cause{several}: {'; or '.join(found.causes)}")
    else:
        lines.append("  no known cause" + ("" if found.complete else " found in the time there is"))
    return lines


def where_text(mismatches: Sequence[Mismatch]) -> str:
    """``NaN in src0; ties``: what the operands are where results differ."""
    parts: list[str] = []
    for category in dict.fromkeys(m.category for m in mismatches):
        here = [m for m in mismatches if m.category == category]
        if category in _PLAIN:
            parts.append(_PLAIN[category])
            continue
        names = dict.fromkeys(i.name for m in here for i in m.inputs if i.valid and _has(category, i.bits, i.dtype))
        what = {NAN: "NaN", SIGNED_ZERO: "zeros"}[category]
        parts.append(f"{what} in {listed(list(names)) if names else 'the result'}")
    return "; ".join(parts)


def _has(category: str, patterns: Sequence[int], dtype: str) -> bool:
    values = [value_of(b, dtype) for b in patterns]
    return any(v != v for v in values) if category == NAN else any(v == 0 for v in values)


def _shrunk_line(shrunk: Shrunk) -> str:
    if shrunk.tile is None or shrunk.comparison is None:
        return f"  not shrunk: {shrunk.why_not}"
    regions = ", ".join(f"{name} {rows}x{cols}" for name, (rows, cols) in shrunk.tile.valid.items())
    m = shrunk.comparison.mismatches[0]
    inputs = [f"{i.name}={' '.join(element_text(b, i.dtype) for b in i.bits[:4])}" for i in m.inputs if i.bits]
    given = f"{', '.join(inputs)}: " if inputs else ""
    flaky = "fails in some runs only; " if shrunk.flaky else ""
    return (
        f"  {flaky}shrunk to {regions}: {m.operand}({m.row}, {m.col}): {given}"
        f"seen {element_text(m.seen, m.dtype)}, expected {element_text(m.expected, m.dtype)}"
    )
