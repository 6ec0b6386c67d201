"""Backends under test and the seed of every random test."""

from __future__ import annotations

import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings

from pto_gpu import cli, defaults
from pto_gpu.backends.cpu import pool
from pto_gpu.campaign import run
from pto_gpu.campaign import settings as campaign_settings

# The Triton kernels run on a GPU if there is one, else on tiles in host memory: interpreted, or, where this variable
# names an architecture, compiled for it and executed by tests/ptx. This must be said before they are imported.
GPU = torch.cuda.is_available()
COMPILED_FOR = None if GPU else os.environ.get("PTO_GPU_TEST_PTX")
if COMPILED_FOR:
    os.environ.pop("TRITON_INTERPRET", None)
    from ptx import driver

    driver.install(COMPILED_FOR)
elif not GPU:
    os.environ["TRITON_INTERPRET"] = "1"

# A GPU machine may have no xDSL, and can install nothing: the report says that the assembler was left out.
collect_ignore_glob = [] if importlib.util.find_spec("xdsl") else ["test_asm_*.py"]

settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("suite")


class Backend(NamedTuple):
    """A backend and the device that its tiles lie on."""

    name: str
    device: str


#: A ``backend`` test runs once for each line, a ``host_backend`` test once for each line on the CPU.
BACKENDS = [
    Backend("numpy", "cpu"),
    Backend("cpu", "cpu"),
    Backend("triton", "cuda:0" if GPU else "cpu"),
]
assert {"auto", *(b.name for b in BACKENDS)} == set(defaults.BACKENDS), "every backend is tested"


def pytest_report_header() -> list[str]:
    left_out = ["xDSL is not installed: the tests of pto_gpu.asm are left out"] if collect_ignore_glob else []
    return left_out + ([f"Triton kernels are compiled for {COMPILED_FOR}"] if COMPILED_FOR else [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped, and so shown, where there is no GPU."""
    if not GPU:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


def _parameters(backends: list[Backend]) -> list[Any]:
    return [pytest.param(b, id=b.name, marks=() if b.device == "cpu" else pytest.mark.gpu) for b in backends]


@pytest.fixture(scope="session", params=_parameters(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """For tests whose tiles lie on ``backend.device``."""
    backend: Backend = request.param
    return backend


@pytest.fixture(scope="session", params=_parameters([b for b in BACKENDS if b.device == "cpu"]))
def host_backend(request: pytest.FixtureRequest) -> Backend:
    """For tests that read and write tiles in host memory."""
    backend: Backend = request.param
    return backend


class Pooled:
    """Counts what was handed to the thread pool of the cpu backend."""

    calls = 0


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Pooled:
    """The cpu backend cuts every batch into pieces of a few tiles, for four threads unless told otherwise."""
    counted, executor = Pooled(), pool._executor

    def counting() -> ThreadPoolExecutor:
        counted.calls += 1
        return executor()

    monkeypatch.setattr(pool, "SERIAL_BYTES", 0)
    monkeypatch.setattr(pool, "PIECE_BYTES", 8192)
    monkeypatch.setattr(pool, "available_cores", lambda: 4)
    monkeypatch.setattr(pool, "_executor", counting)
    return counted


@pytest.fixture(autouse=True)
def auto_is_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign whose backend nobody names is the same on every machine, but for tests marked ``gpu``."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(campaign_settings, "gpu", lambda: None)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture
def inside(capsys, monkeypatch, tmp_path):
    """``pto-gpu`` in this process, in an empty directory: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pto-gpu", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


@pytest.fixture
def wrong_backend(monkeypatch):
    """The backend under test writes a wrong element into tile 5 of each block."""
    real = run.backend_execute

    def wrong(options):
        execute = real(options)

        def run_wrong(call):
            execute(call)
            if call.batch > 5:
                call.tiles[call.instruction.dsts[0].name].data[5, 0, 0] = 99

        return run_wrong

    monkeypatch.setattr(run, "backend_execute", wrong)
