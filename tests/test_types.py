from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

import pto_gpu as pto

#: C++ and torch/NumPy spellings that a user may write.
SPELLINGS = {
    "f16": ["f16", "half", "float16_t"],
    "bf16": ["bf16", "bfloat16_t"],
    "f32": ["f32", "float", "float32_t"],
    "i8": ["i8", "int8_t"],
    "u8": ["u8", "uint8_t"],
    "i16": ["i16", "int16_t"],
    "u16": ["u16", "uint16_t"],
    "i32": ["i32", "int32_t", "int"],
    "u32": ["u32", "uint32_t"],
}
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4}


def test_element_types_are_those_of_the_contract() -> None:
    assert {n: t.itemsize for n, t in pto.ELEMENT_TYPES.items()} == SIZES
    assert {n: t.canonical_nan for n, t in pto.ELEMENT_TYPES.items() if t.is_float} == {
        "f16": 0x7E00,
        "bf16": 0x7FC0,
        "f32": 0x7FC00000,
    }


@pytest.mark.parametrize(("name", "spelling"), [(n, s) for n, all_ in SPELLINGS.items() for s in all_])
def test_spellings(name: str, spelling: str) -> None:
    ty = pto.TileBufType(spelling, 32, 32)
    assert ty == pto.TileBufType(name, 32, 32)
    assert ty.dtype == name


def test_defaults() -> None:
    ty = pto.TileBufType("f32", 16, 24)
    seen = (ty.dtype, ty.rows, ty.cols, ty.v_row, ty.v_col, ty.loc, ty.blayout, ty.slayout, ty.layout)
    assert seen == ("f32", 16, 24, 16, 24, "vec", "row_major", "none_box", "ND")
    assert ty.nbytes == 16 * 24 * 4
    assert pto.TileBufType("f32", 16, 1, blayout="col_major").layout == "DN"
    assert pto.TileBufType("f32", 16, 16, slayout="row_major").layout == "boxed"


@pytest.mark.parametrize("dtype", list(SIZES))
@pytest.mark.parametrize("extent", [*range(1, 34), 48, 64, 65])
def test_rows_fill_32_byte_blocks(dtype: str, extent: int) -> None:
    for rows, cols, blayout in ((3, extent, "row_major"), (extent, 3, "col_major")):
        if extent * SIZES[dtype] % 32 == 0:
            assert pto.TileBufType(dtype, rows, cols, blayout=blayout).nbytes == 3 * extent * SIZES[dtype]
        else:
            with pytest.raises(pto.LayoutError, match=rf"{dtype}.*{extent} has {extent * SIZES[dtype]} bytes.*32"):
                pto.TileBufType(dtype, rows, cols, blayout=blayout)


def test_boxed_types_exist_but_hold_no_tiles() -> None:
    ty = pto.TileBufType("f32", 16, 16, slayout="row_major", blayout="col_major")
    with pytest.raises(pto.LayoutError, match=r"slayout='row_major'.*none_box"):
        pto.TileBuf.zeros(ty)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"dtype": "f64"}, pto.TypeMismatch, "f64.*allowed f16"),
        ({"dtype": None}, pto.TypeMismatch, "None.*allowed f16"),
        ({"dtype": ["f32"]}, pto.TypeMismatch, "allowed f16"),
        ({"rows": 0}, pto.ConstraintError, "rows=0"),
        ({"cols": -8}, pto.ConstraintError, "cols=-8"),
        ({"rows": 1.0}, pto.TypeMismatch, "rows must be an integer.*1.0"),
        ({"rows": float("nan")}, pto.TypeMismatch, "rows must be an integer.*nan"),
        ({"rows": True}, pto.TypeMismatch, "rows must be an integer.*True"),
        ({"cols": "16"}, pto.TypeMismatch, "cols must be an integer"),
        ({"v_row": 17}, pto.ConstraintError, "v_row=17.*0 to 16"),
        ({"v_col": -2}, pto.ConstraintError, "v_col=-2.*0 to 16"),
        ({"v_col": 1.5}, pto.TypeMismatch, "v_col must be an integer"),
        ({"loc": "gm"}, pto.LayoutError, "loc='gm'.*allowed vec"),
        ({"blayout": "rowmajor"}, pto.LayoutError, "blayout='rowmajor'.*allowed row_major, col_major"),
        ({"slayout": 0}, pto.LayoutError, "slayout=0"),
        ({"fractal": 64}, pto.LayoutError, "fractal=64.*512"),
        ({"fractal": True}, pto.LayoutError, "fractal=True"),
        ({"pad": "one"}, pto.LayoutError, "pad='one'.*null"),
        ({"pad": 9}, pto.LayoutError, "pad=9"),
        ({"loc": ["vec"]}, pto.LayoutError, "loc="),
    ],
)
def test_refused_types(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        pto.TileBufType(**{"dtype": "f32", "rows": 16, "cols": 16, **arguments})


def test_dynamic_valid_region_is_given_at_run_time() -> None:
    ty = pto.TileBufType("f32", 16, 16, pto.DYNAMIC, pto.DYNAMIC)
    assert (ty.v_row, ty.v_col) == (pto.DYNAMIC, pto.DYNAMIC)
    with pytest.raises(pto.ConstraintError, match="valid_row must be given"):
        pto.TileBuf.zeros(ty)
    with pytest.raises(pto.ConstraintError, match="valid_col must be given"):
        pto.TileBuf.zeros(ty, valid_row=3)
    tile = pto.TileBuf.zeros(ty, valid_row=3, valid_col=5)
    assert (tile.valid_row, tile.valid_col) == (3, 5)


def test_static_valid_region_is_the_default() -> None:
    tile = pto.TileBuf.zeros(pto.TileBufType("f32", 16, 16, 4, 0))
    assert (tile.valid_row, tile.valid_col) == (4, 0)


def test_types_are_values() -> None:
    ty = pto.TileBufType("f32", 16, 16)
    assert {ty: 1}[pto.TileBufType("float", 16, 16, 16, 16)] == 1
    assert ty != pto.TileBufType("f32", 16, 16, 8)
    assert ty != pto.TileBufType("f32", 16, 16, pad="zero")
    assert dataclasses.replace(ty, cols=8, v_col=8) == pto.TileBufType("f32", 16, 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ty.rows = 8  # type: ignore[misc]


def test_a_pickled_type_is_found_in_another_process() -> None:
    """String hashes differ between processes, so a stored hash must not travel."""
    text = pickle.dumps(pto.TileBufType("f32", 16, 16)).hex()
    program = (
        f"import pickle, pto_gpu as pto; ty = pickle.loads(bytes.fromhex('{text}'))\n"
        "assert {pto.TileBufType('f32', 16, 16): 1}[ty] == 1"
    )
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
