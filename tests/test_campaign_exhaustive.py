"""Exhaustive campaigns: every combination is there, compared, and said to be only when it was."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from special_values import specials, width

import pto_gpu as pto
from pto_gpu import backends
from pto_gpu.campaign import reproduce, run
from pto_gpu.campaign.compare import INDEX, OUTSIDE, TIE
from pto_gpu.campaign.files import saved
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.reports.data import result_data
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.isa import instruction, instructions
from pto_gpu.isa.record import Family, Kind
from pto_gpu.targets import TARGETS

COMBINATIONS = [
    (op, dtypes)
    for op, record in instructions().items()
    for dtypes in record.element_types["a5"]
    if width(dtypes[0]) < 32
]
NARROW = [(op, dtypes) for op, dtypes in COMBINATIONS if width(dtypes[0]) == 8]
BACKENDS = ["cpu", "triton"]


def reference(call):
    backends.load("numpy").run(call)


def combinations(tiles: Any, op: str) -> list[tuple[int, ...]]:
    """Every combination of value bits in the valid regions, in order: pairs of sources, or rows of one."""
    record = instruction(op)
    sources = [tiles[o.name] for o in record.sources if o.kind is Kind.VALUE]
    found = []
    for tile in range(sources[0].batch):
        rows, cols = sources[0].region.of_tile(tile)
        planes = [s.data.view(f"u{s.data.itemsize}")[tile, :rows, :cols] for s in sources]
        if record.family is Family.ROW_REDUCE:
            found += [tuple(row) for row in planes[0].tolist()]
        else:
            assert all(s.region.of_tile(tile) == (rows, cols) for s in sources)
            found += list(zip(*(p.ravel().tolist() for p in planes), strict=True))
    return found


@pytest.mark.parametrize(("op", "dtypes"), NARROW)
def test_every_pair_of_bytes_is_run_once(op: str, dtypes: tuple[str, ...]) -> None:
    seen = []

    def execute(call):
        seen.extend(combinations(call.tiles, op))
        reference(call)

    assert run_campaign(Campaign(op, dtypes, exhaustive=True, workers=1), execute).equal
    pairs = [(a, b) for a in range(256) for b in range(256)]
    alone = [(a,) for a in range(256)] if instruction(op).family is Family.ROW_REDUCE else []
    assert seen == alone + pairs


@pytest.mark.parametrize(("op", "dtypes"), [c for c in COMBINATIONS if c not in NARROW])
def test_the_tiles_of_16_bits_hold_every_pair_in_order(op: str, dtypes: tuple[str, ...]) -> None:
    campaign = Campaign(op, dtypes, exhaustive=True)
    alone = 2**16 if instruction(op).family is Family.ROW_REDUCE else 0
    places = len(combinations(draw(campaign, 0, 1).sources, op))
    assert campaign.tiles * places == alone + 2**32
    for first in (0, alone // places - 1, alone // places, 12_345, campaign.tiles - 2):
        if first < 0:
            continue
        found = combinations(draw(campaign, first, 2).sources, op)
        numbers = range(first * places, (first + 2) * places)
        wanted = [(k,) if k < alone else ((k - alone) >> 16, (k - alone) & 0xFFFF) for k in numbers]
        assert found == wanted


def flips_one(campaign: Campaign, combination: tuple[int, ...]) -> Callable[[Any], None]:
    """The backend of ``campaign``, but for one combination the lowest bit of the result is wrong."""
    right = run.backend_execute(campaign.options)

    def execute(call):
        right(call)
        record = call.instruction
        sources = [call.tiles[o.name] for o in record.sources if o.kind is Kind.VALUE]
        bits = [s.data.view(f"u{s.data.itemsize}") for s in sources]
        if record.family is Family.ROW_REDUCE:
            here = (bits[0][:, : sources[0].region.rows, 0] == combination[0]) & (
                bits[0][:, : sources[0].region.rows, 1] == combination[1]
            )
            here = here[:, :, None]
            here &= (sources[0].region.cols == 2)[:, None, None]
        else:
            rows, cols = sources[0].region
            here = np.logical_and(*(x[:, :rows, :cols] == v for x, v in zip(bits, combination, strict=True)))
        dst = call.tiles[record.dsts[0].name]
        out = dst.data.view(f"u{dst.data.itemsize}")[:, : here.shape[1], : here.shape[2]]
        out[here] ^= 1

    return execute


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("op", "dtypes"), COMBINATIONS)
def test_one_wrong_pair_is_found(op: str, dtypes: tuple[str, ...], backend: str, tmp_path: Any) -> None:
    campaign = Campaign(op, dtypes, exhaustive=True, backend=backend)
    pair = (0x7B, 0x13) if width(dtypes[0]) == 8 else (0x7B01, 0x13F0)
    execute = flips_one(campaign, pair)
    if width(dtypes[0]) == 8:
        result = run_campaign(campaign, execute)
        assert (result.tiles, result.mismatched_elements) == (campaign.tiles, 1)
        mismatches, failure = result.mismatches, result.first_failure
    else:  # the one tile that the pair is in, and its neighbours
        number = (pair[0] << 16) + pair[1]
        first = 64 + number // 1024 if instruction(op).family is Family.ROW_REDUCE else pair[0]
        assert not run._wave(campaign, execute, first - 1, 1).mismatched_elements
        assert not run._wave(campaign, execute, first + 1, 1).mismatched_elements
        wave = run._wave(campaign, execute, first, 1)
        mismatches, failure = wave.mismatches, wave.first_failure
    (mismatch,) = mismatches
    values = [b for i in mismatch.inputs if instruction(op).by_name[i.name].kind is Kind.VALUE for b in i.bits]
    assert (tuple(values), mismatch.seen ^ mismatch.expected) == (pair, 1)
    assert failure.origin == "exhaustive"
    again = saved.load(saved.save(failure, tmp_path))
    assert (again.tile, reproduce.replay(again, "cpu")[0].elements) == (mismatch.tile, 0)


@pytest.mark.parametrize(("op", "dtypes"), COMBINATIONS)
def test_a_write_around_the_region_is_found(op: str, dtypes: tuple[str, ...]) -> None:
    def execute(call):
        reference(call)
        for operand in call.instruction.dsts:
            call.tiles[operand.name].data.view("u1")[:, -1, -1] = 0

    wave = run._wave(Campaign(op, dtypes, exhaustive=True), execute, 70, 3)
    assert set(wave.categories) == {OUTSIDE}
    assert wave.mismatched_tiles == 3


@pytest.mark.parametrize("dtypes", [d for d in instruction("TPARTARGMIN").element_types["a5"] if d[0] == "f16"])
def test_indices_show_a_wrong_choice(dtypes: tuple[str, ...]) -> None:
    campaign = Campaign("TPARTARGMIN", dtypes, exhaustive=True)
    tiles = draw(campaign, 0x3C00, 2).sources
    rows, cols = campaign.grid
    first, second = (tiles[f"src{k}_idx"].data[:, :rows, :cols] for k in range(2))
    assert (first != second).all()
    assert (first[:, :, 1:] != second[:, :, :-1]).all()

    def execute(call):
        reference(call._replace(rules=dataclasses.replace(call.rules, tie="src0")))

    wave = run._wave(campaign, execute, 0x3C00, 1)  # 1.0
    (mismatch,) = wave.mismatches  # the value is the same: only the index shows it
    assert (mismatch.operand, mismatch.category) == ("dst_idx", TIE)

    def other_side(call):
        reference(call)
        call.tiles["dst_idx"].data[:, 3, 5] = call.tiles["src1_idx"].data[:, 3, 5]

    assert run._wave(campaign, other_side, 0xFC00, 1).categories == {INDEX: 1}  # -infinity is less


def texts(result):
    return "\n".join([*report.result_lines(result), *report.coverage_lines([result], 1.0)])


def test_every_pair_is_said_only_of_every_pair() -> None:
    whole = run_campaign(Campaign("TPARTMIN", ("u8",), exhaustive=True), reference)
    assert "TPARTMIN u8 exhaustive: every pair of src0 and src1, 65 536 pairs" in texts(whole)
    assert result_data(whole, None, None)["exhaustive"] == {
        "of": "every pair of src0 and src1",
        "unit": "pair",
        "total": 65536,
        "compared": 65536,
        "complete": True,
    }

    def stop(done):
        if done >= 40:
            raise KeyboardInterrupt

    campaign = Campaign("TPARTMIN", ("f16",), exhaustive=True)
    part = run_campaign(campaign, run.backend_execute(campaign.options), stop)
    assert part.tiles == 40
    assert "NOT every pair of src0 and src1: 2 621 440 of 4 294 967 296 pairs compared" in texts(part)
    assert texts(part).count("every") == 2  # and "every byte of dst"
    assert not result_data(part, None, None)["exhaustive"]["complete"]

    def breaks(call):
        if call.tiles["src"].data.view("u1")[0, 0, 0] == 0x9F:  # the first pair of a wave
            raise RuntimeError("device lost")
        reference(call)

    crashed = run_campaign(Campaign("TROWMIN", ("i8",), exhaustive=True, workers=1), breaks)
    rows = crashed.tiles * 256
    assert not crashed.equal
    assert 0 < rows < 65_792
    assert f"NOT every value of src in a row of one column and every pair in a row of two: {rows:,}".replace(
        ",", " "
    ) in texts(crashed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtypes": ("f32",)}, r"TPARTMIN f32: 2\*\*64 combinations of values are too many .* up to 16 bits"),
        ({"tiles": 5}, "tiles=5 is not for an exhaustive campaign"),
        ({"shape": (16, 16)}, r"shape=\(16, 16\) is not for"),
        ({"seed": 1}, "seed=1 is not for"),
        ({"backend": "numpy"}, "is the reference"),
    ],
)
def test_what_an_exhaustive_campaign_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pto.PtoError, match=message):
        Campaign(**{"instruction": "TPARTMIN", "dtypes": ("i8",), "exhaustive": True, **changes})


def test_a_campaign_can_be_made_again_from_its_fields() -> None:
    campaign = Campaign("TPARTMIN", ("i8",), exhaustive=True)
    assert dataclasses.replace(campaign, workers=2).tiles == campaign.tiles


@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("numerics", [*pto.NUMERICS, pto.Numerics("number", "src0", "keep")])
def test_every_rule_set_and_target_agrees_on_the_hard_values(target: str, numerics: Any) -> None:
    for op, record in instructions().items():
        for dtypes in record.element_types[target]:
            if width(dtypes[0]) > 16:
                continue
            campaign = Campaign(op, dtypes, exhaustive=True, target=target, numerics=numerics)
            execute = run.backend_execute(campaign.options)
            for special in specials(dtypes[0])[::3].tolist():
                first = special if record.family is not Family.ROW_REDUCE else 64 * (1 + special)
                wave = run._wave(campaign, execute, min(first, campaign.tiles - 1), 1)
                assert (wave.crash, wave.mismatched_elements) == (None, 0)
