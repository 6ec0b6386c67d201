"""What every command has in common: output, exit status, errors; and ``list`` and ``info``."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND, DUMPS, Inside, pto_gpu

from pto_gpu.campaign import run
from pto_gpu.defaults import BACKENDS, UNDEFINED
from pto_gpu.isa import instructions
from pto_gpu.numerics import NUMERICS
from pto_gpu.targets import TARGETS


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


def answer_without(modules: set[str], word: str) -> str:
    """What ``pto-gpu WORD`` prints in a fresh process, which must not have imported any of the modules."""
    probe = (
        f"import sys; sys.argv = ['pto-gpu', {word!r}]\n"
        "import pto_gpu.cli\n"
        "try: pto_gpu.cli.main()\n"
        f"finally: print(sorted({modules!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    return done.stdout


def test_help_answers_without_heavy_imports() -> None:
    out = answer_without({"numpy", "torch", "numba", "rich", "triton"}, "--help")
    for command in ("validate", "run", "check", "replay", "bench", "list", "info"):
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


def test_help_names_every_backend_target_and_rule_set(inside: Inside) -> None:
    _, out, _ = inside("validate", "--help")
    text = " ".join(out.split())
    for words in (BACKENDS, TARGETS, UNDEFINED):
        *most, last = words
        assert f"{', '.join(most)} or {last}" in text
    assert ", ".join(NUMERICS) in text


def test_list_imports_neither_torch_nor_numba() -> None:
    assert "TPARTMIN" in answer_without({"torch", "numba", "triton"}, "list")


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
