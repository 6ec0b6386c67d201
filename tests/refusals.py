"""Calls that break one rule each: what test_checks.py runs on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import pto_gpu as pto
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Kind

BATCH = 5
Tiles = dict[str, pto.TileBuf | None]


class Refusal(NamedTuple):
    """A call that ``error`` refuses, with a message that matches ``match``."""

    label: str
    instruction: str
    target: str
    tiles: Callable[[], Tiles]
    error: type[Exception]
    match: str


def tile(
    dtype: str = "f32",
    rows: int = 16,
    cols: int = 32,
    valid_row: Any = None,
    valid_col: Any = None,
    batch: int = BATCH,
    salt: int = 0,
    **of_type: Any,
) -> pto.TileBuf:
    """A tile with a recognisable content."""
    ty = pto.TileBufType(dtype, rows, cols, **of_type)
    made = pto.TileBuf.empty(ty, batch, valid_row=valid_row, valid_col=valid_col)
    made.numpy().view(ty.element.bits_dtype)[:] = (np.arange(rows * cols).reshape(rows, cols) * 7 + 13 * salt) % 251
    return made


def good(name: str, target: str, signature: tuple[str, ...] | None = None) -> Tiles:
    """A legal call: 16x32 tiles, full; a u8 mask with one row more for TPRELU, a like of src for TROWMIN."""
    record = instructions()[name]
    signature = signature or next(s for s in record.element_types[target] if s[0] == "f32")
    tiles: Tiles = {}
    for salt, operand in enumerate(record.operands):
        if operand.kind is Kind.SCRATCH:
            tiles[operand.name] = tile("u8", 17, 32) if name == "TPRELU" else tile(signature[0])
        else:
            tiles[operand.name] = tile(signature[0 if operand.kind is Kind.VALUE else -1], salt=salt)
    return tiles


def _changed(name: str, target: str, **changes: dict[str, Any]) -> Callable[[], Tiles]:
    """``good`` with some operands made differently."""

    def make() -> Tiles:
        tiles = good(name, target)
        for operand, arguments in changes.items():
            like = tiles[operand]
            assert like is not None
            tiles[operand] = tile(**{"dtype": like.type.dtype, **arguments})
        return tiles

    return make


def refusals() -> Iterator[Refusal]:
    for target in ("a2a3", "a5"):
        yield from _partmin(target)
        yield from _partargmin(target)
        yield from _rowmin(target)
        yield from _prelu(target)
        for name in instructions():
            yield from _every_instruction(name, target)


def _every_instruction(name: str, target: str) -> Iterator[Refusal]:
    record = instructions()[name]
    listed = record.element_types[target]
    allowed = ", ".join("/".join(s) for s in listed)
    kinds = 2 if any(o.kind is Kind.INDEX for o in record.operands) else 1
    others = (
        [(v, i) for v in ("f16", "f32", "bf16", "i32") for i in ("i16", "u16", "i32", "u32", "i8", "f32")]
        if kinds == 2
        else [(t,) for t in pto.ELEMENT_TYPES]
    )
    for signature in others:
        if signature not in listed:
            yield Refusal(
                f"{'/'.join(signature)} is not supported",
                name,
                target,
                lambda signature=signature: good(name, target, signature),
                pto.TypeMismatch,
                f"{name}: element type {'/'.join(signature)} of dst.* is not supported on {target}: allowed {allowed}",
            )
    for operand in [o.name for o in record.operands][1:]:
        yield Refusal(
            f"{operand} has another batch",
            name,
            target,
            _changed(name, target, **{operand: {"batch": 3}}),
            pto.ConstraintError,
            rf"{name}: {operand} has a batch of 3: allowed {BATCH}, that of dst",
        )
    for operand in record.sources[1 if record.family != "row_reduce" else 0 :]:
        first = next(o.name for o in record.operands if o.kind is operand.kind)
        odd = "f16" if operand.kind is Kind.VALUE else "i16"
        wanted = "f32" if operand.kind is Kind.VALUE else "i32"
        yield Refusal(
            f"{operand.name} has another element type",
            name,
            target,
            _changed(name, target, **{operand.name: {"dtype": odd}}),
            pto.TypeMismatch,
            f"{name}: {operand.name} has element type {odd}: allowed {wanted}, that of {first}",
        )


def _partmin(target: str) -> Iterator[Refusal]:
    def region(label: str, first: str, counts: str, **changes: dict[str, Any]) -> Refusal:
        return Refusal(
            label,
            "TPARTMIN",
            target,
            _changed("TPARTMIN", target, **changes),
            pto.ConstraintError,
            "TPARTMIN: dst's valid region must equal that of src0 or src1, and the other's must not exceed it: "
            rf"{first} \({counts}\)",
        )

    yield region(
        "no source covers dst",
        f"{BATCH} of {BATCH} tiles break this, first tile 0",
        "dst 16x32, src0 15x32, src1 16x31",
        src0={"valid_row": 15},
        src1={"valid_col": 31},
    )
    yield region(
        "the other exceeds dst in rows",
        "2 of 5 tiles break this, first tile 1",
        "dst 8x32, src0 9x1, src1 8x32",
        dst={"valid_row": 8},
        src0={"valid_row": [8, 9, 7, 16, 0], "valid_col": 1},
        src1={"valid_row": 8},
    )
    yield region(
        "the other exceeds dst in columns",
        "1 of 5 tiles break this, first tile 4",
        "dst 16x7, src0 16x7, src1 2x8",
        dst={"valid_col": 7},
        src0={"valid_col": 7},
        src1={"valid_row": 2, "valid_col": [7, 0, 1, 6, 8]},
    )
    if target == "a2a3":
        for operand in ("dst", "src0", "src1"):
            yield _layout("TPARTMIN", target, operand, f"{operand}.blayout must be row_major on a2a3: seen col_major")


def _layout(name: str, target: str, operand: str, match: str, **of_type: Any) -> Refusal:
    made = {"blayout": "col_major", "rows": 32, "valid_row": 16, **of_type}
    label = f"{operand} is {made.get('loc') or 'col_major'}"
    changed = _changed(name, target, **{operand: made})
    return Refusal(label, name, target, changed, pto.LayoutError, f"{name}: {match}")


def _partargmin(target: str) -> Iterator[Refusal]:
    for side in ("src0", "src1", "dst"):
        yield Refusal(
            f"regions of {side}'s pair differ",
            "TPARTARGMIN",
            target,
            _changed("TPARTARGMIN", target, **{f"{side}_idx": {"valid_row": [16, 16, 15, 16, 14]}}),
            pto.ConstraintError,
            f"TPARTARGMIN: {side}_idx's valid region must equal {side}_val's: 2 of 5 tiles break this, "
            rf"first tile 2 \({side}_idx 15x32, {side}_val 16x32\)",
        )
    small = {"valid_row": [16, 15, 16, 16, 16], "valid_col": [32, 32, 32, 32, 31]}
    yield Refusal(
        "dst equals neither source",
        "TPARTARGMIN",
        target,
        _changed("TPARTARGMIN", target, **{f"src{k}_{kind}": small for k in (0, 1) for kind in ("val", "idx")}),
        pto.ConstraintError,
        "TPARTARGMIN: dst_val's valid region must equal that of src0_val or src1_val: 2 of 5 tiles break this, "
        r"first tile 1 \(dst_val 16x32, src0_val 15x32, src1_val 15x32\)",
    )


def _rowmin(target: str) -> Iterator[Refusal]:
    def row(label: str, match: str, error: type[Exception] = pto.ConstraintError, **changes: dict[str, Any]) -> Refusal:
        return Refusal(label, "TROWMIN", target, _changed("TROWMIN", target, **changes), error, f"TROWMIN: {match}")

    count = "1 of 5 tiles break this, first tile 3"
    yield row(
        "no valid rows",
        rf"src\.valid_row must not be 0: {count} \(valid_row=0, valid_col=32\)",
        src={"valid_row": [1, 2, 3, 0, 5]},
        dst={"valid_row": [1, 2, 3, 0, 5]},
    )
    yield row(
        "no valid columns",
        rf"src\.valid_col must not be 0: {count} \(valid_row=16, valid_col=0\)",
        src={"valid_col": [1, 2, 3, 0, 5]},
    )
    yield row(
        "dst without a column",
        rf"dst\.valid_col must not be 0: {count} \(valid_row=16, valid_col=0\)",
        dst={"valid_col": [1, 2, 3, 0, 5]},
    )
    yield row(
        "rows differ",
        rf"dst\.valid_row must equal src\.valid_row: {count} \(dst 15x32, src 16x32\)",
        dst={"valid_row": [16, 16, 16, 15, 16]},
    )
    yield _layout("TROWMIN", target, "src", r"src must be ND \(row_major, none_box\): seen blayout=col_major")
    yield _layout("TROWMIN", target, "dst", r"dst must be ND, or DN with one column: seen DN with 32 columns")
    for operand in ("dst", "src"):
        yield _layout(
            "TROWMIN", target, operand, f"{operand}.loc must be vec: seen mat", blayout="row_major", loc="mat"
        )
    if target == "a2a3":
        yield row(
            "tmp has another element type",
            "tmp must have the element type of src on a2a3: seen f16 and f32",
            pto.TypeMismatch,
            tmp={"dtype": "f16"},
        )


def _prelu(target: str) -> Iterator[Refusal]:
    for operand in ("src0", "src1"):
        yield Refusal(
            f"{operand} has another region",
            "TPRELU",
            target,
            _changed("TPRELU", target, **{operand: {"valid_col": [32, 31, 32, 32, 0]}}),
            pto.ConstraintError,
            rf"TPRELU: {operand}'s valid region must equal dst's: 2 of 5 tiles break this, "
            rf"first tile 1 \({operand} 16x31, dst 16x32\)",
        )
    for operand in ("dst", "src0", "src1", "tmp"):
        match = rf"{operand}\.blayout must be row_major: seen col_major"
        yield _layout("TPRELU", target, operand, match)
    if target == "a2a3":
        for dtype in ("f32", "i8", "u16"):
            yield Refusal(
                f"tmp is {dtype}",
                "TPRELU",
                target,
                _changed("TPRELU", target, tmp={"dtype": dtype, "rows": 17}),
                pto.TypeMismatch,
                f"TPRELU: tmp's element type must be u8 on a2a3: seen {dtype}",
            )
        yield Refusal(
            "tmp has no row to spare",
            "TPRELU",
            target,
            _changed("TPRELU", target, tmp={"rows": 17, "valid_row": [17, 16, 17, 3, 17]}),
            pto.ConstraintError,
            r"TPRELU: tmp\.valid_row must be greater than dst\.valid_row on a2a3: 2 of 5 tiles break this, "
            r"first tile 1 \(tmp 16x32 of u8 17x32, dst 16x32 of f32 16x32\)",
        )
