"""Campaign runs: merging, memory, crashes, saved failures, replay, and the reproducer that is printed."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_gpu as pto
from pto_gpu import backends
from pto_gpu.campaign import reproduce
from pto_gpu.campaign.compare import OUTSIDE, SHOWN, value_of
from pto_gpu.campaign.files import saved
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.results import Crash
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import draw


def reference(call):
    backends.load("numpy").run(call)


def wrong_at(tile_in_block, row, col, value=77):
    def execute(call):
        reference(call)
        if call.batch > tile_in_block:
            call.tiles[call.instruction.dsts[0].name].data[tile_in_block, row, col] = value

    return execute


def nothing(call):
    del call


def test_mismatches_come_in_tile_order_and_no_more_than_20() -> None:
    result = run_campaign(Campaign("TPARTMIN", ("i32",), tiles=5000, workers=3), nothing)
    places = [(m.tile, m.row, m.col) for m in result.mismatches]
    assert len(places) == SHOWN
    assert places == sorted(places)
    assert result.mismatched_tiles > 4000
    assert result.tiles == 5000


def test_the_result_does_not_depend_on_the_number_of_workers() -> None:
    results = [run_campaign(Campaign("TPRELU", ("f32",), tiles=3000, workers=w), wrong_at(3, 0, 1)) for w in (1, 4)]
    assert results[0].mismatches == results[1].mismatches
    assert results[0].mismatched_elements == results[1].mismatched_elements
    assert results[0].valid_kinds == results[1].valid_kinds


def test_a_mismatch_says_operands_seen_and_expected() -> None:
    result = run_campaign(Campaign("TPARTMIN", ("i32",), tiles=200, seed=4), wrong_at(7, 0, 0))
    (mismatch,) = result.mismatches
    assert (mismatch.tile, mismatch.operand, mismatch.row, mismatch.col) == (7, "dst", 0, 0)
    assert mismatch.seen == 77
    drawn = draw(result.campaign, 7, 1)
    for given in mismatch.inputs:
        assert value_of(given.bits[0], "i32") == drawn.sources[given.name].data[0, 0, 0]
    kinds, regions, line = report.mismatch_lines(result.mismatches, 1, result.categories)
    assert kinds == f"  by category: {mismatch.category} 1"
    sizes = {name: "x".join(map(str, size)) for name, size in mismatch.valid_regions.items()}
    assert regions == f"  tile 7, valid regions: dst {sizes['dst']}, src0 {sizes['src0']}, src1 {sizes['src1']}"
    assert line.startswith(f"    dst(0, 0) [{mismatch.category}]: src0=")
    assert "seen 0x0000004d (77), expected 0x" in line


def test_a_few_mismatches_are_listed_some_of_each_category() -> None:
    found = run_campaign(Campaign("TPARTMIN", ("i32",), tiles=200, seed=4), wrong_at(7, 0, 0)).mismatches[0]

    def listed(*categories: str, total: int) -> list[str]:
        mismatches = [dataclasses.replace(found, row=n, category=c) for n, c in enumerate(categories)]
        return report.mismatch_lines(mismatches, total, {})[1:]

    def rows(lines: list[str]) -> list[str]:
        return [line.split("(")[1].split(",")[0] for line in lines if line.startswith("    ")]

    lines = listed(*"aaaaabaacad", total=12_345)
    assert (rows(lines), lines[-1]) == (["0", "5", "8", "10"], "  ... and 12 341 more")
    assert rows(listed(*"aabbbb", total=6)) == ["0", "1", "2", "3"]
    assert rows(listed(*"aaaaaacb", total=8)) == ["0", "1", "6", "7"]
    lines = listed(*"aba", total=3)
    assert rows(lines) == ["0", "1", "2"]
    assert "more" not in lines[-1]


def test_bytes_far_outside_the_valid_region_are_compared() -> None:
    campaign = Campaign("TPARTMIN", ("f32",), tiles=2048)  # the second block is padded

    def execute(call):
        reference(call)
        dst = call.tiles["dst"]
        if dst.type.cols > 16:
            dst.data[5, -1, -1] = 0

    result = run_campaign(campaign, execute)
    (mismatch,) = result.mismatches
    assert (mismatch.tile, mismatch.col, mismatch.category) == (1024 + 5, 23, OUTSIDE)


def test_a_backend_that_raises_is_a_failure_with_its_tiles() -> None:
    def execute(call):
        raise ZeroDivisionError("no luck")

    result = run_campaign(Campaign("TROWMIN", ("f16",), tiles=2000), execute)
    assert not result.equal
    assert result.crash == Crash(0, 1023, "ZeroDivisionError: no luck")
    assert "FAILED on tiles 0 to 1023: ZeroDivisionError: no luck" in report.result_line(result)


def test_ctrl_c_keeps_what_was_done() -> None:
    def progress(done):
        if done >= 2048:
            raise KeyboardInterrupt

    result = run_campaign(Campaign("TPARTMIN", ("i16",), tiles=50_000), reference, progress)
    assert result.interrupted
    assert result.tiles == 2048
    assert not result.mismatched_elements
    assert not result.equal


def test_waves_in_flight_are_bounded() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def execute(call):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        reference(call)
        with lock:
            running[0] -= 1

    assert run_campaign(Campaign("TPARTMIN", ("i8",), tiles=8000, workers=2), execute).equal
    assert most[0] <= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiles": 0}, "tiles=0 must be at least 1"),
        ({"tiles": float("nan")}, "tiles must be an integer"),
        ({"seed": -1}, "seed=-1 is out of range"),
        ({"seed": 1 << 64}, "is out of range"),
        ({"dtypes": ("u8",), "target": "a2a3"}, "u8 is not supported on a2a3: allowed i32, i16, f16, f32"),
        ({"dtypes": ("f64",)}, "'f64' is not known"),
        ({"instruction": "TPARTMUL"}, "'TPARTMUL' is not known"),
        ({"shape": (16, 3)}, "allowed multiples of 32 bytes"),
        ({"shape": (0, 16)}, "rows=0 must be greater than 0"),
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"target": "a6"}, "target='a6' is not known"),
        ({"numerics": "ieee"}, "numerics='ieee' is not known"),
        ({"backend": "gpu"}, "backend='gpu' is not known"),
        ({"backend": "numpy"}, "backend='numpy' is the reference, .* allowed auto, cpu, triton"),
        ({"against": "gpu"}, "against='gpu' is not known: allowed auto, numpy, cpu, triton"),
        ({"against": "cpu"}, "backend='cpu' would be compared with itself: allowed numpy, triton"),
    ],
)
def test_a_campaign_that_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    good = {"instruction": "TPARTMIN", "dtypes": ("f32",)}
    with pytest.raises(pto.PtoError, match=message.replace("(", r"\(")):
        Campaign(**{**good, **changes})


@pytest.mark.parametrize("shape", [(1, 8), (127, 64), (3, 24), (1, 2048), (300, 8)])
@pytest.mark.parametrize("op", ["TPARTMIN", "TROWMIN", "TPRELU"])
def test_other_shapes(op: str, shape: tuple[int, int]) -> None:
    assert run_campaign(Campaign(op, ("f32",), shape=shape, tiles=300), reference).equal


@pytest.mark.parametrize("numerics", [*pto.NUMERICS, pto.Numerics("number", "src0", "keep")])
@pytest.mark.parametrize(
    ("op", "dtypes"),
    [("TPARTARGMIN", ("f16", "i16")), ("TPARTMIN", ("bf16",)), ("TROWMIN", ("f32",)), ("TPRELU", ("f16",))],
)
def test_the_cpu_backend_agrees_under_every_rule_set(
    op: str, dtypes: tuple[str, ...], numerics: str | pto.Numerics
) -> None:
    result = run_campaign(Campaign(op, dtypes, tiles=1500, numerics=numerics, undefined="zero"))
    assert result.backend == "cpu"
    assert result.equal
    assert (result.valid_kinds["undefined by the page"] > 100) == op.startswith("TPART")


@pytest.mark.parametrize(
    ("op", "dtypes", "tile"),
    [("TPARTARGMIN", ("f32", "u32"), 1030), ("TROWMIN", ("f16",), 3), ("TPARTMIN", ("bf16",), 3)],
)
def test_a_saved_failure_is_read_back_and_replayed(tmp_path: Path, op: str, dtypes: tuple[str, ...], tile: int) -> None:
    first = tile // 1024 * 1024

    def execute(call):
        reference(call)
        dst = call.tiles[call.instruction.dsts[0].name]
        padded = any(t.type.cols > 16 for t in call.tiles.values())
        if padded == (tile >= 1024):
            dst.data.view(f"u{dst.data.itemsize}")[tile - first, 0, 0] ^= 1

    result = run_campaign(Campaign(op, dtypes, tiles=2048), execute)
    assert result.first_failure.tile == tile
    path = saved.save(result.first_failure, tmp_path / "failures")
    again = saved.load(path)
    for field in dataclasses.fields(again):
        a, b = getattr(again, field.name), getattr(result.first_failure, field.name)
        if field.name in ("arrays", "seen", "expected"):
            assert a.keys() == b.keys()
            assert all(a[k].tolist() == b[k].tolist() and a[k].dtype == b[k].dtype for k in a)
        else:
            assert a == b
    comparison, backend, *_ = reproduce.replay(again)
    assert (comparison.elements, backend) == (0, "cpu")  # the backend itself is right
    expected = again.run_expected()
    for name, array in again.expected.items():
        assert expected[name].data[0].view(array.dtype).tolist() == array.tolist()


def test_a_saved_failure_is_never_overwritten(tmp_path: Path) -> None:
    result = run_campaign(Campaign("TPARTMIN", ("i8",), tiles=64, seed=7), wrong_at(9, 0, 0))
    paths = [saved.save(result.first_failure, tmp_path) for _ in range(3)]
    stem = "tpartmin_i8_seed7_tile9"
    assert [p.name for p in paths] == [f"{stem}.npz", f"{stem}-1.npz", f"{stem}-2.npz"]
    assert [saved.load(p).origin for p in paths] == ["seed7"] * 3


def covered(*results):
    return "\n".join(report.coverage_lines(results, 1.0))


def test_coverage_is_what_was_counted() -> None:
    partial = run_campaign(Campaign("TPARTMIN", ("f32",), tiles=1), reference)
    rows = run_campaign(Campaign("TROWMIN", ("i8",), tiles=3), reference)
    assert sum(partial.operand_kinds.values()) == 2  # src0 and src1 of one tile
    assert sum(rows.operand_kinds.values()) == 3 * 16
    assert all(kind.endswith(" rows") for kind in rows.operand_kinds)
    text = covered(partial, rows)
    for kind, n in {**partial.operand_kinds, **rows.operand_kinds}.items():
        assert f"{kind} {n}" in text
    assert "signalling NaN" not in text
    assert " 0," not in text
    assert "not covered" not in text


def test_what_was_not_compared_is_not_covered() -> None:
    def execute(call):
        if call.tiles["dst"].type.cols > 16 or call.instruction.name == "TROWMIN":
            raise RuntimeError
        reference(call)

    some = run_campaign(Campaign("TPARTMIN", ("f32",), tiles=3000), execute)  # the second block is padded
    none = run_campaign(Campaign("TROWMIN", ("f32",), tiles=50), execute)
    assert covered(none) == "not covered: TROWMIN f32 16x16, tiles 0 to 49 (the backend failed)"
    text = covered(some, none)
    assert text.startswith("covered TPARTMIN: 1 combination of element types, 1024 tiles in ")
    assert "\nnot covered: TPARTMIN f32 16x16, tiles 1024 to 2999 (the backend failed)\n" in text
    assert text.endswith("\n" + covered(none))


def rewritten(path, tmp_path, **changes):
    """A copy of a saved failure with arrays replaced, or with ``None`` left out."""
    with np.load(path) as archive:
        arrays = {**archive, **changes}
    target = tmp_path / "changed.npz"
    np.savez(target, **{k: v for k, v in arrays.items() if v is not None})
    return target


def metadata(path, **changes):
    with np.load(path) as archive:
        data = {**json.loads(bytes(archive["metadata"])), **changes}
    return np.frombuffer(json.dumps(data).encode(), np.uint8)


def test_a_damaged_saved_failure_is_one_clear_error(tmp_path: Path) -> None:
    result = run_campaign(Campaign("TPARTMIN", ("f32",), tiles=64), wrong_at(9, 0, 0))
    path = saved.save(result.first_failure, tmp_path)
    whole = path.read_bytes()
    for message, changes in [
        ("metadata is missing", {"metadata": None}),
        ("src1 is missing", {"src1": None}),
        ("expected_dst is missing", {"expected_dst": None}),
        ("src0 is uint32", {"src0": np.zeros((3, 3), np.uint32)}),
        ("a valid region is float64", {"src0_valid": np.array([1.0, 2.0])}),
        ("format is 'other'", {"metadata": metadata(path, format="other")}),
        ("'TNOP' is not known", {"metadata": metadata(path, instruction="TNOP")}),
        (
            "types is missing",
            {
                "metadata": np.frombuffer(
                    json.dumps({"format": saved.FORMAT, "instruction": "TPRELU"}).encode(), np.uint8
                )
            },
        ),
        ("not a failure", {"metadata": metadata(path, types=3)}),
        ("not a failure", {"metadata": np.frombuffer(b"{", np.uint8)}),
        ("not a failure", {"metadata": np.frombuffer(b"[" * 100_000, np.uint8)}),
        ("not a failure", {"metadata": np.frombuffer(b"\xff\xfe", np.uint8)}),
        ("not a failure", {"metadata": np.frombuffer(b'{"format":' + b"9" * 5000 + b"}", np.uint8)}),
        ("not a failure", {"metadata": metadata(path, origin=7)}),
        ("backend", {"metadata": metadata(path, backend="fpga")}),
        ("backend", {"metadata": metadata(path, against="fpga")}),
        ("implementation must be text", {"metadata": metadata(path, implementation=7)}),
        ("error must be text", {"metadata": metadata(path, error=7)}),
        ("together must be an integer of at least 1", {"metadata": metadata(path, together=0)}),
        ("causes must be a list of texts", {"metadata": metadata(path, causes="one")}),
        ("nan", {"metadata": metadata(path, numerics={"nan": "x", "tie": "src0", "zero": "keep"})}),
    ]:
        damaged = rewritten(path, tmp_path, **changes)
        with pytest.raises(pto.FileError, match=message):
            saved.load(damaged)
    for n in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:n])
        with pytest.raises(pto.FileError):
            saved.load(path)
    with pytest.raises(pto.FileError, match="no such file"):
        saved.load(tmp_path / "absent.npz")


def test_a_valid_region_out_of_range_in_a_saved_failure_is_refused(tmp_path: Path) -> None:
    result = run_campaign(Campaign("TPARTMIN", ("f32",), tiles=64), wrong_at(9, 0, 0))
    path = saved.save(result.first_failure, tmp_path)
    with pytest.raises(pto.ConstraintError, match="out of range"):
        reproduce.replay(saved.load(rewritten(path, tmp_path, src0_valid=np.array([99, 1], np.int32))), "numpy")
