"""Which bit patterns a campaign draws, and how often: tables that a generator on any device can use.

A *category* is a pair (and, xor): an element is ``(random & and) ^ xor``. A *profile* is 256 categories, so
that a random byte picks one by weight. Each tile of an operand has a profile (each row, for the ``row``
pattern): most profiles hold no NaN, so that the other rules show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from pto_gpu.interop import NumPyArray
from pto_gpu.types import ELEMENT_TYPES, ElementType

Masks = tuple[tuple[int, int], ...]  # one (and, xor) for each equally likely form of a category
_FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23}

# The weights of a profile add up to 256; those of the profiles of a pattern to 16.
_FLOAT_PROFILES: Mapping[str, Mapping[str, int]] = {
    "ordinary": {"ordinary": 200, "few values": 40, "zero": 8, "one": 8},
    "few values": {"few values": 160, "zero": 48, "one": 24, "short": 24},
    "special": {
        "zero": 32, "subnormal": 40, "tiny": 24, "one": 32, "largest": 24, "large": 24, "infinity": 24, "short": 24,
        "ordinary": 32,
    },
    "some NaN": {
        "ordinary": 150, "few values": 40, "zero": 20, "infinity": 16, "subnormal": 14, "quiet NaN": 8,
        "signalling NaN": 8,
    },
    "any bits": {
        "random": 128, "quiet NaN": 24, "signalling NaN": 24, "infinity": 16, "zero": 24, "subnormal": 16,
        "largest": 8, "one": 16,
    },
    "zeros": {"zero": 256},
    "all NaN": {"quiet NaN": 128, "signalling NaN": 128},
    "slopes": {"ordinary": 128, "short slope": 48, "few values": 48, "zero": 16, "one": 16},
    "tiny slopes": {"tiny": 144, "subnormal": 32, "short slope": 80},
    "special slopes": {
        "zero": 48, "one": 48, "largest": 32, "large": 32, "infinity": 48, "subnormal": 24, "short slope": 24,
    },
}  # fmt: skip
_INTEGER_PROFILES: Mapping[str, Mapping[str, int]] = {
    "ordinary": {"random": 224, "few values": 16, "zero": 4, "minus one": 4, "minimum": 4, "maximum": 4},
    "few values": {"few values": 192, "minus one": 32, "zero": 32},
    "special": {"minimum": 64, "maximum": 64, "zero": 32, "minus one": 32, "one": 32, "random": 32},
    "small": {"small": 256},
}

_FLOAT_PATTERNS: Mapping[str, Mapping[str, int]] = {
    "value": {"ordinary": 6, "few values": 3, "special": 3, "some NaN": 2, "any bits": 2},
    "row": {"ordinary": 16},  # each row has a profile of its own, below
    "slope": {"slopes": 6, "tiny slopes": 5, "special slopes": 3, "some NaN": 1, "any bits": 1},
}
_INTEGER_PATTERNS: Mapping[str, Mapping[str, int]] = {
    "value": {"ordinary": 6, "few values": 4, "special": 4, "small": 2},
    "row": {"ordinary": 16},
    "index": {"ordinary": 8, "few values": 3, "special": 4, "small": 1},
}

#: What a row of the ``row`` pattern may have written into it after its elements were drawn.
FORCE_NONE, FORCE_NAN_FIRST, FORCE_NAN_LAST = 0, 1, 2
_FLOAT_ROWS: Sequence[tuple[str, int, int]] = (
    ("ordinary", FORCE_NONE, 80),
    ("few values", FORCE_NONE, 60),
    ("special", FORCE_NONE, 40),
    ("zeros", FORCE_NONE, 16),
    ("ordinary", FORCE_NAN_FIRST, 14),
    ("ordinary", FORCE_NAN_LAST, 14),
    ("some NaN", FORCE_NONE, 12),
    ("all NaN", FORCE_NONE, 12),
    ("any bits", FORCE_NONE, 8),
)
_INTEGER_ROWS: Sequence[tuple[str, int, int]] = (
    ("ordinary", FORCE_NONE, 104),
    ("few values", FORCE_NONE, 64),
    ("special", FORCE_NONE, 56),
    ("small", FORCE_NONE, 32),
)
#: How an element with a partner relates to it: weights of independent, equal, negated, next to it.
_RELATIONS = {"independent": 144, "equal": 64, "negated": 24, "neighbour": 24}


@dataclass(frozen=True)
class Tables:
    """What a generator needs for one element type and pattern.

    ``masks``, ``flips`` uint32[profiles, 256]; ``profile_of`` uint8[16]; ``row_profile``, ``row_force``
    uint8[256] (all zero unless the pattern is ``row``); ``keep``, ``flip`` uint32[256] say for each relation
    byte which bits come from the partner and which of those are turned over.
    """

    profiles: tuple[str, ...]
    masks: NumPyArray
    flips: NumPyArray
    profile_of: NumPyArray
    by_row: bool
    row_profile: NumPyArray
    row_force: NumPyArray
    keep: NumPyArray
    flip: NumPyArray
    nan: tuple[int, int]


@cache
def tables(dtype: str, pattern: str, has_partner: bool) -> Tables:
    """The tables of an element type and a :class:`~pto_gpu.isa.record.Draw` pattern."""
    element = ELEMENT_TYPES[dtype]
    categories = _float_categories(element) if element.is_float else _integer_categories(element)
    profiles = _FLOAT_PROFILES if element.is_float else _INTEGER_PROFILES
    patterns = _FLOAT_PATTERNS if element.is_float else _INTEGER_PATTERNS
    names = tuple(profiles)
    rows = (_FLOAT_ROWS if element.is_float else _INTEGER_ROWS) if pattern == "row" else ()
    weights = patterns.get(pattern, patterns["value"])
    chosen = np.array([_slots(profiles[name], categories) for name in names], np.uint32)
    keep, flip = _relations(element, has_partner)
    return Tables(
        profiles=names,
        masks=np.ascontiguousarray(chosen[:, :, 0]),
        flips=np.ascontiguousarray(chosen[:, :, 1]),
        profile_of=np.repeat([names.index(name) for name in weights], list(weights.values())).astype(np.uint8),
        by_row=bool(rows),
        row_profile=_row_column([names.index(name) for name, _, _ in rows], rows),
        row_force=_row_column([force for _, force, _ in rows], rows),
        keep=keep,
        flip=flip,
        nan=categories["quiet NaN"][0] if element.is_float else (0, 0),
    )


def _float_categories(element: ElementType) -> dict[str, Masks]:
    fraction = _FRACTION_BITS[element.name]
    sign, exponent = 1 << (element.bits - 1), (1 << (element.bits - 1)) - (1 << fraction)
    mantissa, unit, quiet = (1 << fraction) - 1, 1 << fraction, 1 << (fraction - 1)
    bias = (1 << (element.bits - fraction - 2)) - 1

    def short(bits: int) -> tuple[int, int]:
        """Significands of so few bits that the product of two is halfway between two elements, or nearly."""
        last = 1 << (fraction - bits)
        top = mantissa & ~(2 * last - 1)
        return sign | top | 3 * unit, last | (bias & ~3) << fraction

    longer = (fraction + 2) // 2
    return {
        "random": ((2 * sign - 1, 0),),
        "ordinary": ((sign | mantissa | 7 * unit, (bias & ~7) << fraction),),
        "few values": ((sign | quiet, bias << fraction),),
        "zero": ((sign, 0),),
        "subnormal": ((sign | mantissa, 0),),
        "tiny": ((sign | mantissa | 7 * unit, 0),),
        "one": ((sign | 1, bias << fraction), (sign, (bias << fraction) - 1)),
        "largest": ((sign, exponent - 1),),
        "large": ((sign | mantissa | unit, exponent - 3 * unit),),
        "infinity": ((sign, exponent),),
        "quiet NaN": ((sign | (quiet - 1), exponent | quiet),),
        "signalling NaN": ((sign | (quiet - 2), exponent | 1),),
        "short": (short(longer),),
        "short slope": (short(fraction + 1 - longer),),
    }


def _integer_categories(element: ElementType) -> dict[str, Masks]:
    top, ones = 1 << (element.bits - 1), (1 << element.bits) - 1
    return {
        "random": ((ones, 0),),
        "few values": ((3, 0),),
        "small": ((15, 0), (15, ones)),
        "zero": ((0, 0),),
        "one": ((0, 1),),
        "minus one": ((0, ones),),  # the largest unsigned
        "minimum": ((0, top), (1, top)),  # the smallest signed, and its neighbour
        "maximum": ((0, top - 1), (1, top - 2)),
    }


def _slots(weights: Mapping[str, int], categories: Mapping[str, Masks]) -> list[tuple[int, int]]:
    slots = [categories[name][i % len(categories[name])] for name, weight in weights.items() for i in range(weight)]
    if len(slots) != 256:
        raise ValueError(f"the weights of a profile add up to {len(slots)}, not 256")
    return slots


def _row_column(values: Sequence[int], rows: Sequence[tuple[str, int, int]]) -> NumPyArray:
    if not rows:
        return np.zeros(256, np.uint8)
    return np.repeat(values, [weight for _, _, weight in rows]).astype(np.uint8)


def _relations(element: ElementType, has_partner: bool) -> tuple[NumPyArray, NumPyArray]:
    ones, sign = (1 << element.bits) - 1, 1 << (element.bits - 1)
    flips = {"independent": 0, "equal": 0, "negated": sign if element.is_float else ones, "neighbour": 1}
    keep = [ones if has_partner and name != "independent" else 0 for name in _RELATIONS]
    counts = list(_RELATIONS.values())
    return (
        np.repeat(np.array(keep, np.uint32), counts),
        np.repeat(np.array([flips[name] for name in _RELATIONS], np.uint32), counts),
    )
