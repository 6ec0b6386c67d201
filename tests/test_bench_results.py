"""Runs of a benchmark: JSON and back, targets, tables, what must not be trusted, what changed."""

import dataclasses
import json
import mmap
from pathlib import Path

import numpy as np
import pytest
from bench_runs import made_up, row, time

import pto_gpu as pto
from pto_gpu.bench import results
from pto_gpu.bench.compare import compare, comparison_lines
from pto_gpu.bench.goals import SPEED_UP, goals_of, wanted_speed_up
from pto_gpu.bench.tables import batch_slope, goal_lines, machine_lines, markdown, summary_table, tables
from pto_gpu.bench.timing import Copies, extra_memory, slope, summary, timed
from pto_gpu.isa import instructions


def test_json_and_back(tmp_path: Path) -> None:
    run, path = made_up(), tmp_path / "run.json"
    results.write(run, path)
    assert results.read(path) == run
    data = json.loads(path.read_text())
    assert data["format"] == "pto-gpu bench 1"
    assert {f.name for f in dataclasses.fields(results.Run)} <= set(data)
    assert data["rows"][0]["time"]["seconds"] == 2.0
    assert {"what": "pto-gpu --help", "seen": 0.2, "wanted": 0.5, "unit": "s", "at_least": False, "met": True} in data[
        "goals"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a JSON file"),
        ("[]", "not a file of pto-gpu bench --json"),
        ('{"format": "pto-gpu bench 0"}', "not a file of pto-gpu bench --json"),
        ('{"format": "pto-gpu bench 1"}', "a damaged file of pto-gpu bench"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(pto.FileError, match=message):
        results.read(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [("notes", None), ("machine", None), ("seconds", None), ("quick", 1), ("seconds", 10**400), ("peak_bytes", -1)],
)
def test_a_damaged_field(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**results.to_data(made_up()), name: value}))
    with pytest.raises(pto.FileError, match=f"damaged .* {name} must be"):
        results.read(path)


@pytest.mark.parametrize(
    "change", [{"time": {}}, {"time": None}, {"extra": 1}, {"copy": {"nbytes": 1}}, {"batch": "x"}, {"regions": []}]
)
def test_a_damaged_row(tmp_path: Path, change: dict[str, object]) -> None:
    data = results.to_data(made_up())
    data["rows"][3].update(change)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    with pytest.raises(pto.FileError, match="damaged"):
        results.read(path)
    data = results.to_data(made_up())
    data["rows"][3]["time"]["seconds"] = 0
    path.write_text(json.dumps(data))
    with pytest.raises(pto.FileError, match="times must be above zero"):
        results.read(path)


def test_the_targets() -> None:
    met = {goal.what: (round(goal.seen, 3), goal.wanted, goal.met) for goal in goals_of(made_up())}
    assert met == {
        "TPARTMIN f32: times faster than NumPy": (25, 20, True),
        "TPARTMIN i8: times faster than NumPy": (14, 15, False),
        "TROWMIN f16: times faster than NumPy": (12, 10, True),
        "TPARTMIN f32: of a plain copy, full tiles": (0.8, 0.7, True),
        "TPARTMIN f32: one 32x32 tile".replace("32x32", "16x16"): (20, 25, True),
        "pto-gpu --help": (0.2, 0.5, True),
    }
    assert goal_lines(made_up())[0] == "targets: 5 of 6 met"
    assert goal_lines(made_up())[1] == "  missed: TPARTMIN i8: times faster than NumPy: 14 x (wanted at least 15)"


def test_every_instruction_has_a_target_and_few_tiles_none() -> None:
    for name, record in instructions().items():
        for signature in record.element_types["a5"]:
            assert wanted_speed_up(name, "/".join(signature)) in SPEED_UP.values()
    assert wanted_speed_up("TNONE", "f32") is None
    run = made_up()
    run.rows = [dataclasses.replace(r, batch=1000) for r in run.rows if r.sweep in ("types", "full tiles")]
    run.startup = []
    assert goals_of(run) == []


def test_what_must_not_be_trusted() -> None:
    run = made_up()
    assert run.problems() == []
    fast = row("full tiles", "cpu", 0.05)  # its copy takes 0.08 s, the fastest sample 0.0784 s: 1.5 is 0.0523 s
    run.rows = [fast, dataclasses.replace(fast, nbytes=1000, line_bytes=1000, problem="dst is wrong")]
    above, wrong = sorted(run.problems(), key=lambda text: "wrong" in text and "dst" in text)
    assert "moves more than 1.5 of the bytes a second of the fastest copy" in above
    assert wrong == f"{fast.label}: dst is wrong"
    assert not row("full tiles", "cpu", 0.053).above_copy
    assert row("full tiles", "cpu", 0.2, nbytes=100).of_copy(fast.copy.plain) is None


def test_the_tables() -> None:
    shown = {table.title: table for table in tables(made_up())}
    types = shown["Against vectorised NumPy and against a copy"]
    assert types.rows[0] == ("TPARTMIN f32", "cpu", "2000 ± 20", "80.0 ± 0.8", "25.0", "20 met", "0.80", "0.64")
    assert types.rows[1][5] == "15 MISSED"
    assert [len(r) for t in shown.values() for r in t.rows] == [len(t.columns) for t in shown.values() for _ in t.rows]
    assert len(shown) == 7
    batch = shown["Time against batch"]
    assert batch.rows[1][-1] == "5.0"
    assert batch.rows[1][-2] == "0.999"
    assert shown["Threads of the cpu backend"].rows[0][2] == "400 ± 4 (2.00x)"
    assert shown["Overhead"].rows[0][1:] == ("20 us", "25 us met")
    assert summary_table(made_up()).rows[0] == ("TPARTMIN", "14 (i8) to 25 (f32)", "0.80", "20 us", "1.00")
    lines = markdown(types).splitlines()
    assert lines[1] == "| --- | --- | --: | --: | --: | --- | --: | --: |"
    assert machine_lines(made_up())[0].startswith(
        "2026-01-02T03:04:05+00:00: a slow one, 2 cores; pto-gpu 0, numpy 2.0"
    )


def test_the_slope() -> None:
    sizes = [1000, 10_000, 100_000]
    assert slope(sizes, [3 * n**0.5 for n in sizes]) == pytest.approx(0.5)
    assert batch_slope([row("batch", "cpu", 1.0, batch=n) for n in (1, 10, 1000)]) is None


def test_what_changed_beyond_the_spread() -> None:
    before, after = made_up(), made_up()
    after.machine["numpy"] = "2.1"
    after.machine["load after"] = 7
    after.rows[1] = dataclasses.replace(after.rows[1], time=time(0.12))  # 0.08: 1.5 times as long
    after.rows[0] = dataclasses.replace(after.rows[0], time=time(1.99))  # within the spread of 2.0
    after.rows[2] = dataclasses.replace(after.rows[2], time=time(0.0625))  # 0.125: twice as fast
    after.startup[0] = dataclasses.replace(after.startup[0], time=time(0.3))
    del after.rows[-1]
    found = compare(before, after)
    assert [(c.label.partition(",")[0], round(c.ratio, 3)) for c in found.slower] == [
        ("types: TPARTMIN f32 32x32 x 100000", 1.5),
        ("pto-gpu --help", 1.5),
    ]
    assert found.slower[0].beyond == pytest.approx(0.12 * 0.99 / 0.08 - 1.01)
    assert [round(c.ratio, 3) for c in found.faster] == [0.5]
    assert (found.only_before, found.only_after, found.same) == (1, 0, len(before.rows) - 3 + 1)
    lines = comparison_lines(found, before.date)
    assert lines[1] == "  another machine or version: numpy: 2.0 -> 2.1"
    assert "80 -> 120 ms, 1.50 times as long, 47% of the time before lies beyond the spread" in lines[2]
    assert lines[-2] == f"  2 slower, 1 faster, {found.same} within the spread"
    assert lines[-1] == "  only in the old run: 1; only in this one: 0"
    same = compare(before, before)
    assert (same.slower, same.faster, same.differences, same.same) == ([], [], [], len(before.rows) + 2)


def test_samples() -> None:
    found = summary([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found.seconds, found.low, found.high, found.best, found.samples) == (3.0, 2.0, 4.0, 1.0, 5)
    assert found.spread == pytest.approx(2 / 3)
    calls = []
    assert timed(lambda: calls.append(1), 0.01).samples >= 3
    assert len(calls) > 3


@pytest.mark.parametrize("threads", [1, 3])
def test_a_copy_copies_all_of_it(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    made = []
    zeros_like = np.zeros_like
    monkeypatch.setattr(np, "zeros_like", lambda x: made.append(zeros_like(x)) or made[-1])
    source = np.arange(7 * 32, dtype=np.float32).reshape(7, 4, 8) + 1
    copies = Copies(source, threads)
    copies.sample(0.001)
    once = copies.copy
    assert once.nbytes == 2 * source.nbytes
    copies.sample(0.001)
    assert copies.copy.plain.samples > once.plain.samples >= 3
    assert copies.copy.threaded.samples > once.threaded.samples >= 3
    assert all((x == source).all() for x in made)
    assert made


def test_memory_of_a_call() -> None:
    def fresh_pages():  # not from the allocator, which may have some left
        np.frombuffer(mmap.mmap(-1, 1 << 24), np.uint8)[:] = 1

    seen = extra_memory(fresh_pages)
    if seen is None:
        pytest.skip("this system does not say")
    assert (1 << 24) * 0.9 < seen < (1 << 24) * 3
    assert extra_memory(lambda: None) < 1 << 22
