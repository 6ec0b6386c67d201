"""What the instructions of PTX compute, on the values of all threads at once.

A NaN that an instruction makes has the bits that NVIDIA's ISA says: ``7fffffff``, and ``7fff`` for halves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from ptx.memory import Array

#: Unsigned integers by their bytes.
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
#: NumPy's type for each of PTX; two in a register are unpacked by the operations on them.
TYPES = {f"{kind}{8 * size}": np.dtype(f"{kind.replace('b', 'u').replace('s', 'i')}{size}")
         for kind in "bus" for size in (1, 2, 4, 8)}  # fmt: skip
TYPES |= {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype(bool)}
TYPES |= {"bf16": np.dtype(ml_dtypes.bfloat16)}
TYPES |= {f"{name}x2": np.dtype("u4") for name in ("f16", "bf16", "s16", "u16")} | {"f32x2": np.dtype("u8")}


class Operation(NamedTuple):
    """``types``: of each source of an opcode with so many. ``compute``: of an opcode and its sources."""

    types: Callable[[tuple[str, ...], int], list[str]]
    compute: Callable[..., Array]


def _all_alike(opcode: tuple[str, ...], sources: int) -> list[str]:
    return [opcode[-1]] * sources


def _as(*types: str) -> Callable[[tuple[str, ...], int], list[str]]:
    """Sources of these types; ``""`` is that of the opcode."""
    return lambda opcode, sources: [t or opcode[-1] for t in types][:sources]


def _canonical(x: Array) -> Array:
    """``x`` with the NaN that the hardware makes."""
    if x.dtype.kind in "iu":
        return x
    bits = x.view(UNSIGNED[x.dtype.itemsize])
    return np.where(np.isnan(x), np.array(-1, f"i{x.dtype.itemsize}").view(bits.dtype) >> 1, bits).view(x.dtype)


def _arithmetic(compute: Callable[..., Array]) -> Operation:
    """An operation on values of one type, also on both halves of a register."""

    def on_values(opcode: tuple[str, ...], *values: Array) -> Array:
        kind = opcode[-1]
        if not kind.endswith("x2"):
            return _canonical(compute(*values))
        halves = [x.view(TYPES[kind.removesuffix("x2")]) for x in values]
        return _canonical(compute(*halves)).view(TYPES[kind])

    return Operation(_all_alike, on_values)


def _extreme(compute: Callable[..., Array]) -> Operation:
    """``min`` or ``max``: -0 comes before +0, and a NaN wins with ``.NaN`` and loses without."""

    def on_values(opcode: tuple[str, ...], *values: Array) -> Array:
        if "ftz" in opcode or "xorsign" in opcode:
            raise NotImplementedError(".".join(opcode))

        def step(a: Array, b: Array) -> Array:
            if a.dtype.kind in "iu":
                return compute(a, b)
            key_a, key_b = _order_key(a), _order_key(b)
            first = np.where(compute(key_a, key_b) == key_a, a, b)
            if "NaN" in opcode:
                return np.where(np.isnan(a) | np.isnan(b), np.nan, first).astype(a.dtype)
            return np.where(np.isnan(a), b, np.where(np.isnan(b), a, first))

        return _arithmetic(lambda a, *others: functools.reduce(step, others, a)).compute(opcode, *values)

    return Operation(_all_alike, on_values)


def _order_key(x: Array) -> Array:
    """Integers in the order of floats."""
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    return np.where(bits < 0, -1 - (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)), bits)


def _magnitude(x: Array) -> Array:
    """``abs``, which for floats only clears the sign."""
    if x.dtype.kind in "iu":
        return np.abs(x)
    bits = x.view(UNSIGNED[x.dtype.itemsize])
    return (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)).view(x.dtype)


def _wide(x: Array) -> Array:
    return x.astype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")


def _multiply(opcode: tuple[str, ...], a: Array, b: Array) -> Array:
    if "wide" in opcode:
        return _wide(a) * _wide(b)
    if "hi" in opcode:
        return ((_wide(a) * _wide(b)) >> (8 * a.dtype.itemsize)).astype(a.dtype)
    if "ftz" in opcode:
        raise NotImplementedError("a product that flushes subnormals")
    return _arithmetic(np.multiply).compute(opcode, a, b)


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


def _funnel_shift(opcode: tuple[str, ...], low: Array, high: Array, by: Array) -> Array:
    by = np.minimum(by, 32) if "clamp" in opcode else by & 31
    whole = high.astype(np.uint64) << np.uint64(32) | low
    shifted = (whole << by.astype(np.uint64)) >> np.uint64(32) if "l" in opcode else whole >> by.astype(np.uint64)
    return shifted.astype(np.uint32)


_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b), "equ": lambda a, b: ~(a != b) | np.isnan(a) | np.isnan(b),
    "neu": np.not_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "nan": lambda a, b: np.isnan(a) | np.isnan(b), "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip
_CONNECTIVES = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compare(opcode: tuple[str, ...], a: Array, b: Array, *other: Array) -> Array:
    """A predicate, or one for each half of a register."""
    kind = opcode[-1]
    if kind.endswith("x2"):
        a, b = (x.view(TYPES[kind.removesuffix("x2")]) for x in (a, b))
    found = _COMPARISONS[opcode[1]](a, b)
    return _CONNECTIVES[opcode[2]](found, *other) if other else found


def _select(_: tuple[str, ...], a: Array, b: Array, which: Array) -> Array:
    return np.where(which, a, b)


def _convert(opcode: tuple[str, ...], x: Array) -> Array:
    """``cvt.to.from``; to integers from integers only, to floats rounded to nearest even."""
    to = TYPES[opcode[-2]]
    if x.dtype.kind not in "iu" and to.kind in "iu":
        raise NotImplementedError(".".join(opcode))
    if "ftz" in opcode or "sat" in opcode:
        raise NotImplementedError(".".join(opcode))
    return _canonical(x.astype(to))


def _extract(opcode: tuple[str, ...], x: Array, start: Array, length: Array) -> Array:
    """``bfe``: bits of a number, of a signed one with the last of them as its sign."""
    bits = 8 * x.dtype.itemsize
    start = np.minimum(start & 255, bits)
    end = np.minimum(start + (length & 255), bits)
    at_top = _shift(left=True)(opcode, x, (bits - end).astype(np.uint32))
    found = _shift(left=False)(opcode, at_top, (bits - end + start).astype(np.uint32))
    return np.where(start == end, 0, found).astype(x.dtype)


def _permute(opcode: tuple[str, ...], a: Array, b: Array, control: Array) -> Array:
    """``prmt``: each byte of the result is one of eight, or its sign."""
    if opcode[-1] != "b32" or len(opcode) != 2:
        raise NotImplementedError(".".join(opcode))
    source = np.stack([a, b], axis=1).view(np.uint8)
    chosen = (control[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & 15
    byte = np.take_along_axis(source, (chosen & 7).astype(np.int64), axis=1)
    byte = np.where(chosen & 8, np.where(byte & 128, 255, 0), byte).astype(np.uint8)
    return byte.view(np.uint32)[:, 0]


def _table(_: tuple[str, ...], a: Array, b: Array, c: Array, table: Array) -> Array:
    """``lop3``: bit 4a + 2b + c of the table."""
    found = np.zeros_like(a)
    for number in range(8):
        wanted = [x if number & bit else ~x for x, bit in ((a, 4), (b, 2), (c, 1))]
        found |= np.where(table >> np.uint32(number) & 1, wanted[0] & wanted[1] & wanted[2], 0).astype(a.dtype)
    return found


OPERATIONS = {
    "add": _arithmetic(np.add),
    "sub": _arithmetic(np.subtract),
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
    "abs": _arithmetic(_magnitude),
    "neg": _arithmetic(np.negative),
    "div": _arithmetic(lambda a, b: (a - np.fmod(a, b)) // b),  # towards zero
    "rem": _arithmetic(np.fmod),
    "and": _arithmetic(np.bitwise_and),
    "or": _arithmetic(np.bitwise_or),
    "xor": _arithmetic(np.bitwise_xor),
    "not": _arithmetic(np.invert),
    "mul": Operation(_all_alike, _multiply),
    "mul24": Operation(_all_alike, _multiply),
    "mad": Operation(_sum_type, _multiply_add),
    "shl": Operation(_as("", "u32"), _shift(left=True)),
    "shr": Operation(_as("", "u32"), _shift(left=False)),
    "shf": Operation(_as("u32", "u32", "u32"), _funnel_shift),
    "setp": Operation(_as("", "", "pred"), _compare),
    "selp": Operation(_as("", "", "pred"), _select),
    "cvt": Operation(_all_alike, _convert),
    "bfe": Operation(_as("", "u32", "u32"), _extract),
    "prmt": Operation(_as("u32", "u32", "u32"), _permute),
    "lop3": Operation(_as("u32", "u32", "u32", "u32"), _table),
}
