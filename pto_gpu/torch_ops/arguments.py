"""The arguments of the operators: names and defaults from an instruction's record."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import torch

from pto_gpu.defaults import UNDEFINED
from pto_gpu.errors import ConstraintError
from pto_gpu.isa.record import Instruction
from pto_gpu.numerics import Numerics, resolve_numerics
from pto_gpu.targets import resolve_target

#: What computes: the kernels of the backends, or the reference formula as torch operations.
FORMULATIONS: Final = ("kernel", "torch")

_KEYWORDS: Final = {"target": "a5", "undefined": "error", "formulation": "kernel"}


class Arguments(NamedTuple):
    """One call. Tensors by operand name; ``valid`` has an entry for each source, None where it is full."""

    dsts: Mapping[str, torch.Tensor]
    sources: Mapping[str, torch.Tensor]
    valid: Mapping[str, torch.Tensor | None]
    rules: Numerics
    target: str
    undefined: str
    formulation: str


@cache
def valid_names(record: Instruction) -> tuple[str, ...]:
    """The valid-region arguments: ``valid`` if all sources share a region, else ``valid0``, ``valid1`` ..."""
    groups = record.region_groups
    return ("valid",) if len(groups) == 1 else tuple(f"valid{i}" for i in range(len(groups)))


@cache
def signature(record: Instruction, out: bool) -> inspect.Signature:
    """The signature of an operator; ``out``: it begins with the tensors that are written."""
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    tensors = [*(record.dsts if out else ()), *(record.by_name[name] for name in record.assembly)]
    parameters = [inspect.Parameter(o.argument, either, annotation=torch.Tensor) for o in tensors]
    optional = torch.Tensor | None
    parameters += [inspect.Parameter(n, either, default=None, annotation=optional) for n in valid_names(record)]
    parameters.append(inspect.Parameter("numerics", either, default="isa", annotation=str))
    parameters += [inspect.Parameter(n, keyword, default=word, annotation=str) for n, word in _KEYWORDS.items()]
    if out:
        returns: Any = None
    else:
        returns = torch.Tensor if len(record.dsts) == 1 else tuple[(torch.Tensor,) * len(record.dsts)]  # type: ignore[misc]
    return inspect.Signature(parameters, return_annotation=returns)


@cache
def _order(record: Instruction, out: bool) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    parameters = signature(record, out).parameters.values()
    return tuple(p.name for p in parameters), tuple(p.default for p in parameters)


def with_defaults(record: Instruction, out: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Every argument in the order of the signature; the dispatcher leaves out those that equal their default."""
    names, defaults = _order(record, out)
    values = list(args)
    for name, default in zip(names[len(args) :], defaults[len(args) :], strict=True):
        values.append(kwargs.get(name, default))
    return values


def bind(record: Instruction, out: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments of a call by what they are; raises for a word that is not known."""
    values = iter(with_defaults(record, out, args, kwargs))
    dsts = {o.name: next(values) for o in record.dsts} if out else {}
    sources = {name: next(values) for name in record.assembly}
    valid = {}
    for group in record.region_groups:
        valid.update(dict.fromkeys(group, next(values)))
    numerics, target, undefined, formulation = values
    resolve_target(target)
    for word, seen, allowed in (("undefined", undefined, UNDEFINED), ("formulation", formulation, FORMULATIONS)):
        if seen not in allowed:
            raise ConstraintError(f"{record.name}: {word}={seen!r} is not known: allowed {', '.join(allowed)}")
    return Arguments(dsts, sources, valid, resolve_numerics(numerics), target, undefined, formulation)
