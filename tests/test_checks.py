"""Refused calls: the exception, its message, and that no byte changed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from conftest import Backend
from refusals import BATCH, Refusal, Tiles, good, refusals, tile

import pto_gpu as pto
from pto_gpu.isa import instructions

ALL = list(refusals())


def _bytes(tiles: Tiles) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in tiles.items() if t is not None}


def refused(name: str, tiles: Tiles, error: type[Exception], match: str, **keywords: Any) -> str:
    """The message; every byte of every operand is as before."""
    before = _bytes(tiles)
    with pytest.raises(error, match=match) as caught:
        getattr(pto, name)(**tiles, **keywords)
    assert isinstance(caught.value, pto.PtoError)
    assert _bytes(tiles) == before
    return str(caught.value)


@pytest.mark.parametrize("refusal", ALL, ids=lambda r: f"{r.instruction}-{r.target}-{r.label}".replace(" ", "_"))
def test_refused(refusal: Refusal, host_backend: Backend) -> None:
    refused(
        refusal.instruction,
        refusal.tiles(),
        refusal.error,
        f"^{refusal.match}",
        target=refusal.target,
        backend=host_backend.name,
    )


def test_every_rule_of_every_record_is_refused_somewhere() -> None:
    messages = {
        refused(r.instruction, r.tiles(), r.error, r.match, target=r.target, backend="numpy")
        for r in [*ALL, *SMALL_TMP]
    }
    for name, record in instructions().items():
        for rule in (*record.type_rules, *record.region_rules):
            assert any(m.startswith(f"{name}: {rule.text}") for m in messages), (name, rule.text)


@pytest.mark.parametrize("target", ["a2a3", "a5"])
@pytest.mark.parametrize("name", list(instructions()))
def test_the_unchanged_calls_are_accepted(name: str, target: str, host_backend: Backend) -> None:
    """Each refusal is one change away from this."""
    tiles = good(name, target)
    if instructions()[name].family == "row_reduce":
        tiles["dst"] = tile("f32", 16, 1, blayout="col_major")
    before = _bytes(tiles)
    getattr(pto, name)(**tiles, target=target, backend=host_backend.name)
    after = _bytes(tiles)
    written = {o.name for o in instructions()[name].dsts}
    assert {n for n in after if after[n] != before[n]} <= written


@pytest.mark.parametrize(
    "refusal", [r for r in ALL if "tmp" in r.label and r.target == "a2a3" and "batch" not in r.label]
)
def test_a5_does_not_use_tmp(refusal: Refusal, host_backend: Backend) -> None:
    """What a2a3 refuses about tmp, a5 accepts; but TPRELU wants every tile row-major there too."""
    tiles = refusal.tiles()
    if "col_major" in refusal.label:
        refused(refusal.instruction, tiles, pto.LayoutError, "tmp", backend=host_backend.name)
    else:
        getattr(pto, refusal.instruction)(**tiles, backend=host_backend.name)


@pytest.mark.parametrize("target", ["a2a3", "a5"])
@pytest.mark.parametrize("name", ["TROWMIN", "TPRELU"])
def test_tmp_may_be_left_out(name: str, target: str, host_backend: Backend) -> None:
    tiles = good(name, target)
    wanted = _bytes({"dst": getattr(pto, name)(**tiles, target=target, backend=host_backend.name)})
    for without in ({"tmp": None}, {}):
        again = good(name, target)
        del again["tmp"]
        getattr(pto, name)(**again, **without, target=target, backend=host_backend.name)
        assert _bytes(again)["dst"] == wanted["dst"]


def test_message_of_the_contract() -> None:
    """The message counts the tiles and names the first one, on a million tiles."""
    n = 1_000_000
    cols = np.full(n, 8, np.int32)
    cols[[17, 400_000, n - 1]] = 0
    one = np.zeros((1, 4, 8), np.float32)
    src = pto.TileBuf.from_array(np.broadcast_to(one, (n, 4, 8)), pto.TileBufType("f32", 4, 8), valid_col=cols)
    dst = pto.TileBuf.empty(pto.TileBufType("f32", 8, 1, blayout="col_major"), n, valid_row=4)
    with pytest.raises(pto.ConstraintError) as caught:
        pto.TROWMIN(dst, src, None, backend="numpy")
    assert str(caught.value) == (
        "TROWMIN: src.valid_col must not be 0: 3 of 1000000 tiles break this, first tile 17 (valid_row=4, valid_col=0)"
    )


def test_message_for_a_batch_of_one() -> None:
    tiles: Tiles = {"dst": tile(batch=1), "src": tile(batch=1, valid_col=0)}
    message = refused("TROWMIN", tiles, pto.ConstraintError, "src")
    assert message == "TROWMIN: src.valid_col must not be 0: seen valid_row=16, valid_col=0"


def test_undefined_names_the_way_out() -> None:
    tiles: Tiles = {"dst": tile(), "src0": tile(valid_row=3), "src1": tile(valid_col=3)}
    refused("TPARTMIN", tiles, pto.ConstraintError, "undefined='zero' computes it as the simulator does$")


def test_undefined_zero_waives_no_other_rule(host_backend: Backend) -> None:
    tiles = good("TPARTARGMIN", "a5")
    tiles["src0_idx"] = tile("i32", valid_row=3)
    match = "src0_idx's valid region must equal src0_val's"
    refused("TPARTARGMIN", tiles, pto.ConstraintError, match, undefined="zero", backend=host_backend.name)


# -- scratch of TROWMIN on a2a3 -----------------------------------------------------------------------------


def _rowmin(dtype: str, src: tuple[int, int], tmp: tuple[int, int], layout: str = "DN", **valid: Any) -> Tiles:
    rows = valid.get("valid_row", src[0])
    dst = tile(dtype, -(-src[0] // 32) * 32, 1, rows, blayout="col_major")
    if layout == "ND":
        dst = tile(dtype, src[0], 32, rows)
    return {"dst": dst, "src": tile(dtype, *src, **valid), "tmp": tile(dtype, *tmp)}


_TMP = "TROWMIN: tmp must hold the scratch of the reduction"


def _small(label: str, dtype: str, src: tuple[int, int], tmp: tuple[int, int], **valid: Any) -> Refusal:
    def make() -> Tiles:
        return _rowmin(dtype, src, tmp, **valid)

    return Refusal(label, "TROWMIN", "a2a3", make, pto.ConstraintError, _TMP)


#: E is the lanes of a vector instruction: 64 for f32, 128 for f16.
SMALL_TMP = [
    _small("f32, E < columns < 2E, tmp narrower than E", "f32", (4, 128), (4, 56), valid_col=65),
    _small("f16, E < columns < 2E, tmp narrower than E", "f16", (4, 256), (4, 112), valid_col=129),
    _small("f32, 2E columns, tmp narrower than E", "f32", (4, 256), (4, 56), valid_col=128),
    _small("f32, 2E columns, tmp short of rows", "f32", (4, 256), (3, 256), valid_col=128),
    _small("f16, 2E columns, tmp short of rows", "f16", (4, 512), (3, 512), valid_col=256),
    _small("one tile of many", "f32", (4, 256), (3, 256), valid_row=[3, 1, 4, 3, 2]),
    _small("64x128 with an ND result has no fast path", "f32", (64, 128), (16, 64), layout="ND"),
    _small("fast path, one tile of it full", "f32", (64, 128), (15, 64), valid_row=[1, 15, 64, 2, 3]),
    _small("fast path 64x128", "f32", (64, 128), (15, 64)),
    _small("fast path 32x256", "f32", (32, 256), (7, 128)),
    _small("fast path 16x512", "f32", (16, 512), (3, 256)),
    _small("fast path 8x1024", "f32", (8, 1024), (1, 1016)),
]


@pytest.mark.parametrize("refusal", SMALL_TMP, ids=lambda r: r.label)
def test_trowmin_scratch_too_small(refusal: Refusal, host_backend: Backend) -> None:
    tiles = refusal.tiles()
    refused(
        "TROWMIN", tiles, refusal.error, f"^{refusal.match}.* on a2a3: .*tmp", target="a2a3", backend=host_backend.name
    )
    pto.TROWMIN(**tiles, target="a5", backend=host_backend.name)


@pytest.mark.parametrize(
    ("dtype", "src", "tmp", "valid"),
    [
        ("f32", (4, 128), (1, 8), {"valid_col": 64}),  # up to E columns: tmp is not used
        ("f16", (4, 256), (1, 16), {"valid_col": 128}),
        ("f32", (4, 128), (1, 64), {"valid_col": 65}),  # below 2E: E columns, one row
        ("f32", (4, 128), (1, 64), {"valid_col": 127}),
        ("f16", (4, 256), (1, 128), {"valid_col": 255}),
        ("f32", (4, 256), (4, 64), {"valid_col": 128}),  # from 2E on: a row for each row
        ("f32", (4, 256), (3, 64), {"valid_row": [3, 2, 1, 3, 3]}),
        ("i32", (4, 256), (1, 8), {}),  # integers: one block
        ("i16", (4, 512), (1, 16), {}),
        ("f32", (64, 128), (16, 64), {}),  # fast paths: 4096 bytes, whatever the rows
        ("f32", (32, 256), (4, 256), {}),
        ("f32", (16, 512), (1, 1024), {}),
        ("f32", (8, 1024), (2, 512), {}),
        ("f32", (4, 128), (4, 128), {"valid_col": [1, 64, 65, 127, 128]}),
        ("f32", (64, 128), (64, 128), {"valid_row": [64, 1, 2, 3, 64], "valid_col": [128, 1, 64, 100, 128]}),
        ("f32", (16, 512), (16, 512), {"valid_row": 15}),
    ],
)
def test_trowmin_scratch_that_is_enough(
    dtype: str, src: tuple[int, int], tmp: tuple[int, int], valid: dict[str, Any], host_backend: Backend
) -> None:
    tiles = _rowmin(dtype, src, tmp, **valid)
    wanted = _rowmin(dtype, src, tmp, **valid)
    del wanted["tmp"]
    pto.TROWMIN(**wanted, target="a2a3", backend=host_backend.name)
    pto.TROWMIN(**tiles, target="a2a3", backend=host_backend.name)
    assert _bytes(tiles)["dst"] == _bytes(wanted)["dst"]


# -- operands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(instructions()))
@pytest.mark.parametrize("value", [None, 1.0, "dst", np.zeros((BATCH, 16, 32), np.float32), pto.TileBuf], ids=str)
def test_an_operand_that_is_no_tile(name: str, value: Any) -> None:
    for operand in instructions()[name].operands:
        if operand.name == "tmp" and value is None:
            continue
        tiles = {**good(name, "a5"), operand.name: value}
        with pytest.raises(pto.TypeMismatch, match=f"{name}: {operand.name} must be a TileBuf: seen "):
            getattr(pto, name)(**tiles)


@pytest.mark.parametrize("name", list(instructions()))
def test_operands_by_position_and_name(name: str, host_backend: Backend) -> None:
    function, names = getattr(pto, name), [o.name for o in instructions()[name].operands]
    assert list(inspect.signature(function).parameters)[: len(names)] == names
    results = []
    for by_position in range(len(names) + 1):
        tiles = good(name, "a5")
        named = {n: tiles[n] for n in reversed(names[by_position:])}
        function(*(tiles[n] for n in names[:by_position]), **named, backend=host_backend.name)
        results.append(_bytes(tiles))
    assert all(r == results[0] for r in results)
    assert results[0] != _bytes(good(name, "a5"))


@pytest.mark.parametrize("name", list(instructions()))
def test_wrong_operand_lists(name: str) -> None:
    function, tiles = getattr(pto, name), good(name, "a5")
    count = len(tiles)
    with pytest.raises(pto.TypeMismatch, match=f"{name}: {count + 1} operands given: allowed {count} "):
        function(*tiles.values(), tile())
    with pytest.raises(pto.TypeMismatch, match=f"{name}: dst.* is given twice"):
        function(*tiles.values(), **{next(iter(tiles)): tile()})
    with pytest.raises(pto.TypeMismatch, match=f"{name}: 'events' is no operand or keyword: allowed dst"):
        function(**tiles, events=1)
    with pytest.raises(pto.TypeMismatch, match=f"{name}: dst.* must be a TileBuf: seen nothing"):
        function()


# -- memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dst", "src"),
    [
        ((0, 0, 0), (0, 0, 1)),  # one column on
        ((0, 0, 0), (0, 1, 0)),  # one row on
        ((0, 0, 0), (1, 0, 0)),  # tile k + 1 is a source of tile k
        ((1, 0, 0), (0, 0, 0)),
    ],
)
def test_partial_overlap(dst: tuple[int, int, int], src: tuple[int, int, int], host_backend: Backend) -> None:
    x = np.arange(5 * 6 * 16, dtype=np.float32).reshape(5, 6, 16)
    ty = pto.TileBufType("f32", 4, 8)

    def at(t: int, i: int, j: int) -> pto.TileBuf:
        return pto.TileBuf.from_array(x[t : t + 3, i : i + 4, j : j + 8], ty)

    tiles: Tiles = {"dst": at(*dst), "src0": pto.TileBuf.zeros(ty, 3), "src1": at(*src)}
    refused("TPARTMIN", tiles, pto.AddressError, "TPARTMIN: dst .* overlaps src1 ", backend=host_backend.name)


def test_interleaved_tiles_do_not_overlap(host_backend: Backend) -> None:
    x = np.ones((6, 4, 16), np.float32)
    ty = pto.TileBufType("f32", 4, 8)
    x[1::2], x[::2, :, 8:] = 5, 3
    dst, src0, src1 = (pto.TileBuf.from_array(v, ty) for v in (x[::2, :, :8], x[1::2, :, :8], x[::2, :, 8:]))
    pto.TPARTMIN(dst, src0, src1, backend=host_backend.name)
    assert (x[::2] == 3).all()
    assert (x[1::2] == 5).all()


def test_two_destinations_in_one_place(host_backend: Backend) -> None:
    tiles = good("TPARTARGMIN", "a5")
    x = np.zeros((BATCH, 16, 32), np.int32)
    tiles["dst_idx"] = pto.TileBuf.from_array(x, pto.TileBufType("i32", 16, 32))
    tiles["dst_val"] = pto.TileBuf.from_array(x.view(np.float32), pto.TileBufType("f32", 16, 32))
    refused("TPARTARGMIN", tiles, pto.AddressError, "dst_val .* overlaps dst_idx ", backend=host_backend.name)


@pytest.mark.parametrize("name", list(instructions()))
def test_read_only_destination(name: str, host_backend: Backend) -> None:
    for operand in instructions()[name].dsts:
        tiles = good(name, "a5")
        like = tiles[operand.name]
        assert like is not None
        x = like.numpy().copy()
        x.flags.writeable = False
        tiles[operand.name] = pto.TileBuf.from_array(x, like.type)
        refused(name, tiles, pto.LayoutError, f"{name}: {operand.name} is read-only", backend=host_backend.name)
