"""The examples of docs/asm.md run, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs" / "asm.md"


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    exec(compile(code, str(DOCS), "exec"), {})
    printed = capsys.readouterr().out
    assert "(1000, 16, 1)\npto.tpartmin ins(%a, %b : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%least" in printed
    (message,) = re.findall(r"```text\n(.*?)```", text, re.S)
    assert message in printed


def test_the_assembler_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, pto_gpu as pto\n"
        "assert 'asm' in dir(pto)\n"
        "assert 'xdsl' not in sys.modules\n"
        "assert pto.asm.parse('%a = tprelu %x, %x').target is None\n"
        "assert 'xdsl' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
