"""What a user would write in NumPy, without any rule for NaN, ties or zeros.

``VECTORISED``: masks, ``np.minimum`` and ``np.where`` on the whole batch, the baseline of every speed-up. ``LOOPS``:
what people write first, slices of one tile after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from pto_gpu.isa.record import Family
from pto_gpu.tilebuf import TileBuf

Baselines = Mapping[tuple[Family, str], Callable[..., None]]


def _inside(tile: TileBuf) -> Any:
    rows = np.reshape(np.asarray(tile.valid_row, np.int32), (-1, 1, 1))
    cols = np.reshape(np.asarray(tile.valid_col, np.int32), (-1, 1, 1))
    i = np.arange(tile.type.rows, dtype=np.int32)[:, None]
    j = np.arange(tile.type.cols, dtype=np.int32)
    return (i < rows) & (j < cols)


def partial_min(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    """The minimum where both sources are valid, else the one that is."""
    a, b, in0 = src0.data, src1.data, _inside(src0)
    result = np.where(in0 & _inside(src1), np.minimum(a, b), np.where(in0, a, b))
    np.copyto(dst.data, result, where=_inside(dst))


def partial_arg_min(
    dst_val: TileBuf, src0_val: TileBuf, src1_val: TileBuf, dst_idx: TileBuf, src0_idx: TileBuf, src1_idx: TileBuf
) -> None:
    """The same with the index of the side that was taken."""
    a, b, in0 = src0_val.data, src1_val.data, _inside(src0_val)
    first = in0 & (~_inside(src1_val) | (a < b))
    inside = _inside(dst_val)
    np.copyto(dst_val.data, np.where(first, a, b), where=inside)
    np.copyto(dst_idx.data, np.where(first, src0_idx.data, src1_idx.data), where=inside)


def row_reduce_min(dst: TileBuf, src: TileBuf) -> None:
    """The minimum of each row, over the largest value outside the valid region."""
    element = src.type.element
    largest = np.asarray(np.inf if element.is_float else np.iinfo(element.numpy).max, element.numpy)
    least = np.where(_inside(src), src.data, largest).min(axis=2, keepdims=True)
    np.copyto(dst.data, least, where=_inside(dst))


def elementwise_prelu(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    """``x`` where it is positive, else ``x * slope``."""
    x = src0.data
    np.copyto(dst.data, np.where(x > 0, x, x * src1.data), where=_inside(dst))


def _regions(tile: TileBuf) -> Iterator[tuple[int, int]]:
    rows, cols = (np.broadcast_to(n, tile.batch).tolist() for n in tile.region)
    return zip(rows, cols, strict=True)


def partial_min_loop(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    """:func:`partial_min` by slices of one tile after the other."""
    rows_cols = zip(dst.data, src0.data, src1.data, _regions(src0), _regions(src1), strict=True)
    for d, a, b, (r0, c0), (r1, c1) in rows_cols:
        d[:r0, :c0] = a[:r0, :c0]
        d[:r1, :c1] = b[:r1, :c1]
        both = slice(min(r0, r1)), slice(min(c0, c1))
        d[both] = np.minimum(a[both], b[both])


def partial_arg_min_loop(
    dst_val: TileBuf, src0_val: TileBuf, src1_val: TileBuf, dst_idx: TileBuf, src0_idx: TileBuf, src1_idx: TileBuf
) -> None:
    """:func:`partial_arg_min` by slices of one tile after the other."""
    values = zip(dst_val.data, src0_val.data, src1_val.data, _regions(src0_val), _regions(src1_val), strict=True)
    indices = zip(dst_idx.data, src0_idx.data, src1_idx.data, strict=True)
    for (d, a, b, (r0, c0), (r1, c1)), (k, i, j) in zip(values, indices, strict=True):
        for to, first, second in ((d, a, b), (k, i, j)):
            to[:r0, :c0] = first[:r0, :c0]
            to[:r1, :c1] = second[:r1, :c1]
        both = slice(min(r0, r1)), slice(min(c0, c1))
        takes_first = a[both] < b[both]
        d[both] = np.where(takes_first, a[both], b[both])
        k[both] = np.where(takes_first, i[both], j[both])


def row_reduce_min_loop(dst: TileBuf, src: TileBuf) -> None:
    """:func:`row_reduce_min` by slices of one tile after the other."""
    for d, x, (rows, cols) in zip(dst.data, src.data, _regions(src), strict=True):
        d[:rows, 0] = x[:rows, :cols].min(axis=1)


def elementwise_prelu_loop(dst: TileBuf, src0: TileBuf, src1: TileBuf) -> None:
    """:func:`elementwise_prelu` by slices of one tile after the other."""
    for d, x, slope, (rows, cols) in zip(dst.data, src0.data, src1.data, _regions(dst), strict=True):
        inside = slice(rows), slice(cols)
        d[inside] = np.where(x[inside] > 0, x[inside], x[inside] * slope[inside])


#: By family and combine; an instruction without an entry has no speed-up.
VECTORISED: Final[Baselines] = {
    (Family.PARTIAL, "min"): partial_min,
    (Family.PARTIAL_ARG, "min"): partial_arg_min,
    (Family.ROW_REDUCE, "min"): row_reduce_min,
    (Family.ELEMENTWISE, "prelu"): elementwise_prelu,
}
LOOPS: Final[Baselines] = {
    (Family.PARTIAL, "min"): partial_min_loop,
    (Family.PARTIAL_ARG, "min"): partial_arg_min_loop,
    (Family.ROW_REDUCE, "min"): row_reduce_min_loop,
    (Family.ELEMENTWISE, "prelu"): elementwise_prelu_loop,
}
