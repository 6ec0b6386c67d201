"""``validate --against``, and what ``validate``, ``check`` and ``replay`` say about a mismatch."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND, DUMPS, Inside, pto_gpu
from mutants import regions

from pto_gpu import backends
from pto_gpu.campaign import Campaign, Result, run
from pto_gpu.campaign.files import saved
from pto_gpu.campaign.reproduce import crashed_tile
from pto_gpu.campaign.results import Crash
from pto_gpu.commands.output import INTERRUPTED

SHORT = "dst's valid region taken one column short"


@pytest.fixture
def short_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cpu backend leaves out the last column."""
    real = run.backend_execute
    monkeypatch.setattr(run, "backend_execute", lambda o: regions({"dst": (0, -1)}) if o.backend == "cpu" else real(o))


@pytest.mark.parametrize(
    ("backend", "against"),
    [("cpu", "numpy"), ("numpy", "cpu"), ("triton", "cpu"), ("numpy", "auto"), ("auto", "triton")],
)
def test_any_two_backends(inside: Inside, backend: str, against: str) -> None:
    arguments = ("validate", "tpartargmin", "--dtype", "f16/u16", "--tiles", 24, "--shape", "4x16")
    status, out, err = inside(*arguments, "--backend", backend, "--against", against)
    assert (status, err) == (0, "")
    assert "TPARTARGMIN f16/u16 4x16: equal, 24 tiles" in out
    resolved = {"auto": "cpu"}
    names = [resolved.get(name, name) for name in (backend, against)]
    assert (f"backend {names[0]} against {names[1]}" if names[1] != "numpy" else "backend cpu, seed") in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--backend", "cpu", "--against", "cpu"),
            "backend='cpu' would be compared with itself: allowed numpy, triton",
        ),
        (
            ("--backend", "cpu", "--against", "auto"),
            "backend='cpu' would be compared with itself: allowed numpy, triton",
        ),
        (("--against", "cpu"), "backend='cpu' would be compared with itself"),
        (("--backend", "numpy"), "backend='numpy' is the reference, which would be compared with itself"),
        (("--against", "gpu"), "--against 'gpu' is not known: allowed auto, numpy, cpu, triton, or a function"),
        (("--backend", "cpu", "--against", "mine:f"), "--backend cpu: mine:f is the side under test"),
        (("--against", "mine_absent:f"), "no module named mine_absent in "),
        (("--against", ":"), "':' names no function: allowed package.module:function"),
    ],
)
def test_sides_that_cannot_be_compared(inside: Inside, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = inside("validate", "tpartmin", "--tiles", 9, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {message}")
    assert not list(Path().iterdir())


def test_a_mismatch_is_explained_shrunk_and_saved_twice(inside: Inside, short_backend: None, tmp_path: Path) -> None:
    status, out, _ = inside("validate", "tpartmin", "--dtype", "i16", "--tiles", 300, "--seed", 4, "--save", "there")
    assert status == 1
    assert f"\n  cause: {SHORT}\n  shrunk to dst 1x1, src0 " in out
    small, first = "there/tpartmin_i16_seed4_shrunk_tile0.npz", "there/tpartmin_i16_seed4_tile0.npz"
    assert sorted(p.name for p in Path("there").iterdir()) == sorted(Path(p).name for p in (small, first))
    assert f"\n  run it again: pto-gpu replay {small}\n" in out
    assert f"\n  the tile as it was first: pto-gpu replay {first}\n" in out
    assert saved.load(Path(small)).valid["dst"] == (1, 1)
    assert saved.load(Path(first)).valid["dst"] != (1, 1)
    done = pto_gpu("replay", small, cwd=tmp_path)  # in another process the backend is right
    assert (done.returncode, ", backend cpu: equal now\n" in done.stdout) == (0, True)
    status, out, _ = inside("replay", small)
    assert (status, "\n  cause (each would give the same bits): " in out) == (1, True)
    assert f"\n  when it was found, with the tiles around it: {SHORT}\n" in out
    status, out, _ = inside("replay", small, "--json")
    data = json.loads(out)
    assert (data["causes_when_found"], len(data["causes"]), data["shrunk"]) == ([SHORT], 3, None)


def test_what_a_function_prints_does_not_reach_the_json(inside: Inside) -> None:
    Path("prints.py").write_text("print('imported')\ndef f(call):\n    print('called')\n")
    arguments = ("tpartmin", "--dtype", "i8", "--tiles", 16, "--against", "prints:f", "--json")
    status, out, err = inside("validate", *arguments)
    data = json.loads(out)
    assert (status, data["status"], "imported" in err, "called" in err) == (1, 1, True, True)
    saved_file = data["campaigns"][0]["saved"]
    status, out, err = inside("replay", saved_file, "--against", "prints:f", "--json")
    assert (status, json.loads(out)["status"], "called" in err) == (1, 1, True)


def test_json_has_the_rule_sets_the_causes_and_the_shrunk_tile(inside: Inside, short_backend: None) -> None:
    status, out, err = inside("validate", "tpartmin", "--dtype", "i16", "--tiles", 3000, "--json")
    (data,) = json.loads(out)["campaigns"]
    assert (status, data["agrees_with"], data["causes"], data["notes"]) == (1, [], [SHORT], [])
    assert f"  cause: {SHORT}" in err
    shrunk = data["shrunk"]
    assert (shrunk["valid_regions"]["dst"], shrunk["why_not"], shrunk["flaky"]) == ([1, 1], None, False)
    assert Path(shrunk["saved"]).exists()
    assert Path(data["saved"]).exists()
    assert shrunk["mismatch"]["operand"] == "dst"
    assert data["explained_tiles"] == 2048
    status, out, _ = inside("validate", "tpartmin", "--dtype", "i16", "--tiles", 30, "--backend", "triton", "--json")
    (data,) = json.loads(out)["campaigns"]
    assert (status, data["against"]) == (0, "numpy")
    assert (data["agrees_with"], data["causes"], data["shrunk"], data["explained_tiles"]) == ([], [], None, 0)


def test_a_shrunk_tile_that_cannot_be_saved_does_not_hide_the_mismatch(inside: Inside, short_backend: None) -> None:
    Path("taken").write_text("a file")
    status, out, _ = inside("validate", "tpartmin", "--dtype", "i16", "--tiles", 30, "--save", "taken", "--json")
    (data,) = json.loads(out)["campaigns"]
    assert (status, data["saved"], data["shrunk"]["saved"]) == (1, None, None)
    assert data["causes"] == [SHORT]


def test_the_backend_that_is_wrong_is_named(inside: Inside, short_backend: None) -> None:
    status, out, _ = inside(
        "validate", "tpartmin", "--dtype", "i16", "--tiles", 30, "--backend", "numpy", "--against", "cpu"
    )
    assert status == 1
    assert f"\n  numpy agrees with the reference: the cause is that of cpu\n  cause: {SHORT}\n" in out
    path = "failures/tpartmin_i16_seed20250101_shrunk_tile0.npz"
    assert (saved.load(Path(path)).backend, saved.load(Path(path)).against) == ("numpy", "cpu")
    status, out, _ = inside("replay", path)  # what is expected comes from the cpu backend itself, which is right
    assert (status, "backend numpy: equal now" in out) == (0, True)


def test_check_explains_a_dump(inside: Inside, tmp_path: Path) -> None:
    with np.load(DUMPS / "tpartmin_i16.npz") as archive:
        arrays = dict(archive)
    for tile, (rows, cols) in enumerate(arrays["dst_valid"].tolist()):
        arrays["dst"][tile, :rows, max(cols - 1, 0)] = 0
    np.savez(tmp_path / "tpartmin_mine.npz", **arrays)
    status, out, _ = inside("check", "tpartmin_mine.npz", "--json")
    (data,) = json.loads(out)["files"]
    assert (status, data["causes"], data["shrunk"], data["explained_tiles"]) == (1, [SHORT], None, 8)
    status, out, _ = inside("check", "tpartmin_mine.npz", "--save", "there")
    assert f"\n  cause: {SHORT}\n" in out
    (path,) = Path("there").iterdir()
    status, out, _ = inside("replay", path)
    assert (status, SHORT in out) == (1, True)


def test_an_unsupported_pattern_that_was_computed_anyway_is_recognised(inside: Inside, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-99, 99, (30, 8, 16)).astype(np.int16) for _ in range(2))
    dst = np.zeros_like(a)
    dst[:, :5, :6] = np.minimum(a, b)[:, :5, :6]
    valid = {f"{name}_valid": np.array(region, np.int32) for name, region in (("dst", (5, 6)), ("src0", (5, 2)))}
    np.savez(tmp_path / "tpartmin_mine.npz", dst=dst, src0=a, src1=b, src1_valid=np.array([2, 6], np.int32), **valid)
    status, _, err = inside("check", "tpartmin_mine.npz")
    assert (status, "dst's valid region must equal that of src0 or src1" in err) == (2, True)
    status, out, _ = inside("check", "tpartmin_mine.npz", "--undefined", "zero", "--json")
    (data,) = json.loads(out)["files"]
    assert status == 1
    assert "undefined valid regions computed as if src0 and src1 covered dst" in data["causes"]


def test_replay_runs_one_thing(inside: Inside) -> None:
    status, _, err = inside("replay", "x.npz", "--backend", "cpu", "--against", "mine:f")
    assert (status, err) == (2, "error: --backend cpu and --against mine:f: allowed one of them\n")


def test_a_mismatch_of_one_tile_in_many_is_said_to_depend_on_its_batch(inside: Inside, wrong_backend: None) -> None:
    status, out, _ = inside("validate", "tprelu", "--dtype", "f32", "--tiles", 64)
    assert status == 1
    assert "\n  no known cause\n  not shrunk: the tile did not fail alone, run 12 times: " in out


def test_ctrl_c_ends_a_function_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import pathlib, time\ndef f(call):\n    pathlib.Path('called').touch()\n    time.sleep(1000)\n"
    )
    arguments = ["validate", "TPARTMIN", "--dtype", "i8", "--tiles", "9", "--against", "mine:f"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        while not (tmp_path / "called").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "not covered: TPARTMIN i8 16x32, tiles 0 to 8 (interrupted)" in out


RAISING = """
import numpy as np

bad = []


def f(call):
    dst, a, b = (call.arrays[name][:, :16, :16] for name in ("dst", "src0", "src1"))
    to, in_a, in_b = (call.inside(name)[:, :16, :16] for name in ("dst", "src0", "src1"))
    if call.arrays["src0"].shape[2] > 16:  # the second block of tiles is padded
        bad.append(a[37].tobytes()) if not bad else None
        if CONDITION:
            raise ValueError("no luck")
    if len(a) == 5:
        raise ValueError("another reason")
    np.copyto(dst, np.where(in_b, np.where(in_a, np.minimum(a, b), b), a), where=to)
"""
RAISED = "RaisedError: raising_{}:f: ValueError: no luck (raising_{}.py, line 13)"


def test_a_tile_that_makes_a_function_raise_is_found_among_its_wave(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "raising_x.py").write_text(RAISING.replace("CONDITION", "any(x.tobytes() in bad for x in a)"))
    mine = ("--against", "raising_x:f")
    status, out, err = inside(
        "validate", "tpartmin", "--dtype", "i32", "--tiles", 1100, "--workers", 1, "--json", *mine
    )
    (data,) = json.loads(out)["campaigns"]
    path = "failures/tpartmin_i32_seed20250101_tile1061.npz"
    error = RAISED.format("x", "x")
    assert (status, data["tiles"], data["saved"], data["mismatched_elements"]) == (1, 1024, path, 0)
    assert data["crash"] == {
        **{"first": 1024, "last": 1099, "error": error},
        "fewest": {"first": 1061, "last": 1061, "error": error},
    }
    assert f"\n  run it again: pto-gpu replay {path} --against raising_x:f\n" in err
    with np.load(path) as archive:
        assert archive["src0"][:16, :16].tobytes() == sys.modules["raising_x"].bad[0]
    status, out, _ = inside("replay", path, *mine)
    what = "TPARTMIN i32 seed20250101 tile 1061"
    assert (status, out.splitlines()) == (
        1,
        [f"{what}, raising_x:f: FAILED: {error}", f"  when it was found, it raised: {error}"],
    )
    status, out, _ = inside("replay", path, *mine, "--json")
    data = json.loads(out)
    assert (status, data["status"], data["crash"], data["mismatches"]) == (1, 1, error, [])
    assert (data["causes_when_found"], data["error_when_found"], data["together"]) == ([], error, 1)
    status, out, _ = inside("replay", path, "--backend", "cpu")
    assert (status, out.splitlines()[0]) == (0, f"{what}, backend cpu: equal now")


@pytest.mark.parametrize(
    ("condition", "together"),
    [("len(a) >= 10", 10), ("len(bad) == 1 and bad.append(0) is None", 76)],  # a large batch; the first call only
)
def test_where_no_tile_raises_alone_the_first_of_the_fewest_is_saved(
    inside: Inside, tmp_path: Path, condition: str, together: int
) -> None:
    name = f"y{together}"
    (tmp_path / f"raising_{name}.py").write_text(RAISING.replace("CONDITION", condition))
    mine, error = ("--against", f"raising_{name}:f"), RAISED.format(name, name)
    status, out, _ = inside("validate", "tpartmin", "--dtype", "i32", "--tiles", 1100, "--workers", 1, *mine)
    path = "failures/tpartmin_i32_seed20250101_tile1024.npz"
    first = f"run the first of {together} tiles that raised together, none known to raise alone"
    assert status == 1
    assert f"\n  {first}: pto-gpu replay {path} --against raising_{name}:f\n" in out
    status, out, _ = inside("replay", path, *mine)
    assert (status, out.splitlines()) == (
        0,
        [
            f"TPARTMIN i32 seed20250101 tile 1024, raising_{name}:f: equal now",
            f"  when it was found, it raised, with the {together - 1} tiles after it: {error}",
        ],
    )


@pytest.mark.parametrize(
    ("gpu", "error"),
    [("cuda:0", "ZeroDivisionError: no luck"), (None, "AcceleratorError: CUDA error: an illegal memory access")],
)
def test_nothing_is_run_again_on_a_device_that_may_be_in_error(
    monkeypatch: pytest.MonkeyPatch, gpu: str | None, error: str
) -> None:
    monkeypatch.setattr(backends, "gpu", lambda: gpu)
    monkeypatch.setattr(run, "backend_execute", lambda options: pytest.fail("run again"))
    result = Result(Campaign("TPARTMIN", ("i32",), backend="triton"), "triton", crash=Crash(2048, 9999, error))
    tile = crashed_tile(result)
    assert tile is not None
    assert (tile.tile, tile.together, tile.error) == (2048, 7952, error)
