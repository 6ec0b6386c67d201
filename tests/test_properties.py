"""Random shapes, layouts and valid regions against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
from conftest import Backend
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Case, check, draw_bits, legal_regions, tile_type
from special_values import specials

from pto_gpu.isa import instructions

ANY_CASE = st.sampled_from(
    [Case(record, signature) for record in instructions().values() for signature in record.element_types["a5"]]
)
ANY_RULES = st.builds(
    lambda *words: "/".join(words),
    st.sampled_from(["propagate", "number", "select"]),
    st.sampled_from(["src0", "src1"]),
    st.sampled_from(["product", "keep"]),
)


def _rules(text: str) -> Any:
    from pto_gpu import Numerics

    return Numerics(*text.split("/"))


@settings(max_examples=300)
@given(data=st.data(), case=ANY_CASE, rules=ANY_RULES, seed=st.integers(0, 2**32 - 1))
def test_any_call(backend: Backend, data: st.DataObject, case: Case, rules: str, seed: int) -> None:
    extent = st.integers(1, 40)
    types = {}
    for name in case.operands:
        rows, cols = data.draw(extent), data.draw(extent)
        layout = "ND"
        if case.record.valid_pattern.startswith("partial") or (case.record.family == "row_reduce" and name == "dst"):
            layout = data.draw(st.sampled_from(["ND", "DN"]))
        single = layout == "DN" and case.record.family == "row_reduce"
        types[name] = tile_type(case.dtype(name), rows, 1 if single else cols, layout)
    batch = data.draw(st.integers(1, 5))
    rng = np.random.default_rng(seed)
    bits, regions = draw_bits(rng, case, types, batch), legal_regions(rng, case, types, batch)
    check(case, types, bits, regions, backend, numerics=_rules(rules))


FLOATS = st.sampled_from(["f16", "bf16", "f32"])


@given(dtype=FLOATS, data=st.data())
def test_minimum_without_select_depends_on_no_order(dtype: str, data: st.DataObject) -> None:
    """A property of the oracle itself: propagate and number give one answer for every order of a row."""
    pattern = st.one_of(st.sampled_from(specials(dtype).tolist()), st.integers(0, 2 * oracle.FLOATS[dtype].sign - 1))
    row = data.draw(st.lists(pattern, min_size=1, max_size=8))
    shuffled = data.draw(st.permutations(row))
    for rule in ("propagate", "number"):
        assert oracle.least(row, dtype, rule) == oracle.least(shuffled, dtype, rule)
