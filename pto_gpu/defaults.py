"""Defaults for a block of calls: target, backend, numerics, undefined, threads."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from pto_gpu.errors import ConstraintError, TypeMismatch
from pto_gpu.numerics import Numerics, resolve_numerics
from pto_gpu.targets import Target, resolve_target

#: What ``backend=`` may say; each but ``auto`` is a module of :mod:`pto_gpu.backends`.
BACKENDS: Final = ("auto", "numpy", "cpu", "triton")
UNDEFINED: Final = ("error", "zero")


@dataclass(frozen=True)
class Options:
    """What a call does when its own keywords do not say otherwise."""

    target: Target
    backend: str
    numerics: Numerics
    undefined: str
    threads: int | None

    def override(
        self,
        target: str | None = None,
        backend: str | None = None,
        numerics: str | Numerics | None = None,
        undefined: str | None = None,
        threads: int | None = None,
    ) -> Options:
        """These options with the given ones replaced; raises for a word that is not allowed."""
        if target is None and backend is None and numerics is None and undefined is None and threads is None:
            return self
        changes: dict[str, Any] = {}
        if target is not None:
            changes["target"] = resolve_target(target)
        if backend is not None:
            changes["backend"] = _word("backend", backend, BACKENDS)
        if numerics is not None:
            changes["numerics"] = resolve_numerics(numerics)
        if undefined is not None:
            changes["undefined"] = _word("undefined", undefined, UNDEFINED)
        if threads is not None:
            from pto_gpu.types import count  # here, since NumPy is slow to import and --help reads BACKENDS

            changes["threads"] = count(threads, "threads")
            if changes["threads"] < 1:
                raise ConstraintError(f"threads={threads} is out of range: allowed 1 or more")
        return dataclasses.replace(self, **changes)


def _word(name: str, seen: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(seen, str):
        raise TypeMismatch(f"{name} must be a name: seen {type(seen).__name__}, allowed {', '.join(allowed)}")
    if seen not in allowed:
        raise ConstraintError(f"{name}={seen!r} is not known: allowed {', '.join(allowed)}")
    return seen


_CURRENT: ContextVar[Options] = ContextVar(
    "pto_gpu_options",
    default=Options(resolve_target("a5"), "auto", resolve_numerics("isa"), "error", None),  # noqa: B039  (frozen)
)


def current_options() -> Options:
    """The options of this context."""
    return _CURRENT.get()


@contextlib.contextmanager
def options(
    *,
    target: str | None = None,
    backend: str | None = None,
    numerics: str | Numerics | None = None,
    undefined: str | None = None,
    threads: int | None = None,
) -> Iterator[None]:
    """Defaults for the calls of a ``with`` block, in this thread or task only.

    ``target``: ``"a5"`` (default) or ``"a2a3"``. ``backend``: ``"auto"`` (triton for tiles on a GPU, else
    cpu), ``"numpy"``, ``"cpu"`` or ``"triton"``. ``numerics``: a rule set. ``undefined``: ``"error"`` or
    ``"zero"``, for valid regions that a page does not define. ``threads``: how many threads the cpu
    backend uses (default: every core this process may use). A keyword of a call wins over these.
    """
    token = _CURRENT.set(_CURRENT.get().override(target, backend, numerics, undefined, threads))
    try:
        yield
    finally:
        _CURRENT.reset(token)
