"""Backends under test and the seed of every random test."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("suite")


class Backend(NamedTuple):
    """A backend and the device that its tiles lie on."""

    name: str
    device: str


#: Every test with a ``backend`` argument runs once for each line.
BACKENDS = [
    Backend("numpy", "cpu"),
    Backend("cpu", "cpu"),
]


@pytest.fixture(scope="session", params=BACKENDS, ids=lambda b: b.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    if not hasattr(importlib.import_module(f"pto_gpu.backends.{chosen.name}"), "run"):
        pytest.skip(f"backend {chosen.name} is not written yet: it has no run()")
    return chosen


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
