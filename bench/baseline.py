"""What a user would write in NumPy: masks, ``np.minimum`` and ``np.where``, without any rule for NaN, ties or zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_gpu.tilebuf import TileBuf


def _inside(tile: TileBuf) -> Any:
    rows = np.reshape(np.asarray(tile.valid_row, np.int32), (-1, 1, 1))
    cols = np.reshape(np.asarray(tile.valid_col, np.int32), (-1, 1, 1))
    i = np.arange(tile.type.rows, dtype=np.int32)[:, None]
    j = np.arange(tile.type.cols, dtype=np.int32)
    return (i < rows) & (j < cols)


def partial_min(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    a, b, in0 = src0.data, src1.data, _inside(src0)
    result = np.where(in0 & _inside(src1), np.minimum(a, b), np.where(in0, a, b))
    np.copyto(dst.data, result, where=_inside(dst))


def partial_arg_min(
    dst_val: TileBuf, src0_val: TileBuf, src1_val: TileBuf, dst_idx: TileBuf, src0_idx: TileBuf, src1_idx: TileBuf
) -> None:
    a, b, in0 = src0_val.data, src1_val.data, _inside(src0_val)
    first = in0 & (~_inside(src1_val) | (a < b))
    inside = _inside(dst_val)
    np.copyto(dst_val.data, np.where(first, a, b), where=inside)
    np.copyto(dst_idx.data, np.where(first, src0_idx.data, src1_idx.data), where=inside)


def row_reduce_min(dst: TileBuf, src: TileBuf) -> None:
    element = src.type.element
    largest = np.asarray(np.inf if element.is_float else np.iinfo(element.numpy).max, element.numpy)
    least = np.where(_inside(src), src.data, largest).min(axis=2, keepdims=True)
    np.copyto(dst.data, least, where=_inside(dst))


def elementwise_prelu(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    x = src0.data
    np.copyto(dst.data, np.where(x > 0, x, x * src1.data), where=_inside(dst))


#: (family, combine) -> the baseline
BASELINES = {
    ("partial", "min"): partial_min,
    ("partial_arg", "min"): partial_arg_min,
    ("row_reduce", "min"): row_reduce_min,
    ("elementwise", "prelu"): elementwise_prelu,
}
