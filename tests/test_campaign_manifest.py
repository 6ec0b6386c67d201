"""Manifests: what they say, what they may not say, and what wins over them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_gpu as pto
from pto_gpu.campaign.check import check_raw
from pto_gpu.campaign.files.manifest import KEYS, read_manifest
from pto_gpu.campaign.ulp import Tolerance
from pto_gpu.defaults import current_options

GOOD = """
[defaults]
instruction = "tpartmin"
dtype = "f16"
shape = "2x16"
operands = { src0 = "input1.bin", src1 = "input2.bin", dst = "golden.bin" }

[[case]]
name = "small"
dir = "case_1"

[[case]]
dir = "case_2"
dtype = "i8"
shape = { src0 = "1x32", src1 = "1x32", dst = "1x32" }
valid = { src1 = "1x30" }
operands = { dst = "output.bin" }
tiles = 3
target = "a5"
numerics = "number/src0/keep"
outside = "ignore"
"""


def manifest(tmp_path: Path, text: str, **given: Any) -> list[Any]:
    path = tmp_path / "cases.toml"
    path.write_text(text)
    return read_manifest(path, current_options(), given)


def test_defaults_and_cases_are_merged(tmp_path: Path) -> None:
    small, second = manifest(tmp_path, GOOD)
    assert (small.name, small.raw.instruction.name, small.raw.dtypes) == ("small", "TPARTMIN", ("f16",))
    assert small.raw.files["dst"] == tmp_path / "case_1" / "golden.bin"
    assert (small.raw.shapes, small.raw.valid, small.raw.tiles) == ({None: (2, 16)}, {}, None)
    assert (small.outside, small.tolerance, small.options.numerics.label) == (None, Tolerance(), "isa")
    assert (second.name, second.raw.dtypes, second.raw.tiles) == ("case2", ("i8",), 3)
    assert second.raw.files["src0"] == tmp_path / "case_2" / "input1.bin"
    assert second.raw.files["dst"] == tmp_path / "case_2" / "output.bin"
    assert second.raw.shapes["src1"] == (1, 32)
    assert second.raw.valid == {"src1": (1, 30)}
    assert (second.outside, second.options.numerics) == ("ignore", pto.Numerics("number", "src0", "keep"))


def test_the_command_line_wins(tmp_path: Path) -> None:
    given = {"numerics": "formal", "outside": "zero", "ulp": 2, "nan": None, "target": None, "undefined": "zero"}
    text = GOOD.replace("tiles = 3", "ulp = 5\nnan = 'any'").replace('dtype = "i8"', 'dtype = "f16"')
    _, second = manifest(tmp_path, text, **given)
    assert (second.options.numerics.label, second.options.undefined) == ("formal", "zero")
    assert (second.outside, second.tolerance) == ("zero", Tolerance(2, "any"))


def test_files_written_by_hand_are_compared(tmp_path: Path) -> None:
    for directory, dtype, shape in (("case_1", "<f2", (2, 16)), ("case_2", "i1", (3, 32))):
        (tmp_path / directory).mkdir()
        a = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
        b = a[:, ::-1].copy()
        least = np.minimum(a, b)
        if directory == "case_2":
            least[:, 30:] = a[:, 30:]  # where src1 is not valid
        for name, x in (("input1", a), ("input2", b), ("golden", least), ("output", least)):
            (tmp_path / directory / f"{name}.bin").write_bytes(x.tobytes())
    for case in manifest(tmp_path, GOOD):
        checked = check_raw(case.name, case.name, case.raw, case.options, case.outside, case.tolerance)
        assert checked.equal
        assert checked.batch == {"small": 1, "case2": 3}[case.name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no \[\[case\]\]: nothing to compare"),
        ("[defaults]\n", r"no \[\[case\]\]"),
        ("case = []\n", r"no \[\[case\]\]"),
        ("case = 3\n", r"case must be tables, \[\[case\]\]: seen 3"),
        ("case = [3]\n", r"case must be tables, \[\[case\]\]: seen 3"),
        ("[case]\nname = 'x'\n", r"case must be tables, \[\[case\]\]"),
        ("defaults = 3\n", "defaults must be a table: seen 3"),
        ("[default]\n", r"the manifest: unknown key 'default': allowed defaults, case; did you mean defaults\?"),
        ("[defaults]\ndtpye = 'f16'\n", r"defaults: unknown key 'dtpye': .*; did you mean dtype\?"),
        ("[defaults]\nname = 'x'\n", "defaults: unknown key 'name'"),
        (GOOD + "layuot = 'valid'\n", r"case 'case2': unknown key 'layuot': .*; did you mean layout\?"),
        (GOOD + "ulp = 1.5\n", "case 'case2': ulp must be an integer: seen 1.5"),
        (GOOD + "ulp = true\n", "case 'case2': ulp must be an integer: seen True"),
        (GOOD + "ulp = nan\n", "ulp must be an integer: seen nan"),
        (GOOD + "ulp = -1\n", "case 'case2': ulp=-1 is out of range"),
        (GOOD + "nan = 'quiet'\n", "case 'case2': nan='quiet' is not known: allowed bits, any"),
        (GOOD + "layout = 'packed'\n", "layout 'packed' is not known"),
        (GOOD + "undefined = 'maybe'\n", "undefined='maybe' is not known"),
        (GOOD.replace("number/src0/keep", "ieee"), "numerics='ieee' is not known"),
        (GOOD.replace('target = "a5"', 'target = "a9"'), "case 'case2': target='a9' is not known"),
        (GOOD.replace('outside = "ignore"', 'outside = "one"'), "outside 'one' is not known: allowed zero, ignore"),
        (GOOD.replace("tpartmin", "tpartmn"), "case 'small': instruction 'tpartmn' is not .*did you mean TPARTMIN"),
        (GOOD.replace('instruction = "tpartmin"', ""), "case 'small': instruction is missing: allowed TPARTARGMIN"),
        (GOOD.replace('"2x16"', '"2"'), "case 'small': shape '2' is no shape"),
        (GOOD.replace('"2x16"', "[2, 16]"), r"defaults: shape must be a string or a table: seen \[2, 16\]"),
        (GOOD.replace('"1x30"', "30"), "case 'case2': valid.src1 must be a string: seen 30"),
        (GOOD.replace('"1x30"', '"1,30"'), "case 'case2': valid.src1 '1,30' is no shape"),
        (GOOD.replace("src1 = \"input2.bin\"", "scr1 = \"input2.bin\""), "no operand 'scr1'.*did you mean src1"),
        (GOOD.replace("src1 = \"input2.bin\",", ""), "needs a file for each of dst, src0, src1: missing src1"),
        (GOOD.replace('"i8"', '"f64"'), "case 'case2': element type 'f64' is not known"),
        (GOOD.replace('"small"', '"case2"'), "two cases are called 'case2'"),
        (GOOD.replace('"small"', '"../up"'), "case '../up': a name has letters, digits"),
        (GOOD.replace('"small"', "7"), "name must be a string: seen 7"),
        (GOOD.replace("tiles = 3", "tiles = 0"), "case 'case2': tiles=0 must be at least 1"),
        (GOOD + "x = \n", "no TOML: "),
        (GOOD + "dir = 'again'\n", "no TOML: "),
        ("\x00", "no TOML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(pto.FileError, match=message) as caught:
        manifest(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "cases.toml"))


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(pto.FileError, match="no such file"):
        read_manifest(tmp_path / "absent.toml", current_options(), {})
    with pytest.raises(pto.FileError, match="cannot be read"):
        read_manifest(tmp_path, current_options(), {})
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(pto.FileError, match="no TOML"):
        read_manifest(tmp_path / "x.toml", current_options(), {})


@pytest.mark.parametrize("key", list(KEYS))
def test_a_key_of_another_type_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(pto.FileError, match=f"defaults: {key} must be .*: seen datetime.date"):
        manifest(tmp_path, f"[defaults]\n{key} = 1979-05-27\n")
