"""Options for a block, and the targets they name."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from conftest import Backend, Pooled

import pto_gpu as pto

TY = pto.TileBufType("f32", 1, 8)


def _negative_zero_survives(**keywords: Any) -> bool:
    """Whether TPRELU keeps -0 with a slope of -1: true only under zero=keep (the rule set ``a5``)."""
    dst = pto.tprelu(pto.TileBuf.full(TY, -0.0), pto.TileBuf.full(TY, -1.0), **keywords)
    return bool(np.signbit(dst.numpy()).all())


def _a2a3(**keywords: Any) -> bool:
    """Whether u8 is refused, as only a2a3 does."""
    tile = pto.TileBuf.zeros(pto.TileBufType("u8", 1, 32))
    try:
        pto.tpartmin(tile, tile, **keywords)
    except pto.TypeMismatch:
        return True
    return False


def test_memory_of_the_targets() -> None:
    assert {n: (t.ub_bytes, t.alignment) for n, t in pto.TARGETS.items()} == {
        "a2a3": (196608, 32),
        "a5": (262144, 32),
    }


def test_defaults(host_backend: Backend) -> None:
    with pto.options(backend=host_backend.name):
        assert not _negative_zero_survives()
        assert not _a2a3()


def test_a_block_sets_defaults_and_a_keyword_wins(host_backend: Backend) -> None:
    with pto.options(target="a2a3", backend=host_backend.name, numerics="a5"):
        assert _negative_zero_survives()
        assert _a2a3()
        assert not _negative_zero_survives(numerics="isa")
        assert not _a2a3(target="a5")
    with pto.options(backend=host_backend.name):
        assert not _negative_zero_survives()
        assert not _a2a3()


def test_blocks_nest(host_backend: Backend) -> None:
    with pto.options(backend=host_backend.name, numerics="a5"):
        with pto.options(target="a2a3"):
            assert _negative_zero_survives()
            assert _a2a3()
            with pto.options(numerics="isa"):
                assert not _negative_zero_survives()
                assert _a2a3()
        assert not _a2a3()
        assert _negative_zero_survives()


def test_an_exception_leaves_the_block(host_backend: Backend) -> None:
    def fail() -> None:
        with pto.options(target="a2a3"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not _a2a3(backend=host_backend.name)


def test_undefined_as_an_option(host_backend: Backend) -> None:
    ty = pto.TileBufType("f32", 2, 8)
    src0, src1 = pto.TileBuf.full(ty, 3.0, valid_row=1), pto.TileBuf.full(ty, 4.0, valid_col=2)
    dst = pto.TileBuf.full(ty, 9.0)
    with pto.options(backend=host_backend.name):
        with pytest.raises(pto.ConstraintError, match="undefined='zero'"):
            pto.TPARTMIN(dst, src0, src1)
        with pto.options(undefined="zero"):
            pto.TPARTMIN(dst, src0, src1)
    assert dst.numpy().tolist() == [[[3.0] * 8, [4.0] * 2 + [0.0] * 6]]


def test_options_belong_to_a_thread(host_backend: Backend) -> None:
    seen = []
    with pto.options(numerics="a5", backend=host_backend.name):
        thread = threading.Thread(target=lambda: seen.append(_negative_zero_survives(backend=host_backend.name)))
        thread.start()
        thread.join()
        assert _negative_zero_survives()
    assert seen == [False]


def test_options_belong_to_a_task(host_backend: Backend) -> None:
    async def one(rules: str) -> bool:
        with pto.options(numerics=rules, backend=host_backend.name):
            await asyncio.sleep(0)
            return _negative_zero_survives()

    async def both() -> list[bool]:
        return await asyncio.gather(one("a5"), one("isa"))

    assert asyncio.run(both()) == [True, False]


@pytest.mark.parametrize(
    ("keywords", "error", "match"),
    [
        ({"target": "a3"}, pto.ConstraintError, "target='a3'.*allowed a2a3, a5"),
        ({"target": 5}, pto.TypeMismatch, "target"),
        ({"target": ["a5"]}, pto.TypeMismatch, "target"),
        ({"backend": "cuda"}, pto.ConstraintError, "backend='cuda'.*allowed auto, numpy, cpu, triton"),
        ({"backend": np}, pto.TypeMismatch, "backend"),
        ({"numerics": "exact"}, pto.ConstraintError, "numerics='exact'.*allowed isa, formal"),
        ({"undefined": "ignore"}, pto.ConstraintError, "undefined='ignore'.*allowed error, zero"),
        ({"undefined": False}, pto.TypeMismatch, "undefined"),
    ],
)
def test_unknown_words(keywords: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match), pto.options(**keywords):
        pass
    dst, src = pto.TileBuf.full(TY, 1.0), pto.TileBuf.full(TY, 0.0)
    with pytest.raises(error, match=match):
        pto.TPARTMIN(dst, src, src, **keywords)
    assert (dst.numpy() == 1.0).all()


@pytest.mark.parametrize(
    ("threads", "error"), [(0, pto.ConstraintError), (-1, pto.ConstraintError), (1.5, pto.TypeMismatch)]
)
def test_refused_thread_counts(threads: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="threads"), pto.options(threads=threads):
        pass


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_thread_count_does_not_change_results(
    threads: int, host_backend: Backend, rng: np.random.Generator, pooled: Pooled
) -> None:
    ty = pto.TileBufType("f32", 4, 8)
    x, y = rng.standard_normal((2, 500, 4, 8)).astype(np.float32)
    with pto.options(threads=threads, backend=host_backend.name):
        dst = pto.tpartmin(pto.TileBuf.from_array(x, ty), pto.TileBuf.from_array(y, ty))
    assert (dst.numpy() == np.minimum(x, y)).all()
    assert pooled.calls == (threads - 1 if host_backend.name == "cpu" else 0)
