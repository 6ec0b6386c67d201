"""Backends under test and the seed of every random test."""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings

from pto_gpu.backends.cpu import pool

# The Triton kernels run on a GPU if there is one, else interpreted on tiles in host memory. This must be said
# before they are imported.
GPU = torch.cuda.is_available()
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"

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


def _ready(backend: Backend) -> Backend:
    if not hasattr(importlib.import_module(f"pto_gpu.backends.{backend.name}"), "run"):
        pytest.skip(f"backend {backend.name} is not written yet: it has no run()")
    return backend


def _parameters(backends: list[Backend]) -> list[Any]:
    return [pytest.param(b, id=b.name, marks=() if b.device == "cpu" else pytest.mark.gpu) for b in backends]


@pytest.fixture(scope="session", params=_parameters(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """For tests whose tiles lie on ``backend.device``."""
    return _ready(request.param)


@pytest.fixture(scope="session", params=_parameters([b for b in BACKENDS if b.device == "cpu"]))
def host_backend(request: pytest.FixtureRequest) -> Backend:
    """For tests that read and write tiles in host memory."""
    return _ready(request.param)


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


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
