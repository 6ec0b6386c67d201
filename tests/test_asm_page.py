"""The examples of docs/asm.md run, and print what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from command_line import Inside
from documentation import ROOT, blocks, python_output, run_blocks

TEXT = (ROOT / "docs" / "asm.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run() -> None:
    printed = python_output(TEXT)
    assert "(1000, 16, 1)\npto.tpartmin ins(%a, %b : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%least" in printed
    (message,) = blocks(TEXT, "text")
    assert message.text in printed


def test_the_commands_of_the_page_run(inside: Inside) -> None:
    program, *_ = blocks(TEXT, "python")
    Path("program.pto").write_text(program.text.split('"""')[1])
    for name in "ab":
        np.save(f"{name}.npy", np.ones((3, 16, 16), np.float32))
    run_blocks(blocks(TEXT, "console"), inside)
    assert Path("results/row.npy").is_file()


def test_the_assembler_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, pto_gpu as pto\n"
        "assert 'asm' in dir(pto)\n"
        "assert 'xdsl' not in sys.modules\n"
        "assert pto.asm.parse('%a = tprelu %x, %x').target is None\n"
        "assert 'xdsl' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
