"""Dumps made elsewhere: the simulator's agree, faults in them are found, and unusable ones are refused."""

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_gpu as pto
from pto_gpu.campaign.check import check_dump
from pto_gpu.campaign.files.dumps import instruction_of
from pto_gpu.defaults import current_options
from pto_gpu.isa import instruction
from pto_gpu.types import ELEMENT_TYPES

DUMPS = sorted((Path(__file__).parent / "data" / "simulator").glob("*.npz"))
SIMULATOR = current_options().override(numerics="simulator")


def arrays_of(name):
    with np.load(next(p for p in DUMPS if p.stem == name)) as archive:
        return dict(archive)


def check(tmp_path, op, arrays, options=SIMULATOR, **keywords):
    path = tmp_path / "dump.npz"
    np.savez(path, **arrays)
    return check_dump(path, instruction(op), options, **keywords)


def test_there_is_a_dump_of_every_instruction() -> None:
    assert {instruction_of(p).name for p in DUMPS} == {"TPARTARGMIN", "TPARTMIN", "TPRELU", "TROWMIN"}


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.stem)
def test_simulator_dumps_agree(path: Path) -> None:
    checked = check_dump(path, instruction_of(path), SIMULATOR)
    assert checked.equal
    assert checked.batch == 8
    assert checked.first_failure is None


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.stem)
def test_one_changed_bit_is_found(tmp_path: Path, path: Path) -> None:
    arrays = arrays_of(path.stem)
    dst = next(o.name for o in instruction_of(path).dsts)
    valid = arrays["dst_valid"]
    tile = int(np.argmax(valid.min(axis=1) > 0))
    row = int(valid[tile, 0]) - 1
    bits = arrays[dst].view(f"u{arrays[dst].itemsize}")
    bits[tile, row, 0] ^= 1
    checked = check(tmp_path, instruction_of(path).name, arrays)
    (mismatch,) = checked.comparison.mismatches
    assert (mismatch.tile, mismatch.operand, mismatch.row, mismatch.col) == (tile, dst, row, 0)
    assert mismatch.seen ^ mismatch.expected == 1
    assert (checked.first_failure.origin, checked.first_failure.tile) == ("dump", tile)


def test_outside_the_valid_region_is_zero_unless_ignored(tmp_path: Path) -> None:
    arrays = arrays_of("tpartmin_i16")
    tile = int(np.argmax(arrays["dst_valid"].max(axis=1) < 32))
    arrays["dst"][tile, 31, 31] = 5
    assert [m.category for m in check(tmp_path, "TPARTMIN", arrays).comparison.mismatches] == [
        "outside the valid region"
    ]
    assert check(tmp_path, "TPARTMIN", arrays, outside="ignore").equal


def test_one_tile_without_a_batch_axis(tmp_path: Path) -> None:
    arrays = {name: array[0] for name, array in arrays_of("trowmin_f32").items()}
    checked = check(tmp_path, "TROWMIN", arrays)
    assert checked.equal
    assert checked.batch == 1


def test_a_row_reduction_needs_the_region_of_its_source(tmp_path: Path) -> None:
    arrays = arrays_of("trowmin_f32")
    assert check(tmp_path, "TROWMIN", arrays).equal
    with pytest.raises(pto.FileError, match=r"missing array src_valid, int32 \[8, 2\]: "):
        check(tmp_path, "TROWMIN", without(arrays, "src_valid"))


def test_a_source_without_a_region_has_that_of_dst(tmp_path: Path) -> None:
    arrays = arrays_of("tprelu_f32")
    fewer = {n: a for n, a in arrays.items() if n in ("dst", "src0", "src1", "dst_valid")}
    assert check(tmp_path, "TPRELU", fewer).equal


@pytest.mark.parametrize("stored", ["bf16", "u2", "V2"])
def test_bf16_needs_its_type_named_when_stored_as_bits(tmp_path: Path, stored: str) -> None:
    x = np.arange(256, dtype=np.float32).reshape(1, 16, 16).astype(ml_dtypes.bfloat16)
    y = x[:, ::-1].copy()
    least = np.minimum(x.astype(np.float32), y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    held = {n: a if stored == "bf16" else a.view(stored) for n, a in (("src0", x), ("src1", y), ("dst", least))}
    arrays = {**held, "dst_valid": np.array([[16, 16]], np.int32)}
    assert check(tmp_path, "TPARTMIN", arrays, dtype=ELEMENT_TYPES["bf16"]).dtypes == ("bf16",)
    assert check(tmp_path, "TPARTMIN", arrays, dtype=ELEMENT_TYPES["bf16"]).equal
    if stored != "u2":  # u2 is a type of its own
        with pytest.raises(pto.FileError, match="--dtype bf16"):
            check(tmp_path, "TPARTMIN", arrays)


@pytest.mark.parametrize("name", ["tpartmin_bf16.npz", "TPARTMIN_16x16-BF16.npz"])
def test_a_file_named_after_bf16_holds_bf16_bits(tmp_path: Path, name: str) -> None:
    x = np.full((1, 16, 16), 0x8000, np.uint16)  # -0.0, or a large integer
    y = np.full((1, 16, 16), 0x7FC0, np.uint16)  # NaN
    path = tmp_path / name
    np.savez(path, src0=x, src1=y, dst=y, dst_valid=np.array([16, 16]))
    checked = check_dump(path, instruction("TPARTMIN"), current_options())
    assert (checked.dtypes, checked.equal) == (("bf16",), True)
    assert check_dump(path, instruction("TPARTMIN"), SIMULATOR, dtype=ELEMENT_TYPES["u16"]).dtypes == ("u16",)
    np.savez(path, src0=x.view("i2"), src1=y.view("i2"), dst=x.view("i2"), dst_valid=np.array([16, 16]))
    assert check_dump(path, instruction("TPARTMIN"), SIMULATOR).dtypes == ("i16",)  # no bits but numbers


@pytest.mark.parametrize("shape", [(8, 32), (32,), (2, 2, 8, 1)])
def test_the_shape_of_a_reduced_row_is_explained(tmp_path: Path, shape: tuple[int, ...]) -> None:
    arrays = {**arrays_of("trowmin_f32"), "dst": np.zeros(shape, np.float32)}
    with pytest.raises(pto.FileError, match=r"dst has shape \[.*allowed .*\[batch, rows, 1\]"):
        check(tmp_path, "TROWMIN", arrays)


def test_scratch_of_a_dump_is_not_read(tmp_path: Path) -> None:
    arrays = {**arrays_of("trowmin_f32"), "tmp": np.zeros(3), "tmp_valid": np.zeros(3)}
    assert check(tmp_path, "TROWMIN", arrays).equal


def full(n):
    return np.full((8, 2), n, np.int32)


def without(arrays, name):
    return {k: v for k, v in arrays.items() if k != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: without(a, "src1"), "TPARTMIN needs arrays dst, src0, src1: missing src1"),
        (lambda a: without(a, "dst_valid"), r"missing array dst_valid, int32 \[8, 2\]: valid rows and columns of dst"),
        (lambda a: {**a, "scr0_valid": a["src0_valid"], "x": a["dst"]}, "no array 'scr0_valid', 'x': allowed dst, src"),
        (lambda a: {**a, "src0": a["src0"].astype(np.int64)}, "src0 has dtype int64: no element type"),
        (lambda a: {**a, "src0": a["src0"].astype(">f4")}, "src0 has dtype >f4"),
        (lambda a: {**a, "src0": a["src0"].reshape(-1)}, "src0 has shape"),
        (lambda a: {**a, "src0": a["src0"][:7]}, r"src0 has 7 tiles, dst has 8$"),
        (lambda a: {**a, "src1": a["src1"][:1]}, "src1 has 1 tile, dst has 8$"),
        (lambda a: {**a, "dst": a["dst"][0]}, r"dst has shape \[32, 32\], src0 has \[8, 32, 32\]: allowed \[batch"),
        (lambda a: {**a, "src0": a["src0"].astype(np.float16)}, "has element type"),
        (lambda a: {**a, "src0": a["src0"][:, :, :5], "src0_valid": full(5)}, "32 bytes"),
        (lambda a: {**a, "src0": a["src0"][:, :, :0]}, "src0 has shape"),
        (lambda a: {**a, "src0_valid": a["src0_valid"].astype(float)}, "src0_valid is float64"),
        (lambda a: {**a, "src0_valid": a["src0_valid"][:3]}, "src0_valid is int32\\[3, 2\\]"),
        (lambda a: {**a, "src0_valid": a["src0_valid"] + 99}, "8 of 8 tiles break this, first tile 0"),
        (lambda a: {**a, "src0_valid": -a["src0_valid"] - 1}, "out of range"),
        (lambda a: {**a, "dst_valid": full(32), "src0_valid": full(1), "src1_valid": full(2)}, "region must equal"),
        (lambda a: {**a, "src0": np.array([[{}]], object)}, "src0 cannot be read"),
    ],
)  # fmt: skip
def test_unusable_dumps_are_one_clear_error(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    with pytest.raises(pto.PtoError, match=message) as caught:
        check(tmp_path, "TPARTMIN", change(arrays_of("tpartmin_f32")))
    assert str(tmp_path / "dump.npz") in str(caught.value)


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "tpartmin.npz"
    whole = DUMPS[0].read_bytes()
    for content in (
        b"",
        b"hello",
        whole[:40],
        whole[: len(whole) // 2],
        whole[:-30],
        whole[:300] + b"x" * 50 + whole[350:],
    ):
        path.write_bytes(content)
        with pytest.raises(pto.FileError):
            check_dump(path, instruction("TPARTARGMIN"), SIMULATOR)
    np.save(tmp_path / "tpartmin.npy", np.zeros(3))
    with pytest.raises(pto.FileError, match=r"not an \.npz"):
        check_dump(tmp_path / "tpartmin.npy", instruction("TPARTMIN"), SIMULATOR)
    with pytest.raises(pto.FileError, match="cannot be read"):
        check_dump(tmp_path, instruction("TPARTMIN"), SIMULATOR)
    (tmp_path / "result_17.npz").write_bytes(whole)
    with pytest.raises(pto.FileError, match="does not start with an instruction"):
        instruction_of(tmp_path / "result_17.npz")
    with pytest.raises(pto.FileError, match="no such file"):
        instruction_of(tmp_path / "result_18.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tpartmin.npz")
    with pytest.raises(pto.FileError, match="cannot be read: not a regular file"):
        check_dump(tmp_path / "tpartmin.npz", instruction("TPARTMIN"), SIMULATOR)


def test_an_unknown_array_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tpartmin.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("dst", "src0", "src1", "dst_valid", "junk"):
            archive.writestr(f"{name}.npy", b"that would be reported if it were read")
    with pytest.raises(pto.FileError, match="TPARTMIN has no array 'junk'"):
        check_dump(path, instruction("TPARTMIN"), SIMULATOR)


def npz_with_header(path, text, compression=zipfile.ZIP_STORED, version=1):
    """The dump of TPARTMIN, but the header of src0 is ``text`` and no data follows."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays_of("tpartmin_f32").items():
            content = io.BytesIO()
            np.save(content, array)
            raw = content.getvalue()
            if name == "src0" and text is not None:
                raw = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text.encode("latin1")
            archive.writestr(f"{name}.npy", raw)


def header(shape, descr="<f4"):
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n"


@pytest.mark.parametrize(
    "text",
    [
        header("(3L, ((("),
        header("(1000000000000, 16, 16)"),
        header(f"({10**30}, 16, 16)"),
        header(f"(0, {10**30}, 16)"),
        header("(4294967296, 4294967296, 16)"),
        header("(-1, 16, 16)"),
        header("(0, 16, 16)", ",,,"),
        header("(2, 16, 16)", "|O"),
        "(" * 3000,
        "-" * 5000 + "1\n",
        "  x\n y\n",
        "'''",
        "1()",
        "",
    ],
    ids=lambda text: text[:60],
)
def test_damaged_headers_are_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tpartmin.npz"
    npz_with_header(path, text)
    with pytest.raises(pto.FileError, match="array src0 ") as caught:
        check_dump(path, instruction("TPARTMIN"), SIMULATOR)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_format_version_is_refused(tmp_path: Path) -> None:
    npz_with_header(tmp_path / "x.npz", header("(8, 16, 16)"), version=9)
    with pytest.raises(pto.FileError, match="format version"):
        check_dump(tmp_path / "x.npz", instruction("TPARTMIN"), SIMULATOR)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_compressed_data_is_one_clear_error(tmp_path: Path, compression: int) -> None:
    path = tmp_path / "tpartmin.npz"
    npz_with_header(path, None, compression)
    assert check_dump(path, instruction("TPARTMIN"), SIMULATOR).equal
    raw = bytearray(path.read_bytes())
    raw[80:180] = b"\x55" * 100
    path.write_bytes(raw)
    with pytest.raises(pto.FileError, match=r"tpartmin\.npz"):
        check_dump(path, instruction("TPARTMIN"), SIMULATOR)


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tpartmin.npz"
    npz_with_header(path, None)
    raw = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset] |= 1
            at = raw.find(signature, at + 4)
    path.write_bytes(raw)
    with pytest.raises(pto.FileError, match="encrypted"):
        check_dump(path, instruction("TPARTMIN"), SIMULATOR)


@pytest.mark.parametrize("content", [b"hello", b"", bytes(100)])
def test_a_file_that_is_no_zip_is_not_answered_with_advice_about_pickles(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tpartmin.npz"
    path.write_bytes(content)
    with pytest.raises(pto.FileError, match=r"not an \.npz file") as caught:
        check_dump(path, instruction("TPARTMIN"), SIMULATOR)
    assert "pickle" not in str(caught.value)
