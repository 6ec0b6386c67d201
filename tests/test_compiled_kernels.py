"""Tests of the ``triton`` backend on compiled kernels, where there is no GPU: their PTX is executed by tests/ptx.

These are a few of them, one architecture each; ``PTO_GPU_TEST_PTX=sm_90 pytest tests/test_conformance.py -k triton``
runs all of a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GPU

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(GPU, reason="the kernels run on the GPU of this machine")

HERE = Path(__file__).parent
#: What other rule sets than that of the ISA change: floats.
FLOATS = "((formal or simulator) and (f16 or f32))"


@pytest.mark.parametrize(
    ("architecture", "file", "wanted", "passed"),
    [
        ("sm_90", "test_conformance.py", f"triton and ragged_regions and (isa or {FLOATS})", 40),
        ("sm_80", "test_conformance.py", "triton and column_major", 20),
        ("sm_100", "test_campaign_device.py", "element_type_is_equal and (TPRELU or (TROWMIN and f))", 4),
    ],
)
def test_compiled(architecture: str, file: str, wanted: str, passed: int) -> None:
    """``passed``: tests that there are at least, so that a name that changes does not leave none."""
    environment = {**os.environ, "PTO_GPU_TEST_PTX": architecture}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", HERE / file, "-k", wanted],
        env=environment,
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) >= passed
