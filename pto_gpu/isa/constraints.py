"""The vocabulary of constraints that instruction records are written in."""

from __future__ import annotations

from typing import Any

from pto_gpu.errors import LayoutError, TypeMismatch
from pto_gpu.isa.record import RegionRule, Regions, TypeRule, Types


def location(word: str, *names: str) -> tuple[TypeRule, ...]:
    """Each operand lies in ``word`` memory."""

    def rule(name: str) -> TypeRule:
        def seen(types: Types) -> str | None:
            return None if types[name].loc == word else f"seen {types[name].loc}"

        return TypeRule(f"{name}.loc must be {word}", (name,), seen, LayoutError)

    return tuple(rule(name) for name in names)


def row_major(*names: str, targets: tuple[str, ...] = ()) -> tuple[TypeRule, ...]:
    """Each operand is row-major."""

    def rule(name: str) -> TypeRule:
        def seen(types: Types) -> str | None:
            return None if types[name].blayout == "row_major" else f"seen {types[name].blayout}"

        return TypeRule(f"{name}.blayout must be row_major", (name,), seen, LayoutError, targets)

    return tuple(rule(name) for name in names)


def nd(name: str) -> TypeRule:
    """The operand is row-major and unboxed."""

    def seen(types: Types) -> str | None:
        ty = types[name]
        return None if ty.layout == "ND" else f"seen blayout={ty.blayout}, slayout={ty.slayout}"

    return TypeRule(f"{name} must be ND (row_major, none_box)", (name,), seen, LayoutError)


def nd_or_single_column_dn(name: str) -> TypeRule:
    """The operand is ND, or DN with exactly one column."""

    def seen(types: Types) -> str | None:
        ty = types[name]
        if ty.layout == "ND" or (ty.layout == "DN" and ty.cols == 1):
            return None
        return f"seen {ty.layout} with {ty.cols} columns"

    return TypeRule(f"{name} must be ND, or DN with one column", (name,), seen, LayoutError)


def element_is(name: str, dtype: str, targets: tuple[str, ...]) -> TypeRule:
    """The operand's element type is fixed (a scratch operand)."""

    def seen(types: Types) -> str | None:
        return None if types[name].dtype == dtype else f"seen {types[name].dtype}"

    return TypeRule(f"{name}'s element type must be {dtype}", (name,), seen, TypeMismatch, targets)


def same_element(name: str, other: str, targets: tuple[str, ...]) -> TypeRule:
    """The operand has the element type of another (a scratch operand)."""

    def seen(types: Types) -> str | None:
        a, b = types[name].dtype, types[other].dtype
        return None if a == b else f"seen {a} and {b}"

    return TypeRule(f"{name} must have the element type of {other}", (name, other), seen, TypeMismatch, targets)


def same_region(name: str, other: str) -> RegionRule:
    """Both operands have the same valid region."""

    def broken(regions: Regions, _: Types) -> Any:
        return regions[name].differs(regions[other])

    return RegionRule(f"{name}'s valid region must equal {other}'s", (name, other), broken, equal=True)


def same_rows(name: str, other: str) -> RegionRule:
    """Both operands have the same number of valid rows."""

    def broken(regions: Regions, _: Types) -> Any:
        return regions[name].rows != regions[other].rows

    return RegionRule(f"{name}.valid_row must equal {other}.valid_row", (name, other), broken)


def nonzero(name: str, field: str) -> RegionRule:
    """A valid count (``"rows"`` or ``"cols"``) is not 0."""

    def broken(regions: Regions, _: Types) -> Any:
        return getattr(regions[name], field) == 0

    return RegionRule(f"{name}.valid_{field[:-1]} must not be 0", (name,), broken)
