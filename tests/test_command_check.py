"""``pto-gpu check``, and ``replay`` of what it saved."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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
