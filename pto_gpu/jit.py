"""Functions compiled by Numba and kept on disk: the one place that knows about its cache.

Numba finds an entry of the cache stale when the file of the function itself has changed, and not when a function that
it calls has. So compiled functions that call one another either stand in one file (a campaign's do) or take
:func:`source_stamp` of their folder as a part of their signature (the cpu backend's do).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def cached(function: Callable[..., Any], **options: Any) -> Any:
    """``function`` compiled without the interpreter lock, and kept on disk where a place can be written."""
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the installation nor a cache folder of the user can be written
        return njit(nogil=True, **options)(function)


def source_stamp(folder: Path) -> int:
    """A number that changes whenever a source in ``folder`` does."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")
