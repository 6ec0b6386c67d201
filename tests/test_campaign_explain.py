"""Rule sets that a wrong result agrees with, and causes, beside those of tests/test_mutants.py."""

from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import rig
from command_line import DUMPS
from mutants import reference, regions, rules

from pto_gpu.campaign import run
from pto_gpu.campaign.check import check_dump
from pto_gpu.campaign.explain import diagnose
from pto_gpu.campaign.explain.diagnose import diagnose_evidence
from pto_gpu.campaign.explain.evidence import Evidence
from pto_gpu.campaign.explain.search import explain, faults
from pto_gpu.campaign.files.dumps import instruction_of
from pto_gpu.campaign.reports import diagnosis as diagnosis_report
from pto_gpu.campaign.reports.data import diagnosis_data
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw
from pto_gpu.campaign.tiles.storage import Buffers, bits
from pto_gpu.defaults import current_options
from pto_gpu.isa import instructions
from pto_gpu.numerics import NUMERICS


def diagnosed(op, dtypes, execute, tiles=4096, **settings):
    campaign = Campaign(op, dtypes, tiles=tiles, workers=1, **settings)
    return diagnose.diagnose(run_campaign(campaign, execute), execute)


def evidence(op, dtypes, execute, first=0, n=64, **settings):
    campaign = Campaign(op, dtypes, tiles=4096, **settings)
    allocate = Buffers().tiles
    drawn = draw(campaign, first, n, allocate)
    before, seen = (drawn.poisoned_dsts(allocate, whose) for whose in ("before", "seen"))
    execute(run.call_of(campaign, {**seen, **drawn.sources}))
    return Evidence.of(campaign.record, campaign.options, {**before, **drawn.sources}, seen, np.arange(n))


# -- rule sets --------------------------------------------------------------------------------------------


def dump_of(tmp_path: Path, op: str, dtypes: tuple[str, ...], rules_of_dump: str) -> Path:
    """What the oracle makes of 40 tiles of special values."""
    case, rng = rig.Case(instructions()[op], dtypes), np.random.default_rng(11)
    types = rig.types_for(case, 16, 16)
    drawn, where = rig.draw_bits(rng, case, types, 40), rig.legal_regions(rng, case, types, 40)
    drawn.update({name: np.zeros_like(drawn[name]) for name in case.dsts})
    results = rig.expected(case, drawn, where, oracle.RULE_SETS[rules_of_dump])
    arrays = {name: x.view(types[name].element.numpy) for name, x in {**drawn, **results}.items()}
    valid = {f"{name}_valid": np.stack(where[name], axis=1) for name in arrays}
    path = tmp_path / f"{op.lower()}_{rules_of_dump}_{dtypes[0]}.npz"
    np.savez(path, **arrays, **valid)
    return path


@pytest.mark.parametrize(
    ("op", "dtypes", "theirs", "asked", "why"),
    [
        ("TPARTMIN", ("f32",), "simulator", "isa", "NaN in src"),
        ("TPARTMIN", ("bf16",), "formal", "isa", "NaN in src"),
        ("TPARTARGMIN", ("f16", "i16"), "a2a3", "isa", "ties"),
        ("TPARTARGMIN", ("f32", "u32"), "simulator", "formal", "NaN in src"),
        ("TROWMIN", ("f16",), "isa", "simulator", "NaN in src"),
        ("TPRELU", ("f32",), "a5", "isa", "zeros in src0"),
    ],
)
def test_a_dump_is_said_to_equal_another_rule_set(
    tmp_path: Path, op: str, dtypes: tuple[str, ...], theirs: str, asked: str, why: str
) -> None:
    path = dump_of(tmp_path, op, dtypes, theirs)
    checked = check_dump(path, instructions()[op], current_options().override(numerics=asked))
    found = diagnose_evidence(checked.evidence, checked.comparison)
    assert theirs in found.explanation.agrees_with
    assert asked not in found.explanation.agrees_with
    line = diagnosis_report.diagnosis_lines(found)[0]
    names = ", ".join(f"`{name}`" for name in found.explanation.agrees_with)
    count = f"{checked.comparison.elements} elements"
    assert line.startswith(f"  equals {names} in all 40 tiles; differs from `{asked}` in {count}: ")
    assert why in line


def test_a_combination_without_a_name_is_spelled() -> None:
    found = diagnosed("TPARTARGMIN", ("f32", "i32"), rules(nan="number", tie="src0"))
    assert found.explanation.agrees_with == ("nan=number, tie=src0",)
    assert found.explanation.causes == ("NaN dropped, ties go to src0",)


def test_what_the_operands_are_is_said() -> None:
    found = diagnosed("TPARTARGMIN", ("f32", "i32"), rules(tie="src0"))
    assert "differs from `isa` in" in (line := diagnosis_report.diagnosis_lines(found)[0])
    assert line.endswith(": ties")
    found = diagnosed("TPRELU", ("f16",), rules(zero="keep"))
    assert diagnosis_report.diagnosis_lines(found)[0].endswith(": zeros in src0")


# -- causes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "operand"), [("TROWMIN", "src"), ("TPARTMIN", "dst")])
def test_a_fault_beside_another_rule_set_is_found(op: str, operand: str) -> None:
    off_by_one = regions({operand: (0, -1)})

    def execute(call):
        off_by_one(call._replace(rules=NUMERICS["formal"]))

    found = diagnosed(op, ("f32",), execute)
    assert found.explanation.causes == (f"{operand}'s valid region taken one column short, under formal",)
    assert found.explanation.agrees_with == ()


def largest_of_row(call):
    reference(call)
    src, dst = call.tiles["src"], call.tiles["dst"]
    for t in range(dst.batch):
        rows, cols = src.region.of_tile(t)
        dst.data[t, :rows, 0] = src.data[t, :rows, :cols].max(axis=1)


def larger_of_pair(call):
    reference(call)
    a, b, dst = (call.tiles[name] for name in ("src0", "src1", "dst"))
    for t in range(dst.batch):
        rows, cols = (min(counts) for counts in zip(a.region.of_tile(t), b.region.of_tile(t), strict=True))
        both = np.s_[t, :rows, :cols]
        x, y = a.data[both], b.data[both]
        if np.issubdtype(x.dtype, np.integer):
            dst.data[both] = np.maximum(x, y)
            continue
        larger = np.where((x > y) | ((x == y) & ~np.signbit(x)), x, y)
        dst.data[both] = np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), larger)


@pytest.mark.parametrize(
    ("op", "dtype", "execute"),
    [
        ("TPARTMIN", "i16", larger_of_pair),
        ("TPARTMIN", "u32", larger_of_pair),
        ("TPARTMIN", "f32", larger_of_pair),
        ("TROWMIN", "i8", largest_of_row),
        ("TROWMIN", "u8", largest_of_row),
    ],
)
def test_a_maximum_is_said_to_be_one(op: str, dtype: str, execute: Any) -> None:
    assert diagnosed(op, (dtype,), execute).explanation.causes == ("values compared the other way round",)


def other_payload(x):
    return np.where(np.isnan(x), (bits(x) ^ np.uint32(5)).view(np.float32), x)


def one_up(x):
    finite = np.isfinite(x) & (x != 0) & (np.abs(x) < 1e30)
    with np.errstate(all="ignore"):
        return np.where(finite, np.nextafter(x, np.float32(np.inf)), x)


def after(change):
    def execute(call):
        reference(call)
        dst = call.tiles["dst"]
        for t in range(dst.batch):
            rows, cols = dst.region.of_tile(t)
            dst.data[t, :rows, :cols] = change(dst.data[t, :rows, :cols])

    return execute


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (other_payload, "nothing but the bits of NaNs differs"),
        (one_up, "nothing but the last place of numbers differs"),
    ],
)
def test_the_kind_of_difference_is_said_where_no_fault_gives_the_bits(change: Any, cause: str) -> None:
    assert diagnosed("TPRELU", ("f32",), after(change)).explanation.causes == (cause,)


@pytest.mark.parametrize(
    ("op", "wrong", "cause"),
    [
        ("TPRELU", rules(zero="keep"), "x = ±0 returned as it is"),
        ("TPRELU", regions({"dst": (0, -1)}), "dst's valid region taken one column short"),
        ("TPARTMIN", rules(nan="number"), "NaN dropped"),
    ],
)
def test_bits_of_nans_do_not_hide_a_fault(op: str, wrong: Any, cause: str) -> None:
    def execute(call):
        wrong(call)
        dst = call.tiles["dst"]
        where = bits(dst.data) != 0xA5A5A5A5  # what was not written stays so
        dst.data[...] = np.where(where, other_payload(dst.data), dst.data)

    found = diagnosed(op, ("f32",), execute).explanation
    assert found.causes == (f"{cause}, with other bits in NaNs",)
    assert found.agrees_with == ()


def test_two_kinds_of_difference_are_said_together() -> None:
    change = after(lambda x: other_payload(np.where(x == 0, np.abs(x), x)))

    def execute(call):
        signs_of_zeros_at_random(call)
        dst = call.tiles["dst"]
        dst.data[...] = other_payload(dst.data)

    assert diagnosed("TPRELU", ("f32",), execute).explanation.causes == (
        "nothing but the bits of NaNs and the sign of zeros differs",
    )
    found = diagnosed("TPARTMIN", ("f32",), change)
    assert found.explanation.causes == ("-0 written as +0, with other bits in NaNs",)


def signs_of_zeros_at_random(call):
    reference(call)
    data = call.tiles["dst"].data
    flip = np.random.default_rng(3).random(data.shape) < 0.5
    data[...] = np.where((data == 0) & flip, -data, data)


def test_signs_of_zeros_that_follow_no_rule_are_a_kind() -> None:
    found = diagnosed("TPRELU", ("f32",), signs_of_zeros_at_random)
    assert found.explanation.causes == ("nothing but the sign of zeros differs",)


def covered_anyway(call):
    """Sources that are taken to cover dst where the page says nothing."""
    tiles, dst = dict(call.tiles), call.tiles["dst"]
    where = undefined(call)
    for name in ("src0", "src1"):
        given = tiles[name]
        rows, cols = (np.where(where, d, s) for d, s in zip(dst.region, given.region, strict=True))
        tiles[name] = given.with_valid(rows, cols)
    reference(call._replace(tiles=tiles))


def undefined(call):
    dst, a, b = (call.tiles[name].region for name in ("dst", "src0", "src1"))
    fits = [~other.differs(dst) & ~third.exceeds(dst) for other, third in ((a, b), (b, a))]
    return ~(fits[0] | fits[1]) & (dst.rows > 0) & (dst.cols > 0)


def skipped(call):
    before = call.tiles["dst"].data.copy()
    reference(call)
    data = call.tiles["dst"].data
    data[...] = np.where(undefined(call)[:, None, None], before, data)


def holes_left(call):
    """Elements that neither source defines are not set to zero."""
    before, dst = call.tiles["dst"].data.copy(), call.tiles["dst"]
    reference(call)
    for t in range(dst.batch):
        covered = np.zeros(dst.data.shape[1:], bool)
        for name in ("src0", "src1"):
            rows, cols = call.tiles[name].region.of_tile(t)
            covered[:rows, :cols] = True
        dst.data[t] = np.where(covered, dst.data[t], before[t])


@pytest.mark.parametrize(
    ("execute", "cause"),
    [
        (covered_anyway, "undefined valid regions computed as if src0 and src1 covered dst"),
        (skipped, "tiles with undefined valid regions not computed"),
        (holes_left, "elements that no source defines left as they were"),
    ],
)
def test_valid_regions_that_a_page_leaves_open(execute: Any, cause: str) -> None:
    found = diagnosed("TPARTMIN", ("i16",), execute, undefined="zero")
    assert cause in found.explanation.causes


def test_a_fault_must_leave_the_equal_tiles_equal() -> None:
    short = regions({"dst": (0, -1)})

    def only_in_even_tiles(call):
        short(call)
        dst, wrong = call.tiles["dst"], call.tiles["dst"].data.copy()
        reference(call)
        dst.data[::2] = wrong[::2]

    assert diagnosed("TPARTMIN", ("i16",), only_in_even_tiles).explanation.causes == ()
    assert diagnosed("TPARTMIN", ("i16",), short).explanation.causes != ()


SIGNATURES = [(op, d) for op, r in instructions().items() for d in r.element_types["a5"]]


@pytest.mark.parametrize("first", [0, 1024])  # packed, padded
@pytest.mark.parametrize("undefined", ["error", "zero"])
@pytest.mark.parametrize(("op", "dtypes"), SIGNATURES)
def test_every_fault_can_be_tried_and_changes_nothing(
    op: str, dtypes: tuple[str, ...], undefined: str, first: int
) -> None:
    tried = evidence(op, dtypes, reference, first, 24, undefined=undefined)
    before = {name: bits(t.data).copy() for name, t in tried.before.items()}
    names = [f.name for f in faults(tried.instruction, tried.rules)]
    assert len(set(names)) == len(names)
    for fault in faults(tried.instruction, tried.rules):
        results = fault.effect(tried)
        if results is not None:
            assert {n: x.shape for n, x in results.items()} == {n: x.shape for n, x in tried.seen.items()}
    for name, tiles in tried.before.items():
        assert np.array_equal(before[name], bits(tiles.data)), name


def test_what_was_not_tried_for_want_of_time_is_said() -> None:
    found = explain([evidence("TPARTMIN", ("i16",), regions({"dst": (-1, 0)}))], 1, seconds=0)
    assert (found.causes, found.complete) == ((), False)
    lines = diagnosis_report.diagnosis_lines(diagnose.Diagnosis(found))
    assert lines == ["  no known cause found in the time there is"]


# -- what cannot be had again, or goes wrong ---------------------------------------------------------------------


def test_a_failure_that_does_not_come_back_is_explained_by_what_was_seen() -> None:
    calls = []
    short = regions({"dst": (0, -1)})

    def once(call):
        calls.append(call)
        (short if len(calls) == 1 else reference)(call)

    found = diagnosed("TPARTMIN", ("i16",), once)
    assert found.notes == ["tile 0 was equal when its wave was run again: explained by what was seen before"]
    assert "dst's valid region taken one column short" in found.explanation.causes
    assert found.shrunk.why_not.startswith("the tile did not fail alone, run 12 times")


def test_a_wave_that_raises_does_not_hide_the_cause_in_another() -> None:
    short = regions({"dst": (0, -1)})

    def execute(call):
        capacities = {(t.type.rows, t.type.cols) for t in call.tiles.values()}
        if len(capacities) > 1:
            raise RuntimeError("capacities differ")
        short(call)

    found = diagnosed("TPARTMIN", ("i32",), execute)
    assert found.explanation.causes == ("dst's valid region taken one column short",)
    assert found.notes == ["tiles 1024 to 2047 left out of the explanation: RuntimeError: capacities differ"]


def test_a_fault_in_here_does_not_hide_the_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments, **keywords):
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(diagnose, "explain", broken)
    monkeypatch.setattr(diagnose, "shrink", broken)
    found = diagnosed("TPARTMIN", ("i16",), regions({"dst": (0, -1)}))
    lines = diagnosis_report.diagnosis_lines(found)
    assert lines == ["  not explained: ZeroDivisionError: no luck", "  not shrunk: ZeroDivisionError: no luck"]
    data = diagnosis_data(found)
    assert (data["causes"], data["shrunk"]) == ([], None)


def test_an_equal_campaign_has_no_diagnosis() -> None:
    assert diagnosed("TPARTMIN", ("i16",), reference, tiles=100) is None
    assert diagnosis_report.diagnosis_lines(None) == []


@pytest.mark.parametrize("wrong", ["cpu", "numpy"])
def test_of_two_backends_the_one_that_differs_from_the_reference_is_explained(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, short = run.backend_execute, regions({"dst": (0, -1)})
    monkeypatch.setattr(run, "backend_execute", lambda o: short if o.backend == wrong else real(o))
    right = "numpy" if wrong == "cpu" else "cpu"
    campaign = Campaign("TPARTMIN", ("i16",), tiles=200, backend="numpy", against="cpu", workers=1)
    found = diagnose.diagnose(run_campaign(campaign))
    assert found.notes == [f"{right} agrees with the reference: the cause is that of {wrong}"]
    assert found.explanation.causes == ("dst's valid region taken one column short",)


def test_a_dump_that_leaves_out_the_outside_is_explained_inside(tmp_path: Path) -> None:
    with np.load(DUMPS / "tpartmin_i32.npz") as archive:
        arrays = dict(archive)
    for t, (rows, cols) in enumerate(arrays["dst_valid"].tolist()):
        arrays["dst"][t, :, max(cols - 1, 0) :] = 0
        arrays["dst"][t, rows:] = 99
    path = tmp_path / "tpartmin_mine.npz"
    np.savez(path, **arrays)
    checked = check_dump(path, instruction_of(path), current_options(), "ignore")
    found = diagnose_evidence(checked.evidence, checked.comparison)
    assert "dst's valid region taken one column short" in found.explanation.causes


# -- tiles of the batch taken for one another ---------------------------------------------------------------------


def rolled(by, what):
    """Valid regions, one source or everything of a neighbour."""

    def execute(call):
        tiles = dict(call.tiles)
        order = np.roll(np.arange(call.batch), -by)
        for name, tile in call.tiles.items():
            data = tile.data[order] if name in what["data"] else tile.data
            where = order if name in what["regions"] else slice(None)
            tiles[name] = type(tile).from_array(data, tile.type, *(np.asarray(n)[where] for n in tile.region))
        reference(call._replace(tiles=tiles))

    return execute


@pytest.mark.parametrize(
    ("execute", "cause"),
    [
        (
            rolled(1, {"regions": ["dst", "src0", "src1"], "data": []}),
            "the valid regions of dst, src0 and src1 taken from the next tile",
        ),
        (rolled(-1, {"regions": ["src1"], "data": []}), "src1's valid region taken from the previous tile"),
        (rolled(-1, {"regions": [], "data": ["src0"]}), "src0 of the previous tile read"),
        (
            rolled(1, {"regions": ["dst", "src0", "src1"], "data": ["src0", "src1"]}),
            "the result of the next tile",
        ),
    ],
)
def test_a_neighbour_taken_for_a_tile(execute: Any, cause: str) -> None:
    found = diagnosed("TPARTMIN", ("i16",), execute)
    assert cause in found.explanation.causes


def test_the_first_valid_region_taken_for_all() -> None:
    def execute(call):
        tiles = {n: t.with_valid(*t.region.of_tile(0)) for n, t in call.tiles.items()}
        reference(call._replace(tiles=tiles))

    found = diagnosed("TROWMIN", ("f32",), execute)
    assert found.explanation.causes == ("the valid regions of dst and src taken from the first tile of the batch",)
    assert "depends on the rest of its batch" in found.shrunk.why_not
