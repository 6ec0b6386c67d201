"""What the Triton compiler makes of the kernels, for architectures that are not here (bench/codegen.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parent.parent


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: here the kernels may be interpreted."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, check=False
    )


def _reports(path: Path, *options: str) -> list[dict[str, Any]]:
    done = _run(ROOT / "bench/codegen.py", "--json", path, *options)
    assert done.returncode in (0, 1), done.stderr
    reports: list[dict[str, Any]] = json.loads(path.read_text())
    return reports


def _assert_good(reports: list[dict[str, Any]]) -> None:
    bad = [f"{r['label']}: {r['problems']}" for r in reports if r["problems"]]
    assert reports
    assert not bad, "\n".join(bad)


def test_every_instruction_and_element_type_on_sm_90(tmp_path: Path) -> None:
    options = ["--arch", "sm_90", "--shape", "16x32", "--mode", "full", "--mode", "per_tile", "--numerics", "isa"]
    _assert_good(_reports(tmp_path / "reports.json", *options))


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "gfx942"])
def test_other_architectures(arch: str, tmp_path: Path) -> None:
    """One instruction here; all of them by ``python bench/codegen.py``."""
    options = ["--arch", arch, "--shape", "16x32", "--mode", "per_tile", "--numerics", "isa", "--op", "TPRELU"]
    _assert_good(_reports(tmp_path / "reports.json", *options))


def test_long_and_odd_rows(tmp_path: Path) -> None:
    options = ["--arch", "sm_90", "--mode", "per_tile", "--numerics", "simulator", "--op", "TPRELU"]
    _assert_good(_reports(tmp_path / "reports.json", *options, "--shape", "1x16384", "--shape", "127x64"))


def test_the_generator_of_campaigns(tmp_path: Path) -> None:
    """Every element size; more shapes, and gfx942, by ``python bench/codegen.py --op generator``."""
    options = ["--arch", "sm_80", "--arch", "sm_90", "--arch", "sm_100", "--shape", "16x32", "--op", "generator"]
    reports = _reports(tmp_path / "reports.json", *options)
    _assert_good(reports)
    # Elements in vectors, and a byte for the profile.
    assert all(set(r["stores"]) == ({"16"} if "words" in r["label"] else {"1", "16"}) for r in reports)


def test_bad_kernels_are_refused() -> None:
    done = _run(ROOT / "tests/bad_kernels.py")
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout)
    assert "loads: 0 of 16 bytes" in problems["scalar"][0]
    assert any("stores: 0 of 16 bytes" in p for p in problems["scalar"])
    assert any("32-bit offset" in p for p in problems["wraps"])
    assert any("fused" in p and "fma" in p for p in problems["fused"])
    assert any("spilled" in p for p in problems["spills"])
