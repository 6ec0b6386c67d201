"""What of this machine a process may use."""

from __future__ import annotations

import os

from pto_gpu.errors import ConstraintError


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_of_this_process(devices: int) -> int:
    """The GPU that this process uses, of ``devices``: those that torchrun starts on one machine take turns."""
    return count_from_environment("LOCAL_RANK", 0, default=0) % devices


def count_from_environment(name: str, low: int, high: int | None = None, default: int | None = None) -> int:
    """The number in an environment variable; raises ConstraintError for one that is out of range, or no number.

    An empty variable is one that is not set.
    """
    text = os.environ.get(name) or ("" if default is None else str(default))
    allowed = f"{low} or more" if high is None else f"{low} to {high}"
    if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
        raise ConstraintError(f"environment variable {name}={text!r} is out of range: allowed {allowed}")
    return int(text)
