"""A destination that is exactly one of the sources: the result is as if it were apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import Backend
from rig import Case, Slab, assert_same, cases, draw_bits, expected, legal_regions, rules_of, types_for

import pto_gpu as pto


def _pairings(case: Case) -> list[dict[str, str]]:
    """Every way to put each destination onto a source of its kind, or onto none."""
    kind = {name: operand.kind for name, operand in case.record.by_name.items()}
    choices = [[None, *(s for s in case.sources if kind[s] is kind[d])] for d in case.dsts]
    pairings = [
        {d: s for d, s in zip(case.dsts, picked, strict=True) if s is not None}
        for picked in itertools.product(*choices)
    ]
    return [p for p in pairings if p and len(set(p.values())) == len(p)]


@pytest.mark.parametrize("case", cases("a5"))
def test_destination_is_a_source(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    for pairing in _pairings(case):
        types = types_for(case, 8, 32)
        if case.record.name == "TROWMIN":
            types["dst"] = types["src"]
        bits = draw_bits(rng, case, types, 8)
        for dst, src in pairing.items():
            bits[dst] = bits[src].copy()
        regions = legal_regions(rng, case, types, 8)
        wanted = expected(case, bits, regions, rules_of("isa"))
        slabs = {n: Slab(types[n], bits[n], backend.device) for n in case.operands}
        slabs.update({dst: slabs[src] for dst, src in pairing.items()})
        tiles = {n: slabs[n].tiles(*regions[n], types[n]) for n in case.operands}
        getattr(pto, case.record.name)(**tiles, backend=backend.name)
        for n in case.dsts:
            want = slabs[n].before.copy()
            slabs[n].inside(want)[...] = wanted[n]
            assert_same(slabs[n].after(), want, f"{case.record.name} {n} with {pairing}")


def test_values_may_not_be_written_over_indices() -> None:
    memory = np.zeros((2, 8, 32), np.float32)
    values, indices = (pto.TileBufType(dtype, 8, 32) for dtype in ("f32", "i32"))
    a, b, out = (pto.TileBuf.zeros(values, 2) for _ in range(3))
    i, j = pto.TileBuf.zeros(indices, 2), pto.TileBuf.zeros(indices, 2)
    dst = pto.TileBuf.from_array(memory, values)
    same_bytes = pto.TileBuf.from_array(memory.view(np.int32), indices)
    with pytest.raises(pto.AddressError, match=r"TPARTARGMIN: dst_val .* overlaps src0_idx"):
        pto.TPARTARGMIN(dst, a, b, i, same_bytes, j)
    with pytest.raises(pto.AddressError, match=r"TPARTARGMIN: dst_idx .* overlaps src1_val"):
        pto.TPARTARGMIN(out, a, dst, same_bytes, i, j)


@pytest.mark.parametrize("case", cases("a5"))
def test_both_sources_are_one_tile(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """The same TileBuf for every operand that can be: sources and, element by element, the destination."""
    if case.record.name == "TPARTARGMIN":
        return _argmin_of_itself(case, backend, rng)
    types = dict.fromkeys(case.operands, types_for(case, 8, 32)[case.sources[0]])
    bits = draw_bits(rng, case, types, 4)
    slab = Slab(types["dst"], bits[case.sources[0]], backend.device)
    full = (np.full(4, 8, np.int32), np.full(4, 32, np.int32))
    same = dict.fromkeys(case.operands, bits[case.sources[0]])
    wanted = expected(case, same, dict.fromkeys(case.operands, full), rules_of("isa"))
    tile = slab.tiles(8, 32)
    getattr(pto, case.record.name)(**dict.fromkeys(case.operands, tile), backend=backend.name)
    assert_same(slab.inside(slab.after()), wanted["dst"], case.record.name)
    return None


def _argmin_of_itself(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """Equal values: the tie rule picks the index, and a NaN is src0's."""
    types = types_for(case, 8, 32)
    bits = draw_bits(rng, case, types, 4)
    bits["src1_val"] = bits["src0_val"]
    slabs = {n: Slab(types[n], bits[n], backend.device) for n in case.operands}
    tiles = {n: slabs[n].tiles(8, 32) for n in case.operands}
    tiles["src1_val"] = tiles["src0_val"]
    full = (np.full(4, 8, np.int32), np.full(4, 32, np.int32))
    wanted = expected(case, bits, dict.fromkeys(case.operands, full), rules_of("isa"))
    pto.TPARTARGMIN(**tiles, backend=backend.name)
    for n in case.dsts:
        assert_same(slabs[n].inside(slabs[n].after()), wanted[n], n)
