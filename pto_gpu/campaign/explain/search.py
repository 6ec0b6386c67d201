"""Which rule sets a wrong result agrees with, and which usual fault would give exactly that result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from pto_gpu.campaign.explain.batch_faults import batch_faults
from pto_gpu.campaign.explain.evidence import Evidence, Results, value_dsts
from pto_gpu.campaign.explain.fault import Fault, listed
from pto_gpu.campaign.explain.operand_faults import operand_faults
from pto_gpu.campaign.explain.region_faults import region_faults
from pto_gpu.campaign.explain.result_faults import result_faults
from pto_gpu.campaign.ulp import is_nan
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction
from pto_gpu.numerics import NAN_RULES, NUMERICS, TIE_RULES, ZERO_RULES, Numerics
from pto_gpu.types import ElementType

#: Causes that are named: where several give the same bits, the simplest.
SHOWN: Final = 3
#: What looking for causes may take.
SECONDS: Final = 3.0
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"nan": NAN_RULES, "tie": TIE_RULES, "zero": ZERO_RULES}
_RULE_CAUSES: Final[Mapping[tuple[str, str], str]] = {
    ("nan", "propagate"): "NaN propagated",
    ("nan", "number"): "NaN dropped",
    ("nan", "select"): "NaN and signed zeros by plain compare and select",
    ("tie", "src0"): "ties go to src0",
    ("tie", "src1"): "ties go to src1",
    ("zero", "product"): "x = ±0 multiplied",
    ("zero", "keep"): "x = ±0 returned as it is",
}


@dataclass(frozen=True)
class Explanation:
    """What a wrong result is.

    ``tiles``: how many were looked at. ``elements``: how many of theirs differ from ``asked``, the rule set wanted.
    ``agrees_with``: the rule sets that give all of those tiles. ``causes``: the faults that do, the simplest first;
    ``complete``: no fault was left untried for want of time.
    """

    tiles: int
    elements: int
    asked: str
    agrees_with: tuple[str, ...]
    causes: tuple[str, ...]
    complete: bool


def explain(evidence: Sequence[Evidence], elements: int, seconds: float = SECONDS) -> Explanation:
    """Explain batches of one implementation's results, of which ``elements`` elements are wrong.

    At least one batch has a failing tile. ``seconds``: what looking for causes may take.
    """
    samples = [e.sample() for e in evidence]
    head = next(e for e in samples if len(e.failing)).head()
    asked, record = head.rules, head.instruction
    agreeing = [r for r in rule_sets(record, asked) if _agrees(r, [head, *samples], evidence)]
    causes, complete = _causes(head, samples, evidence, time.monotonic() + seconds)
    return Explanation(
        tiles=sum(e.batch for e in evidence),
        elements=elements,
        asked=asked.label,
        agrees_with=tuple(name for r in agreeing for name in names_of(record, r)),
        causes=tuple(causes[:SHOWN]),
        complete=complete,
    )


# -- rule sets ----------------------------------------------------------------------------------------------


def rule_sets(instruction: Instruction, asked: Numerics) -> list[Numerics]:
    """The rule sets that may give another result than ``asked``: every combination of the axes that matter."""
    axes = [axis for axis in _WORDS if axis in instruction.rules_used]
    found = [replace(asked, **dict(zip(axes, words, strict=True))) for words in product(*(_WORDS[a] for a in axes))]
    return [rules for rules in found if rules != asked]


def names_of(instruction: Instruction, rules: Numerics) -> list[str]:
    """The named rule sets that mean the same to this instruction, or the words of an unnamed one."""
    axes = instruction.rules_used
    names = [n for n, named in NUMERICS.items() if all(getattr(named, a) == getattr(rules, a) for a in axes)]
    return names or [", ".join(f"{axis}={getattr(rules, axis)}" for axis in axes)]


def _agrees(rules: Numerics, samples: Sequence[Evidence], evidence: Sequence[Evidence]) -> bool:
    """Whether the reference under ``rules`` gives every tile: the few of the samples first."""

    def gives(e: Evidence) -> bool:
        return e.equals(e.under(rules).reference())

    return all(map(gives, samples)) and all(gives(block) for e in evidence for block in e.blocks())


# -- causes -------------------------------------------------------------------------------------------------


def faults(instruction: Instruction, asked: Numerics) -> Iterator[Fault]:
    """Every fault that is tried, the rule sets first."""
    for rules in rule_sets(instruction, asked):
        axes = [axis for axis in _WORDS if getattr(rules, axis) != getattr(asked, axis)]
        name = ", ".join(_RULE_CAUSES[axis, getattr(rules, axis)] for axis in axes)
        yield Fault(name, _under(rules))
    yield from region_faults(instruction)
    yield from operand_faults(instruction)
    yield from result_faults(instruction)
    yield from batch_faults(instruction)


def _under(rules: Numerics) -> Callable[[Evidence], Results]:
    return lambda e: e.under(rules).reference()


def _causes(
    head: Evidence, samples: Sequence[Evidence], evidence: Sequence[Evidence], deadline: float
) -> tuple[list[str], bool]:
    """The faults that give every tile, the simplest first, and whether all were tried."""
    found, complete = _under_any_rules(head, samples, evidence, deadline)
    kinds = [] if found else _kinds(samples)
    if found or kinds == [_ONLY_NAN_BITS] or not value_dsts(head):
        return found or kinds, complete
    # NaN bits that follow no known fault would hide every other one.
    few, all_of_them = (list(map(_any_nan, batches)) for batches in (samples, evidence))
    found, complete = _under_any_rules(_any_nan(head), few, all_of_them, deadline)
    return [f"{name}, with other bits in NaNs" for name in found] or kinds, complete


def _any_nan(e: Evidence) -> Evidence:
    return replace(e, tolerance=replace(e.tolerance, nan="any"))


def _under_any_rules(
    head: Evidence, samples: Sequence[Evidence], evidence: Sequence[Evidence], deadline: float
) -> tuple[list[str], bool]:
    """The faults that give every tile, by the rule set that was asked for or beside another one."""
    found, complete = _matching(head, samples, evidence, deadline)
    if found:
        return [f.name for f in found], complete
    for rules in rule_sets(head.instruction, head.rules):
        few, all_of_them = ([e.under(rules) for e in batches] for batches in (samples, evidence))
        found, complete = _matching(head.under(rules), few, all_of_them, deadline)
        if found:
            return [f"{f.name}, under {names_of(head.instruction, rules)[0]}" for f in found], complete
    return [], complete


def _matching(
    head: Evidence, samples: Sequence[Evidence], evidence: Sequence[Evidence], deadline: float
) -> tuple[list[Fault], bool]:
    """Faults that give the one tile of ``head``, then those of ``samples``, then all, as far as there is time."""
    found: list[Fault] = []
    complete = True
    for fault in faults(head.instruction, head.rules):
        if time.monotonic() > deadline:
            complete = False
            break
        if any(fault.includes(simpler) for simpler in found):
            continue
        if all(_gives(fault, e) for e in (head, *samples)) and _gives_all(fault, evidence, deadline):
            found.append(fault)
    return sorted(found, key=lambda f: len(f.operands)), complete


def _gives_all(fault: Fault, evidence: Sequence[Evidence], deadline: float) -> bool:
    for block in (block for e in evidence for block in e.blocks()):
        if time.monotonic() > deadline:
            return True  # the samples were
        if not _gives(fault, block):
            return False
    return True


def _gives(fault: Fault, e: Evidence) -> bool:
    results = fault.effect(e)
    return results is not None and e.equals(results)


# -- kinds of difference, where no fault gives the bits -----------------------------------------------------------


def _both_nan(seen: NumPyArray, right: NumPyArray, element: ElementType) -> NumPyArray:
    return is_nan(seen, element) & is_nan(right, element)


def _both_zero(seen: NumPyArray, right: NumPyArray, element: ElementType) -> NumPyArray:
    mask = (1 << (element.bits - 1)) - 1
    result: NumPyArray = ((seen | right) & mask) == 0
    return result


def _neighbours(seen: NumPyArray, right: NumPyArray, element: ElementType) -> NumPyArray:
    apart = np.abs(seen.astype(np.int64) - right.astype(np.int64)) == 1
    result: NumPyArray = apart & ~(is_nan(seen, element) | is_nan(right, element))
    return result


_KINDS: Final[Mapping[str, Callable[[NumPyArray, NumPyArray, ElementType], NumPyArray]]] = {
    "the bits of NaNs": _both_nan,
    "the sign of zeros": _both_zero,
    "the last place of numbers": _neighbours,
}


def _nothing_but(kinds: list[str]) -> str:
    return f"nothing but {listed(kinds)} differs"


_ONLY_NAN_BITS: Final = _nothing_but(["the bits of NaNs"])


def _kinds(samples: Sequence[Evidence]) -> list[str]:
    """Which kinds of difference there are, as one cause; none if some element differs in another way."""
    kinds = set()
    for e in samples:
        right = e.reference()
        for name, mask in e.different(right).items():
            element = e.before[name].type.element
            if not mask.any():
                continue
            if not element.is_float:
                return []
            alike = {kind: test(e.seen[name][mask], right[name][mask], element) for kind, test in _KINDS.items()}
            if not np.logical_or.reduce(list(alike.values())).all():
                return []
            kinds |= {kind for kind, where in alike.items() if where.any()}
    return [_nothing_but([kind for kind in _KINDS if kind in kinds])]
