"""Operands in files of their own: made by hand, in both layouts, truncated, misnamed."""

import os
import struct
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_gpu as pto
from pto_gpu.campaign.check import check_raw
from pto_gpu.campaign.files.raw import RawOperands, element_types, read_operands, rows_by_cols
from pto_gpu.campaign.ulp import Tolerance
from pto_gpu.defaults import current_options
from pto_gpu.isa import instruction, instructions


def raw(tmp_path, op="TPARTMIN", dtype="f16", files=("dst", "src0", "src1"), **keywords):
    record = instruction(op)
    named = {name: tmp_path / (f"{name}.bin" if "." not in name else name) for name in files}
    named = {name.partition(".")[0].rstrip("\0"): path for name, path in named.items()}
    return RawOperands(record, named, element_types(record, dtype, "a5"), **keywords)


def verdict(operands, **keywords):
    return check_raw("case", "case", operands, current_options(), **keywords)


def test_floats_written_one_by_one(tmp_path: Path) -> None:
    a = [1.0, -2.0, 0.5, 8.0] * 8
    b = [0.25, 3.0, 0.5, -8.0] * 8
    least = [0.25, -2.0, 0.5, -8.0] * 8
    for name, values in (("src0", a), ("src1", b), ("dst", least)):
        (tmp_path / f"{name}.bin").write_bytes(struct.pack("<32e", *values))
    checked = verdict(raw(tmp_path, shapes={None: (1, 16)}))
    assert (checked.equal, checked.batch, checked.dtypes) == (True, 2, ("f16",))
    least[17] = -2.5
    (tmp_path / "dst.bin").write_bytes(struct.pack("<32e", *least))
    checked = verdict(raw(tmp_path, shapes={None: (1, 16)}))
    (mismatch,) = checked.comparison.mismatches
    assert (mismatch.tile, mismatch.row, mismatch.col, mismatch.seen) == (1, 0, 1, 0xC100)


@pytest.mark.parametrize("layout", ["capacity", "valid"])
@pytest.mark.parametrize("form", [".bin", ".npy"])
def test_both_layouts_with_regions_of_their_own(tmp_path: Path, layout: str, form: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-99, 99, (3, 4, 16), dtype=np.int16) for _ in range(2))
    wanted = np.zeros_like(a)
    wanted[:, :4, :10] = a[:, :4, :10]
    wanted[:, :2, :7] = np.minimum(a, b)[:, :2, :7]
    for name, x, (rows, cols) in (("src0", a, (4, 10)), ("src1", b, (2, 7)), ("dst", wanted, (4, 10))):
        held = x if layout == "capacity" else np.ascontiguousarray(x[:, :rows, :cols])
        if form == ".npy":
            np.save(tmp_path / f"{name}.npy", held)
        else:
            (tmp_path / f"{name}.bin").write_bytes(held.tobytes())
    files = [f"{name}{form}" for name in ("dst", "src0", "src1")]
    choices = {"layout": layout, "shapes": {None: (4, 16)}, "valid": {None: (4, 10), "src1": (2, 7)}}
    operands = raw(tmp_path, dtype="i16", files=files, **choices)
    arrays = read_operands(operands)
    assert (arrays["src1"][:, :2, :7] == b[:, :2, :7]).all()
    assert verdict(operands).equal
    if layout == "valid":  # the capacity need not be known
        assert verdict(raw(tmp_path, dtype="i16", files=files, layout=layout, valid=choices["valid"])).equal
    if form == ".npy":  # nor the element type
        assert verdict(raw(tmp_path, dtype=None, files=files, **choices)).equal


@pytest.mark.parametrize("layout", ["capacity", "valid"])
def test_a_region_for_each_tile(tmp_path: Path, layout: str) -> None:
    rng = np.random.default_rng(6)
    src = rng.integers(0, 200, (5, 3, 32), dtype=np.uint8)
    regions = np.array([[3, 32], [1, 1], [2, 31], [3, 7], [1, 32]], np.int32)
    least = np.zeros((5, 32, 1), np.uint8)
    parts, results = [], []
    for t, (rows, cols) in enumerate(regions.tolist()):
        least[t, :rows, 0] = src[t, :rows, :cols].min(axis=1)
        parts.append(src[t, :rows, :cols].tobytes())
        results.append(least[t, :rows].tobytes())
    (tmp_path / "src.bin").write_bytes(src.tobytes() if layout == "capacity" else b"".join(parts))
    (tmp_path / "dst.bin").write_bytes(least.tobytes() if layout == "capacity" else b"".join(results))
    (tmp_path / "src_valid.bin").write_bytes(regions.tobytes())
    (tmp_path / "dst_valid.bin").write_bytes(np.column_stack([regions[:, 0], np.ones(5, np.int32)]).tobytes())
    operands = raw(
        tmp_path,
        "TROWMIN",
        "u8",
        ("dst", "src", "src_valid", "dst_valid"),
        layout=layout,
        shapes={"src": (3, 32), "dst": (32, 1)} if layout == "capacity" else {},
    )
    checked = verdict(operands)
    assert (checked.equal, checked.batch) == (True, 5)
    arrays = read_operands(operands)
    assert arrays["src_valid"].tolist() == regions.tolist()
    path = tmp_path / "src.bin"
    path.write_bytes(path.read_bytes()[:-1])
    size = len(b"".join(parts))
    message = f"src has {size - 1} bytes: expected {size}, " if layout == "valid" else "expected a multiple of 96"
    with pytest.raises(pto.FileError, match=message):
        verdict(operands)


def test_a_reduced_row_is_one_column_unless_named(tmp_path: Path) -> None:
    src = np.arange(64, dtype="<f2").reshape(4, 16)[:, ::-1]
    (tmp_path / "src.bin").write_bytes(src.tobytes())
    (tmp_path / "dst.bin").write_bytes(src[:, 5].tobytes())  # not the least of columns 0 to 10
    operands = raw(tmp_path, "TROWMIN", "f16", ("dst", "src"), shapes={None: (4, 16)}, valid={None: (4, 11)})
    assert not verdict(operands).equal
    (tmp_path / "dst.bin").write_bytes(src[:, 10].tobytes())
    assert verdict(operands).equal
    wide = np.zeros((4, 16), "<f2")
    wide[:, 0] = src[:, 10]
    (tmp_path / "dst.bin").write_bytes(wide.tobytes())
    operands = raw(
        tmp_path, "TROWMIN", "f16", ("dst", "src"), shapes={None: (4, 16)}, valid={"src": (4, 11), "dst": (4, 1)}
    )
    with pytest.raises(pto.FileError, match=r"holds 1 tile of src, .* holds 16"):
        verdict(operands)
    shapes = {None: (4, 16), "dst": (4, 16)}
    assert verdict(raw(tmp_path, "TROWMIN", "f16", ("dst", "src"), shapes=shapes, valid={**operands.valid})).equal


def test_indices_have_a_type_of_their_own_and_the_region_of_their_side(tmp_path: Path) -> None:
    val0, val1 = (np.full((2, 16), v, "<f2") for v in (1.0, 2.0))
    idx0, idx1 = np.full((2, 16), 7, "<u2"), np.full((2, 16), 60_000, "<u2")
    chosen = np.where(np.arange(16) < 9, val0, val1).astype("<f2")
    index = np.where(np.arange(16) < 9, idx0, idx1).astype("<u2")
    names = {
        "dst_val": chosen, "src0_val": val0, "src1_val": val1, "dst_idx": index, "src0_idx": idx0, "src1_idx": idx1,
    }  # fmt: skip
    for name, x in names.items():
        (tmp_path / f"{name}.bin").write_bytes(x.tobytes())
    operands = raw(tmp_path, "TPARTARGMIN", "f16/u16", tuple(names), shapes={None: (2, 16)}, valid={"src0": (2, 9)})
    assert verdict(operands).equal
    index[1, 2] = 8
    (tmp_path / "dst_idx.bin").write_bytes(index.tobytes())
    checked = verdict(operands, tolerance=Tolerance(1000, "any"))  # indices are exact
    assert [(m.operand, m.row, m.col) for m in checked.comparison.mismatches] == [("dst_idx", 1, 2)]


@pytest.mark.parametrize("form", [".bin", "bits", "V2"])
def test_bf16(tmp_path: Path, form: str) -> None:
    x = np.linspace(-3, 3, 64).astype(ml_dtypes.bfloat16).reshape(2, 32)
    y = x[:, ::-1].copy()
    least = np.minimum(x.astype(np.float32), y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    for name, values in (("src0", x), ("src1", y), ("dst", least)):
        if form == ".bin":
            (tmp_path / f"{name}.bin").write_bytes(values.tobytes())
        else:
            np.save(tmp_path / f"{name}.npy", values if form == "V2" else values.view("u2"))
    files = [f"{n}.{'bin' if form == '.bin' else 'npy'}" for n in ("dst", "src0", "src1")]
    checked = verdict(raw(tmp_path, dtype="bf16", files=files, shapes={None: (2, 32)}))
    assert (checked.equal, checked.dtypes) == (True, ("bf16",))


def written(tmp_path, size=64):
    for name in ("dst", "src0", "src1"):
        (tmp_path / f"{name}.bin").write_bytes(bytes(size))


def test_sizes_that_do_not_fit_name_what_was_expected_and_seen(tmp_path: Path) -> None:
    written(tmp_path)
    assert verdict(raw(tmp_path, shapes={None: (2, 16)})).equal
    for size, message in (
        (63, "has 63 bytes: expected a multiple of 2, one f16"),
        (62, "has 62 bytes: expected a multiple of 64, one tile of f16 2x16 .64 for whole tiles"),
        (66, "has 66 bytes: expected a multiple of 64, one tile of f16 2x16 .128 for whole tiles"),
        (0, "has 0 bytes: expected a multiple of 64"),
        (128, "src1.bin: holds 2 tiles of src1, .*dst.bin holds 1"),
    ):
        (tmp_path / "src1.bin").write_bytes(bytes(size))
        with pytest.raises(pto.FileError, match=message):
            verdict(raw(tmp_path, shapes={None: (2, 16)}))
    written(tmp_path)
    with pytest.raises(pto.FileError, match="holds 1 tile, expected 2"):
        verdict(raw(tmp_path, shapes={None: (2, 16)}, tiles=2))
    with pytest.raises(pto.FileError, match="expected a multiple of 60, one tile of f16 valid region of 2x15"):
        verdict(raw(tmp_path, valid={None: (2, 15)}, layout="valid"))
    with pytest.raises(pto.FileError, match="valid region of 0x15 has no element"):
        verdict(raw(tmp_path, valid={None: (0, 15)}, layout="valid"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "the shape of dst is not known: name it, as in --shape 16x64"),
        ({"layout": "valid"}, "or its valid region, as in --valid 16x60"),
        ({"layout": "packed"}, "layout 'packed' is not known: allowed capacity, valid"),
        ({"shapes": {None: (2, 16), "scr0": (2, 16)}}, "shape: TPARTMIN has no operand 'scr0'.*did you mean src0"),
        ({"shapes": {None: (2, 16)}, "valid": {"tmp": (1, 1)}}, "valid: TPARTMIN has no operand 'tmp'"),
        ({"shapes": {None: (2, 16)}, "valid": {None: (3, 16)}}, "valid region 3x16 is out of range.*up to 2x16"),
        ({"shapes": {None: (4, 8)}}, "32 bytes"),
        ({"files": ("dst", "src0")}, "needs a file for each of dst, src0, src1: missing src1"),
        ({"files": ("dst", "src0", "src1", "src2")}, "no operand 'src2'.*did you mean src1"),
        ({"files": ("dst", "src0", "src1", "tmp")}, "no operand 'tmp'"),
        ({"dtype": "i64"}, "element type 'i64' is not known"),
        ({"dtype": None, "shapes": {None: (2, 16)}}, "the element type of dst is not known: name it, as in --dtype"),
        ({"op": "TPRELU", "dtype": "i8"}, "TPRELU: element type i8 is not supported on a5: allowed f16, f32"),
        ({"op": "TPARTARGMIN"}, "element type f16 leaves the indices open: allowed f16/i16, f16/u16"),
    ],
)
def test_what_does_not_say_enough_or_something_wrong(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    written(tmp_path)
    with pytest.raises(pto.PtoError, match=message):
        verdict(raw(tmp_path, **changes))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    written(tmp_path)
    shapes = {None: (2, 16)}
    (tmp_path / "src1.bin").unlink()
    with pytest.raises(pto.FileError, match=r"src1\.bin: no such file"):
        verdict(raw(tmp_path, shapes=shapes))
    (tmp_path / "src1.bin").mkdir()
    with pytest.raises(pto.FileError, match=r"src1\.bin: cannot be read"):
        verdict(raw(tmp_path, shapes=shapes))
    for name in ("src1\0.bin", "src1\0.npy"):
        with pytest.raises(pto.FileError, match="embedded null"):
            verdict(raw(tmp_path, files=("dst.bin", "src0.bin", name), shapes=shapes))
    files = ("dst.bin", "src0.bin", "src1.npy")
    path = tmp_path / "src1.npy"
    np.save(path, np.zeros((1, 2, 16), np.float16))
    assert verdict(raw(tmp_path, files=files, shapes=shapes)).equal
    whole = path.read_bytes()
    header = np.lib.format.magic(1, 0) + struct.pack("<H", 86)
    claims = header + b"{'descr': '<f2', 'fortran_order': False, 'shape': (999999999999, 2, 16)}".ljust(85) + b"\n"
    for content in (b"", b"hello", whole[:40], whole[:-2], claims, whole.replace(b"'<f2'", b"'|O2'")):
        path.write_bytes(content)
        with pytest.raises(pto.FileError, match=r"src1\.npy: not an \.npy file"):
            verdict(raw(tmp_path, files=files, shapes=shapes))
    np.savez(tmp_path / "x.npz", np.zeros(3))
    path.write_bytes((tmp_path / "x.npz").read_bytes())
    with pytest.raises(pto.FileError, match=r"src1\.npy: an \.npz file of named arrays, not an \.npy"):
        verdict(raw(tmp_path, files=files, shapes=shapes))
    for array, message in (
        (np.zeros((1, 3, 16), np.float16), r"src1 has shape \[1, 3, 16\]: expected tiles of 2x16"),
        (np.zeros((1, 1, 2, 16), np.float16), r"src1 has shape \[1, 1, 2, 16\]: allowed \[tiles, rows, cols\]"),
        (np.zeros((1, 2, 16), np.float32), "src1 has dtype float32: these are no bits of f16"),
        (np.zeros((1, 2, 16), ">f2"), "src1 has dtype >f2"),
        (np.zeros((1, 2, 16), np.int64), "src1 has dtype int64"),
    ):
        np.save(path, array)
        with pytest.raises(pto.FileError, match=message):
            verdict(raw(tmp_path, files=files, shapes=shapes))
    np.save(path, np.zeros(32, np.float16))  # one axis: elements as in a .bin
    assert verdict(raw(tmp_path, files=files, shapes=shapes)).equal


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_devices_and_pipes(tmp_path: Path) -> None:
    written(tmp_path)
    shapes = {None: (2, 16)}
    content = (tmp_path / "src1.bin").read_bytes()
    for name in ("src1.bin", "src1.npy"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to("/dev/zero")
        with pytest.raises(pto.FileError, match=rf"{name}: cannot be read: not a regular file"):
            verdict(raw(tmp_path, files=("dst.bin", "src0.bin", name), shapes=shapes))
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
    with pytest.raises(pto.FileError, match=r"src1\.npy: cannot be read: not a regular file"):
        verdict(raw(tmp_path, files=("dst.bin", "src0.bin", "src1.npy"), shapes=shapes))
    writer = threading.Thread(target=(tmp_path / "src1.bin").write_bytes, args=(content,))
    writer.start()
    assert verdict(raw(tmp_path, shapes=shapes)).equal
    writer.join()


def test_regions_in_files_that_do_not_fit(tmp_path: Path) -> None:
    written(tmp_path)
    shapes = {None: (2, 16)}
    files = ("dst", "src0", "src1", "dst_valid")
    path = tmp_path / "dst_valid.bin"
    for content, message in (
        (b"", "dst_valid has 0 bytes: expected a multiple of 8, two int32 a tile"),
        (bytes(7), "has 7 bytes: expected a multiple of 8"),
        (bytes(16), r"dst_valid is int32\[2, 2\]: allowed integers \[1, 2\]"),
        (struct.pack("<2i", 3, 16), "valid region 3x16 is out of range"),
        (struct.pack("<2i", -1, 16), "valid region -1x16 is out of range"),
    ):
        path.write_bytes(content)
        with pytest.raises(pto.PtoError, match=message):
            verdict(raw(tmp_path, files=files, shapes=shapes))
    path.write_bytes(struct.pack("<2i", 2, 16))
    assert verdict(raw(tmp_path, files=files, shapes=shapes)).equal
    with pytest.raises(pto.ConstraintError, match="dst has a valid region and a file of them, dst_valid"):
        verdict(raw(tmp_path, files=files, shapes=shapes, valid={"dst": (2, 16)}))
    np.save(tmp_path / "dst_valid.npy", np.zeros((1, 2)))
    with pytest.raises(pto.FileError, match=r"dst_valid is float64\[1, 2\]: allowed integers"):
        verdict(raw(tmp_path, files=("dst", "src0", "src1", "dst_valid.npy"), shapes=shapes))


def test_what_lies_outside_is_compared_where_it_is_there(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "dst.bin").write_bytes(bytes(62) + b"\1\0")
    choices: dict[str, Any] = {"shapes": {None: (2, 16)}, "valid": {None: (2, 15)}}
    checked = verdict(raw(tmp_path, **choices))
    assert (checked.equal, checked.only_outside) == (False, True)
    assert not verdict(raw(tmp_path, **choices), tolerance=Tolerance(4, "any")).equal  # for valid values only
    assert verdict(raw(tmp_path, **choices), outside="ignore").equal
    with pytest.raises(pto.ConstraintError, match="outside 'zero' is not for the layout valid"):
        verdict(raw(tmp_path, layout="valid", valid={None: (1, 16)}), outside="zero")


@pytest.mark.parametrize("text", ["16", "x", "16x", "ax4", "1x2x3", "-1x4", "1.5x2", ""])
def test_no_shape(text: str) -> None:
    with pytest.raises(pto.ConstraintError, match=r"--valid '.*' is no shape: allowed ROWSxCOLS, such as 16x16"):
        rows_by_cols(text, "--valid")


def test_every_record_can_be_read_raw(tmp_path: Path) -> None:
    for op, record in instructions().items():
        names = tuple(o.name for o in (*record.dsts, *record.sources))
        for dtypes in record.element_types["a5"]:
            for name in names:
                np.save(tmp_path / f"{name}.npy", np.zeros((1, 32, 32), np.int8))
            for name in names:
                (tmp_path / f"{name}.bin").write_bytes(bytes(32 * 32 * 4))
            shapes = {None: (32, 32 if dtypes[0][1:] == "32" else 64 if dtypes[0].endswith("16") else 128)}
            shapes |= {o.name: shapes[None] for o in record.dsts}
            valid = {None: (32, 16), **({"dst": (32, 1)} if record.valid_pattern == "rows" else {})}
            assert verdict(raw(tmp_path, op, "/".join(dtypes), names, shapes=shapes, valid=valid)).equal


def test_what_is_said_of_an_operand_wins_over_what_is_said_of_all(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "src0.bin").write_bytes(b"\1" * 64)
    (tmp_path / "dst_valid.bin").write_bytes(struct.pack("<2i", 1, 16))
    files = ("dst", "src0", "src1", "dst_valid")

    def regions(**choices: Any) -> dict[str, Any]:
        arrays = read_operands(raw(tmp_path, files=files, shapes={None: (2, 16)}, **choices))
        return {name: array.tolist()[0] for name, array in arrays.items() if name.endswith("_valid")}

    assert regions() == {"dst_valid": [1, 16], "src0_valid": [1, 16], "src1_valid": [1, 16]}
    assert regions(valid={None: (2, 5)}) == {"dst_valid": [1, 16], "src0_valid": [2, 5], "src1_valid": [2, 5]}
    assert regions(valid={"src1": (2, 5)}) == {"dst_valid": [1, 16], "src0_valid": [1, 16], "src1_valid": [2, 5]}


def test_tiles_that_no_memory_holds(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(MemoryError):
        verdict(raw(tmp_path, layout="valid", shapes={None: (999_999_999, 999_999_984)}, valid={None: (1, 1)}))
