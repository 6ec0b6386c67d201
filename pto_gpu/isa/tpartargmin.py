"""TPARTARGMIN: TPARTMIN that carries the index of the chosen side along."""

from __future__ import annotations

from typing import Any

from pto_gpu.isa.bytes_moved import clipped_to, together
from pto_gpu.isa.constraints import same_region
from pto_gpu.isa.formulas import shared_out, takes_src0
from pto_gpu.isa.record import (
    Draw,
    Family,
    Instruction,
    Kind,
    Operand,
    Pattern,
    Plane,
    RegionRule,
    Regions,
    Role,
    Types,
    ValidPattern,
)
from pto_gpu.isa.results import union_of
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


def reference(
    xp: Any,
    rules: Numerics,
    element: ElementType,
    *,
    src0_val: Plane,
    src1_val: Plane,
    src0_idx: Plane,
    src1_idx: Plane,
) -> tuple[Any, ...]:
    """Both defined: value and index of the chosen side; one: those of that side; none: zero."""
    in0, in1 = src0_val.inside, src1_val.inside
    first = in0 & (xp.logical_not(in1) | takes_src0(xp, src0_val.x, src1_val.x, rules, element))

    def chosen(a: Plane, b: Plane) -> Any:
        return xp.where(first, a.x, xp.where(in1, b.x, xp.zeros_like(b.x)))

    return chosen(src0_val, src1_val), chosen(src0_idx, src1_idx)


def gradient(
    xp: Any, rules: Numerics, element: ElementType, g: Any, *, src0_val: Plane, src1_val: Plane
) -> tuple[Any, ...]:
    """To the side that was chosen."""
    return shared_out(xp, g, takes_src0(xp, src0_val.x, src1_val.x, rules, element), src0_val, src1_val)


def _unsupported(regions: Regions, _: Types) -> Any:
    dst, src0, src1 = regions["dst_val"], regions["src0_val"], regions["src1_val"]
    return dst.differs(src0) & dst.differs(src1) & (dst.rows != 0) & (dst.cols != 0)


def _operands(role: Role, name: str, kind: Kind) -> Operand:
    return Operand(f"{name}_{'val' if kind is Kind.VALUE else 'idx'}", role, kind)


_PAIRS = (("f16", "i16"), ("f16", "u16"), ("f32", "i32"), ("f32", "u32"))

INSTRUCTION = Instruction(
    name="TPARTARGMIN",
    summary="minimum and its index where both sources are valid, the valid pair where only one is",
    page="000_7363bf96c76d4e8c",
    family=Family.PARTIAL_ARG,
    combine="min",
    operands=tuple(
        _operands(role, name, kind)
        for kind in (Kind.VALUE, Kind.INDEX)
        for role, name in ((Role.DST, "dst"), (Role.SRC, "src0"), (Role.SRC, "src1"))
    ),
    assembly=("src0_val", "src1_val", "src0_idx", "src1_idx"),
    element_types={"a2a3": _PAIRS, "a5": _PAIRS},
    type_rules=(),
    region_rules=(
        same_region("src0_idx", "src0_val"),
        same_region("src1_idx", "src1_val"),
        same_region("dst_idx", "dst_val"),
        RegionRule(
            "dst_val's valid region must equal that of src0_val or src1_val",
            ("dst_val", "src0_val", "src1_val"),
            _unsupported,
            undefined=True,
        ),
    ),
    reference=reference,
    result=union_of(("src0_val", "src1_val"), ("src0_idx", "src1_idx")),
    bytes_moved=together(clipped_to("dst_val", "src0_val", "src1_val"), clipped_to("dst_idx", "src0_idx", "src1_idx")),
    rules_used=("nan", "tie"),
    draws={
        "src0_val": Draw(),
        "src1_val": Draw(like="src0_val"),
        "src0_idx": Draw(Pattern.INDEX),
        "src1_idx": Draw(Pattern.INDEX),
    },
    valid_pattern=ValidPattern.PARTIAL_ANY,
    gradient=gradient,
)
