"""The Python section of README.md runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_python_section_runs() -> None:
    section = README.read_text().split("\n## Python\n")[1].split("\n## Numerics\n")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "(100000, 16, 1)",
        "(100000, 16, 16)",
        "pto.tpartmin ins(%a, %b : !pto.tile_buf<...>, !pto.tile_buf<...>) outs(%least : !pto.tile_buf<...>)",
    ]
