"""TPRELU: parametric ReLU with a slope for every element."""

from __future__ import annotations

from typing import Any

from pto_gpu.isa.bytes_moved import clipped_to
from pto_gpu.isa.constraints import element_is, row_major, same_region
from pto_gpu.isa.formulas import canonical_nan
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
from pto_gpu.isa.results import same_as
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


def reference(xp: Any, rules: Numerics, element: ElementType, *, src0: Plane, src1: Plane) -> tuple[Any, ...]:
    """``x > 0 ? x : x * slope``; a NaN product is canonical, a kept x keeps its bits."""
    x, slope = src0.x, src1.x
    product = x * slope
    product = xp.where(xp.isnan(product), canonical_nan(xp, x, element), product)
    kept = (x >= 0) if rules.zero == "keep" else (x > 0)
    return (xp.where(kept, x, product),)


def gradient(xp: Any, rules: Numerics, element: ElementType, g: Any, *, src0: Plane, src1: Plane) -> tuple[Any, ...]:
    """Where x is kept, all of it to x; else the product rule. That a NaN product is made canonical is ignored."""
    x, slope, none = src0.x, src1.x, xp.zeros_like(g)
    kept = (x >= 0) if rules.zero == "keep" else (x > 0)
    g = xp.where(src0.inside, g, none)
    return xp.where(kept, g, g * slope), xp.where(kept | xp.logical_not(src0.inside), none, g * x)


def _mask_does_not_fit(regions: Regions, _: Types) -> Any:
    return regions["tmp"].rows <= regions["dst"].rows


_TYPES = (("f16",), ("f32",))

INSTRUCTION = Instruction(
    name="TPRELU",
    summary="x where x > 0, else x times the slope of that element",
    page="004_4757d260e078bdb0",
    family=Family.ELEMENTWISE,
    combine="prelu",
    operands=(
        Operand("dst", Role.DST),
        Operand("src0", Role.SRC, argument="src"),
        Operand("src1", Role.SRC, argument="slope"),
        Operand("tmp", Role.TMP, Kind.SCRATCH),
    ),
    assembly=("src0", "src1"),
    element_types={"a2a3": _TYPES, "a5": _TYPES},
    type_rules=(*row_major("dst", "src0", "src1", "tmp"), element_is("tmp", "u8", ("a2a3",))),
    region_rules=(
        same_region("src0", "dst"),
        same_region("src1", "dst"),
        RegionRule(
            "tmp.valid_row must be greater than dst.valid_row", ("tmp", "dst"), _mask_does_not_fit, targets=("a2a3",)
        ),
    ),
    reference=reference,
    result=same_as("src0"),
    bytes_moved=clipped_to("dst", "src0", "src1"),
    rules_used=("zero",),
    draws={"src0": Draw(), "src1": Draw(Pattern.SLOPE)},
    valid_pattern=ValidPattern.SAME,
    manual_disjoint=("a2a3",),
    gradient=gradient,
    value_names=("src", "slope"),
)
