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
    choices = [[None, *(s for s in case.sources if case.kind(s) is case.kind(d))] for d in case.dsts]
    pairings = [
        {d: s for d, s in zip(case.dsts, picked, strict=True) if s is not None}
        for picked in itertools.product(*choices)
    ]
    return [p for p in pairings if p and len(set(p.values())) == len(p)]


@pytest.mark.parametrize("case", cases("a5"))
def test_destination_is_a_source(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    for pairing in _pairings(case):
        types = types_for(case, 8, 32)
        if case.record.family == "row_reduce":
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


@pytest.mark.parametrize(("dst", "src"), [("dst_val", "src0_idx"), ("dst_idx", "src1_val")])
def test_value_in_the_place_of_an_index_is_refused(dst: str, src: str, backend: Backend) -> None:
    """Not the same tile, though of the same size: each is read after the other is written."""
    val, idx = pto.TileBufType("f32", 4, 8), pto.TileBufType("i32", 4, 8)
    slabs = {n: Slab(idx if "idx" in n else val, np.ones((2, 4, 8), np.uint32), backend.device) for n in _ARGMIN}
    slabs[dst] = slabs[src]
    tiles = {n: slab.tiles(4, 8, idx if "idx" in n else val) for n, slab in slabs.items()}
    with pytest.raises(pto.AddressError, match=rf"TPARTARGMIN: {dst} .*overlaps {src} "):
        pto.TPARTARGMIN(**tiles, backend=backend.name)
    assert_same(slabs[src].after(), slabs[src].before, src)


_ARGMIN = ("dst_val", "src0_val", "src1_val", "dst_idx", "src0_idx", "src1_idx")


@pytest.mark.parametrize("case", cases("a5"))
def test_both_sources_are_one_tile(case: Case, backend: Backend, rng: np.random.Generator) -> None:
    """The same TileBuf for every operand that can be: sources and, element by element, the destination."""
    if case.record.family == "partial_arg":
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
