"""What the instructions of PTX compute, on the values of all threads at once.

A NaN that an instruction makes has the bits that NVIDIA's ISA says: ``7fffffff``, and ``7fff`` for halves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ptx.memory import Array

#: Unsigned integers by their bytes.
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
#: NumPy's type for each of PTX; two in a register are unpacked by the operations on them.
TYPES = {f"{kind}{8 * size}": np.dtype(f"{kind.replace('b', 'u').replace('s', 'i')}{size}")
         for kind in "bus" for size in (1, 2, 4, 8)}  # fmt: skip
TYPES |= {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "pred": np.dtype(bool)}
TYPES |= {f"{name}x2": np.dtype("u4") for name in ("f16", "s16", "u16")} | {"f32x2": np.dtype("u8")}


class Operation(NamedTuple):
    """``forms``: what may follow the name; ``types``: of each source of an opcode with so many."""

    forms: str
    types: Callable[[tuple[str, ...], int], list[str]]
    compute: Callable[..., Array]


def refuse_unknown(opcode: tuple[str, ...], forms: str) -> None:
    """A modifier that is not among the ``forms`` could change the result."""
    if not re.fullmatch(forms, ".".join(opcode[1:])):
        raise NotImplementedError(".".join(opcode))


def _all_alike(opcode: tuple[str, ...], sources: int) -> list[str]:
    return [opcode[-1]] * sources


def _as(*types: str) -> Callable[[tuple[str, ...], int], list[str]]:
    """Sources of these types; ``""`` is that of the opcode."""
    return lambda opcode, sources: [t or opcode[-1] for t in types][:sources]


def _canonical(x: Array) -> Array:
    """``x`` with the NaN that the hardware makes."""
    if x.dtype.kind in "biu":
        return x
    bits = x.view(UNSIGNED[x.dtype.itemsize])
    return np.where(np.isnan(x), np.array(-1, f"i{x.dtype.itemsize}").view(bits.dtype) >> 1, bits).view(x.dtype)


def _computed(kind: str, compute: Callable[..., Array], values: tuple[Array, ...]) -> Array:
    """Of values of a type, or of both halves of registers."""
    halves = (x.view(TYPES[kind.removesuffix("x2")]) for x in values)
    return _canonical(compute(*halves)).view(TYPES[kind])


def _arithmetic(forms: str, compute: Callable[..., Array]) -> Operation:
    """An operation on values of one type."""
    return Operation(forms, _all_alike, lambda opcode, *values: _computed(opcode[-1], compute, values))


def _extreme(forms: str, compute: Callable[..., Array]) -> Operation:
    """``min`` or ``max``: -0 comes before +0, and a NaN wins with ``.NaN`` and loses without."""

    def on_values(opcode: tuple[str, ...], *values: Array) -> Array:
        def step(a: Array, b: Array) -> Array:
            if a.dtype.kind in "iu":
                return compute(a, b)
            key_a, key_b = _order_key(a), _order_key(b)
            first = np.where(compute(key_a, key_b) == key_a, a, b)
            if "NaN" in opcode:
                return np.where(np.isnan(a) | np.isnan(b), np.nan, first).astype(a.dtype)
            return np.where(np.isnan(a), b, np.where(np.isnan(b), a, first))

        return _computed(opcode[-1], lambda a, *others: functools.reduce(step, others, a), values)

    return Operation(forms, _all_alike, on_values)


def _order_key(x: Array) -> Array:
    """Integers in the order of floats."""
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    return np.where(bits < 0, -1 - (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)), bits)


def _magnitude(x: Array) -> Array:
    """``abs``, which only clears the sign."""
    bits = x.view(UNSIGNED[x.dtype.itemsize])
    return (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)).view(x.dtype)


def _wide(x: Array) -> Array:
    return x.astype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")


def _multiply(opcode: tuple[str, ...], a: Array, b: Array) -> Array:
    if "wide" in opcode:
        return _wide(a) * _wide(b)
    if "hi" in opcode:
        return ((_wide(a) * _wide(b)) >> (8 * a.dtype.itemsize)).astype(a.dtype)
    return _computed(opcode[-1], np.multiply, (a, b))


def _multiply_add(opcode: tuple[str, ...], a: Array, b: Array, c: Array) -> Array:
    return _multiply(opcode, a, b) + c


def _sum_type(opcode: tuple[str, ...], _: int) -> list[str]:
    """Of the third source of ``mad``: twice as wide as the others where the product is."""
    kind = opcode[-1]
    return [kind, kind, f"{kind[0]}{2 * int(kind[1:])}" if "wide" in opcode else kind]


def _shift(left: bool) -> Callable[..., Array]:
    def compute(_: tuple[str, ...], x: Array, by: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        least = np.minimum(by, bits - 1).astype(x.dtype)
        shifted = np.left_shift(x, least) if left else np.right_shift(x, least)
        gone = np.zeros_like(x) if left or x.dtype.kind == "u" else shifted
        return np.where(by >= bits, gone, shifted)

    return compute


def _funnel_shift(_: tuple[str, ...], low: Array, high: Array, by: Array) -> Array:
    whole = high.astype(np.uint64) << np.uint64(32) | low
    return ((whole << (by & 31).astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


_COMPARISONS = {
    "eq": np.equal, "ne": lambda a, b: (a < b) | (a > b), "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b), "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip


def _compare(opcode: tuple[str, ...], a: Array, b: Array) -> Array:
    """A predicate, or one for each half of a register."""
    kind = opcode[-1]
    if kind.endswith("x2"):
        a, b = (x.view(TYPES[kind.removesuffix("x2")]) for x in (a, b))
    return _COMPARISONS[opcode[1]](a, b)


def _select(_: tuple[str, ...], a: Array, b: Array, which: Array) -> Array:
    return np.where(which, a, b)


def _convert(opcode: tuple[str, ...], x: Array) -> Array:
    """``cvt.to.from``, of integers."""
    return x.astype(TYPES[opcode[-2]])


def _extract(opcode: tuple[str, ...], x: Array, start: Array, length: Array) -> Array:
    """``bfe``: bits of a number, of a signed one with the last of them as its sign."""
    bits = 8 * x.dtype.itemsize
    start = np.minimum(start & 255, bits)
    end = np.minimum(start + (length & 255), bits)
    at_top = _shift(left=True)(opcode, x, (bits - end).astype(np.uint32))
    found = _shift(left=False)(opcode, at_top, (bits - end + start).astype(np.uint32))
    return np.where(length & 255, found, 0).astype(x.dtype)


def _permute(_: tuple[str, ...], a: Array, b: Array, control: Array) -> Array:
    """``prmt``: each byte of the result is one of eight, or its sign."""
    source = np.stack([a, b], axis=1).view(np.uint8)
    chosen = (control[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & 15
    byte = np.take_along_axis(source, (chosen & 7).astype(np.int64), axis=1)
    byte = np.where(chosen & 8, np.where(byte & 128, 255, 0), byte).astype(np.uint8)
    return byte.view(np.uint32)[:, 0]


_INTEGERS, _BITS = r"[su](16|32|64)", r"b(16|32|64)"
_EXTREMES = rf"{_INTEGERS}|[su]16x2|(NaN\.)?f(16|16x2|32)"
_RELATIONS = (
    rf"(eq|ne)\.{_BITS}|(eq|ne|lt|le|gt|ge)\.{_INTEGERS}|"
    r"(eq|ne|lt|le|gt|ge|ltu|leu|gtu|geu|nan|num)\.f(16|16x2|32)"
)
OPERATIONS = {
    "add": _arithmetic(_INTEGERS, np.add),
    "sub": _arithmetic(_INTEGERS, np.subtract),
    "min": _extreme(_EXTREMES, np.minimum),
    "max": _extreme(_EXTREMES, np.maximum),
    "abs": _arithmetic(r"f(16|16x2|32)", _magnitude),
    "div": _arithmetic(r"[su](32|64)", lambda a, b: (a - np.fmod(a, b)) // b),  # towards zero
    "and": _arithmetic(rf"{_BITS}|pred", np.bitwise_and),
    "or": _arithmetic(rf"{_BITS}|pred", np.bitwise_or),
    "xor": _arithmetic(rf"{_BITS}|pred", np.bitwise_xor),
    "not": _arithmetic(rf"{_BITS}|pred", np.invert),
    "mul": Operation(r"(lo|hi|wide)\.[su](16|32)|lo\.[su]64|rn\.f(16|16x2|32|32x2)", _all_alike, _multiply),
    "mad": Operation(r"(lo|wide)\.[su](16|32)|lo\.[su]64", _sum_type, _multiply_add),
    "shl": Operation(_BITS, _as("", "u32"), _shift(left=True)),
    "shr": Operation(rf"{_BITS}|{_INTEGERS}", _as("", "u32"), _shift(left=False)),
    "shf": Operation(r"l\.wrap\.b32", _as("u32", "u32", "u32"), _funnel_shift),
    "setp": Operation(_RELATIONS, _all_alike, _compare),
    "selp": Operation(rf"{_BITS}|{_INTEGERS}|f32", _as("", "", "pred"), _select),
    "cvt": Operation(r"[su](8|16|32|64)\.[su](8|16|32|64)", _all_alike, _convert),
    "bfe": Operation(r"[su]32", _as("", "u32", "u32"), _extract),
    "prmt": Operation(r"b32", _as("u32", "u32", "u32"), _permute),
}
