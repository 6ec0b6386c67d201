"""An independent oracle: one element at a time, on integer bit patterns, written from the instruction pages.

It shares no code with ``pto_gpu`` and uses no floating point: NaN, order and rounding are worked out on bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Format(NamedTuple):
    """A binary floating-point format: widths of the exponent and of the stored mantissa."""

    exponent: int
    mantissa: int

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def canonical_nan(self) -> int:
        return self.infinity | 1 << (self.mantissa - 1)


FLOATS = {"f16": Format(5, 10), "bf16": Format(8, 7), "f32": Format(8, 23)}
INTEGERS = {"i8": (8, True), "u8": (8, False), "i16": (16, True), "u16": (16, False), "i32": (32, True)}
INTEGERS["u32"] = (32, False)


class Rules(NamedTuple):
    nan: str
    tie: str
    zero: str


#: The rule sets, typed in again.
RULE_SETS = {
    "isa": Rules("propagate", "src1", "product"),
    "formal": Rules("number", "src1", "product"),
    "simulator": Rules("select", "src1", "product"),
    "a5": Rules("propagate", "src0", "keep"),
    "a2a3": Rules("propagate", "src0", "product"),
}


class Tile(NamedTuple):
    """Bit patterns row by row, and the valid region."""

    bits: list[list[int]]
    rows: int
    cols: int

    def has(self, i: int, j: int) -> bool:
        return i < self.rows and j < self.cols


def is_nan(bits: int, dtype: str) -> bool:
    form = FLOATS.get(dtype)
    return form is not None and (bits & (form.sign - 1)) > form.infinity


def number(bits: int, dtype: str) -> int:
    """An integer that orders like the number; both zeros give 0. Not for NaN."""
    form = FLOATS.get(dtype)
    if form is None:
        width, signed = INTEGERS[dtype]
        return bits - (1 << width) if signed and bits >> (width - 1) else bits
    magnitude = bits & (form.sign - 1)
    return -magnitude if bits & form.sign else magnitude


def less(a: int, b: int, dtype: str) -> bool:
    """``a < b`` as a machine compares: false with a NaN, false for -0 and +0."""
    return not is_nan(a, dtype) and not is_nan(b, dtype) and number(a, dtype) < number(b, dtype)


def least(items: list[int], dtype: str, nan: str) -> int:
    """The minimum of one or more elements, folded from the left, as arithmetic makes it."""
    if dtype not in FLOATS or nan == "select":
        best = items[0]
        for item in items[1:]:
            if less(item, best, dtype):
                best = item
        return best
    form = FLOATS[dtype]
    numbers = [item for item in items if not is_nan(item, dtype)]
    if not numbers or (nan == "propagate" and len(numbers) < len(items)):
        return form.canonical_nan
    return min(numbers, key=lambda x: (number(x, dtype), 0 if x & form.sign else 1))


def product(a: int, b: int, dtype: str) -> int:
    """``a * b`` rounded once to nearest even, subnormals kept; NaN is canonical."""
    form = FLOATS[dtype]
    if is_nan(a, dtype) or is_nan(b, dtype):
        return form.canonical_nan
    sign = (a ^ b) & form.sign
    a, b = a & (form.sign - 1), b & (form.sign - 1)
    if form.infinity in (a, b):
        return form.canonical_nan if 0 in (a, b) else sign | form.infinity
    bias = (1 << (form.exponent - 1)) - 1
    lowest = 1 - bias - form.mantissa  # exponent of the last place of a subnormal

    def split(x: int) -> tuple[int, int]:
        field, fraction = x >> form.mantissa, x & ((1 << form.mantissa) - 1)
        return (fraction, lowest) if field == 0 else (fraction | 1 << form.mantissa, lowest + field - 1)

    (m_a, e_a), (m_b, e_b) = split(a), split(b)
    significand, exponent = m_a * m_b, e_a + e_b
    if significand == 0:
        return sign
    # The last place that the result keeps: full precision, or that of a subnormal.
    place = max(exponent + significand.bit_length() - 1 - form.mantissa, lowest)
    shift = place - exponent
    if shift <= 0:
        kept = significand << -shift
    else:
        kept, rest, half = significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1)
        kept += rest > half or (rest == half and kept & 1 == 1)
    # A carry out of the mantissa, or out of the subnormals, moves into the exponent field by itself.
    return sign | min(((place - lowest) << form.mantissa) + kept, form.infinity)


def tpartmin(dtype: str, rules: Rules, dst: Tile, src0: Tile, src1: Tile) -> None:
    for i in range(dst.rows):
        for j in range(dst.cols):
            if src0.has(i, j) and src1.has(i, j):
                dst.bits[i][j] = least([src0.bits[i][j], src1.bits[i][j]], dtype, rules.nan)
            elif src0.has(i, j):
                dst.bits[i][j] = src0.bits[i][j]
            else:
                dst.bits[i][j] = src1.bits[i][j] if src1.has(i, j) else 0


def chooses_src0(a: int, b: int, dtype: str, rules: Rules) -> bool:
    """Which side TPARTARGMIN takes where both are defined."""
    nan_a, nan_b = is_nan(a, dtype), is_nan(b, dtype)
    if rules.nan == "propagate" and (nan_a or nan_b):
        return nan_a
    if rules.nan == "number" and (nan_a or nan_b):
        return rules.tie == "src0" if nan_a and nan_b else nan_b
    return less(a, b, dtype) if rules.tie == "src1" else not less(b, a, dtype)


def tpartargmin(
    dtype: str,
    rules: Rules,
    dst_val: Tile,
    src0_val: Tile,
    src1_val: Tile,
    dst_idx: Tile,
    src0_idx: Tile,
    src1_idx: Tile,
) -> None:
    for i in range(dst_val.rows):
        for j in range(dst_val.cols):
            in0, in1 = src0_val.has(i, j), src1_val.has(i, j)
            if in0 and in1:
                in0 = chooses_src0(src0_val.bits[i][j], src1_val.bits[i][j], dtype, rules)
            value, index = (src0_val, src0_idx) if in0 else (src1_val, src1_idx)
            dst_val.bits[i][j] = value.bits[i][j] if in0 or in1 else 0
            dst_idx.bits[i][j] = index.bits[i][j] if in0 or in1 else 0


def trowmin(dtype: str, rules: Rules, dst: Tile, src: Tile) -> None:
    for i in range(src.rows):
        dst.bits[i][0] = least(src.bits[i][: src.cols], dtype, rules.nan)


def prelu(x: int, slope: int, dtype: str, zero: str) -> int:
    """``x > 0 ? x : x * slope``; ``zero="keep"``: ``x >= 0``."""
    positive = not is_nan(x, dtype) and (number(x, dtype) > 0 or (zero == "keep" and number(x, dtype) == 0))
    return x if positive else product(x, slope, dtype)


def tprelu(dtype: str, rules: Rules, dst: Tile, src0: Tile, src1: Tile) -> None:
    for i in range(dst.rows):
        for j in range(dst.cols):
            dst.bits[i][j] = prelu(src0.bits[i][j], src1.bits[i][j], dtype, rules.zero)


#: By instruction; the operands of each are those of the C++ call, without tmp.
ORACLES: dict[str, Callable[..., Any]] = {
    "TPARTMIN": tpartmin,
    "TPARTARGMIN": tpartargmin,
    "TROWMIN": trowmin,
    "TPRELU": tprelu,
}
