"""TROWMIN: the minimum of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_gpu.isa.bytes_moved import row_fold
from pto_gpu.isa.constraints import location, nd, nd_or_single_column_dn, nonzero, same_element, same_rows
from pto_gpu.isa.formulas import canonical_nan, minimum, number
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
from pto_gpu.isa.results import row_column
from pto_gpu.numerics import Numerics
from pto_gpu.targets import TARGETS
from pto_gpu.types import BLOCK_BYTES, ElementType


def reference(xp: Any, rules: Numerics, element: ElementType, *, src: Plane) -> tuple[Any, ...]:
    """Fold each row from left to right; only column 0 of the result means anything."""
    least = src.x[:, :, :1]
    for j in range(1, src.x.shape[2]):
        column = slice(j, j + 1)
        folded = minimum(xp, least, src.x[:, :, column], rules, element)
        least = xp.where(src.inside[:, :, column], folded, least)
    if element.is_float and rules.nan != "select":  # a NaN that the fold returns is canonical, in one column too
        least = xp.where(xp.isnan(number(xp, least, element)), canonical_nan(xp, least, element), least)
    return (least,)


def gradient(xp: Any, rules: Numerics, element: ElementType, g: Any, *, src: Plane) -> tuple[Any, ...]:
    """To the first element that the fold returns: the first minimal one, or the first NaN where it returns NaN."""
    x, inside = number(xp, src.x, element), src.inside
    nan = inside & xp.isnan(x)
    numbers = inside & xp.logical_not(xp.isnan(x))
    infinity = xp.full_like(x, float("inf"))
    least = numbers & (x == xp.amin(xp.where(numbers, x, infinity), -1, keepdim=True))
    if rules.nan != "select":  # -0 < +0
        least = _if_any(xp, least & xp.signbit(x), least)
    if rules.nan == "propagate":
        least = _if_any(xp, nan, least)
    elif rules.nan == "select":  # a NaN in front stays
        least = xp.where(nan[:, :, :1], nan, least)
    least = _if_any(xp, least, nan)
    column = xp.arange(x.shape[2], dtype=xp.int32, device=x.device)
    first = xp.amin(xp.where(least, column, x.shape[2]), -1, keepdim=True)
    return (xp.where(inside & (column == first), g, xp.zeros_like(g)),)


def _if_any(xp: Any, mask: Any, otherwise: Any) -> Any:
    """``mask`` in rows in which it holds anywhere, ``otherwise`` in the rest."""
    return xp.where(xp.any(mask, -1, keepdim=True), mask, otherwise)


# Shapes (f32, full, DN result) for which A2A3 has a fast path that needs 4096 contiguous scratch bytes.
_A2A3_FAST_SHAPES = ((64, 128), (32, 256), (16, 512), (8, 1024))
_A2A3_FAST_TMP_BYTES = 4096


def _tmp_too_small(regions: Regions, types: Types) -> Any:
    """Where the A2A3 sequence for this element type and width would not fit into tmp."""
    src, tmp = types["src"], types["tmp"]
    rows, cols = regions["src"]
    if not src.element.is_float:
        return tmp.cols * tmp.element.itemsize < BLOCK_BYTES
    lanes = TARGETS["a2a3"].repeat_bytes // src.element.itemsize
    narrow = (cols > lanes) & (tmp.cols < lanes)
    short = (cols >= 2 * lanes) & (rows > tmp.rows)
    if not _has_fast_path(types):
        return narrow | short
    full = (rows == src.rows) & (cols == src.cols)
    return np.where(full, tmp.nbytes < _A2A3_FAST_TMP_BYTES, narrow | short)


def _has_fast_path(types: Types) -> bool:
    """Whether the types are those of the fast path, which tiles with a full valid region then take."""
    src, dst = types["src"], types["dst"]
    full = (src.v_row, src.v_col) == (src.rows, src.cols)
    column = dst.layout == "DN" and dst.v_col == 1
    return src.dtype == "f32" and full and column and (src.rows, src.cols) in _A2A3_FAST_SHAPES


INSTRUCTION = Instruction(
    name="TROWMIN",
    summary="minimum of each row, written to column 0 of dst",
    page="001_d33241b2c357a02b",
    family=Family.ROW_REDUCE,
    combine="min",
    operands=(Operand("dst", Role.DST), Operand("src", Role.SRC), Operand("tmp", Role.TMP, Kind.SCRATCH)),
    assembly=("src",),
    element_types={
        "a2a3": (("f16",), ("f32",), ("i32",), ("i16",)),
        "a5": (("f16",), ("f32",), ("i32",), ("i16",), ("i8",), ("u8",)),
    },
    type_rules=(
        *location("vec", "dst", "src"),
        nd("src"),
        nd_or_single_column_dn("dst"),
        same_element("tmp", "src", targets=("a2a3",)),
    ),
    region_rules=(
        nonzero("src", "rows"),
        nonzero("src", "cols"),
        nonzero("dst", "cols"),
        same_rows("dst", "src"),
        RegionRule(
            "tmp must hold the scratch of the reduction (a shape like src's always does)",
            ("src", "tmp"),
            _tmp_too_small,
            targets=("a2a3",),
        ),
    ),
    reference=reference,
    result=row_column("src"),
    bytes_moved=row_fold("dst", "src"),
    rules_used=("nan",),
    draws={"src": Draw(Pattern.ROW)},
    valid_pattern=ValidPattern.ROWS,
    gradient=gradient,
)
