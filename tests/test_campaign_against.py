"""Somebody's own function as the side under test."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from command_line import COMMAND

import pto_gpu as pto
from pto_gpu.campaign.against import Implementation, TileCall, load
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.reports.diagnosis import failure_text
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign

README = (Path(__file__).parent.parent / "README.md").read_text()
MINE, SUITE = re.findall(r"```python\n(.*?)```", README.split("### Validate your own implementation")[1], re.DOTALL)[:2]


def of_call(call: TileCall) -> None:
    """What a call asks for, by pto-gpu itself on tiles of its own."""
    names = [o for o in call.arrays if o in ("dst", "dst_val", "dst_idx")]
    tiles = {}
    for name, x in call.arrays.items():
        column = x.shape[2] == 1
        dtype = "bf16" if x.dtype == ml_dtypes.bfloat16 else f"{x.dtype.kind}{8 * x.itemsize}"
        ty = pto.TileBufType(dtype, *x.shape[1:], blayout="col_major" if column else "row_major")
        given = x if name in names else x.copy()
        tiles[name] = pto.TileBuf.from_array(given, ty, call.valid[name][:, 0], call.valid[name][:, 1])
    keywords: dict[str, Any] = {"target": call.target, "numerics": call.numerics, "undefined": call.undefined}
    getattr(pto, call.instruction)(**tiles, backend="cpu", **keywords)


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [
        ("TPARTMIN", ("bf16",)),
        ("TPARTMIN", ("u8",)),
        ("TPARTARGMIN", ("f16", "u16")),
        ("TROWMIN", ("f32",)),
        ("TPRELU", ("f32",)),
    ],
)
def test_a_right_function_is_equal(op: str, dtypes: tuple[str, ...]) -> None:
    campaign = Campaign(op, dtypes, tiles=1500, numerics="formal", undefined="zero", target="a5")
    result = run_campaign(campaign, Implementation(of_call))
    assert result.crash is None
    assert result.equal
    assert result.backend.endswith("test_campaign_against:of_call")


def test_what_a_function_gets() -> None:
    calls: list[TileCall] = []
    found: dict[str, Any] = {}

    def look(call):
        calls.append(call)
        found.update({name: (x.shape, x.dtype) for name, x in call.arrays.items()})
        found["poison"] = set(call.arrays["dst"].view(np.uint8).ravel().tolist())
        found["inside"] = call.inside("src0").sum(axis=(1, 2)).tolist()
        of_call(call)

    campaign = Campaign("TPARTMIN", ("bf16",), shape=(4, 32), tiles=50, target="a5", numerics="a5", undefined="zero")
    assert run_campaign(campaign, Implementation(look)).equal
    (call,) = calls
    assert (call.instruction, call.target, call.undefined) == ("TPARTMIN", "a5", "zero")
    assert call.numerics == pto.Numerics("propagate", "src0", "keep")
    bf16 = np.dtype(ml_dtypes.bfloat16)
    assert [found[name] for name in ("dst", "src0", "src1")] == [((50, 4, 32), bf16)] * 3
    assert found["poison"] == {0xA5}
    assert {name: (x.shape, x.dtype) for name, x in call.valid.items()} == {
        name: ((50, 2), np.dtype(np.int32)) for name in ("dst", "src0", "src1")
    }
    assert found["inside"] == call.valid["src0"].prod(axis=1).tolist()


def crash(function, tiles=60, label="mine:f"):
    result = run_campaign(Campaign("TPARTMIN", ("i32",), tiles=tiles), Implementation(function, label))
    assert not result.equal
    assert (result.crash.first, result.crash.last) == (0, tiles - 1)
    assert f"FAILED on tiles 0 to {tiles - 1}: {result.crash.error}" in report.result_line(result)
    return result.crash.error


def test_a_function_that_raises_is_reported_with_its_line() -> None:
    def raises(call):
        of_call(call)
        return [][3]

    line = raises.__code__.co_firstlineno + 2
    error = crash(raises)
    assert error == f"RaisedError: mine:f: IndexError: list index out of range (test_campaign_against.py, line {line})"


class NoException(BaseException):
    """As pytest.skip and pytest.fail raise."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(0),
        pto.BackendError("mine"),
        RuntimeError("several\nlines"),
        KeyError(),
        NoException(),
        GeneratorExit(),
    ],
)
def test_whatever_a_function_raises_is_its_failure(error: BaseException) -> None:
    def raises(call):
        raise error

    assert crash(raises).startswith(f"RaisedError: mine:f: {type(error).__name__}: ")
    assert "\n" not in crash(raises)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("end", ["return", "raise ValueError"])
def test_a_forked_child_does_not_go_on_with_the_campaign(tmp_path: Path, end: str) -> None:
    (tmp_path / "forks_x.py").write_text(
        "import os\n"
        "def f(call):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        f"        {end}\n"
        "    print('child ended with', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [*COMMAND, "validate", "tpartmin", "--dtype", "i32", "--tiles", "40", "--against", "forks_x:f"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("child ended with 1\n")
    assert done.stdout.count("MISMATCH") == 1


def test_a_function_that_returns_something_is_reported() -> None:
    def returns(call):
        of_call(call)
        return call.arrays["dst"]

    assert crash(returns) == "BrokenContractError: mine:f returned a ndarray: allowed None, results go into call.arrays"


def test_a_function_that_writes_to_a_source_is_reported() -> None:
    def writes(call):
        of_call(call)
        call.arrays["src1"][3, 0, 0] ^= 1

    assert crash(writes) == "BrokenContractError: mine:f wrote to src1, a source: allowed dst only"


def test_a_function_that_puts_another_array_in_the_place_of_dst_is_reported() -> None:
    def replaces(call):
        call.arrays["dst"] = call.arrays["dst"] + 1

    assert crash(replaces) == "BrokenContractError: mine:f put another array into call.arrays['dst']: write into it"


def together(concurrent):
    """The most calls of one function that ran at the same time, with four workers."""
    running, most, lock = [0], [0], threading.Lock()

    def function(call):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        of_call(call)
        with lock:
            running[0] -= 1

    if concurrent is not None:
        function.concurrent = concurrent
    campaign = Campaign("TPARTMIN", ("i32",), shape=(128, 128), tiles=160, workers=4)
    assert run_campaign(campaign, Implementation(function)).equal
    return most[0]


def test_a_function_is_called_by_one_thread_at_a_time_unless_it_says_otherwise() -> None:
    assert together(None) == 1
    assert together(False) == 1
    assert together(True) > 1


def test_only_what_can_be_called_is_an_implementation() -> None:
    with pytest.raises(pto.TypeMismatch, match="mine:f is a int: allowed a function of one TileCall"):
        Implementation(3, "mine:f")  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory, and what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("mine_x", pto.ConstraintError, "'mine_x' names no function: allowed package.module:function"),
        ("mine_x:", pto.ConstraintError, "names no function"),
        (":f", pto.ConstraintError, "names no function"),
        ("./mine_x.py:f", pto.ConstraintError, "names no function"),
        ("absent_x:f", pto.BackendError, "no module named absent_x in .* or among installed packages"),
        ("mine_x.sub:f", pto.BackendError, "mine_x.sub cannot be imported|no module named mine_x.sub"),
        ("needs_x:f", pto.BackendError, "needs_x cannot be imported: ModuleNotFoundError: No module named 'absent_y'"),
        ("broken_x:f", pto.BackendError, r"broken_x cannot be imported: ZeroDivisionError: .* \(broken_x.py, line 2\)"),
        ("syntax_x:f", pto.BackendError, "syntax_x cannot be imported: SyntaxError"),
        ("quits_x:f", pto.BackendError, "quits_x cannot be imported: SystemExit: 3"),
        ("skips_x:f", pto.BackendError, "skips_x cannot be imported: Skipped: not here"),
        ("odd_x:f.g", pto.BackendError, r"odd_x:f.g: 'g' of odd_x.f cannot be had: ValueError: g \(odd_x.py, line 3\)"),
        ("mine_x:g", pto.BackendError, "mine_x:g: mine_x has no 'g'"),
        ("mine_x:f.g", pto.BackendError, "mine_x:f.g: mine_x.f has no 'g'"),
        ("mine_x:three", pto.TypeMismatch, "mine_x:three is a int"),
    ],
)
def test_a_name_that_is_no_function_is_one_clear_error(here: Path, spec: str, error: type, message: str) -> None:
    (here / "mine_x.py").write_text("three = 3\ndef f(call): pass\n")
    (here / "needs_x.py").write_text("import absent_y\n")
    (here / "broken_x.py").write_text("x = 1\nx / 0\n")
    (here / "syntax_x.py").write_text("def f(:\n")
    (here / "quits_x.py").write_text("import sys\nsys.exit(3)\n")
    (here / "skips_x.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)\n")
    odd = "class M(type):\n    def __getattr__(cls, name):\n        raise ValueError(name)\n"
    (here / "odd_x.py").write_text(f"{odd}class f(metaclass=M): pass\n")
    with pytest.raises(error, match=message):
        load(spec)


def test_a_function_is_found_in_the_current_directory_and_in_objects(here: Path) -> None:
    (here / "pack_x").mkdir()
    (here / "pack_x" / "mod.py").write_text("class C:\n    @staticmethod\n    def f(call): raise KeyError('f')\n")
    found = load("pack_x.mod:C.f")
    assert found.label == "pack_x.mod:C.f"
    result = run_campaign(Campaign("TPARTMIN", ("i32",), tiles=3), found)
    assert result.crash.error == "RaisedError: pack_x.mod:C.f: KeyError: 'f' (mod.py, line 3)"


# -- what the README shows ---------------------------------------------------------------------------------


def test_the_example_of_the_readme_is_equal_and_explained(here: Path, inside: Any) -> None:
    (here / "mine.py").write_text(MINE)
    command = ("validate", "tpartmin", "--tiles", 3000, "--against", "mine:tpartmin", "--dtype")
    status, out, err = inside(*command, "i32")
    assert (status, err) == (0, "")
    assert out.startswith("TPARTMIN i32 16x16: equal, 3000 tiles")
    assert "backend mine:tpartmin" in out
    status, out, _ = inside(*command, "f32")
    assert status == 1
    shown = README.split("--dtype f32 --against mine:tpartmin\n")[1].split("```")[0].replace("seen ...", "seen")
    for line in shown.splitlines()[1:]:
        assert f"\n{line}" in out
    path = "failures/tpartmin_f32_seed20250101_shrunk_tile0.npz"
    status, out, _ = inside("replay", path, "--against", "mine:tpartmin")
    assert status == 1
    assert "shrunk tile 0, mine:tpartmin: MISMATCH, 1 element differs" in out
    status, out, _ = inside("replay", path)
    assert (status, "the result stored from mine:tpartmin: MISMATCH, 1 element differs" in out) == (1, True)
    status, out, _ = inside("replay", path, "--backend", "cpu")
    assert (status, "backend cpu: equal now" in out) == (0, True)


def test_the_test_of_the_readme_passes_and_its_message_explains(here: Path) -> None:
    (here / "mine.py").write_text(MINE)
    namespace: dict[str, Any] = {}
    sys.path.insert(0, str(here))
    exec(SUITE, namespace)
    namespace["test_tpartmin"]()
    wrong = SUITE.replace('"simulator"', '"isa"').replace("20_000", "2000")
    exec(wrong, namespace)
    with pytest.raises(AssertionError, match="equals `simulator` in all 2000 tiles") as caught:
        namespace["test_tpartmin"]()
    assert "\n  cause: NaN and signed zeros by plain compare and select" in str(caught.value)


def test_the_text_of_a_failure_has_everything(here: Path) -> None:
    (here / "mine.py").write_text(MINE)
    mine = load("mine:tpartmin")
    result = run_campaign(Campaign("TPARTMIN", ("f32",), tiles=100), mine)
    text = failure_text(result, mine)
    assert text.startswith("TPARTMIN f32 16x16: MISMATCH, ")
    assert "\n  shrunk to " in text
