"""Shrinking, beside what tests/test_mutants.py shows of it: flaky and picky implementations, budgets, capacities."""

from typing import Any

import numpy as np
import pytest
from mutants import reference, regions

from pto_gpu.campaign.explain.shrink import CALLS, Shrunk, shrink
from pto_gpu.campaign.explain.simpler import simple_bits
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.isa import instructions
from pto_gpu.types import ELEMENT_TYPES


def failure(op: str, dtypes: tuple[str, ...], execute: Any, **settings: Any) -> SavedTile:
    found = run_campaign(Campaign(op, dtypes, workers=1, **{"tiles": 2048, **settings}), execute).first_failure
    assert found is not None
    return found


def shrunk(op: str, dtypes: tuple[str, ...], execute: Any, **settings: Any) -> Shrunk:
    return shrink(failure(op, dtypes, execute, **settings), execute, reference)


def one_wrong_element(row, col):
    """7 in one place, if that is in the valid region."""

    def execute(call):
        reference(call)
        dst = call.tiles["dst"]
        rows, cols = (np.broadcast_to(n, (dst.batch,)) for n in dst.region)
        there = (rows > row) & (cols > col)
        dst.data[there, row, col] = 7

    return execute


def test_a_wrong_place_keeps_the_rows_and_columns_before_it() -> None:
    found = shrunk("TPARTMIN", ("i16",), one_wrong_element(2, 3))
    assert found.tile.valid["dst"] == (3, 4)
    assert min(found.tile.valid[name] for name in ("src0", "src1")) == (0, 0)
    assert (found.tile.types["dst"].rows, found.tile.types["dst"].cols) == (3, 16)
    (mismatch,) = found.comparison.mismatches
    assert (mismatch.row, mismatch.col, mismatch.seen) == (2, 3, 7)
    for name in ("src0", "src1"):
        assert set(found.tile.arrays[name].ravel().tolist()) <= set(simple_bits("i16"))


def test_a_fault_of_certain_values_keeps_the_bits_that_it_takes() -> None:
    def execute(call):
        reference(call)
        dst, a = call.tiles["dst"], call.tiles["src0"]
        for t in range(dst.batch):
            r, c = (min(m, n) for m, n in zip(a.region.of_tile(t), dst.region.of_tile(t), strict=True))
            window = dst.data[t, :r, :c]
            window[...] = np.where((a.data[t, :r, :c] & 0x18) == 0x10, 99, window)

    found = shrunk("TPARTMIN", ("u8",), execute)
    assert found.tile.valid["dst"] == (1, 1)
    assert found.tile.arrays["src0"][0, 0] == 0x10
    assert found.comparison.mismatches[0].seen == 99


def test_a_fault_that_needs_the_capacity_keeps_it() -> None:
    def execute(call):
        (regions({"dst": (-1, 0)}) if call.tiles["dst"].type.cols > 16 else reference)(call)

    found = shrunk("TPARTMIN", ("f32",), execute)
    assert found.tile.tile >= 1024  # the padded block
    assert (found.tile.types["dst"].rows, found.tile.types["dst"].cols) == (1, 24)
    assert found.tile.valid["dst"] == (1, 1)


def test_a_flaky_implementation_is_called_so_and_shrunk() -> None:
    calls = [0]

    def execute(call):
        calls[0] += 1
        (regions({"dst": (-1, 0)}) if calls[0] % 3 == 0 else reference)(call)

    calls[0] = 2
    tile = failure("TPARTMIN", ("i32",), execute, tiles=64)
    found = shrink(tile, execute, reference)
    assert found.flaky
    assert found.tile.valid["dst"] == (1, 1)
    assert found.tile.seen["dst"].tolist() != found.tile.expected["dst"].tolist()


def test_an_implementation_that_raises_on_some_tiles_is_shrunk_around_them() -> None:
    def execute(call):
        if any(np.any(n == 0) for t in call.tiles.values() for n in t.region) or call.tiles["src0"].type.cols < 16:
            raise RuntimeError("too small for me")
        regions({"dst": (-1, 0)})(call)

    tile = failure("TPARTMIN", ("f32",), regions({"dst": (-1, 0)}), seed=5)
    assert 0 not in np.array(list(tile.valid.values()))
    found = shrink(tile, execute, reference)
    assert all(region == (1, 1) for region in found.tile.valid.values())
    assert all(ty.cols >= 16 for ty in found.tile.types.values())


def test_what_fails_in_company_only_is_left_as_it_is() -> None:
    def execute(call):
        (regions({"dst": (-1, 0)}) if call.batch > 1 else reference)(call)

    found = shrunk("TROWMIN", ("i16",), execute)
    assert (found.tile, found.calls) == (None, 13)
    assert found.why_not == (
        "the tile did not fail alone, run 12 times: the failure depends on the rest of its batch, or is rare"
    )


@pytest.mark.parametrize("calls", [3, 4, 6, 10, 14])
def test_calls_are_bounded_and_what_was_reached_fails(calls: int) -> None:
    counted = [0]

    def execute(call):
        counted[0] += 1
        regions({"dst": (-1, 0)})(call)

    tile = failure("TPARTMIN", ("f32",), regions({"dst": (-1, 0)}))
    found = shrink(tile, execute, reference, calls=calls)
    assert found.calls == counted[0]
    assert found.calls <= calls
    call = found.tile.call()
    regions({"dst": (-1, 0)})(call)
    assert call.tiles["dst"].data[0].view(np.uint32).tolist() != found.tile.expected["dst"].tolist()


def test_no_time_leaves_the_tile_as_it_is() -> None:
    tile = failure("TPARTMIN", ("f32",), regions({"dst": (-1, 0)}))
    found = shrink(tile, regions({"dst": (-1, 0)}), reference, seconds=0)
    assert found.calls == 1
    assert found.tile.valid == tile.valid


@pytest.mark.parametrize("target", ["a5", "a2a3"])
@pytest.mark.parametrize("undefined", ["error", "zero"])
@pytest.mark.parametrize("op", list(instructions()))
def test_a_shrunk_tile_keeps_the_rules(op: str, undefined: str, target: str) -> None:
    record = instructions()[op]
    dst = record.dsts[0].name
    settings = {"target": target, "undefined": undefined, "tiles": 1100, "seed": 2}
    found = shrunk(op, record.element_types[target][-1], regions({dst: (-1, 0)}), **settings)
    right = found.tile.run_expected()  # checks every rule
    assert right[dst].data[0].view(found.tile.expected[dst].dtype).tolist() == found.tile.expected[dst].tolist()
    assert max(found.tile.valid[dst]) == 1
    assert found.calls < CALLS


@pytest.mark.parametrize("dtype", list(ELEMENT_TYPES))
def test_simple_elements_start_with_zero_and_one(dtype: str) -> None:
    element = ELEMENT_TYPES[dtype]
    simple = simple_bits(dtype)
    assert len(set(simple)) == len(simple)
    values = np.array(simple, element.bits_dtype).view(element.numpy)
    assert values[:2].astype(np.float64).tolist() == [0, 1]
    if element.is_float:
        assert element.canonical_nan in simple


def test_a_drawn_tile_is_not_changed_by_shrinking() -> None:
    campaign = Campaign("TPARTMIN", ("f32",), tiles=2048)
    tile = failure("TPARTMIN", ("f32",), regions({"dst": (-1, 0)}))
    shrink(tile, regions({"dst": (-1, 0)}), reference)
    again = draw(campaign, 0, tile.tile + 1).sources
    for name, tiles in again.items():
        assert tile.arrays[name].tolist() == tiles.data[tile.tile].view(np.uint32).tolist()


def test_a_fault_of_given_valid_regions_only_is_said() -> None:
    def execute(call):
        (reference if call.tiles["dst"].region.uniform else regions({"dst": (-1, 0)}))(call)

    found = shrunk("TPARTMIN", ("i32",), execute)
    assert found.why_not == "the tile fails only where every tile of a batch is given a valid region of its own"


def test_an_implementation_that_raises_on_one_tile_is_said() -> None:
    def execute(call):
        if call.batch == 1:
            raise ValueError("a batch of one")
        regions({"dst": (-1, 0)})(call)

    found = shrunk("TPARTMIN", ("i32",), execute)
    assert found.tile is None
    assert found.why_not == "run alone, the tile makes the implementation raise ValueError: a batch of one"


def test_what_was_seen_is_that_of_the_tile_that_is_kept() -> None:
    def execute(call):
        reference(call)
        dst, a = call.tiles["dst"], call.tiles["src0"]
        for t in range(dst.batch):
            rows, cols = dst.region.of_tile(t)
            if rows > 1 and cols > 1 and a.data[t, 0, 0] != a.data[t, 1, 1]:  # cannot move to the origin
                dst.data[t, 1, 1] = a.data[t, 0, 0] ^ 3

    found = shrunk("TPARTMIN", ("i32",), execute)
    assert found.tile.valid["dst"] == (2, 2)
    call = found.tile.call()
    execute(call)
    assert call.tiles["dst"].data[0].view(np.uint32).tolist() == found.tile.seen["dst"].tolist()
    assert found.tile.seen["dst"].tolist() != found.tile.expected["dst"].tolist()


def test_what_the_right_side_raises_is_not_put_down_to_the_implementation() -> None:
    def absent(call):
        raise KeyError("nothing to compare with")

    wrong = one_wrong_element(0, 0)
    with pytest.raises(KeyError, match="nothing to compare with"):
        shrink(failure("TPARTMIN", ("i16",), wrong), wrong, absent)
