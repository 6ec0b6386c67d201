"""What README.md shows: its commands and programs run, and its table is that of the rule sets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from command_line import Inside
from documentation import README, ROOT, blocks, python_output, run_blocks, section

import pto_gpu as pto

USES = "## What it does"


def test_the_first_minute(inside: Inside) -> None:
    run_blocks(blocks(section(README, "## One minute")), inside)


def test_an_implementation_of_ones_own(inside: Inside) -> None:
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    Path("mine.py").write_text(next(b.text for b in blocks(page) if b.file == "mine.py"))
    run_blocks(blocks(section(README, "### Validates your own implementation")), inside)


def test_results_that_were_made_elsewhere(inside: Inside) -> None:
    Path("tests").symlink_to(ROOT / "tests")
    run_blocks(blocks(section(README, "### Checks results that were made elsewhere")), inside)


def test_the_python_blocks_run() -> None:
    text = section(README, USES)
    assert len(blocks(text, "python")) == 3
    assert python_output(text).split("\n")[:3] == [
        "(100000, 16, 1)",
        "(100000, 16, 16)",
        "pto.tpartmin ins(%a, %b : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%least : !pto.tile_buf<...>)",
    ]


def test_the_program_in_a_file_runs(inside: Inside) -> None:
    text = section(README, "### Runs programs in PTO-AS")
    Path("kernel.pto").write_text(*re.findall(r'pto\.asm\.parse\("(.*)"\)', text))
    for name in "ab":
        np.save(f"{name}.npy", np.ones((1000, 16, 16), np.float32))
    run_blocks(blocks(text, "console"), inside)


def test_the_table_of_rule_sets() -> None:
    rows = re.findall(
        r"^\| `(\w+)`.*?\| `(\w+)` \| `(\w+)` \| `(\w+)` \|", section(README, "## Numerics"), re.MULTILINE
    )
    assert {name: pto.Numerics(*rules) for name, *rules in rows} == pto.NUMERICS
