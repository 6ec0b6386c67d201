"""``pto-gpu validate``, and ``replay`` of what it saved."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import COMMAND, Inside

from pto_gpu.campaign import run
from pto_gpu.commands import validate
from pto_gpu.commands.output import INTERRUPTED
from pto_gpu.isa import instructions


def test_validate_runs_everything_by_default_and_says_what_it_covered(inside: Inside) -> None:
    status, out, err = inside("validate", "--tiles", 40, "--seed", 7, "--backend", "cpu")
    assert (status, err) == (0, "")
    combinations = [(op, s) for op, r in instructions().items() for s in r.element_types["a5"]]
    for op, signature in combinations:
        assert re.search(rf"^{op} {'/'.join(signature)} 16x(16|32): equal, 40 tiles, ", out, re.MULTILINE)
    assert f"{len(combinations)} combinations of element types, {40 * len(combinations)} tiles in " in out
    assert "target a5, numerics isa (nan=propagate, tie=src1, zero=product), backend cpu, seed 7" in out
    assert re.search(r"value operands [^:]*: [^:]*special \d+", out)
    assert "one off a 32-byte edge" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_validate_json_is_one_object_and_all_else_is_on_stderr(inside: Inside) -> None:
    status, out, err = inside("validate", "trowmin", "--dtype", "f16", "--tiles", 100, "--json", "--numerics", "formal")
    data = json.loads(out)
    assert status == data["status"] == 0
    (campaign,) = data["campaigns"]
    assert (campaign["instruction"], campaign["types"], campaign["tiles"]) == ("TROWMIN", ["f16"], 100)
    assert (campaign["numerics"], campaign["equal"], campaign["shape"]) == ("formal", True, [16, 16])
    assert "TROWMIN f16 16x16: equal" in err


def test_validate_targets_shapes_and_pairs(inside: Inside) -> None:
    status, out, _ = inside("validate", "TPARTMIN", "tpartargmin", "--target", "a2a3", "--tiles", 9, "--shape", "3x32")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == [
        "TPARTMIN i32 3x32",
        "TPARTMIN i16 3x32",
        "TPARTMIN f16 3x32",
    ]
    status, _, _ = inside("validate", "TROWMIN", "TPRELU", "--target", "a2a3", "--tiles", 9, "--undefined", "zero")
    assert status == 0
    status, out, _ = inside("validate", "--dtype", "f16/u16", "--tiles", 9)
    assert (status, out.splitlines()[0].split(":")[0]) == (0, "TPARTARGMIN f16/u16 16x16")


def test_validate_runs_every_element_type_that_is_named(inside: Inside) -> None:
    chosen = ["--dtype", "i8", "--dtype", "f32", "--dtype", "int8_t", "--tiles", 9]
    status, out, _ = inside("validate", "TPARTMIN", *chosen)
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["TPARTMIN i8 16x32", "TPARTMIN f32 16x16"]
    assert "2 combinations of element types, 18 tiles in " in out
    status, out, _ = inside("validate", "TROWMIN", "TPARTMIN", *chosen)
    names = [line.split(":")[0].rsplit(" ", 1)[0] for line in out.splitlines()[:4]]
    assert (status, names) == (0, ["TROWMIN i8", "TROWMIN f32", "TPARTMIN i8", "TPARTMIN f32"])
    status, out, err = inside("validate", "TPRELU", *chosen)
    assert (status, out) == (2, "")
    assert err == "error: TPRELU: element type i8 is not supported on a5: allowed f16, f32\n"


def test_a_mismatch_is_shown_saved_and_replayed(inside: Inside, wrong_backend: None, tmp_path: Path) -> None:
    status, out, _ = inside("validate", "TPRELU", "--dtype", "f32", "--tiles", 64, "--save", "there", "--seed", 3)
    assert status == 1
    assert "TPRELU f32 16x16: MISMATCH, 1 element of 1 tile differs" in out
    assert re.search(r"\n  tile 5, valid regions: [^\n]*\n    dst\(0, 0\) ", out)
    assert "seen 0x42c60000 (99.0), expected 0x" in out
    path = Path("there/tprelu_f32_seed3_tile5.npz")
    assert (tmp_path / path).exists()
    assert f"pto-gpu replay {path}" in out
    status, out, _ = inside("replay", path)  # a batch of one: the wrong backend is right on it
    assert (status, out.strip()) == (0, "TPRELU f32 seed3 tile 5, backend cpu: equal now")


def test_replay_shows_a_failure_that_is_still_there(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, wrong_backend: None
) -> None:
    inside("validate", "TPARTMIN", "--dtype", "i32", "--tiles", 8, "--save", ".")

    def still_wrong(options):
        del options
        return lambda call: call.tiles["dst"].data.fill(99)

    monkeypatch.setattr(run, "backend_execute", still_wrong)
    (path,) = Path().glob("*.npz")
    status, out, err = inside("replay", path, "--json", "--backend", "numpy")
    data = json.loads(out)
    assert status == data["status"] == 1
    assert data["mismatches"][0]["tile"] == 5
    assert "backend numpy: MISMATCH" in err


def test_a_mismatch_is_reported_where_nothing_can_be_saved(inside: Inside, wrong_backend: None) -> None:
    Path("taken").write_text("a file")
    status, out, _ = inside("validate", "TPARTMIN", "--dtype", "u8", "--tiles", 8, "--save", "taken")
    assert status == 1
    assert "the failing tile was not saved: " in out
    assert "seen 0x63 (99)" in out


def test_a_backend_that_raises_is_exit_status_1(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options):
        del options

        def execute(call):
            raise RuntimeError("device lost")

        return execute

    monkeypatch.setattr(run, "backend_execute", broken)
    status, out, err = inside("validate", "TROWMIN", "--dtype", "i8", "--tiles", 8)
    assert (status, err) == (1, "")
    assert "TROWMIN i8 16x32: FAILED on tiles 0 to 7: RuntimeError: device lost" in out
    assert "run it again: pto-gpu replay failures/trowmin_i8_seed20250101_tile0.npz\n" in out
    assert "not covered: TROWMIN i8 16x32, tiles 0 to 7 (the backend failed)" in out
    assert "\ncovered" not in out


def test_ctrl_c_prints_the_results_so_far_and_exits_130() -> None:
    script = (
        "import signal, sys\n"
        "from pto_gpu import cli\n"
        "from pto_gpu.campaign.results import Result\n"
        "add = Result.add\n"
        "def interrupted(result, wave):\n"
        "    add(result, wave)\n"
        "    if result.tiles == 8192: signal.raise_signal(signal.SIGINT)\n"
        "Result.add = interrupted\n"
        "sys.argv = 'pto-gpu validate TPARTMIN TROWMIN --dtype f32 --tiles 100000000 --backend cpu'.split()\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")
    assert "TPARTMIN f32 16x16: interrupted, equal, " in done.stdout
    assert "\ncovered TPARTMIN: " in done.stdout
    assert "\nnot covered: TPARTMIN f32 16x16, tiles 8192 to 99999999 (interrupted)\n" in done.stdout
    assert "\nnot covered: TROWMIN f32 16x16 (not started)\n" in done.stdout


def test_exhaustive_runs_say_what_they_covered_and_what_not(inside: Inside) -> None:
    status, out, _ = inside("validate", "TPARTMIN", "TROWMIN", "--dtype", "i8", "--exhaustive")
    assert status == 0
    assert "TPARTMIN i8 exhaustive: equal, 65 536 pairs, " in out
    assert "TPARTMIN i8 exhaustive: every pair of src0 and src1, 65 536 pairs" in out
    assert "seed" not in out
    assert "profile" not in out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "_run_all", lambda runs: iter(()))
        status, out, _ = inside("validate", "TPRELU", "--exhaustive")
    assert "not covered: TPRELU f16 exhaustive (not started)" in out
    assert "not covered: TPRELU f32: 2**64 combinations" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TPARTMIN", "--dtype", "f32"], "TPARTMIN f32: 2**64 combinations of values are too many"),
        (["TPARTMIN", "--dtype", "i8", "--tiles", "5"], "--tiles is not for --exhaustive"),
        (["TPARTMIN", "--dtype", "i8", "--shape", "16x16"], "--shape is not for --exhaustive"),
        (["TPARTMIN", "--dtype", "i8", "--seed", "5"], "--seed is not for --exhaustive"),
    ],
)
def test_what_exhaustive_runs_refuse(inside: Inside, arguments: list[str], message: str) -> None:
    status, out, err = inside("validate", "--exhaustive", *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_the_progress_of_an_exhaustive_run_has_rate_and_time_left() -> None:
    parent, child = pty.openpty()
    arguments = ["validate", "TPARTMIN", "--dtype", "f16", "--exhaustive", "--backend", "cpu"]
    environment = {**os.environ, "COLUMNS": "150"}
    shown = b""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=child, env=environment) as process:
        while not re.search(rb"[1-9][0-9 ]* pairs/s.*[0-9]:[0-9][0-9]:[0-9][0-9]", shown):
            shown += os.read(parent, 100_000)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    os.close(child)
    os.close(parent)
    assert process.returncode == INTERRUPTED
    assert b"NOT every pair of src0 and src1: " in out


def test_ctrl_c_between_two_campaigns_keeps_the_results(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run.backend_execute
    started = []

    def pressed(options):
        started.append(options)
        if len(started) == 2:
            raise KeyboardInterrupt
        return real(options)

    monkeypatch.setattr(run, "backend_execute", pressed)
    status, out, err = inside("validate", "TPARTMIN", "TROWMIN", "TPRELU", "--dtype", "f32", "--tiles", 8)
    assert (status, err) == (INTERRUPTED, "")
    assert "TPARTMIN f32 16x16: equal, 8 tiles, " in out
    assert "not covered: TROWMIN f32 16x16, tiles 0 to 7 (interrupted)" in out
    assert "not covered: TPRELU f32 16x16 (not started)" in out
