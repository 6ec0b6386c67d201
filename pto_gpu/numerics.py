"""The rule sets: what NaN, ties and signed zeros do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pto_gpu.errors import ConstraintError, TypeMismatch

NAN_RULES: Final = ("propagate", "number", "select")
TIE_RULES: Final = ("src0", "src1")
ZERO_RULES: Final = ("product", "keep")


@dataclass(frozen=True)
class Numerics:
    """One rule set.

    ``nan``: ``"propagate"`` (any NaN gives the canonical NaN), ``"number"`` (a NaN loses to a
    number) or ``"select"`` (plain compare and select, bits copied).
    ``tie``: which side TPARTARGMIN takes when the values are equal, ``"src0"`` or ``"src1"``.
    ``zero``: whether TPRELU multiplies ``x = +-0`` (``"product"``) or returns it (``"keep"``).

    Raises :class:`~pto_gpu.errors.ConstraintError` for any other word.
    """

    nan: str = "propagate"
    tie: str = "src1"
    zero: str = "product"

    def __post_init__(self) -> None:
        for field, allowed in (("nan", NAN_RULES), ("tie", TIE_RULES), ("zero", ZERO_RULES)):
            seen = getattr(self, field)
            if not isinstance(seen, str) or seen not in allowed:
                raise ConstraintError(f"Numerics: {field}={seen!r} is not known: allowed {', '.join(allowed)}")

    @property
    def label(self) -> str:
        """The name of this rule set if it has one, else its three words, such as ``number/src0/keep``."""
        for name, rules in NUMERICS.items():
            if rules == self:
                return name
        return f"{self.nan}/{self.tie}/{self.zero}"


#: The named rule sets, and where each comes from.
NUMERICS: Final[dict[str, Numerics]] = {
    "isa": Numerics("propagate", "src1", "product"),  # the pages; NaN as the public golden data
    "formal": Numerics("number", "src1", "product"),  # the public formal model
    "simulator": Numerics("select", "src1", "product"),  # the public C++ CPU simulator
    "a5": Numerics("propagate", "src0", "keep"),  # what the A5 sources and ISA pages imply
    "a2a3": Numerics("propagate", "src0", "product"),  # what the A2A3 sources imply
}


def resolve_numerics(rules: str | Numerics) -> Numerics:
    """The rule set called ``rules``, or ``rules`` itself; ``nan/tie/zero`` spells a custom one."""
    if isinstance(rules, Numerics):
        return rules
    if not isinstance(rules, str):
        raise TypeMismatch(f"numerics must be a name or a Numerics: seen {type(rules).__name__}")
    known = NUMERICS.get(rules)
    if known is not None:
        return known
    words = rules.split("/")
    if len(words) == 3:
        return Numerics(*words)
    raise ConstraintError(f"numerics={rules!r} is not known: allowed {', '.join(NUMERICS)}, or nan/tie/zero")
