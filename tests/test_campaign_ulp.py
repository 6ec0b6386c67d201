"""Tolerance: distances against exact arithmetic on values, NaN by name, and what cannot be a tolerance."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import FLOATS, is_nan
from special_values import specials, uint

import pto_gpu as pto
from pto_gpu.campaign.ulp import Tolerance, distance
from pto_gpu.campaign.ulp import is_nan as nan_of
from pto_gpu.types import ELEMENT_TYPES


def neighbours(dtype):
    """Every pattern of a 16-bit type that is no NaN, from -infinity to +infinity, -0 before +0."""
    patterns = [b for b in range(1 << 16) if not is_nan(b, dtype)]
    values = np.array(patterns, np.uint16).view(ELEMENT_TYPES[dtype].numpy).astype(np.float64)
    order = sorted(range(len(patterns)), key=lambda i: (values[i], 0 if math.copysign(1, values[i]) < 0 else 1))
    return np.array([patterns[i] for i in order], np.uint16)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_distance_is_the_number_of_steps_between_neighbours(dtype: str) -> None:
    ordered = neighbours(dtype)
    element = ELEMENT_TYPES[dtype]
    assert (distance(ordered[1:], ordered[:-1], element) == 1).all()
    for a, b in ((0, len(ordered) - 1), (17, 40_000), (33_000, 5)):
        assert distance(ordered[a : a + 1], ordered[b : b + 1], element).tolist() == [abs(a - b)]


def test_distance_of_f32_is_that_of_nextafter() -> None:
    x = np.array([0.0, 1.0, -1.0, 1e-45, -3.0e38, 2.0**-126], np.float32)
    y = x
    for _ in range(5):
        y = np.nextafter(y, np.float32(np.inf))
    wanted = [5, 5, 5, 5, 5, 5]
    assert distance(x.view("u4"), y.view("u4"), ELEMENT_TYPES["f32"]).tolist() == wanted
    assert Fraction(float(np.nextafter(np.float32(1), np.float32(2)))) - 1 == Fraction(1, 2**23)


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("ulp", [0, 1, 3])
@pytest.mark.parametrize("nan", ["bits", "any"])
def test_what_is_accepted(dtype: str, ulp: int, nan: str) -> None:
    patterns = specials(dtype)
    a, b = (x.ravel() for x in np.meshgrid(patterns, patterns))
    accepted = Tolerance(ulp, nan).accepts(a, b, ELEMENT_TYPES[dtype])
    assert nan_of(a, ELEMENT_TYPES[dtype]).tolist() == [is_nan(x, dtype) for x in a.tolist()]
    sign = FLOATS[dtype].sign
    for x, y, ok in zip(a.tolist(), b.tolist(), accepted.tolist(), strict=True):
        if is_nan(x, dtype) or is_nan(y, dtype):
            assert ok == (x == y or (nan == "any" and is_nan(x, dtype) and is_nan(y, dtype)))
            continue
        steps = [-(z - sign) - 1 if z & sign else z for z in (x, y)]
        assert ok == (abs(steps[0] - steps[1]) <= ulp)


def test_integers_are_exact() -> None:
    a, b = np.array([3, 4], uint("i16")), np.array([3, 5], uint("i16"))
    assert Tolerance(4, "any").accepts(a, b, ELEMENT_TYPES["i16"]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("ulp", "nan", "message"),
    [
        (-1, "bits", "ulp=-1 is out of range: allowed 0 or more"),
        (float("nan"), "bits", "ulp must be an integer: seen nan"),
        (1.0, "bits", "ulp must be an integer: seen 1.0"),
        (True, "bits", "ulp must be an integer: seen True"),
        (None, "bits", "ulp must be an integer: seen None"),
        (0, "quiet", "nan='quiet' is not known: allowed bits, any"),
        (0, None, "nan=None is not known"),
    ],
)
def test_what_is_no_tolerance(ulp: Any, nan: Any, message: str) -> None:
    with pytest.raises(pto.PtoError, match=message):
        Tolerance(ulp, nan)


@pytest.mark.parametrize(("dtype", "limit"), [("f16", 1024), ("bf16", 128), ("f32", 1 << 23)])
def test_a_tolerance_that_accepts_nearly_everything_is_refused(dtype: str, limit: int) -> None:
    Tolerance(limit).check_for(ELEMENT_TYPES[dtype])
    with pytest.raises(pto.ConstraintError, match=f"out of range for {dtype}: allowed 0 to {limit}"):
        Tolerance(limit + 1).check_for(ELEMENT_TYPES[dtype])


@pytest.mark.parametrize("tolerance", [Tolerance(1), Tolerance(0, "any")])
def test_a_tolerance_for_integers_is_refused(tolerance: Tolerance) -> None:
    with pytest.raises(pto.ConstraintError, match="are for float element types: seen i16"):
        tolerance.check_for(ELEMENT_TYPES["i16"])
    Tolerance().check_for(ELEMENT_TYPES["i16"])
