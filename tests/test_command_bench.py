"""``pto-gpu bench``: its options, tiny runs, Ctrl-C. Nothing here depends on how long something takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench_runs import made_up
from command_line import Inside

import pto_gpu as pto
from pto_gpu.bench import plots, results, run, table
from pto_gpu.bench.results import StartUp
from pto_gpu.bench.startup import start_up
from pto_gpu.bench.timing import summary
from pto_gpu.isa import instructions


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps of a few tiles, and no fresh processes."""
    sweeps = (
        table.Sweep(table.TYPES, "", (table.NUMPY, table.CPU), ("random",), ((32, 32),), (10,), every_type=True),
        table.Sweep(table.BATCH, "", (table.CPU,), ("random",), ((8, 8),), (1, 10), memory=True),
        table.Sweep(table.THREADS, "", (table.CPU,), ("full",), ((32, 32),), (300,), each_thread=True),
    )
    monkeypatch.setattr(table, "SWEEPS", sweeps)
    monkeypatch.setattr(table, "quick", lambda sweep: sweep)
    monkeypatch.setattr(run, "LIMIT", 0.001)
    monkeypatch.setattr(run, "start_up", lambda repeats, advance: [StartUp("nothing", summary([1.0]))])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "TPARTMN"], "did you mean TPARTMIN?"),
        (["--dtype", "f64"], "element type 'f64' is not known"),
        (["--op", "TPRELU", "--dtype", "i8"], "TPRELU: element type i8 is not supported on a5: allowed f16, f32"),
        (["--json", "missing/run.json"], "missing/run.json: cannot be written: No such file or directory"),
        (["--json", "folder"], "folder: cannot be written: Is a directory"),
        (["--json", "file/run.json"], "file/run.json: cannot be written: Not a directory"),
        (["--plot", "file"], "file: cannot be written: Not a directory"),
        (["--plot", "file/plots"], "file/plots: cannot be written: Not a directory"),
        (["--compare", "missing.json"], "missing.json: no such file"),
        (["--compare", "file"], "file: not a JSON file"),
        (["--compare", "folder"], "folder: cannot be read: Is a directory"),
        (["--from", "file"], "file: not a JSON file"),
        (["--from", "run.json", "--quick"], "--quick is not for --from, which measures nothing"),
        (["--from", "run.json", "--json", "other.json"], "--json is not for --from"),
        (["--from", "run.json", "--op", "TPRELU"], "--op is not for --from"),
        (["--no-such-option"], "--no-such-option"),
        (["TPARTMN"], "did you mean TPARTMIN?"),
        (["--json", "TPARTMN.json", "TPRELU", "--dtype", "i8"], "TPRELU: element type i8 is not supported on a5"),
        (["--from", "run.json", "TPRELU"], "OP is not for --from"),
        (["--from", "run.json", "--json"], "--json is not for --from"),
    ],
)
def test_what_is_refused_before_anything_is_measured(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    Path("file").write_text("text")
    Path("folder").mkdir()
    results.write(made_up(), Path("run.json"))
    monkeypatch.setattr(run, "measure", lambda *_, **__: pytest.fail("measured"))
    status, out, err = inside("bench", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(p.name for p in Path().iterdir()) == ["file", "folder", "run.json"]
    assert not list(Path("folder").iterdir())


@pytest.mark.usefixtures("tiny")
def test_a_tiny_run(inside: Inside) -> None:
    status, out, err = inside("bench", "--json", "run.json")
    assert (status, err) == (0, "")
    data = json.loads(Path("run.json").read_text())
    measured = {(r["instruction"], r["elements"], r["provider"]) for r in data["rows"] if r["sweep"] == "types"}
    every = [(name, "/".join(s)) for name, record in instructions().items() for s in record.element_types["a5"]]
    assert measured == {(*which, provider) for which in every for provider in ("numpy", "cpu")}
    assert (data["problems"], data["notes"], data["interrupted"], data["quick"]) == ([], [], False, False)
    assert {"numpy", "torch", "cores", "processor", "load before", "load after"} <= set(data["machine"])
    for name, elements in every:
        assert f"{name} {elements}" in out
    status, again, _ = inside("bench", "--from", "run.json", "--compare", "run.json")
    assert status == 0
    assert again.startswith(out)
    assert f"0 slower, 0 faster, {len(data['rows']) + 1} within the spread" in again


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "ops",
    [
        "--op tpartmin --op TROWMIN --json run.json",
        "tpartmin TROWMIN --json run.json",
        "--op TROWMIN --json run.json tpartmin",
    ],
)
def test_chosen_instructions_and_types(inside: Inside, ops: str) -> None:
    assert inside("bench", "--dtype", "f16", "--dtype", "i32", "--quick", *ops.split())[0] == 0
    data = json.loads(Path("run.json").read_text())
    measured = {(r["instruction"], r["elements"]) for r in data["rows"] if r["sweep"] == "types"}
    assert measured == {(op, dtype) for op in ("TPARTMIN", "TROWMIN") for dtype in ("f16", "i32")}
    assert data["quick"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("json_option", [["--json"], ["--json", "-"], ["--json=-"], ["--json", "--quick"]])
def test_json_without_a_file_is_the_one_object_on_stdout(inside: Inside, json_option: list[str]) -> None:
    results.write(made_up(), Path("old.json"))
    status, out, err = inside("bench", "tpartmin", "--dtype", "f32", "--compare", "old.json", *json_option)
    assert status == 0
    data = json.loads(out)
    assert {(r["instruction"], r["elements"]) for r in data["rows"]} == {("TPARTMIN", "f32")}
    assert data["quick"] == ("--quick" in json_option)
    assert "TPARTMIN f32" in err
    assert "within the spread" in err
    assert [p.name for p in Path().iterdir()] == ["old.json"]
    Path("run.json").write_text(out)
    assert {row.instruction for row in results.read(Path("run.json")).rows} == {"TPARTMIN"}


@pytest.mark.usefixtures("tiny")
def test_an_instruction_after_json_is_no_file_unless_it_is_said_to_be(inside: Inside) -> None:
    status, out, _ = inside("bench", "--json", "tprelu", "--dtype", "f32")
    assert (status, {r["instruction"] for r in json.loads(out)["rows"]}) == (0, {"TPRELU"})
    assert not list(Path().iterdir())
    status, out, _ = inside("bench", "--json=tprelu", "TPARTMIN", "--dtype", "f32")
    assert (status, "TPARTMIN f32" in out) == (0, True)
    assert {row.instruction for row in results.read(Path("tprelu")).rows} == {"TPARTMIN"}


@pytest.mark.usefixtures("tiny")
def test_a_shape_that_a_type_cannot_have_is_left_out_and_named(inside: Inside) -> None:
    status, out, _ = inside("bench", "--op", "TPARTMIN", "--dtype", "i8")
    assert status == 0
    assert "batch: TPARTMIN i8 8x8 left out: " in out
    assert "32 bytes" in out


@pytest.mark.usefixtures("tiny")
def test_wrong_results_are_an_error(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_gpu.bench.providers import PROVIDERS, Provider

    lazy = Provider("cpu", "does nothing", lambda work: lambda: None)
    monkeypatch.setitem(PROVIDERS, "cpu", lazy)
    status, out, _ = inside("bench", "--op", "TPARTMIN", "--dtype", "f32", "--json", "run.json")
    assert status == 1
    assert "ERROR: types: TPARTMIN f32 32x32 x 10, random, cpu: dst is not what the reference computes in 10" in out
    assert json.loads(Path("run.json").read_text())["problems"]


@pytest.mark.usefixtures("tiny")
def test_who_cannot_run_is_left_out_and_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_gpu.bench.providers import PROVIDERS, Provider

    def broken(work: object) -> None:
        raise RuntimeError("no compiler\nhere")

    monkeypatch.setitem(PROVIDERS, "cpu", Provider("cpu", "breaks", broken))
    monkeypatch.setitem(PROVIDERS, "numpy", Provider("numpy", "has no code", lambda work: None))
    status, out, _ = inside("bench", "--op", "TPARTMIN", "--dtype", "f32")
    assert status == 0
    assert "types: TPARTMIN f32: cpu left out: no compiler\n" in out
    assert "types: TPARTMIN f32: numpy has no code for it" in out


@pytest.mark.usefixtures("tiny")
def test_ctrl_c_shows_what_was_measured(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    real, groups = run._measure_group, []

    def interrupted(result: results.Run, group: table.Group, limit: float) -> None:
        groups.append(group)
        if len(groups) == 3:
            raise KeyboardInterrupt
        real(result, group, limit)

    monkeypatch.setattr(run, "_measure_group", interrupted)
    status, out, _ = inside("bench", "--json", "run.json")
    assert status == 130
    assert "interrupted: what was measured until then" in out
    assert f"{groups[1].instruction} {'/'.join(groups[1].signature)}" in out
    found = results.read(Path("run.json"))
    assert found.interrupted
    assert len(found.rows) == 4


def test_plots_and_a_comparison_of_saved_runs(inside: Inside) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra plot")
    results.write(made_up(), Path("run.json"))
    status, out, err = inside("bench", "--from", "run.json", "--plot", "new/plots", "--compare", "run.json")
    assert (status, err) == (0, "")
    assert "new/plots/speed_up.png\n" in out
    assert {p.stem for p in Path("new/plots").iterdir()} == set(plots.PLOTS)


def test_the_start_up_is_measured_in_fresh_processes() -> None:
    told: list[str] = []
    found = list(start_up(1, told.append))
    assert [s.wanted for s in found] == [0.5, 0.3, None, None]
    assert [s.time.samples for s in found] == [1] * 4
    assert len(told) == 3


def test_the_command_imports_nothing_heavy_until_it_runs() -> None:
    probe = (
        "import sys, pto_gpu.commands.bench\n"
        "print(sorted({'numpy', 'torch', 'numba', 'rich', 'matplotlib', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n")


@pytest.mark.usefixtures("tiny")
def test_a_start_up_that_fails_keeps_what_was_measured(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(repeats: int, advance: object) -> list[StartUp]:
        raise pto.BackendError("a fresh process failed: no")

    monkeypatch.setattr(run, "start_up", broken)
    status, out, _ = inside("bench", "--op", "TPARTMIN", "--dtype", "f32")
    assert status == 0
    assert "TPARTMIN f32" in out
    assert "start-up left out: a fresh process failed: no" in out
