"""scripts/gpu_check, as far as a machine without a GPU can tell."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GPU

from pto_gpu import backends
from pto_gpu.isa import instructions

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(GPU, reason="it would run for minutes here")
def test_without_a_gpu_it_says_so_and_exits_2(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = [str(ROOT / "scripts/gpu_check"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "gpu_check: no GPU found: torch.cuda.is_available() is false"
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(GPU, reason="host tiles: the kernels are compiled on this machine")
def test_the_campaigns_run_on_the_device_and_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of the check, on interpreted kernels and few tiles."""
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "bench/gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    gpu_check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu_check)
    record = instructions()["TPRELU"]
    monkeypatch.setattr(gpu_check, "instructions", lambda: {"TPRELU": record})
    monkeypatch.setattr(gpu_check, "CAMPAIGN_TILES", 40)
    monkeypatch.setattr(gpu_check, "CAMPAIGN_SECONDS", 0.0)
    step = gpu_check.campaigns("cpu")
    assert [r["elements"] for r in step["rows"]] == ["/".join(s) for s in record.element_types["a5"]]
    assert (step["failures"], step["skipped"]) == ([], [])
    text = "\n".join(gpu_check.campaign_lines(step))
    assert "| TPRELU | f32 | 16x16 | 1 |" in text

    monkeypatch.setattr(backends.load("triton"), "run", lambda call: None)
    step = gpu_check.campaigns("cpu")
    assert any(line.startswith("TPRELU f32 16x16: MISMATCH") for line in step["failures"])

    monkeypatch.setattr(gpu_check, "CAMPAIGNS_LIMIT", -1)
    step = gpu_check.campaigns("cpu")
    assert step["skipped"] == ["TPRELU f16 16x16", "TPRELU f32 16x16"]
    assert "- TPRELU f16 16x16: not run, no time left" in gpu_check.campaign_lines(step)


def test_the_cupy_allocator_is_refused_without_a_gpu() -> None:
    import pto_gpu as pto

    with pytest.raises(pto.BackendError, match="allocator='cupy': the device is cpu"):
        pto.UnifiedBuffer(2, allocator="cupy")
    with pytest.raises(pto.ConstraintError, match="allocator='pool' is not known"):
        pto.UnifiedBuffer(2, allocator="pool")
