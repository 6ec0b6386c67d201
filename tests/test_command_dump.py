"""``pto-gpu validate --dump``."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND, Inside


def test_raw_files_and_a_manifest(inside: Inside) -> None:
    arguments = ["validate", "TROWMIN", "--dtype", "i8", "--dump", "d", "--dump-format", "bin", "--tiles", 40]
    status, out, _ = inside(*arguments, "--numerics", "simulator", "--json")
    data = json.loads(out)
    assert (status, data["files"], data["dumps"][0]["tiles"]) == (0, ["d/manifest.toml"], 40)
    status, _, err = inside("check", "d/manifest.toml")
    assert (status, err) == (2, "error: d/trowmin_i8/dst.bin: no such file\n")
    src = np.fromfile("d/trowmin_i8/src.bin", np.int8).reshape(40, 16, 32)
    valid = np.fromfile("d/trowmin_i8/src_valid.bin", "<i4").reshape(40, 2)
    dst = np.zeros((40, 32, 1), np.int8)
    for t, (rows, cols) in enumerate(valid):
        dst[t, :rows, 0] = src[t, :rows, :cols].min(axis=1)
    dst.tofile("d/trowmin_i8/dst.bin")
    status, out, _ = inside("check", "d/manifest.toml", "--json")
    assert (status, json.loads(out)["numerics"]) == (0, "simulator")
    dst[7, 0, 0] ^= 1
    dst.tofile("d/trowmin_i8/dst.bin")
    status, out, _ = inside("check", "d/manifest.toml")
    assert (status, "1 element of 1 tile differs" in out) == (1, True)


def test_the_command_that_checks_has_the_rules_of_the_dump(inside: Inside) -> None:
    more = ["--target", "a2a3", "--numerics", "number/src0/keep", "--undefined", "zero", "--tiles", 3]
    _, out, _ = inside("validate", "TPARTMIN", "--dtype", "f16", "--dump", "d", *more)
    rules = "--target a2a3 --numerics number/src0/keep --undefined zero"
    assert out.endswith(f"when dst is there: pto-gpu check {rules} FILE...\n")
    with np.load("d/tpartmin_f16.npz") as archive:
        arrays = dict(archive)
    np.savez("tpartmin_back.npz", **arrays, dst=arrays["golden_dst"])
    assert inside("check", *rules.split(), "tpartmin_back.npz")[0] == 0


def test_a_dump_has_a_thousand_tiles_unless_told_otherwise(inside: Inside) -> None:
    _, out, _ = inside("validate", "TPARTMIN", "--dtype", "i8", "--dump", "d", "--json")
    assert json.loads(out)["dumps"][0]["tiles"] == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dump-format", "npz"], "--dump-format needs --dump DIR"),
        (["--dump", "d", "--dump-format", "hdf5"], "--dump-format 'hdf5' is not known: allowed npz, bin"),
        (["--dump", "d", "--exhaustive"], "--exhaustive is not for --dump"),
        (["--dump", "d", "--workers", "2"], "--workers is not for --dump"),
        (["--dump", "d", "--backend", "cpu"], "--backend is not for --dump"),
        (["--dump", "d", "--tiles", "0"], "tiles=0 must be at least 1"),
        (["--dump", "d", "--shape", "1x1"], "32 bytes"),
        (["--dump", "taken"], "taken: cannot be written: "),
    ],
)
def test_what_a_dump_refuses(inside: Inside, arguments: list[str], message: str) -> None:
    Path("taken").write_text("a file")
    status, out, err = inside("validate", "TPARTMIN", "--dtype", "i8", *arguments)
    assert (status, out) == (2, "")
    assert (message in err, err.count("\n")) == (True, 1)
    assert not Path("d").exists()


def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    command = [*COMMAND, "validate", "TPARTMIN", "--dtype", "f32", "--tiles", "4000", "--dump", str(tmp_path / "d")]
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22)); "
    limited += "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", limited, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path}/d/tpartmin_f32.npz: cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []
