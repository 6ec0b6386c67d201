"""Every instruction, element type, rule set and backend against the oracle, bit for bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest
from conftest import Backend
from rig import (
    Case,
    Slab,
    assert_same,
    cases,
    check,
    draw_bits,
    expected,
    full_regions,
    legal_regions,
    per_tile,
    rules_of,
    tile_type,
    types_for,
)
from special_values import all_pairs, draw, specials

import pto_gpu as pto
from pto_gpu import numerics
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Kind
from pto_gpu.types import ELEMENT_TYPES

#: Every combination of the rules; five of them have a name.
RULES = [
    pto.Numerics(*words) for words in itertools.product(numerics.NAN_RULES, numerics.TIE_RULES, numerics.ZERO_RULES)
]


def _with_distinct_rules(pattern: str | None = None) -> list[Any]:
    """Every case of a5 with every rule set that can change its result, named after the first such set."""
    parameters = []
    for parameter in cases("a5", pattern):
        (case,) = parameter.values
        is_float = ELEMENT_TYPES[case.signature[0]].is_float
        axes = [axis for axis in case.record.rules_used if is_float or axis == "tie"]
        distinct: dict[tuple[str, ...], Any] = {}
        for rules in (*map(pto.NUMERICS.get, oracle.RULE_SETS), *RULES):
            distinct.setdefault(tuple(getattr(rules, axis) for axis in axes), rules)
        parameters += [pytest.param(case, r, id=f"{parameter.id}-{r.label}") for r in distinct.values()]
    return parameters


def test_every_instruction_has_an_oracle() -> None:
    assert set(oracle.ORACLES) == set(instructions())


def _pairs(case: Case) -> tuple[dict[str, pto.TileBufType], dict[str, np.ndarray]]:
    """Tiles that hold every pair of special values: in two sources, or side by side in the rows of one."""
    rng = np.random.default_rng(1)
    types = types_for(case, 16, 32)
    a, b = all_pairs(case.signature[0])
    values = [n for n in case.sources if case.kind(n) is Kind.VALUE]
    if len(values) == 1:  # a row is the pair, then the first of it again: (a, b, a, b, ...)
        rows = np.stack([a, b], axis=1)
        batch = -(-len(rows) // 16)
        rows = np.resize(rows, (batch * 16, 2))
        contents = {values[0]: np.tile(rows, (1, types[values[0]].cols // 2)).reshape(batch, 16, -1)}
    else:
        size = 16 * types[values[0]].cols
        batch = -(-len(a) // size)
        contents = {n: np.resize(x, batch * size).reshape(batch, 16, -1) for n, x in zip(values, (a, b), strict=True)}
    bits = {n: draw(rng, ty.dtype, (batch, ty.rows, ty.cols)) for n, ty in types.items()}
    return types, {**bits, **contents}


@pytest.mark.parametrize(("case", "rules"), _with_distinct_rules())
def test_every_pair_of_special_values(case: Case, rules: pto.Numerics, backend: Backend) -> None:
    types, bits = _pairs(case)
    batch = len(bits[case.sources[0]])
    check(case, types, bits, full_regions(case, types, batch), backend, numerics=rules)


@pytest.mark.parametrize("name", oracle.RULE_SETS)
def test_a_named_rule_set_is_its_rules(name: str) -> None:
    named, own = pto.NUMERICS[name], oracle.RULE_SETS[name]
    assert (named.nan, named.tie, named.zero) == (own.nan, own.tie, own.zero)


@pytest.mark.parametrize("case", cases("a5"))
def test_every_rule_set_by_name_and_by_rules(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """Also those whose difference does not concern the instruction."""
    types = types_for(case, 4, 24)
    bits = draw_bits(rng, case, types, 3)
    regions = legal_regions(rng, case, types, 3)
    for rules in (*oracle.RULE_SETS, *RULES):
        check(case, types, bits, regions, backend, numerics=rules)


@pytest.mark.parametrize("rules", ["isa", "a2a3"])
@pytest.mark.parametrize("case", cases("a2a3"))
def test_every_pair_of_special_values_on_a2a3(case: Case, rules: str, backend: Backend) -> None:
    types, bits = _pairs(case)
    batch = len(bits[case.sources[0]])
    check(case, types, bits, full_regions(case, types, batch), backend, numerics=rules, target="a2a3", uniform=True)


@pytest.mark.parametrize(("case", "rules"), _with_distinct_rules("rows"))
def test_rows_of_special_values(case: Case, rules: pto.Numerics, backend: Backend) -> None:
    """Every place of a special value in a short row: first, last, alone, repeated."""
    rng = np.random.default_rng(2)
    types = types_for(case, 16, 40)
    src, dtype = types["src"], case.signature[0]
    bits = draw_bits(rng, case, types, 12)
    few = rng.choice(specials(dtype), (12, 16, 3))  # three values a row: many ties
    pick = rng.integers(0, 3, (12, 16, src.cols))
    bits["src"] = np.take_along_axis(few, pick, axis=2)
    cols = np.array([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, src.cols], np.int32)
    ones, rows = np.ones(12, np.int32), np.full(12, 16, np.int32)
    check(case, types, bits, {"src": (rows, cols), "dst": (rows, ones)}, backend, numerics=rules)


@pytest.mark.parametrize("rules", ["isa", "formal", "simulator", "a5"])
@pytest.mark.parametrize("case", cases("a5"))
def test_ragged_regions(case: Case, rules: str, backend: Backend, rng: np.random.Generator) -> None:
    types = types_for(case, 9, 24, grow=True)
    bits = draw_bits(rng, case, types, 24)
    check(case, types, bits, legal_regions(rng, case, types, 24), backend, numerics=rules)


@pytest.mark.parametrize("case", cases("a5"))
def test_more_tiles_than_a_backend_takes_at_once(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """Backends work in blocks of tiles: regions must follow them."""
    types = types_for(case, 9, 32)
    bits = draw_bits(rng, case, types, 301)
    check(case, types, bits, legal_regions(rng, case, types, 301), backend)


@pytest.mark.parametrize("case", cases("a5"))
def test_uniform_regions(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    types = types_for(case, 8, 24, grow=True)
    bits = draw_bits(rng, case, types, 2)
    drawn = legal_regions(rng, case, types, 12)
    for t in range(12):
        regions = per_tile({n: (int(rows[t]), int(cols[t])) for n, (rows, cols) in drawn.items()}, 2)
        check(case, types, bits, regions, backend, uniform=True)


@pytest.mark.parametrize("case", cases("a5"))
def test_valid_columns_around_vector_widths(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    types = types_for(case, 4, 72)
    widths = [*range(1, 35), 47, 48, 49, 63, 64, 65, 71]
    bits = draw_bits(rng, case, types, len(widths))
    regions = full_regions(case, types, len(widths))
    for name in case.operands:
        if types[name].cols > 1 and (case.record.valid_pattern != "rows" or name == "src"):
            regions[name] = (regions[name][0], np.array(widths, np.int32))
    check(case, types, bits, regions, backend)


@pytest.mark.parametrize("case", cases("a5"))
def test_rows_per_tile_with_uniform_columns(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """One count per tile, the other one for the whole batch."""
    types = types_for(case, 8, 16)
    bits = draw_bits(rng, case, types, 8)
    regions = full_regions(case, types, 8)
    heights = np.arange(1, 9, dtype=np.int32)
    regions = {name: (heights, cols) for name, (_, cols) in regions.items()}

    slabs = {n: Slab(types[n], bits[n], backend.device) for n in case.operands}
    tiles = [slabs[n].tiles(heights, int(regions[n][1][0])) for n in case.operands]
    getattr(pto, case.record.name)(*tiles, backend=backend.name)
    for name, wanted in expected(case, bits, regions, rules_of("isa")).items():
        assert_same(slabs[name].inside(slabs[name].after()), wanted, name)


def _layouts(case: Case) -> list[dict[str, str]]:
    """The mixes of ND and DN that the instruction takes on a5."""
    if case.record.name == "TPRELU":
        return []
    if case.record.valid_pattern == "rows":
        return [{"dst": "DN"}]
    names = case.operands
    return [dict.fromkeys(names, "DN"), {names[0]: "DN"}, dict.fromkeys(names[1::2], "DN")]


@pytest.mark.parametrize("case", cases("a5"))
def test_column_major_tiles(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    for layouts in _layouts(case):
        for grow in (False, True):
            types = types_for(case, 32, 9, grow=grow, layouts=layouts)
            bits = draw_bits(rng, case, types, 6)
            check(case, types, bits, legal_regions(rng, case, types, 6), backend)


SHAPES = [(127, 64), (238, 40), (7, 448), (67, 120), (1, 16384), (2048, 16), (3, 24)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("case", cases("a5"))
def test_shapes(case: Case, shape: tuple[int, int], backend: Backend, rng: np.random.Generator) -> None:
    """Capacities of the public tests; rows are filled up to 32 bytes where the type needs it."""
    rows, cols = shape
    types = types_for(case, rows, cols)
    batch = 1 if rows * cols > 10_000 else 2
    bits = draw_bits(rng, case, types, batch)
    counts = {n: (rows, 1 if case.record.valid_pattern == "rows" and n in case.dsts else cols) for n in types}
    check(case, types, bits, per_tile(counts, batch), backend)


@pytest.mark.parametrize("case", cases("a5", "partial"))
def test_undefined_regions_give_zero_where_no_source_is_valid(
    case: Case, backend: Backend, rng: np.random.Generator
) -> None:
    types = types_for(case, 9, 24, grow=True)
    bits = draw_bits(rng, case, types, 24)
    rows, cols = (min(getattr(ty, field) for ty in types.values()) for field in ("rows", "cols"))
    regions = {}
    for name in types:
        pair = name.partition("_")[0]
        if pair not in regions:
            regions[pair] = tuple(rng.integers(0, top + 1, 24).astype(np.int32) for top in (rows, cols))
    given = {name: regions[name.partition("_")[0]] for name in types}
    check(case, types, bits, given, backend, undefined="zero")


@pytest.mark.parametrize("target", ["a2a3", "a5"])
@pytest.mark.parametrize("name", [n for n, r in instructions().items() if r.valid_pattern != "rows"])
def test_zero_size_destination_writes_nothing(
    name: str, target: str, backend: Backend, rng: np.random.Generator
) -> None:
    record = instructions()[name]
    case = Case(record, record.element_types[target][0])
    types = types_for(case, 8, 16)
    bits = draw_bits(rng, case, types, 3)
    for empty in ((0, 0), (0, 16), (8, 0), (0, 5)):
        check(case, types, bits, per_tile(dict.fromkeys(types, empty), 3), backend, target=target, uniform=True)


def test_a_destination_of_zero_size_among_others(backend: Backend, rng: np.random.Generator) -> None:
    record = instructions()["TPARTMIN"]
    case = Case(record, ("f32",))
    types = types_for(case, 8, 16)
    bits = draw_bits(rng, case, types, 4)
    big = (np.full(4, 8, np.int32), np.full(4, 16, np.int32))
    dst = (np.array([8, 0, 8, 0], np.int32), np.array([16, 16, 16, 0], np.int32))
    check(case, types, bits, {"dst": dst, "src0": big, "src1": big}, backend)


@pytest.mark.parametrize("name", list(instructions()))
def test_empty_batch(name: str, backend: Backend) -> None:
    record = instructions()[name]
    case = Case(record, record.element_types["a5"][0])
    tiles = [pto.TileBuf.empty(tile_type(case.dtype(n), 8, 16), 0, backend.device) for n in case.operands]
    result = getattr(pto, name)(*tiles, backend=backend.name)
    assert (result[0] if isinstance(result, tuple) else result) is tiles[0]
