"""``pto-gpu check``, and ``replay`` of what it saved."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import DUMPS, Inside


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
    assert f"\n  tile 3, valid regions: dst {rows}x1, src {rows}x{cols}\n    dst(0, 0) [value]: src=" in out
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


def raw_files(dtype: str = "<f2") -> tuple[list[str], np.ndarray]:
    """Files as test generators name them, and what is in golden.bin."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-50, 50, (2, 4, 16)).astype(dtype) for _ in range(2))
    least = np.minimum(a, b)
    for name, x in (("input1", a), ("input2", b), ("golden", least)):
        Path(f"{name}.bin").write_bytes(x.tobytes())
    files = (("src0", "input1"), ("src1", "input2"), ("dst", "golden"))
    return [text for name, file in files for text in ("--operand", f"{name}={file}.bin")], least


def test_check_of_raw_files(inside: Inside) -> None:
    operands, least = raw_files()
    options = [*operands, "--dtype", "half", "--shape", "4x16"]
    assert inside("check", "tpartmin", *options) == (0, "golden.bin: TPARTMIN f16: equal, 2 tiles\n", "")
    least[1, 2, 3] += 1
    Path("golden.bin").write_bytes(least.tobytes())
    status, out, _ = inside("check", "tpartmin", *options)
    assert (status, "  tile 1, " in out, "    dst(2, 3) [value]" in out) == (1, True, True)
    status, again, _ = inside("replay", "failures/tpartmin_f16_golden_tile1.npz")
    assert (status, "golden tile 1, the result stored from the dump: MISMATCH, 1 element differs" in again) == (1, True)
    half = [*operands, "--dtype", "f16", "--layout", "valid"]
    status, out, _ = inside("check", "tpartmin", *half, "--valid", "2x16", "--json", "--save", "again")
    (data,) = json.loads(out)["files"]
    assert (status, data["tiles"], data["mismatches"][0]["tile"]) == (1, 4, 3)
    status, _, err = inside("check", "tpartmin", *half, "--valid", "3x16")
    assert (status, err.count("\n")) == (2, 1)
    assert "golden.bin: dst has 256 bytes: expected a multiple of 96, one tile of f16 valid region of 3x16" in err


def test_a_tolerance_says_what_it_let_pass(inside: Inside) -> None:
    operands, least = raw_files()
    options = [*operands, "--dtype", "f16", "--shape", "4x16"]
    bits = least.view("u2")
    bits[0, 1, 1] += 2
    bits[1, 3, 7] -= 1
    Path("golden.bin").write_bytes(bits.tobytes())
    assert inside("check", "tpartmin", *options, "--ulp", 1)[0] == 1
    status, out, _ = inside("replay", "failures/tpartmin_f16_golden_tile0.npz")
    assert (status, "MISMATCH, 1 element differs" in out) == (1, True)
    status, out, _ = inside("check", "tpartmin", *options, "--ulp", 2)
    verdict = "golden.bin: TPARTMIN f16: equal (within 2 ULP: 2 elements not bit for bit, at most 2 ULP off), 2 tiles\n"
    assert (status, out) == (0, verdict)
    status, out, _ = inside("check", "tpartmin", *options, "--ulp", 2, "--json")
    (data,) = json.loads(out)["files"]
    assert (data["tolerance"], data["tolerated_elements"]) == ({"ulp": 2, "nan": "bits"}, 2)
    assert data["farthest_ulp"] == 2
    bits[1, 0, 0] += 37
    Path("golden.bin").write_bytes(bits.tobytes())
    status, out, _ = inside("check", "tpartmin", *options, "--ulp", 2)
    verdict = (
        "2 ULP: 2 elements not bit for bit; the farthest of all is 37 ULP off), 2 tiles, 1 element of 1 tile differs"
    )
    assert (status, verdict in out) == (1, True)
    bits[1, 0, 0] -= 37
    bits[0, 1, 1] = 0x7E01
    Path("golden.bin").write_bytes(bits.tobytes())
    assert inside("check", "tpartmin", *options, "--ulp", 1024)[0] == 1  # a NaN is not near a number
    Path("input1.bin").write_bytes(np.full(128, 0x7E03, "<u2").tobytes())
    Path("golden.bin").write_bytes(np.full(128, 0xFC01, "<u2").tobytes())
    assert inside("check", "tpartmin", *options, "--ulp", 1024)[0] == 1
    status, out, _ = inside("check", "tpartmin", *options, "--nan", "any")
    assert (status, "equal (any NaN: 128 elements not bit for bit)" in out) == (0, True)


def test_the_saved_tolerance_is_that_of_the_check(inside: Inside) -> None:
    operands, least = raw_files()
    bits = least.view("u2")
    bits[0, 0, 0] += 1
    bits[0, 0, 1] += 9
    Path("golden.bin").write_bytes(bits.tobytes())
    inside("check", "tpartmin", *operands, "--dtype", "f16", "--shape", "4x16", "--ulp", 1)
    status, out, _ = inside("replay", "failures/tpartmin_f16_golden_tile0.npz")
    assert (status, "MISMATCH, 1 element differs" in out, "dst(0, 1)" in out) == (1, True, True)


def test_check_of_a_manifest(inside: Inside) -> None:
    raw_files()
    files = 'src0 = "input1.bin", src1 = "input2.bin"'
    text = f'[defaults]\ninstruction = "TPARTMIN"\ndtype = "f16"\nshape = "4x16"\noperands = {{ {files} }}\n'
    text += (
        '[[case]]\noperands = { dst = "golden.bin" }\n[[case]]\nname = "absent"\noperands = { dst = "output.bin" }\n'
    )
    text += '[[case]]\nname = "swapped"\noperands = { dst = "input1.bin" }\n'
    Path("cases.toml").write_text(text)
    status, out, err = inside("check", "cases.toml", DUMPS / "tpartmin_f32.npz", "--numerics", "simulator")
    assert status == 2
    assert out.startswith(
        "cases.toml: case1: TPARTMIN f16: equal, 2 tiles\ncases.toml: swapped: TPARTMIN f16: MISMATCH"
    )
    assert out.endswith("tpartmin_f32.npz: TPARTMIN f32: equal, 8 tiles\n")
    assert "failures/tpartmin_f16_swapped_tile0.npz" in out
    assert err == "error: output.bin: no such file\n"
    Path("cases.toml").write_text(text.replace("shape", "shap"))
    status, out, err = inside("check", "cases.toml", "--json")
    assert (status, json.loads(out)["files"][0]["file"]) == (2, "cases.toml")
    assert "cases.toml: defaults: unknown key 'shap'" in err
    Path("cases.toml").write_text(text.split("[[case]]\nname")[0] + 'numerics = "formal"\n')
    data = json.loads(inside("check", "cases.toml", "--json")[1])
    assert (data["numerics"], data["status"]) == ("formal", 0)


OPERANDS = ("--operand", "dst=d.bin", "--operand", "src0=a.bin", "--operand", "src1=b.bin")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tpartmin", *OPERANDS), "is not known: name it, as in --dtype f16"),
        (("tpartmin", *OPERANDS, "--dtype", "f16"), "the shape of dst is not known"),
        (("tpartmin", *OPERANDS, "--dtype", "f64"), "element type 'f64' is not known"),
        (("tpartmin", *OPERANDS, "--dtype", "f16/i16"), "TPARTMIN: element type f16/i16 is not supported on a5"),
        (("tpartmin", *OPERANDS, "--dtype", "u8", "--target", "a2a3"), "u8 is not supported on a2a3"),
        (("tpartmin", *OPERANDS[:4]), "missing src1"),
        (("tpartmin", *OPERANDS, "--operand", "src0=c.bin"), "--operand src0 is given twice"),
        (("tpartmin", *OPERANDS, "--operand", "src0"), "--operand 'src0' is no operand: allowed NAME=FILE"),
        (("tpartmin", *OPERANDS, "--operand", "=c.bin"), "--operand '=c.bin' is no operand"),
        (("tpartmin", *OPERANDS, "--operand", "src2=c.bin"), "no operand 'src2'"),
        (("tpartmin", *OPERANDS, "other.npz"), "and no other file: seen other.npz"),
        ((*OPERANDS, "tpartmin.npz"), "--operand needs the name of the instruction"),
        (("tpartmin", *OPERANDS, "--shape", "16"), "--shape '16' is no shape"),
        (("tpartmin", *OPERANDS, "--shape", "src3=1x16"), "shape: TPARTMIN has no operand 'src3'"),
        (("tpartmin", *OPERANDS, "--shape", "1x16", "--shape", "2x16"), "given twice for every operand"),
        (("tpartmin", *OPERANDS, "--valid", "src0=1"), "--valid '1' is no shape"),
        (("tpartmin", *OPERANDS, "--valid", "src0=1x1", "--valid", "src0=1x2"), "given twice for src0"),
        (("tpartmin", *OPERANDS, "--layout", "dense"), "layout 'dense' is not known: allowed capacity, valid"),
        (("tpartmin", *OPERANDS, "--layout", ""), "layout '' is not known"),
        (("tpartmin", "x.npz", "--shape", "1x16"), "--shape is for raw operands: name each with --operand"),
        (("tpartmin", "x.npz", "--layout", "valid"), "--layout is for raw operands"),
        (("tpartmin", "x.npz", "--ulp", "-1"), "ulp=-1 is out of range: allowed 0 or more"),
        (("tpartmin", "x.npz", "--ulp", "nan"), "--ulp"),
        (("tpartmin", "x.npz", "--ulp", "1.5"), "--ulp"),
        (("tpartmin", "x.npz", "--ulp", "inf"), "--ulp"),
        (("tpartmin", "x.npz", "--nan", "quiet"), "nan='quiet' is not known: allowed bits, any"),
        (("tpartmin", "x.toml"), "x.toml: a manifest names instructions and element types itself: leave out TPARTMIN"),
        (("x.toml", "--dtype", "f16"), "leave out --dtype"),
        (("x.toml",), "x.toml: no such file"),
        (("tpartmin", "a.bin"), "a.bin: one raw operand: name each of the instruction's, as in --operand src0=a.bin"),
        ((DUMPS / "tpartmin_i16.npz", "--ulp", "1"), "tpartmin_i16.npz: --ulp and --nan are for float element types"),
        ((DUMPS / "tpartmin_f16.npz", "--ulp", "1025"), "ulp=1025 is out of range for f16: allowed 0 to 1024"),
    ],
)
def test_what_check_refuses(inside: Inside, arguments: tuple[str, ...], message: str) -> None:
    for name in "abd":
        Path(f"{name}.bin").write_bytes(bytes(64))
    status, out, err = inside("check", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not Path("failures").exists()
