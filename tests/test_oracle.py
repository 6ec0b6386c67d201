"""The oracle against the machine's own arithmetic and against worked examples."""

from __future__ import annotations

import math
import random
import struct

import pytest
from oracle import FLOATS, Rules, Tile, chooses_src0, least, prelu, product, tpartmin
from special_values import all_pairs


def _product_by_struct(a: int, b: int, dtype: str) -> int:
    """The product is exact in a double; ``struct`` rounds it to nearest even."""
    code, word = {"f16": ("<e", "<H"), "f32": ("<f", "<I")}[dtype]
    x, y = (struct.unpack(code, struct.pack(word, bits))[0] for bits in (a, b))
    exact = x * y
    if math.isnan(exact):
        return FLOATS[dtype].canonical_nan
    try:
        packed = struct.pack(code, exact)
    except OverflowError:
        packed = struct.pack(code, math.copysign(math.inf, exact))
    return int(struct.unpack(word, packed)[0])


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_product_against_struct(dtype: str) -> None:
    source = random.Random(3)
    top = 2 * FLOATS[dtype].sign
    pairs = [(source.randrange(top), source.randrange(top)) for _ in range(20_000)]
    a, b = all_pairs(dtype)
    for x, y in [*pairs, *zip(a.tolist(), b.tolist(), strict=True)]:
        assert product(x, y, dtype) == _product_by_struct(x, y, dtype), (hex(x), hex(y))


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (0x3C01, 0x3C01, 0x3C02),  # (1 + 2**-10)**2, the tie below is cut
        (0x0001, 0x3800, 0x0000),  # half the smallest subnormal: to even
        (0x0003, 0x3800, 0x0002),  # 1.5 of the smallest: to even
        (0x7BFF, 0x4000, 0x7C00),  # overflow
        (0x8001, 0x0001, 0x8000),  # underflow keeps the sign
        (0x7C00, 0x8000, 0x7E00),  # inf * -0
    ],
)
def test_product_examples_f16(a: int, b: int, wanted: int) -> None:
    assert product(a, b, "f16") == wanted


def test_minimum_examples_f32() -> None:
    one, nan, zero, minus_zero = 0x3F800000, 0xFFC00001, 0x00000000, 0x80000000
    assert [least([one, nan], "f32", rule) for rule in ("propagate", "number", "select")] == [0x7FC00000, one, one]
    assert [least([nan, one], "f32", rule) for rule in ("propagate", "number", "select")] == [0x7FC00000, one, nan]
    assert [least([zero, minus_zero], "f32", rule) for rule in ("propagate", "number", "select")] == [
        minus_zero,
        minus_zero,
        zero,
    ]


def test_choice_examples_f32() -> None:
    one, nan = 0x3F800000, 0x7FC00000
    by_rule = {
        Rules("propagate", "src1", "product"): (False, True, False),
        Rules("number", "src1", "product"): (False, False, True),
        Rules("select", "src1", "product"): (False, False, False),
        Rules("select", "src0", "product"): (True, True, True),
    }
    for rules, wanted in by_rule.items():
        pairs = ((one, one), (nan, one), (one, nan))
        assert tuple(chooses_src0(a, b, "f32", rules) for a, b in pairs) == wanted


def test_prelu_examples_f32() -> None:
    assert prelu(0x80000000, 0xBF800000, "f32", "product") == 0  # -0 * -1 = +0
    assert prelu(0x80000000, 0xBF800000, "f32", "keep") == 0x80000000
    assert prelu(0xFFC00001, 0x3F800000, "f32", "keep") == 0x7FC00000


def test_partial_example_i8() -> None:
    dst, a, b = Tile([[9, 9, 9]], 1, 2), Tile([[0x80, 1, 1]], 1, 1), Tile([[0, 5, 5]], 1, 2)
    tpartmin("i8", Rules("propagate", "src1", "product"), dst, a, b)
    assert dst.bits == [[0x80, 5, 9]]
