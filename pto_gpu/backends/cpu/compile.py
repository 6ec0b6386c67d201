"""Kernels compiled once and kept on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit, types
from numba.core.compiler_lock import global_compiler_lock

from pto_gpu.jit import cached, source_stamp
from pto_gpu.types import ElementType

#: Serial machine code: threads are ours (see :mod:`.pool`), since Numba's threading layers abort in a forked process
#: or when two threads enter at once.
_OPTIONS = {"boundscheck": False, "error_model": "numpy"}
_FOLDER = Path(__file__).parent

_lock = threading.RLock()


def _before_fork() -> None:
    # A child must not inherit a lock that a compiling thread holds, for that thread is not in the child to free it.
    _lock.acquire()
    global_compiler_lock.acquire()


def _after_fork() -> None:
    global_compiler_lock.release()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def kernel(function: Callable[..., None]) -> Any:
    """Make ``function(stamp, tag, begin, end, ...)`` a Numba kernel that is cached on disk where that is possible."""
    return cached(function, **_OPTIONS)


def inlined(function: Callable[..., Any]) -> Any:
    """Make ``function`` a part of the kernels that call it: a call for each row would cost as much as a short row."""
    return njit(nogil=True, forceinline=True)(function)


@cache
def tag_of(element: ElementType) -> Any:
    """The integer type that holds the bits of ``element``."""
    return {8: numba.int8, 16: numba.int16, 32: numba.int32}[element.bits]


@cache
def compiled(function: Any, element: ElementType, addresses: int) -> Callable[..., None]:
    """The machine code of a kernel for one element width: called as ``f(0, None, begin, end, *addresses)``.

    The source stamp is a part of the signature, and so of the key of Numba's cache, which by itself would not notice
    that a function called by the kernel, in another file, has changed.
    """
    signature = (
        types.literal(source_stamp(_FOLDER)),
        types.NumberClass(tag_of(element)),
        *[types.int64] * (2 + addresses),
    )
    with _lock:
        function.compile(signature)
    code: Callable[..., None] = function.get_overload(signature)
    return code
