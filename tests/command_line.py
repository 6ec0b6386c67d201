"""``pto-gpu`` as tests start it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMAND = [sys.executable, "-c", "from pto_gpu.cli import main; main()"]
DUMPS = Path(__file__).parent / "data" / "simulator"
Inside = Callable[..., tuple[int, str, str]]


def pto_gpu(*arguments, cwd=None):
    """In a fresh process."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)
