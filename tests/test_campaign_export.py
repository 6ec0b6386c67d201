"""Dumps that are written: what is in them, that they come back equal, and that nothing is written over."""

import tomllib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from oracle import ORACLES, RULE_SETS, Tile

import pto_gpu as pto
from pto_gpu.campaign.check import check_dump, check_raw
from pto_gpu.campaign.files import export as module
from pto_gpu.campaign.files.dumps import instruction_of
from pto_gpu.campaign.files.export import export
from pto_gpu.campaign.files.manifest import read_manifest
from pto_gpu.campaign.settings import Campaign
from pto_gpu.defaults import current_options
from pto_gpu.isa import instruction, instructions

COMBINATIONS = [(op, dtypes) for op, record in instructions().items() for dtypes in record.element_types["a5"]]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def computed_elsewhere(op: str, dtype: str, arrays: dict[str, np.ndarray], rules: Any) -> dict[str, np.ndarray]:
    """What the oracle of the tests makes of the operands of a dump, as another implementation would."""
    record = instruction(op)
    names = [o.name for o in record.operands if o.name in arrays or f"golden_{o.name}" in arrays]
    shapes = {n: arrays[n if n in arrays else f"golden_{n}"] for n in names}
    results = {o.name: np.zeros_like(arrays[f"golden_{o.name}"]) for o in record.dsts}
    bits = {n: results.get(n, a).view(f"u{a.itemsize}") for n, a in shapes.items()}
    for tile in range(len(arrays["dst_valid"])):
        tiles = []
        for name in names:
            region = name.removesuffix("_val").removesuffix("_idx") + "_valid"
            tiles.append(Tile(bits[name][tile].tolist(), *arrays[region][tile].tolist()))
        ORACLES[op](dtype, rules, *tiles)
        for name, operand in zip(names, tiles, strict=True):
            if name in results:
                bits[name][tile] = operand.bits
    return results


@pytest.mark.parametrize(("op", "dtypes"), COMBINATIONS)
@pytest.mark.parametrize("form", ["npz", "bin"])
def test_a_dump_computed_elsewhere_comes_back_equal(
    tmp_path: Path, op: str, dtypes: tuple[str, ...], form: str
) -> None:
    campaign = Campaign(op, dtypes, tiles=30, shape=(3, 32), seed=11, numerics="formal", undefined="zero")
    options = current_options().override(numerics="formal", undefined="zero")
    (path,) = export([campaign], tmp_path / "new" / "dump", form)
    name = "_".join([op.lower(), *dtypes])
    if form == "npz":
        assert path == tmp_path / "new" / "dump" / f"{name}.npz"
        arrays = arrays_of(path)
        results = computed_elsewhere(op, dtypes[0], arrays, RULE_SETS["formal"])
        back = tmp_path / f"mine_{name}.npz"
        np.savez(back, **arrays, **results)
        checked = check_dump(back, instruction(op), options)
    else:
        directory = path.parent / name
        (case,) = read_manifest(path, current_options(), {})
        arrays = raw_arrays(directory, tomllib.loads(path.read_text())["case"][0])
        results = computed_elsewhere(op, dtypes[0], arrays, RULE_SETS["formal"])
        with pytest.raises(pto.FileError, match="no such file"):  # nobody has computed dst yet
            check_raw("case", case.name, case.raw, case.options, case.outside)
        for dst, x in results.items():
            (directory / f"{dst}.bin").write_bytes(x.tobytes())
        checked = check_raw("case", case.name, case.raw, case.options, case.outside)
        assert case.options == options
    assert (checked.equal, checked.batch, checked.dtypes) == (True, 30, dtypes)
    for dst, x in results.items():  # what the reference expects is there as well
        assert x.tobytes() == arrays[f"golden_{dst}"].tobytes()


def raw_arrays(directory: Path, case: dict[str, Any]) -> dict[str, np.ndarray]:
    """The files of a case, read with nothing but NumPy and the manifest."""
    types = {"f": "<f", "i": "<i", "u": "<u", "b": "<u"}  # bf16 as bits
    values, *indices = case["dtype"].split("/")
    shapes = {name: tuple(map(int, text.split("x"))) for name, text in case["shape"].items()}
    arrays = {}
    for file in directory.glob("*.bin"):
        name = file.stem.removeprefix("golden_")
        if name.endswith("_valid"):
            arrays[file.stem] = np.fromfile(file, "<i4").reshape(case["tiles"], 2)
            continue
        word = indices[0] if name.endswith("_idx") else values
        dtype = f"{types[word[0]]}{int(word.lstrip('bfiu')) // 8}"
        arrays[file.stem] = np.fromfile(file, dtype).reshape(case["tiles"], *shapes[name])
    return arrays


def test_a_wrong_result_comes_back_as_a_mismatch(tmp_path: Path) -> None:
    (path,) = export([Campaign("TPARTMIN", ("i32",), tiles=10)], tmp_path, "npz")
    arrays = arrays_of(path)
    dst = arrays["golden_dst"].copy()
    tile = int(np.argmax(arrays["dst_valid"].min(axis=1) > 0))
    dst[tile, 0, 0] ^= 1
    np.savez(tmp_path / "tpartmin_mine.npz", **arrays, dst=dst)
    checked = check_dump(tmp_path / "tpartmin_mine.npz", instruction("TPARTMIN"), current_options())
    assert [(m.tile, m.row, m.col) for m in checked.comparison.mismatches] == [(tile, 0, 0)]
    with pytest.raises(pto.FileError, match=r"missing dst \(dst is what the implementation under test computed\)"):
        check_dump(path, instruction_of(path), current_options())


def test_bf16_is_stored_as_bits(tmp_path: Path) -> None:
    (path,) = export([Campaign("TPARTMIN", ("bf16",), tiles=10)], tmp_path, "npz")
    arrays = arrays_of(path)
    assert arrays["src0"].dtype == arrays["golden_dst"].dtype == np.uint16
    full = (arrays["src0_valid"] == 16).all(axis=1) & (arrays["src1_valid"] == 16).all(axis=1)
    a, b = (arrays[n][full].view(ml_dtypes.bfloat16).astype(np.float32) for n in ("src0", "src1"))
    least = arrays["golden_dst"][full].view(ml_dtypes.bfloat16).astype(np.float32)
    ordered = ~(np.isnan(a) | np.isnan(b))
    assert full.any()
    assert (least[ordered] == np.minimum(a, b)[ordered]).all()


def test_blocks_follow_each_other_and_the_bytes_depend_on_the_seed_only(tmp_path: Path) -> None:
    def written(tiles: int, seed: int, where: str) -> Path:
        (path,) = export(
            [Campaign("TPARTMIN", ("u8",), tiles=tiles, shape=(1, 32), seed=seed)], tmp_path / where, "npz"
        )
        return path

    many, again, few, other = written(9000, 1, "a"), written(9000, 1, "b"), written(8192, 1, "c"), written(9000, 2, "d")
    assert many.read_bytes() == again.read_bytes() != other.read_bytes()
    for name, array in arrays_of(few).items():
        assert (arrays_of(many)[name][:8192] == array).all()


@pytest.mark.parametrize("form", ["npz", "bin"])
def test_nothing_is_written_over(tmp_path: Path, form: str) -> None:
    campaigns = [Campaign("TPARTMIN", ("u8",), tiles=2), Campaign("TROWMIN", ("u8",), tiles=2)]
    export(campaigns[1:], tmp_path, form)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.*")}
    with pytest.raises(pto.FileError, match=r"trowmin_u8.*: exists already: name another directory"):
        export(campaigns, tmp_path, form)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.*")} == before
    assert not (tmp_path / "tpartmin_u8").exists()


@pytest.mark.parametrize("form", ["npz", "bin"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_cannot_be_finished_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, error: BaseException
) -> None:
    parts = module._Array.parts

    def fails(array, campaign):
        yield from parts(array, campaign)
        if campaign.record.name == "TROWMIN" and array.name == "golden_dst":
            raise error

    monkeypatch.setattr(module._Array, "parts", fails)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "other.txt").write_text("mine")
    campaigns = [Campaign("TPARTMIN", ("u8",), tiles=2), Campaign("TROWMIN", ("u8",), tiles=2)]
    caught: Any
    for directory in (tmp_path / "there", tmp_path / "not" / "there"):
        if isinstance(error, OSError):
            with pytest.raises(pto.FileError, match=r"cannot be written: No space left on device") as caught:
                export(campaigns, directory, form)
            assert "trowmin_u8" in str(caught.value)
        else:
            with pytest.raises(KeyboardInterrupt):
                export(campaigns, directory, form)
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == [Path("there"), Path("there/other.txt")]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    campaigns = [Campaign("TPARTMIN", ("u8",), tiles=2)]
    for directory in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / ("x" * 300)):
        with pytest.raises(pto.FileError, match="cannot be written: "):
            export(campaigns, directory, "npz")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
