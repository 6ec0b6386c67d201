"""What implementations usually get wrong. Each fault says what it would make of some tiles, by the reference.

Faults come from an instruction's record (families, roles, kinds, the rules it uses), never from its name. The modules
:mod:`~pto_gpu.campaign.explain.region_faults`, :mod:`~pto_gpu.campaign.explain.operand_faults`,
:mod:`~pto_gpu.campaign.explain.result_faults` and :mod:`~pto_gpu.campaign.explain.batch_faults` have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pto_gpu.campaign.explain.evidence import Evidence, Results
from pto_gpu.isa.record import Instruction, Kind

#: The dst bits that a fault would leave, or None where it cannot be.
Effect = Callable[[Evidence], Results | None]


@dataclass(frozen=True)
class Fault:
    """One usual cause. ``change`` and ``operands``: the same change of fewer operands is the simpler fault."""

    name: str
    effect: Effect
    change: str = ""
    operands: frozenset[str] = frozenset()

    def includes(self, other: Fault) -> bool:
        """Whether this is the same change as ``other``, in more operands."""
        return bool(self.change) and self.change == other.change and self.operands > other.operands


def listed(names: tuple[str, ...] | list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def sides(instruction: Instruction) -> list[tuple[str, ...]]:
    """The sources by place: an index tile goes with the value tile that stands at the same place."""
    by_kind = [[o.name for o in instruction.sources if o.kind is kind] for kind in (Kind.VALUE, Kind.INDEX)]
    most = max(map(len, by_kind))
    return [tuple(names[place] for names in by_kind if place < len(names)) for place in range(most)]


def scopes(instruction: Instruction) -> list[tuple[str, ...]]:
    """Operands that a fault may concern together, the fewest first."""
    dsts = tuple(o.name for o in instruction.dsts)
    sources = tuple(o.name for o in instruction.sources)
    groups: list[tuple[str, ...]] = [(name,) for name in (*dsts, *sources)]
    groups += [dsts, *sides(instruction), sources]
    groups += [dsts + side for side in sides(instruction)]
    groups.append(dsts + sources)
    return sorted(dict.fromkeys(groups), key=len)
