"""Valid regions given by callers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import Backend

import pto_gpu as pto

TY = pto.TileBufType("i32", 6, 8)
COUNTS = [6, 0, 3]


def _tile(**valid: Any) -> pto.TileBuf:
    return pto.TileBuf.from_array(np.zeros((3, 6, 8), np.int32), TY, **valid)


@pytest.mark.parametrize(
    "given",
    [
        COUNTS,
        tuple(COUNTS),
        *(np.array(COUNTS, t) for t in ("i1", "u1", "i2", "i4", "u4", "i8", "u8", ">i4")),
        np.array([6, 9, 0, 9, 3], np.int32)[::2],
        *(torch.tensor(COUNTS, dtype=t) for t in (torch.int8, torch.int32, torch.int64)),
        torch.tensor(COUNTS, dtype=torch.int32).to(torch.uint32),
    ],
    ids=lambda g: f"{type(g).__name__}-{getattr(g, 'dtype', '')}",
)
def test_per_tile_counts(given: Any, host_backend: Backend) -> None:
    """One row count for each tile, whatever holds it; the instruction obeys it."""
    dst = _tile(valid_row=given)
    src = pto.TileBuf.full(TY, 5, batch=3, valid_row=given)
    assert dst.valid_row.tolist() == COUNTS
    assert dst.valid_col == 8
    pto.TPARTMIN(dst, src, src, backend=host_backend.name)
    assert [[bool(row.any()) for row in tile] for tile in dst.numpy()] == [
        [i < rows for i in range(6)] for rows in COUNTS
    ]


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)], ids=repr)
def test_one_count_for_all(given: Any) -> None:
    tile = _tile(valid_row=given)
    assert tile.valid_row == 3
    assert isinstance(tile.valid_row, int)


def test_a_batch_of_one_takes_both_forms() -> None:
    x = np.zeros((6, 8), np.int32)
    assert pto.TileBuf.from_array(x, TY, 2, [3]).valid_col.tolist() == [3]


def test_an_empty_batch_takes_an_empty_list() -> None:
    assert pto.TileBuf.zeros(TY, batch=0, valid_row=[], valid_col=[]).valid_row.shape == (0,)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (-1, pto.ConstraintError, r"valid_row=-1.*0 to 6"),
        (7, pto.ConstraintError, r"valid_row=7.*0 to 6"),
        (1 << 70, pto.ConstraintError, r"valid_row is out of range.*71 bits"),
        ([6, 7, 9], pto.ConstraintError, r"valid_row.*2 of 3 tiles.*first tile 1.*7.*0 to 6"),
        ([0, 0, -5], pto.ConstraintError, r"valid_row.*1 of 3 tiles.*first tile 2.*-5.*0 to 6"),
        (np.array([1, 2, 2**32 + 1]), pto.ConstraintError, r"first tile 2.*4294967297"),
        (np.array([1, 2, 2**63], np.uint64), pto.ConstraintError, r"first tile 2"),
        (2.0, pto.TypeMismatch, r"valid_row must be an integer.*2\.0"),
        (float("nan"), pto.TypeMismatch, r"valid_row must be an integer.*nan"),
        (True, pto.TypeMismatch, r"valid_row must be an integer.*True"),
        (np.True_, pto.TypeMismatch, r"valid_row"),
        ("3", pto.TypeMismatch, r"valid_row must be an integer.*'3'"),
        ([1.0, 2.0, 3.0], pto.TypeMismatch, r"valid_row must be integers.*float64"),
        ([1, 2, float("nan")], pto.TypeMismatch, r"valid_row must be integers"),
        ([True, False, True], pto.TypeMismatch, r"valid_row must be integers.*bool"),
        ([1, None, 3], pto.TypeMismatch, r"valid_row must be integers"),
        ([1, 2, 1 << 70], pto.TypeMismatch, r"valid_row must be integers"),
        ([[1], [2, 3]], pto.TypeMismatch, r"valid_row"),
        (torch.ones(3), pto.TypeMismatch, r"valid_row must be integers"),
        (torch.ones(3, dtype=torch.bfloat16), pto.TypeMismatch, r"valid_row must be integers"),
        ({1, 2, 3}, pto.TypeMismatch, r"valid_row must be an integer"),
        ([1, 2], pto.ConstraintError, r"valid_row has shape \(2,\).*\[3\]"),
        ([[1, 2, 3]], pto.ConstraintError, r"valid_row has shape \(1, 3\)"),
        ([], pto.ConstraintError, r"valid_row has shape \(0,\)"),
    ],
)
def test_refused_counts(given: Any, error: type[Exception], match: str) -> None:
    for make in (
        lambda: _tile(valid_row=given),
        lambda: pto.TileBuf.empty(TY, batch=3, valid_row=given),
        lambda: _tile().with_valid(given, 8),
        lambda: pto.UnifiedBuffer(3).tile(TY, valid_row=given),
    ):
        with pytest.raises(error, match=match):
            make()


def test_columns_are_checked_against_columns() -> None:
    assert _tile(valid_row=6, valid_col=8).valid_col == 8
    with pytest.raises(pto.ConstraintError, match=r"valid_col=9.*0 to 8"):
        _tile(valid_col=9)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_counts_are_a_snapshot(make: Any) -> None:
    """Changing the caller's array later cannot move a checked region out of the tile."""
    given = make(COUNTS, dtype=(np if make is np.array else torch).int32)
    tile = _tile(valid_row=given)
    given[1] = 1000
    assert tile.valid_row.tolist() == COUNTS
    with pytest.raises(ValueError, match="read-only"):
        tile.valid_row[0] = 1


def test_with_valid_shares_memory() -> None:
    tile = _tile()
    other = tile.with_valid(2, [1, 2, 3])
    assert (other.valid_row, other.valid_col.tolist(), tile.valid_row) == (2, [1, 2, 3], 6)
    other.numpy()[:] = 4
    assert (tile.numpy() == 4).all()
