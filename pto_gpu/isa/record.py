"""The record of an instruction: the single source that checks, dispatch, command line and docs read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from pto_gpu.errors import ConstraintError, PtoError
from pto_gpu.numerics import Numerics
from pto_gpu.regions import Region
from pto_gpu.types import TileBufType

Types = Mapping[str, TileBufType]
Regions = Mapping[str, Region]


class Family(StrEnum):
    """Instructions of one family share their loops: a backend has one module for each family."""

    PARTIAL = "partial"  # combine two sources, each defined on a part of dst
    PARTIAL_ARG = "partial_arg"  # the same, carrying an index along
    ROW_REDUCE = "row_reduce"  # fold a row to one element
    ELEMENTWISE = "elementwise"  # sources defined wherever dst is


class Role(StrEnum):
    """What an instruction does with an operand."""

    DST = "dst"
    SRC = "src"
    TMP = "tmp"


class Kind(StrEnum):
    """Operands of one kind share an element type; scratch has a rule of its own where a target wants one."""

    VALUE = "value"
    INDEX = "index"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class Operand:
    """An operand: its name on the page, its role, and the kind whose element type it has.

    ``argument``: what a torch operator calls it; default the name on the page.
    """

    name: str
    role: Role
    kind: Kind = Kind.VALUE
    argument: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "argument", self.argument or self.name)


@dataclass(frozen=True)
class TypeRule:
    """A rule on the static types. ``seen(types)`` says what breaks it, or None.

    Operands of ``operands`` that a call leaves out (tmp) make the rule hold. ``targets`` empty: every target.
    """

    text: str
    operands: tuple[str, ...]
    seen: Callable[[Types], str | None]
    error: type[PtoError] = ConstraintError
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegionRule:
    """A rule on the run-time valid regions. ``broken(regions, types)`` is True where a tile breaks it.

    The result is a bool, or a mask with one entry for each tile. ``undefined``: the page leaves the case
    open, and ``undefined="zero"`` waives the rule. ``equal``: the rule is that all its operands have one region.
    """

    text: str
    operands: tuple[str, ...]
    broken: Callable[[Regions, Types], Any]
    targets: tuple[str, ...] = ()
    undefined: bool = False
    equal: bool = False


class Plane(NamedTuple):
    """A source on dst's grid: elements ``[batch, rows, cols]`` and where they are inside its valid region."""

    x: Any
    inside: Any


class Result(NamedTuple):
    """What the value form allocates for a dst."""

    type: TileBufType
    region: Region


class Pattern(StrEnum):
    """What the elements of a source look like in a campaign."""

    VALUE = "value"  # numbers of every kind
    ROW = "row"  # rows in which the minimum is repeated, or NaN comes first or last
    INDEX = "index"
    SLOPE = "slope"  # factors that make products subnormal, halfway between two numbers, NaN


class ValidPattern(StrEnum):
    """Which valid regions a campaign draws together."""

    PARTIAL = "partial"  # one source covers dst exactly, the other a part of it
    PARTIAL_ANY = "partial_any"  # one source covers dst exactly, the other anything
    ROWS = "rows"  # at least one row and column; dst has the rows of the source, and one column
    SAME = "same"  # every operand has the region of dst


@dataclass(frozen=True)
class Draw:
    """How a campaign draws a source. ``like``: the operand that it is often equal to, for ties."""

    pattern: Pattern = Pattern.VALUE
    like: str | None = None


@dataclass(frozen=True, eq=False)
class Instruction:
    """Everything that is known about one instruction.

    ``name``, ``summary``, ``page``: what it is called, what it does in a line, the id of the page it is built from.
    ``family`` and ``combine``: which loop of a backend runs it, and the step inside that loop.
    ``operands`` stand in C++ order, ``assembly`` names the ``ins`` in text order. ``element_types`` gives,
    per target, the allowed element types in the order of the kinds ``value`` and ``index``.
    ``reference(xp, rules, element, **sources) -> results`` is the page's formula on arrays of the library ``xp``,
    with a :class:`Plane` for each source and one result for each dst.
    ``result(types, regions)`` is what the value form allocates, one :class:`Result` for each dst.
    ``bytes_moved(regions, sizes, batch)`` counts every valid element read and written once, over the whole batch.
    ``rules_used`` names the axes of :class:`~pto_gpu.numerics.Numerics` that matter to it.
    ``draws`` and ``valid_pattern`` say how a campaign draws its sources and valid regions.
    ``gradient(xp, rules, element, gradient of the first dst, **sources) -> gradients`` is the derivative for torch
    operators, one result for each source of values in C++ order; ``xp`` is torch. None: there is no derivative.
    """

    name: str
    summary: str
    page: str
    family: Family
    combine: str
    operands: tuple[Operand, ...]
    assembly: tuple[str, ...]
    element_types: Mapping[str, tuple[tuple[str, ...], ...]]
    type_rules: tuple[TypeRule, ...]
    region_rules: tuple[RegionRule, ...]
    reference: Callable[..., tuple[Any, ...]]
    result: Callable[[Types, Regions], tuple[Result, ...]]
    bytes_moved: Callable[[Regions, Mapping[str, int], int], int]
    rules_used: tuple[str, ...]
    draws: Mapping[str, Draw]
    valid_pattern: ValidPattern
    manual_disjoint: tuple[str, ...] = ()  # targets on which no two operands may overlap in manual mode
    gradient: Callable[..., tuple[Any, ...]] | None = None
    value_names: tuple[str, ...] = ()  # what the value form calls the ins, where it has other names for them

    def with_role(self, role: Role) -> tuple[Operand, ...]:
        """The operands of one role, in C++ order."""
        return tuple(o for o in self.operands if o.role is role)

    @cached_property
    def by_name(self) -> Mapping[str, Operand]:
        """The operands by name."""
        return {o.name: o for o in self.operands}

    @cached_property
    def dsts(self) -> tuple[Operand, ...]:
        """The destinations."""
        return self.with_role(Role.DST)

    @cached_property
    def sources(self) -> tuple[Operand, ...]:
        """The sources, without tmp."""
        return self.with_role(Role.SRC)

    @cached_property
    def conflicts(self) -> tuple[tuple[str, str, bool], ...]:
        """Each dst with every other operand that is read or written, and whether both may be the same tile.

        A dst may be a source of its own kind; values written over indices would be lost to the other dst.
        """
        pairs = []
        for i, dst in enumerate(self.dsts):
            pairs += [(dst.name, source.name, source.kind is dst.kind) for source in self.sources]
            pairs += [(dst.name, other.name, False) for other in self.dsts[i + 1 :]]
        return tuple(pairs)

    @cached_property
    def region_groups(self) -> tuple[tuple[str, ...], ...]:
        """The sources, in text order, grouped by valid region: rules of the page make those of a group equal."""
        group = {o.name: {o.name} for o in self.operands}
        for rule in self.region_rules:
            if rule.equal:
                joined = set().union(*(group[name] for name in rule.operands))
                group.update(dict.fromkeys(joined, joined))
        groups = [tuple(n for n in self.assembly if n in group[name]) for name in self.assembly]
        return tuple(dict.fromkeys(groups))

    @property
    def tmp(self) -> Operand | None:
        """The scratch operand, if there is one."""
        return next(iter(self.with_role(Role.TMP)), None)

    def signature(self, types: Types) -> tuple[str, ...]:
        """The element types of a call in the order of ``element_types``: that of values, then of indices."""
        kinds = [k for k in (Kind.VALUE, Kind.INDEX) if any(o.kind is k for o in self.operands)]
        return tuple(types[next(o.name for o in self.operands if o.kind is k)].dtype for k in kinds)


class Call(NamedTuple):
    """One call: what is checked and then given to a backend. ``tiles``: TileBufs by operand; no absent tmp."""

    instruction: Instruction
    tiles: Mapping[str, Any]
    rules: Numerics
    undefined: str
    target: str
    threads: int | None = None

    @property
    def batch(self) -> int:
        """Tiles in the batch."""
        batch: int = self.tiles[self.instruction.operands[0].name].batch
        return batch
