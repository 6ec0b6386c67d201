"""A pool of threads over the tiles of a batch."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pto_gpu.cores import available_cores

#: Below this many bytes of tiles a call runs in its own thread: handing work over costs more.
SERIAL_BYTES = 1 << 18
#: Bytes of tiles in one piece of work: small enough to balance ragged valid regions, large enough to be worth a call.
PIECE_BYTES = 1 << 20

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def _forget() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()  # the parent's threads do not exist in a forked child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, available_cores() - 1), thread_name_prefix="pto-gpu")
        return _pool


def over_tiles(work: Callable[[int, int], None], batch: int, bytes_a_tile: int, threads: int | None) -> None:
    """Call ``work(begin, end)`` for pieces that together are ``0 .. batch``, in up to ``threads`` threads.

    The calling thread takes part. The first error of any piece is raised.
    """
    if threads == 1 or batch * bytes_a_tile <= SERIAL_BYTES:
        work(0, batch)
        return
    threads = threads or available_cores()
    piece = max(1, min(PIECE_BYTES // bytes_a_tile, -(-batch // threads)))
    starts = itertools.count(0, piece)  # next() on it is atomic

    def take() -> None:
        for begin in starts:
            if begin >= batch:
                return
            work(begin, min(begin + piece, batch))

    helpers = min(threads, -(-batch // piece)) - 1
    futures: list[Future[None]] = []
    try:
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down: no threads are to be had
            for _ in range(helpers):
                futures.append(_executor().submit(take))
        take()
    finally:
        errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error
