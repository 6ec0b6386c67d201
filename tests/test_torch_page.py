"""The programs in docs/torch.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "torch.md"


def test_the_programs_of_the_page_run() -> None:
    """In a process of its own, where warnings of torch about itself are none of ours."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([100, 16, 1]) torch.Size([32])\ntensor(False)\n"
