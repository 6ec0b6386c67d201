"""How far the result of a chip may be from the reference: units in the last place, and NaN by name.

ULP distance is that of ordered integer keys: neighbouring elements are 1 apart, -0 and +0 too (so that 0 ULP is the
same bits), and infinity follows the largest finite number. A NaN is within no distance of anything else.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pto_gpu.errors import ConstraintError, TypeMismatch
from pto_gpu.interop import NumPyArray
from pto_gpu.types import ElementType

#: ``bits``: a NaN equals the same bits only; ``any``: every NaN equals every other.
NAN_POLICIES: Final = ("bits", "any")


@dataclass(frozen=True)
class Tolerance:
    """What still counts as equal, of values of a float element type; indices and integers are always exact.

    Raises TypeMismatch for an ``ulp`` that is no integer, ConstraintError for a negative one or an unknown ``nan``.
    """

    ulp: int = 0
    nan: str = "bits"

    def __post_init__(self) -> None:
        if isinstance(self.ulp, bool):
            raise TypeMismatch(f"ulp must be an integer: seen {self.ulp!r}")
        try:
            operator.index(self.ulp)
        except TypeError:
            raise TypeMismatch(f"ulp must be an integer: seen {self.ulp!r}") from None
        if self.ulp < 0:
            raise ConstraintError(f"ulp={self.ulp} is out of range: allowed 0 or more")
        if not isinstance(self.nan, str) or self.nan not in NAN_POLICIES:
            raise ConstraintError(f"nan={self.nan!r} is not known: allowed {', '.join(NAN_POLICIES)}")

    @property
    def exact(self) -> bool:
        """Whether only the same bits are equal."""
        return self == EXACT

    @property
    def text(self) -> str:
        """``within 2 ULP, any NaN``; empty if exact."""
        words = [f"within {self.ulp} ULP"] if self.ulp else []
        return ", ".join([*words, *(["any NaN"] if self.nan == "any" else [])])

    def check_for(self, element: ElementType) -> None:
        """Raise ConstraintError where this tolerance means nothing, or everything, for values of ``element``."""
        if self.exact:
            return
        if element.infinity is None:
            raise ConstraintError(f"--ulp and --nan are for float element types: seen {element}, which is exact")
        limit = element.infinity & -element.infinity  # the unit of the exponent: elements from 1 to 2
        if self.ulp > limit:
            raise ConstraintError(f"ulp={self.ulp} is out of range for {element}: allowed 0 to {limit}, a factor of 2")

    def accepts(self, seen: NumPyArray, expected: NumPyArray, element: ElementType) -> NumPyArray:
        """Where elements, given as their bits, are equal under this tolerance; integers only if exactly."""
        equal: NumPyArray = seen == expected
        if self.exact or element.infinity is None:
            return equal
        nan_seen, nan_expected = is_nan(seen, element), is_nan(expected, element)
        if self.ulp:
            equal |= ~(nan_seen | nan_expected) & (distance(seen, expected, element) <= self.ulp)
        if self.nan == "any":
            equal |= nan_seen & nan_expected
        return equal

    def farthest(self, seen: NumPyArray, expected: NumPyArray, element: ElementType) -> int:
        """The largest distance between numbers, if a distance is allowed at all."""
        if not self.ulp or element.infinity is None:
            return 0
        numbers = ~(is_nan(seen, element) | is_nan(expected, element))
        return int(distance(seen[numbers], expected[numbers], element).max(initial=0))


EXACT: Final = Tolerance()


def is_nan(bits: NumPyArray, element: ElementType) -> NumPyArray:
    """Where the bits of a float element type are a NaN."""
    magnitude = bits & bits.dtype.type((1 << (element.bits - 1)) - 1)
    nan: NumPyArray = magnitude > bits.dtype.type(element.infinity)
    return nan


def distance(a: NumPyArray, b: NumPyArray, element: ElementType) -> NumPyArray:
    """ULPs between elements that are no NaN, int64."""

    def key(bits: NumPyArray) -> Any:
        sign = 1 << (element.bits - 1)
        wide = bits.astype(np.int64)
        return np.where(wide & sign, ~(wide & (sign - 1)), wide)

    apart: NumPyArray = np.abs(key(a) - key(b))
    return apart
