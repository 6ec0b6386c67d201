"""The commands, files and programs of docs/validation.md run as they stand there, and print what is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Inside
from documentation import ROOT, blocks, run_blocks, section

PAGE = ROOT / "docs" / "validation.md"
OWN = blocks(section(PAGE, "## Validate your own implementation"))


def test_campaigns(inside: Inside) -> None:
    run_blocks(blocks(section(PAGE, "## Campaigns")), inside)


def test_an_implementation_of_ones_own(inside: Inside) -> None:
    run_blocks(OWN, inside)


def test_the_message_of_the_test_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {b.file: b.text for b in OWN if b.file}
    (tmp_path / "mine.py").write_text(files["mine.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    namespace: dict[str, Any] = {}
    exec(files["test_mine.py"].replace('"simulator"', '"isa"').replace("20_000", "2000"), namespace)
    with pytest.raises(AssertionError, match=r"equals `simulator` in all \d+ tiles") as caught:
        namespace["test_tpartmin"]()
    assert "\n  cause: NaN and signed zeros by plain compare and select" in str(caught.value)


def test_results_that_were_made_elsewhere(inside: Inside) -> None:
    write_raw_files(np.random.default_rng(2))
    run_blocks(blocks(section(PAGE, "## Check results that were made elsewhere")), inside)


def write_raw_files(rng: np.random.Generator) -> None:
    """The files that a command and a manifest of the page name, and that somebody else makes."""
    for directory in (Path(), Path("case_1"), Path("case_2")):
        directory.mkdir(exist_ok=True)
        rows = 8 if directory.name != "case_2" else 16
        a = rng.integers(-99, 99, (3, 16, 60)).astype("<f2")
        b = rng.integers(-99, 99, (3, rows, 60)).astype("<f2")
        least = a.copy()
        least[:, :rows] = np.minimum(a[:, :rows], b)
        for name, x in (("input1", a), ("input2", b), ("output", least), ("golden", least)):
            x.tofile(directory / f"{name}.bin")
    np.array([[16, 60]] * 3, "<i4").tofile("case_2/regions.bin")


def test_a_journal(inside: Inside) -> None:
    journal, *_ = blocks(section(PAGE, "## Long campaigns"))  # the rest is for torchrun: test_campaign_ranks.py
    run_blocks([journal], inside)
    assert Path("run.db").stat().st_size > 0


def test_reports(inside: Inside) -> None:
    run_blocks(blocks(section(PAGE, "## Reports")), inside)
    assert all(Path(name).stat().st_size > 0 for name in ("report.html", "report.xml"))
