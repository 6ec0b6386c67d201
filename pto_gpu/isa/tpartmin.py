"""TPARTMIN: element-wise minimum of two sources, each defined on a part of dst's valid region."""

from __future__ import annotations

from typing import Any

from pto_gpu.isa.bytes_moved import clipped_to
from pto_gpu.isa.constraints import row_major
from pto_gpu.isa.formulas import minimum, minimum_is_first, shared_out
from pto_gpu.isa.record import Draw, Family, Instruction, Operand, Plane, RegionRule, Regions, Role, Types, ValidPattern
from pto_gpu.isa.results import union_of
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


def reference(xp: Any, rules: Numerics, element: ElementType, *, src0: Plane, src1: Plane) -> tuple[Any, ...]:
    """Both defined: the minimum; one: that element, bit for bit; none: zero (a case the page leaves open)."""
    both = minimum(xp, src0.x, src1.x, rules, element)
    one = xp.where(src0.inside, src0.x, xp.where(src1.inside, src1.x, xp.zeros_like(src1.x)))
    return (xp.where(src0.inside & src1.inside, both, one),)


def gradient(xp: Any, rules: Numerics, element: ElementType, g: Any, *, src0: Plane, src1: Plane) -> tuple[Any, ...]:
    """To the side that the minimum is; equal sides count as src0, and so does the first NaN that decides."""
    return shared_out(xp, g, minimum_is_first(xp, src0.x, src1.x, rules, element), src0, src1)


def _unsupported(regions: Regions, _: Types) -> Any:
    dst, src0, src1 = regions["dst"], regions["src0"], regions["src1"]
    covered = (dst.differs(src0) | src1.exceeds(dst)) & (dst.differs(src1) | src0.exceeds(dst))
    return covered & (dst.rows != 0) & (dst.cols != 0)


INSTRUCTION = Instruction(
    name="TPARTMIN",
    summary="minimum where both sources are valid, the valid one where only one is",
    page="002_9484ebd680005f91",
    family=Family.PARTIAL,
    combine="min",
    operands=(Operand("dst", Role.DST), Operand("src0", Role.SRC), Operand("src1", Role.SRC)),
    assembly=("src0", "src1"),
    element_types={
        "a2a3": (("i32",), ("i16",), ("f16",), ("f32",)),
        "a5": (("i8",), ("u8",), ("i16",), ("u16",), ("i32",), ("u32",), ("f16",), ("bf16",), ("f32",)),
    },
    type_rules=row_major("dst", "src0", "src1", targets=("a2a3",)),
    region_rules=(
        RegionRule(
            "dst's valid region must equal that of src0 or src1, and the other's must not exceed it",
            ("dst", "src0", "src1"),
            _unsupported,
            undefined=True,
        ),
    ),
    reference=reference,
    result=union_of(("src0", "src1")),
    bytes_moved=clipped_to("dst", "src0", "src1"),
    rules_used=("nan",),
    draws={"src0": Draw(), "src1": Draw(like="src0")},
    valid_pattern=ValidPattern.PARTIAL,
    gradient=gradient,
)
