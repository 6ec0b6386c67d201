"""Programs, inputs and results in files, and ``pto-gpu run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from asm_kernel import KERNEL, kernel_by_calls, kernel_inputs
from command_line import Inside, pto_gpu
from rig import assert_same

from pto_gpu.asm import run as asm_run

T = "!pto.tile_buf<vec, 16x16xf32>"
SNIPPET = "%m = tpartmin %a, %b : !pto.tile<16x16xf32>\n"


@pytest.fixture
def a() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((5, 16, 16), dtype=np.float32)


def write(text: str, name: str = "program.pto") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_kernel_from_files_of_every_kind(inside: Inside, tmp_path: Path) -> None:
    inputs = kernel_inputs(11, 2)
    np.save("x.npy", inputs["x"])
    inputs["y"].tofile("y.bin")
    np.savez("indices.npz", xi=inputs["xi"], yi=inputs["yi"])
    arguments = ["--in", "x=x.npy", "--in", "y=y.bin", "--in", "indices.npz", "--in", "blocks=2"]
    status, out, err = inside("run", KERNEL, *arguments, "--out", "results")
    assert (status, err) == (0, "")
    wanted = kernel_by_calls(inputs)
    assert [line.split()[0] for line in out.splitlines()] == list(wanted)
    assert sorted(p.name for p in (tmp_path / "results").iterdir()) == sorted(f"{name}.npy" for name in wanted)
    for name, x in wanted.items():
        seen = np.load(f"results/{name}.npy")
        assert seen.flags.c_contiguous
        assert_same(seen, x, name)


def test_json(inside: Inside, a: np.ndarray) -> None:
    np.savez("ab.npz", a=a, b=a)
    status, out, err = inside("run", write(SNIPPET), "--in", "ab.npz", "--out", "o", "--json")
    assert (status, err) == (0, "")
    result = {"dtype": "f32", "shape": [5, 16, 16], "file": str(Path("o/m.npy"))}
    assert json.loads(out) == {"status": 0, "results": {"m": result}}


def test_valid_regions_and_types_of_raw_files(inside: Inside, a: np.ndarray) -> None:
    """bf16 as raw bits and as an .npy of 16-bit words; valid regions as int32 pairs."""
    x = a.astype(ml_dtypes.bfloat16)
    x.tofile("x.bin")
    np.save("y.npy", x.view(np.uint16))
    valid = np.array([[3, 16], [16, 16], [0, 0], [9, 1], [1, 2]], np.int32)
    valid.tofile("v.bin")
    program = write("%m = tpartmin %x, %y : !pto.tile<16x16xbf16>")
    files = ["--in", "x=x.bin", "--in", "y=y.npy", "--in", "x_valid=v.bin", "--in", "y_valid=v.bin"]
    assert inside("run", program, *files, "--out", "o")[0] == 0
    seen = np.load("o/m.npy").view(ml_dtypes.bfloat16)
    rows, cols = (valid[:, axis, None, None] for axis in (0, 1))
    wanted = np.where((np.arange(16)[:, None] < rows) & (np.arange(16) < cols), x, 0)
    assert_same(seen, wanted, "m")


def test_verify_only_and_emit(inside: Inside) -> None:
    program = write(SNIPPET)
    assert inside("run", program, "--verify-only")[:2] == (0, "program.pto: no errors on a5\n")
    status, out, _ = inside("run", KERNEL, "--verify-only", "--json")
    assert status == 0
    data = json.loads(out)
    assert data["target"] == "a2a3"
    assert data["inputs"]["blocks"] == "i32"
    emitted = inside("run", program, "--emit", "dps")[1]
    data = "!pto.tile_buf<vec, 16x16xf32, valid=?x?>"
    assert emitted == f"pto.tpartmin ins(%a, %b : {data}, {data}) outs(%m : {data})\n"
    status, out, _ = inside("run", program, "--emit", "dps", "--json")
    assert (status, json.loads(out)) == (0, {"status": 0, "file": "program.pto", "form": "dps", "text": emitted})
    assert inside("run", program, "--emit", "c++")[2] == "error: form 'c++' is not known: allowed sync, ssa, dps\n"


def test_errors_are_shown_with_their_line(inside: Inside) -> None:
    program = write("\n  %m = tpartmim %a, %b : !pto.tile<...>\n")
    status, out, err = inside("run", program, "--verify-only")
    assert (status, out) == (2, "")
    assert err == (
        "error: program.pto:2:8: operation tpartmim is not known; did you mean tpartmin?\n"
        "  %m = tpartmim %a, %b : !pto.tile<...>\n"
        "       ^^^^^^^^\n"
    )
    lines = "\n".join(f"%m{i} = tpartmin %a, %b : !pto.tile<32x32xi8>" for i in range(3))
    status, _, err = inside("run", write(lines), "--verify-only", "--target", "a2a3")
    assert status == 2
    assert err.count("element type i8 of dst is not supported on a2a3") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.pto"], "absent.pto: no such file"),
        (["."], "cannot be read"),
        (["latin.pto", "--verify-only"], "latin.pto: not UTF-8 text: byte 0xe9 at 2"),
        (["program.pto"], "no directory for the results: name one with --out DIR"),
        (["program.pto", "--in", "a.npy", "--out", "o"], "--in a.npy: allowed NAME=FILE, NAME=NUMBER, or an .npz"),
        (["program.pto", "--in", "a=absent.npy", "--out", "o"], "absent.npy: no such file"),
        (["program.pto", "--in", "a=absent.bin", "--out", "o"], "absent.bin: no such file"),
        (["program.pto", "--in", "a=absent.npz", "--out", "o"], "absent.npz: no such file"),
        (["program.pto", "--in", "a=program.pto", "--out", "o"], "--in a=program.pto: neither a number nor a file"),
        (["program.pto", "--in", "a=text.npy", "--out", "o"], "text.npy: not an .npy file"),
        (["program.pto", "--in", "a=objects.npy", "--out", "o"], "objects.npy: not an .npy file"),
        (["program.pto", "--in", "a=zip.npy", "--out", "o"], "zip.npy: an .npz file of named arrays"),
        (["program.pto", "--in", "a=two.npz", "--out", "o"], "two.npz: has no array a: allowed x, y"),
        (["program.pto", "--in", "a=short.bin", "--out", "o"], "1000 bytes are no whole number of f32 16x16"),
        (["program.pto", "--in", "a=zeros.bin", "--out", "o"], "zeros.bin: cannot be read: not a regular file"),
        (["program.pto", "--in", "c=a.npy", "--out", "o"], "there is no input 'c': allowed a, b"),
        (["program.pto", "--in", "a=a.npy", "--in", "a=a.npy", "--out", "o"], "a is given twice"),
        (["program.pto", "--in", "a=a.npy", "--out", "o"], "input b is missing: a tile"),
        (["program.pto", "--in", "a=a.npy", "--in", "b=3", "--out", "o"], "input b: a NumPy, torch or CuPy array"),
        (["program.pto", "--in", "a=a.npy", "--in", "b=a.npy", "--out", "text.npy"], "cannot be written"),
        (["program.pto", "--in", "a=a.npy", "--in", "b=a.npy", "--out", "o", "--outputs", "z"], "no tile 'z'"),
        (["program.pto", "--target", "a9", "--verify-only"], "target='a9' is not known"),
        (["program.pto", "--backend", "fpga", "--out", "o"], "backend='fpga' is not known"),
        (["program.pto", "--function", "f", "--out", "o"], "there is no function 'f': allowed snippet"),
    ],
)
def test_bad_arguments(inside: Inside, a: np.ndarray, arguments: list[str], message: str) -> None:
    write(SNIPPET)
    Path("latin.pto").write_bytes(b"# \xe9")
    Path("zeros.bin").symlink_to("/dev/zero")
    np.save("a.npy", a)
    np.savez("two.npz", x=a, y=a)
    Path("zip.npy").write_bytes(Path("two.npz").read_bytes())
    write("no array", "text.npy")
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    Path("short.bin").write_bytes(bytes(1000))
    status, out, err = inside("run", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not Path("o").exists()


def test_nothing_is_left_of_a_run_that_fails(inside: Inside, a: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of three waves breaks a rule, when results of the others are in the file already."""
    monkeypatch.setattr(asm_run, "WAVE_BYTES", 2 * 1024)
    np.save("a.npy", a)
    np.save("v.npy", np.array([[16, 16]] * 4 + [[0, 0]], np.int32))
    program = write("%t = tprelu %a, %a : !pto.tile<16x16xf32>\n%r = trowmin %t")
    Path("o").mkdir()
    Path("o/r.npy").write_text("an earlier result")
    status, _, err = inside("run", program, "--in", "a=a.npy", "--in", "a_valid=v.npy", "--out", "o")
    assert status == 2
    assert "src.valid_row must not be 0: seen valid_row=0, valid_col=0 (tiles counted from 4)" in err
    assert [p.name for p in Path("o").iterdir()] == ["r.npy"]
    assert Path("o/r.npy").read_text() == "an earlier result"


def test_inputs_may_be_read_only_maps(inside: Inside, a: np.ndarray) -> None:
    np.save("a.npy", a)
    Path("a.npy").chmod(0o444)
    program = write(f"pto.tpartmin ins(%a, %b : {T}, {T}) outs(%a : {T})")
    assert inside("run", program, "--in", "a=a.npy", "--in", "b=a.npy", "--out", "o")[0] == 0
    assert_same(np.load("o/a.npy"), a, "a")


def test_a_file_without_tiles(inside: Inside) -> None:
    Path("a.bin").write_bytes(b"")
    assert inside("run", write(SNIPPET), "--in", "a=a.bin", "--in", "b=a.bin", "--out", "o")[0] == 0
    assert np.load("o/m.npy").shape == (0, 16, 16)


def test_in_a_process_of_its_own(tmp_path: Path, a: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", a)
    (tmp_path / "p.pto").write_text(SNIPPET)
    done: Any = pto_gpu("run", "p.pto", "--in", "a=a.npy", "--in", "b=a.npy", "--out", "o", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[:2], done.stderr) == (0, ["m", "f32"], "")
    assert_same(np.load(tmp_path / "o" / "m.npy"), a, "m")
