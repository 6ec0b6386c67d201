"""Calls from several threads, in a forked worker and in a DataLoader worker."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import Backend, Pooled

import pto_gpu as pto

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # Python 3.12 on fork

TY = pto.TileBufType("f32", 8, 16)
TILES = 300  # with the fixture `pooled`, a call on them goes through the thread pool


def _right(seed: int, backend: str) -> bool:
    """Whether TPARTMIN and TROWMIN of this seed's tiles are what NumPy makes of them."""
    x, y = np.random.default_rng(seed).standard_normal((2, TILES, 8, 16)).astype(np.float32)
    least = pto.tpartmin(pto.TileBuf.from_array(x, TY), pto.TileBuf.from_array(y, TY), backend=backend)
    rows = pto.trowmin(pto.TileBuf.from_array(x, TY), backend=backend)
    return np.array_equal(least.numpy(), np.minimum(x, y)) and np.array_equal(rows.numpy()[:, :, 0], x.min(axis=2))


def _as_expected(pooled: Pooled, backend: Backend) -> bool:
    """Whether the thread pool was used by the cpu backend, or not used by another."""
    return bool(pooled.calls) == (backend.name == "cpu")


def test_eight_threads_at_once(host_backend: Backend, pooled: Pooled) -> None:
    start = threading.Barrier(8)
    calls = 1 if host_backend.name == "triton" else 20  # interpreted here: one thread at a time, slowly

    def work(seed: int) -> bool:
        start.wait(60)
        return all(_right(1000 * seed + k, host_backend.name) for k in range(calls))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8
    assert _as_expected(pooled, host_backend)


def test_eight_threads_share_one_output(host_backend: Backend, pooled: Pooled) -> None:
    """Each thread writes its own tiles of one array."""
    x, y = np.random.default_rng(0).standard_normal((2, 8, 50, 8, 16)).astype(np.float32)
    out = np.zeros_like(x)

    def work(k: int) -> None:
        dst, src0, src1 = (pto.TileBuf.from_array(v[k], TY) for v in (out, x, y))
        pto.TPARTMIN(dst, src0, src1, backend=host_backend.name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert np.array_equal(out, np.minimum(x, y))
    assert _as_expected(pooled, host_backend)


def test_first_calls_of_a_process_come_from_threads(host_backend: Backend) -> None:
    """Imports and compilation happen under contention."""
    program = f"""
import threading
import numpy as np
import pto_gpu as pto

start, seen = threading.Barrier(8), []

def work(k):
    start.wait(60)
    ty = pto.TileBufType("f32", 8, 16)
    dst = pto.tpartmin(pto.TileBuf.full(ty, float(k), 4), pto.TileBuf.full(ty, 3.0, 4), backend={host_backend.name!r})
    seen.append(bool((dst.numpy() == min(k, 3)).all()))

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert seen == [True] * 8, seen
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=300)


def _in_child(work: Callable[[], bool]) -> int | None:
    """The exit status of a forked child that does ``work``; None if it hangs."""

    def body() -> None:
        os._exit(0 if work() else 1)

    child = multiprocessing.get_context("fork").Process(target=body)
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
        child.join()
        return None
    return child.exitcode


def test_forked_worker_after_a_call_in_the_parent(host_backend: Backend, pooled: Pooled) -> None:
    assert _right(1, host_backend.name)
    assert _as_expected(pooled, host_backend)

    def work() -> bool:
        pooled.calls = 0
        return _right(2, host_backend.name) and _as_expected(pooled, host_backend)

    assert _in_child(work) == 0
    assert _right(3, host_backend.name)


def test_forked_worker_with_threads_of_its_own(host_backend: Backend, pooled: Pooled) -> None:
    assert _right(1, host_backend.name)

    def work() -> bool:
        pooled.calls = 0
        with ThreadPoolExecutor(4) as pool:
            right = all(pool.map(lambda k: _right(k, host_backend.name), range(8)))
        return right and _as_expected(pooled, host_backend)

    assert _in_child(work) == 0


class _Minima(torch.utils.data.Dataset[torch.Tensor]):
    """Item k: the row minima of a batch of tiles full of k."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __len__(self) -> int:
        return 6

    def __getitem__(self, k: int) -> torch.Tensor:
        return pto.trowmin(pto.TileBuf.full(TY, float(k), TILES), backend=self.backend).torch()


def test_data_loader_workers(host_backend: Backend, pooled: Pooled) -> None:
    assert _right(1, host_backend.name)
    assert _as_expected(pooled, host_backend)
    loader = torch.utils.data.DataLoader(_Minima(host_backend.name), num_workers=2, timeout=120)
    for k, item in enumerate(loader):
        assert tuple(item.shape) == (1, TILES, 8, 1)
        assert (item == k).all()
    assert _right(2, host_backend.name)
