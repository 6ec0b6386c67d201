"""The command line as a user meets it: output, exit status, errors."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pto_gpu import cli
from pto_gpu.campaign import run
from pto_gpu.defaults import BACKENDS, UNDEFINED
from pto_gpu.isa import instructions
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS

DUMPS = Path(__file__).parent / "data" / "simulator"
Inside = Callable[..., tuple[int, str, str]]
COMMAND = [sys.executable, "-c", "from pto_gpu.cli import main; main()"]


def pto_gpu(*arguments, cwd=None):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def inside(capsys, monkeypatch, tmp_path):
    """``pto-gpu`` in this process, in an empty directory: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pto-gpu", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


@pytest.fixture
def wrong_backend(monkeypatch):
    """The backend under test writes a wrong element into tile 5 of each block."""
    real = run.backend_execute

    def wrong(options):
        execute = real(options)

        def run_wrong(call):
            execute(call)
            if call.batch > 5:
                call.tiles[call.instruction.dsts[0].name].data[5, 0, 0] = 99

        return run_wrong

    monkeypatch.setattr(run, "backend_execute", wrong)


# -- validate -----------------------------------------------------------------------------------------


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


def test_a_mismatch_is_shown_saved_and_replayed(inside: Inside, wrong_backend: None, tmp_path: Path) -> None:
    status, out, _ = inside("validate", "TPRELU", "--dtype", "f32", "--tiles", 64, "--save", "there", "--seed", 3)
    assert status == 1
    assert "TPRELU f32 16x16: MISMATCH, 1 element of 1 tile differs" in out
    assert "tile 5 dst(0, 0)" in out
    assert "seen 0x42c60000 (99.0), expected 0x" in out
    path = Path("there/tprelu_f32_seed3_tile5.npz")
    assert (tmp_path / path).exists()
    assert f"pto-gpu replay {path}" in out
    assert "pto.TPRELU(**tiles" in out
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
    assert "not covered: TROWMIN i8 16x32, tiles 0 to 7 (the backend failed)" in out
    assert "\ncovered" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "TPARTMN"], "did you mean TPARTMIN?"),
        (["validate", "--tiles", "0"], "tiles=0 must be at least 1"),
        (["validate", "--tiles", "-5"], "tiles=-5 must be at least 1"),
        (["validate", "--tiles", "nan"], "'--tiles'"),
        (["validate", "--tiles", "1.5"], "'--tiles'"),
        (["validate", "--seed", "-1"], "seed=-1 is out of range"),
        (["validate", "--dtype", "f64"], "element type 'f64' is not known"),
        (["validate", "--dtype", ""], "element type '' is not known"),
        (["validate", "TPRELU", "--dtype", "i8"], "TPRELU: element type i8 is not supported on a5: allowed f16, f32"),
        (["validate", "--dtype", "bf16", "--target", "a2a3"], "no instruction supports element type bf16 on a2a3"),
        (["validate", "--shape", "16"], "'16' is no shape"),
        (["validate", "--shape", "16x16x2"], "is no shape"),
        (["validate", "--shape", "-1x16"], "is no shape"),
        (["validate", "--shape", "16x3"], "32 bytes"),
        (["validate", "--shape", "9" * 5000 + "x8"], "--shape is out of range"),
        (["validate", "--shape", "99999999999999999999x8"], "--shape is out of range"),
        (["check", "a" * 300], "is not known"),
        (["check", "TPARTMIN", "a" * 300], "name too long"),
        (["replay", "a" * 300], "name too long"),
        (["validate", "--target", "a9"], "target='a9' is not known"),
        (["validate", "--numerics", "ieee"], "numerics='ieee' is not known"),
        (["validate", "--undefined", "maybe"], "undefined='maybe' is not known"),
        (["validate", "--backend", "fpga"], "backend='fpga' is not known"),
        (["validate", "--backend", "numpy"], "backend='numpy' is the reference, which would be compared with itself"),
        (["validate", "--no-such-option"], "--no-such-option"),
        (["valdate"], "valdate"),
        ([], "no command given"),
        (["check"], "FILE"),
        (["check", "TPARTMIN"], "no file given"),
        (["check", "absent.npz"], "absent.npz: no such file"),
        (["check", "tpartmin_absent.npz"], "no such file"),
        (["check", "missing.bin"], "no such file"),
        (["check", str(Path(__file__).absolute())], "does not start with an instruction"),
        (["check", "TPARTMIX", "x.npz"], "did you mean TPARTMIN?"),
        (["check", "--outside", "one", "tpartmin.npz"], "--outside 'one' is not known"),
        (["replay", "absent.npz"], "no such file"),
        (["list", "TROWMAX"], "did you mean TROWMIN?"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(inside: Inside, arguments: list[str], message: str) -> None:
    status, out, err = inside(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_error_of_a_fresh_process_has_no_traceback() -> None:
    done = pto_gpu("validate", "--tiles", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: tiles=0 must be at least 1: no tile compared is no success\n"


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
    assert (done.returncode, done.stderr) == (cli.INTERRUPTED, "")
    assert "TPARTMIN f32 16x16: interrupted, equal, " in done.stdout
    assert "\ncovered TPARTMIN: " in done.stdout
    assert "\nnot covered: TPARTMIN f32 16x16, tiles 8192 to 99999999 (interrupted)\n" in done.stdout
    assert "\nnot covered: TROWMIN f32 16x16 (not started)\n" in done.stdout


# -- check ----------------------------------------------------------------------------------------------


def test_check_of_a_file_named_after_its_instruction(inside: Inside) -> None:
    status, out, _ = inside("check", "--numerics", "simulator", DUMPS / "tpartmin_f32.npz")
    assert (status, out.count(": equal, 8 tiles")) == (0, 1)


def test_check_with_the_instruction_named_first(inside: Inside, tmp_path: Path) -> None:
    other = tmp_path / "result 1.npz"
    other.write_bytes((DUMPS / "tprelu_f16.npz").read_bytes())
    status, out, _ = inside("check", "tprelu", other, "--numerics", "simulator", "--json")
    data = json.loads(out)
    assert (status, data["files"][0]["instruction"], data["files"][0]["tiles"]) == (0, "TPRELU", 8)


def test_check_finds_a_wrong_result_and_saves_it(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "trowmin_i16.npz") as archive:
        arrays = dict(archive)
    arrays["dst"][3, 0, 0] -= 1
    np.savez(tmp_path / "trowmin_mine.npz", **arrays)
    status, out, _ = inside("check", "trowmin_mine.npz")
    assert status == 1
    assert "MISMATCH, 8 tiles, 1 element of 1 tile differs" in out
    assert "\n  by category: value 1\n" in out
    rows, cols = arrays["src_valid"][3].tolist()
    assert f"\n  tile 3, valid regions: dst {rows}x1, src {rows}x{cols}\n" in out
    assert "tile 3 dst(0, 0) [value]" in out
    assert "--outside ignore" not in out
    _, out_json, _ = inside("check", "trowmin_mine.npz", "--json", "--save", "again")
    (data,) = json.loads(out_json)["files"]
    assert data["mismatch_categories_sampled"] == {"value": 1}
    assert data["mismatches"][0]["valid_regions"] == {"dst": [rows, 1], "src": [rows, cols]}
    path = "failures/trowmin_i16_trowmin_mine_tile3.npz"
    status, again, _ = inside("replay", path)  # the fault is in the dump, whatever our backends do
    assert status == 1
    assert "TROWMIN i16 trowmin_mine tile 3, the result stored from the dump: MISMATCH, 1 element differs" in again
    status, _, err = inside("check", path)
    assert (status, err) == (2, f"error: {path}: a saved failure: use pto-gpu replay\n")
    status, again, _ = inside("replay", path, "--backend", "cpu")
    assert (status, "backend cpu: equal now" in again) == (0, True)
    (snippet,) = re.findall(r"^import numpy.*tolist\(\)\)$", out, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "dst [[0, 0]]\n"


def test_check_hints_at_outside_ignore_where_nothing_else_differs(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "trowmin_i16.npz") as archive:
        arrays = dict(archive)
    arrays = {name: array[:1] for name, array in arrays.items()}
    arrays["dst"][0, int(arrays["dst_valid"][0, 0]) :] = 5
    np.savez(tmp_path / "trowmin_mine.npz", **arrays)
    hint = "\n  every one is outside the valid region: `--outside ignore` leaves them out\n"
    status, out, _ = inside("check", "trowmin_mine.npz")
    assert (status, hint in out) == (1, True)
    status, out, _ = inside("check", "trowmin_mine.npz", "--outside", "ignore")
    assert (status, out) == (0, "trowmin_mine.npz: TROWMIN i16: equal, 1 tile\n")
    arrays["dst"][0, 0] += 1
    np.savez(tmp_path / "trowmin_mine.npz", **arrays)
    status, out, _ = inside("check", "trowmin_mine.npz")
    assert (status, hint in out) == (1, False)


def test_replay_of_a_dump_ignores_what_the_check_ignored(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "tpartmin_i32.npz") as archive:
        arrays = dict(archive)
    rows, cols = arrays["dst_valid"][2] = arrays["src0_valid"][2] = arrays["src1_valid"][2] = (3, 4)
    arrays["dst"][2, :rows, :cols] = np.minimum(arrays["src0"], arrays["src1"])[2, :rows, :cols]
    arrays["dst"][2, 1, 1] ^= 1
    arrays["dst"][2, rows:] = 77
    np.savez(tmp_path / "tpartmin_mine.npz", **arrays)
    status, out, _ = inside("check", "tpartmin_mine.npz", "--outside", "ignore", "--save", ".")
    assert (status, "1 element of 1 tile differs" in out) == (1, True)
    status, out, _ = inside("replay", "tpartmin_i32_tpartmin_mine_tile2.npz")
    assert (status, "MISMATCH, 1 element differs" in out) == (1, True)


def test_a_bad_file_does_not_hide_the_verdicts_of_the_others(inside: Inside, tmp_path: Path) -> None:
    good = DUMPS / "tpartmin_f32.npz"
    (tmp_path / "tpartmin_bad.npz").write_text("hello")
    arguments = ("check", "--numerics", "simulator", good, "tpartmin_bad.npz", "other.npz", good)
    status, out, err = inside(*arguments)
    assert (status, out.count(": equal, 8 tiles")) == (2, 2)
    assert err.splitlines()[0] == "error: tpartmin_bad.npz: not an .npz file"
    assert len(err.splitlines()) == 2
    status, out, _ = inside(*arguments, "--json")
    data = json.loads(out)
    assert status == data["status"] == 2
    assert [f["error"] is None for f in data["files"]] == [True, False, False, True]
    assert data["files"][0]["equal"]


def test_check_of_no_tiles_is_no_success(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "tpartmin_f32.npz") as archive:
        arrays = {name: array[:0] for name, array in archive.items()}
    np.savez(tmp_path / "tpartmin_none.npz", **arrays)
    assert inside("check", "tpartmin_none.npz") == (2, "", "error: tpartmin_none.npz: no tiles to compare\n")


# -- the rest -------------------------------------------------------------------------------------------


def test_help_answers_without_heavy_imports() -> None:
    probe = (
        "import sys; sys.argv = ['pto-gpu', '--help']\n"
        "import pto_gpu.cli\n"
        "try: pto_gpu.cli.main()\n"
        "finally: print(sorted({'numpy', 'torch', 'numba', 'rich', 'triton'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    for command in ("validate", "check", "replay", "list", "info"):
        assert re.search(rf"^ +{command} ", done.stdout, re.MULTILINE)


def test_help_names_every_backend_target_and_rule_set(inside: Inside) -> None:
    _, out, _ = inside("validate", "--help")
    text = " ".join(out.split())
    for words in ([b for b in BACKENDS if b != "numpy"], TARGETS, UNDEFINED):
        *most, last = words
        assert f"{', '.join(most)} or {last}" in text
    assert ", ".join(NUMERICS) in text


def test_list_imports_neither_torch_nor_numba() -> None:
    probe = (
        "import sys; sys.argv = ['pto-gpu', 'list']\n"
        "import pto_gpu.cli\n"
        "try: pto_gpu.cli.main()\n"
        "finally: print(sorted({'torch', 'numba', 'triton'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_list_shows_every_instruction_with_types_and_constraints(inside: Inside) -> None:
    status, out, _ = inside("list")
    assert status == 0
    for name, record in instructions().items():
        assert name in out
        assert record.page in out
        for rule in (*record.type_rules, *record.region_rules):
            assert rule.text in out
    status, out, _ = inside("list", "tprelu", "--json")
    (data,) = json.loads(out)["instructions"]
    assert data["name"] == "TPRELU"
    assert set(data["element_types"]) == set(TARGETS)


def test_info_and_version(inside: Inside) -> None:
    status, out, _ = inside("info", "--json")
    assert status == 0
    assert json.loads(out)["numpy"] == np.__version__
    status, out, _ = inside("--version")
    assert (status, out.split()[0]) == (0, "pto-gpu")


def test_a_progress_bar_appears_on_a_terminal_only() -> None:
    arguments = ["validate", "TPARTMIN", "--dtype", "i16", "--tiles", "3000", "--backend", "cpu"]
    assert pto_gpu(*arguments).stderr == ""
    parent, child = pty.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=child) as process:
        out, _ = process.communicate(timeout=120)
    assert out.startswith(b"TPARTMIN i16 16x16: equal, ")  # results do not move to the terminal
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    os.close(parent)
    assert "TPARTMIN i16" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["info"],
        ["--help"],
        ["--version"],
        ["check", "--numerics", "simulator", DUMPS / "tpartmin_f32.npz"],
        ["check", "--numerics", "simulator", DUMPS / "tpartmin_f32.npz", "--json"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_output_that_cannot_be_written_is_one_line_and_status_2(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert lines[-1] == "error: [Errno 28] No space left on device"
    assert "Traceback" not in done.stderr


def test_the_status_of_an_error_that_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([*COMMAND, "check", "absent"], stderr=full, check=False).returncode == 2


@pytest.mark.parametrize("command", ["list", "--help", "check"])
def test_a_reader_that_goes_away_is_one_line_and_status_2(command: str) -> None:
    more = ["--numerics", "simulator", str(DUMPS / "tpartmin_f32.npz")] if command == "check" else []
    with subprocess.Popen([*COMMAND, command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"error: the output was not read to its end\n"
    assert process.returncode == 2


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_file_name_that_is_no_text_is_escaped(tmp_path: Path, encoding: str, json: list[str]) -> None:
    name = os.fsdecode(b"tpartmin_\xff.npz")
    (tmp_path / name).write_bytes((DUMPS / "tpartmin_f32.npz").read_bytes())
    done = subprocess.run(
        [*COMMAND, "check", "--numerics", "simulator", name, *json],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0
    assert b"tpartmin_\\udcff.npz: TPARTMIN f32: equal" in (done.stderr if json else done.stdout)


@pytest.mark.parametrize("error", [MemoryError(), OSError("disk on fire")])
def test_no_memory_and_what_the_system_refuses_are_one_line(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(options):
        del options

        def execute(call):
            raise error

        return execute

    def raises(*_):
        raise error

    monkeypatch.setattr(run, "backend_execute", broken if isinstance(error, MemoryError) else raises)
    status, out, err = inside("validate", "TROWMIN", "--dtype", "i8", "--tiles", 8)
    assert (status, out, err) == (2, "", f"error: {str(error) or 'out of memory'}\n")
