"""scripts/gpu_check, as far as a machine without a GPU can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GPU

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(GPU, reason="it would run for minutes here")
def test_without_a_gpu_it_says_so_and_exits_2(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = [str(ROOT / "scripts/gpu_check"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "gpu_check: no GPU found: torch.cuda.is_available() is false"
    assert not (tmp_path / "out").exists()


def test_the_cupy_allocator_is_refused_without_a_gpu() -> None:
    import pto_gpu as pto

    with pytest.raises(pto.BackendError, match="allocator='cupy': the device is cpu"):
        pto.UnifiedBuffer(2, allocator="cupy")
    with pytest.raises(pto.ConstraintError, match="allocator='pool' is not known"):
        pto.UnifiedBuffer(2, allocator="pool")
