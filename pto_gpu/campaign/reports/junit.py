"""A report as JUnit XML: a test suite for each instruction, a test case for each combination of element types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree

from pto_gpu.campaign.reports.entries import Entry, Report, Verdict

#: The element of a test case that says it did not pass.
_ELEMENTS: Final = {
    Verdict.MISMATCH: "failure",
    Verdict.FAILED: "error",
    Verdict.UNREADABLE: "error",
    Verdict.INTERRUPTED: "error",
    Verdict.NOT_STARTED: "skipped",
}
#: What XML 1.0 has no way to write.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN: Final = (str, int, float)


def junit_xml(report: Report) -> bytes:
    """The report as an XML document."""
    root = ElementTree.Element("testsuites", {"name": f"pto-gpu {report.command}", **_counts(report.entries)})
    root.set("time", f"{report.seconds:.3f}")
    for instruction, entries in report.by_instruction().items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": instruction, **_counts(entries)})
        suite.set("time", f"{sum(e.seconds for e in entries):.3f}")
        suite.set("timestamp", report.started.isoformat(timespec="seconds"))
        _properties(suite, {"command": report.line, **report.settings, **report.machine})
        for entry in entries:
            _case(suite, entry)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _counts(entries: Sequence[Entry]) -> dict[str, str]:
    kinds = [_ELEMENTS.get(e.verdict) for e in entries]
    return {
        "tests": str(len(entries)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }


def _case(suite: ElementTree.Element, entry: Entry) -> None:
    names = {"classname": f"pto-gpu.{entry.instruction}", "name": _text(entry.name), "time": f"{entry.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", names)
    _properties(case, {key: value for key, value in entry.data.items() if isinstance(value, _PLAIN)})
    kind = _ELEMENTS.get(entry.verdict)
    if kind is not None:
        message = _text(entry.lines[0] if entry.lines else str(entry.verdict))
        found = ElementTree.SubElement(case, kind, {"message": message, "type": str(entry.verdict)})
        found.text = _text("\n".join([*entry.lines, *entry.remarks])) or None


def _properties(parent: ElementTree.Element, values: Mapping[str, Any]) -> None:
    properties = ElementTree.SubElement(parent, "properties")
    for key, value in values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        ElementTree.SubElement(properties, "property", {"name": key, "value": _text(text)})


def _text(text: str) -> str:
    return _NO_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
