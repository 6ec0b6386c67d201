from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import oracle
import pytest
from conftest import Backend

import pto_gpu as pto


def test_named_rule_sets_are_those_of_the_contract() -> None:
    seen = {name: (r.nan, r.tie, r.zero) for name, r in pto.NUMERICS.items()}
    assert seen == {name: tuple(rules) for name, rules in oracle.RULE_SETS.items()}


def test_default_is_isa() -> None:
    assert pto.Numerics() == pto.NUMERICS["isa"]


def test_labels() -> None:
    assert pto.Numerics("number", "src1", "product").label == "formal"
    assert pto.Numerics("number", "src0", "keep").label == "number/src0/keep"


def test_rule_sets_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        pto.NUMERICS["isa"].nan = "select"  # type: ignore[misc]


@pytest.mark.parametrize("words", [{"nan": "quiet"}, {"tie": "src2"}, {"zero": ""}, {"nan": None}, {"tie": 0}])
def test_unknown_words(words: dict[str, Any]) -> None:
    ((field, word),) = words.items()
    with pytest.raises(pto.ConstraintError, match=f"Numerics: {field}={word!r}.*allowed"):
        pto.Numerics(**words)


def _tiles(x: float, slope: float) -> list[pto.TileBuf]:
    ty = pto.TileBufType("f32", 1, 8)
    return [pto.TileBuf.full(ty, value) for value in (7.0, x, slope)]


@pytest.mark.parametrize(
    ("numerics", "wanted"),
    [("isa", 0x00000000), ("a5", 0x80000000), (pto.Numerics(zero="keep"), 0x80000000), ("number/src0/product", 0)],
)
def test_the_keyword_takes_names_and_rules(numerics: Any, wanted: int, host_backend: Backend) -> None:
    """-0 * -1: the product is +0, kept it is -0."""
    dst = pto.TPRELU(*_tiles(-0.0, -1.0), backend=host_backend.name, numerics=numerics)
    assert dst.numpy().view(np.uint32).tolist() == [[[wanted] * 8]]


@pytest.mark.parametrize(
    ("numerics", "error"),
    [
        ("ieee", pto.ConstraintError),
        ("", pto.ConstraintError),
        ("number/src0", pto.ConstraintError),
        ("number/src0/none", pto.ConstraintError),
        (3, pto.TypeMismatch),
        (("number", "src0", "keep"), pto.TypeMismatch),
    ],
)
def test_unknown_rule_sets(numerics: Any, error: type[Exception]) -> None:
    tiles = _tiles(-1.0, 2.0)
    with pytest.raises(error, match=r"(?i)numerics"):
        pto.TPRELU(*tiles, numerics=numerics)
    assert (tiles[0].numpy() == 7.0).all()
