"""tests/ptx, which executes compiled kernels: what its instructions compute, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from ptx.executor import run
from ptx.kernel import parse
from ptx.memory import AccessError, GlobalMemory

THREADS = 64
HEAD = """
.version 8.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1
)
.reqntid 64
{
	.reg .pred %p<9>;
	.reg .b16 %rs<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<9>;
	ld.param.b64 %rd0, [kernel_param_0];   // x
	ld.param.b64 %rd1, [kernel_param_1];   // y
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd2, %r0, 4;
	add.s64 %rd0, %rd0, %rd2;
	add.s64 %rd1, %rd1, %rd2;
	ld.global.b32 %r1, [ %rd0 + 0 ];
"""
TAIL = """
	ret;
}
"""


def _run(body: str, x: Sequence[int] | np.ndarray, readable: int = THREADS) -> np.ndarray:
    """What is in y after x was read into ``%r1`` and the body has run; ``readable``: words of x."""
    x = np.resize(np.array(x, np.int64).astype(np.uint32), THREADS)
    y = np.zeros(THREADS, np.uint32)
    memory = GlobalMemory([(x.ctypes.data, 4 * readable), (y.ctypes.data, y.nbytes)])
    run(parse(HEAD + body + TAIL), 1, [x.ctypes.data, y.ctypes.data], memory, shared_bytes=256)
    return y


def _stored(body: str, x: Sequence[int] | np.ndarray) -> list[int]:
    """The same of a body that leaves its result in ``%r2``, for each of ``x``."""
    return _run(body + "st.global.b32 [ %rd1 + 0 ], { %r2 };", x)[: len(x)].tolist()


NAN, HALF_NAN = 0x7FFFFFFF, 0x7FFF


@pytest.mark.parametrize(
    ("body", "results"),
    [
        ("add.s32 %r2, %r1, -1;", {0: 0xFFFFFFFF, 5: 4}),
        ("sub.s32 %r2, %r1, 7;", {5: 0xFFFFFFFE}),
        ("min.s32 %r2, %r1, 3;", {0xFFFFFFFF: 0xFFFFFFFF, 7: 3}),
        ("min.u32 %r2, %r1, 3;", {0xFFFFFFFF: 3, 1: 1}),
        ("min.s16x2 %r2, %r1, 0x0002FFFF;", {0xFFFE0001: 0xFFFEFFFF, 0x00038000: 0x00028000}),
        ("max.u32 %r2, %r1, 3;", {0xFFFFFFFF: 0xFFFFFFFF, 1: 3}),
        ("max.u16x2 %r2, %r1, 0x00027FFF;", {0xFFFE8000: 0xFFFE8000, 0x00017000: 0x00027FFF}),
        ("and.b32 %r2, %r1, 0xFF00FF00;", {0x12345678: 0x12005600}),
        ("or.b32 %r2, %r1, 0xFF00FF00;", {0x12345678: 0xFF34FF78}),
        ("xor.b32 %r2, %r1, 0xFF00FF00;", {0x12345678: 0xED34A978}),
        ("not.b32 %r2, %r1;", {0x12345678: 0xEDCBA987}),
        (
            "setp.lt.s32 %p0, %r1, 5; setp.gt.s32 %p1, %r1, 2; xor.pred %p2, %p0, %p1; or.pred %p3, %p0, %p1;"
            "and.pred %p4, %p0, %p1; not.pred %p5, %p4; selp.b32 %r2, 1, 0, %p2; selp.b32 %r3, 2, 0, %p3;"
            "selp.b32 %r4, 4, 0, %p5; or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4;",
            {1: 7, 3: 2, 6: 7},
        ),
        ("shr.s32 %r2, %r1, 40;", {0x80000000: 0xFFFFFFFF, 0x7FFFFFFF: 0}),
        ("shr.u32 %r2, %r1, 4;", {0x80000000: 0x08000000}),
        ("shl.b32 %r2, %r1, 32;", {1: 0}),
        ("shf.l.wrap.b32 %r2, %r1, 0x12345678, 8;", {0xAB000000: 0x345678AB}),
        ("bfe.u32 %r2, %r1, 4, 8;", {0xABCD: 0xBC}),
        ("bfe.s32 %r2, %r1, 4, 8;", {0xABCD: 0xFFFFFFBC, 0x0070: 7}),
        ("bfe.s32 %r2, %r1, 28, 8;", {0x90000000: 0xFFFFFFF9, 0x70000000: 7}),  # beyond the number: its sign
        ("bfe.s32 %r2, %r1, 32, 1;", {0x80000000: 0xFFFFFFFF, 0x7FFFFFFF: 0}),
        ("bfe.u32 %r2, %r1, 32, 1;", {0x80000000: 0}),
        ("bfe.s32 %r2, %r1, 31, 0;", {0x80000000: 0}),
        ("prmt.b32 %r2, %r1, 0x44332211, 0x8B40;", {0x00000080: 0xFF001180}),
        ("mul.lo.s32 %r2, %r1, -3;", {5: 0xFFFFFFF1}),
        ("mul.hi.u32 %r2, %r1, 0x10000;", {0xABCD1234: 0xABCD}),
        ("mul.wide.s32 %rd3, %r1, -2; mov.b64 {%r3, %r2}, %rd3;", {0x7FFFFFFF: 0xFFFFFFFF, 0x80000000: 1}),
        ("mad.lo.s32 %r2, %r1, 10, -1;", {4: 39}),
        ("mad.wide.u32 %rd3, %r1, 16, -1; mov.b64 {%r3, %r2}, %rd3;", {0x80000000: 7, 0: 0xFFFFFFFF}),
        ("div.u32 %r2, %r1, 3;", {0xFFFFFFFF: 0x55555555, 8: 2}),
        ("div.s32 %r2, %r1, 2;", {0xFFFFFFF9: 0xFFFFFFFD, 7: 3}),
        # A NaN that is made is canonical; subnormals are kept, and a product is rounded once.
        ("mul.rn.f32 %r2, %r1, 0f3F800000;", {0x7F800001: NAN, 0xFFC12345: NAN, 1: 1, 0x80000000: 0x80000000}),
        ("mul.rn.f32 %r2, %r1, 0f3F000000;", {0x00000003: 2, 0x00000001: 0, 0xFF800000: 0xFF800000}),
        ("mul.rn.f16x2 %r2, %r1, 0x38003C00;", {0x00037C01: 0x0002_0000 | HALF_NAN, 0x00013C01: 0x00003C01}),
        ("min.f32 %r2, %r1, 0f80000000;", {0: 0x80000000, 0x7FC00001: 0x80000000, 0xBF800000: 0xBF800000}),
        ("min.f32 %r2, %r1, 0f7FA00000;", {0xFFC00001: NAN, 0x00000001: 0x00000001, 0x7F800000: 0x7F800000}),
        ("min.NaN.f32 %r2, %r1, 0f00000000;", {0x80000000: 0x80000000, 0xFF800001: NAN, 0x3F800000: 0}),
        ("min.NaN.f16x2 %r2, %r1, 0x7E000000;", {0x00008000: 0x7FFF8000, 0xFC003C00: 0x7FFF0000}),
        ("max.f16x2 %r2, %r1, 0x7E008000;", {0x00000000: 0x00000000, 0xFC00FFFF: 0xFC008000}),
        (
            "mov.b64 %rd3, {%r1, %r1}; mov.b64 %rd4, {0x3F800000, 0x40000000}; mul.rn.f32x2 %rd3, %rd3, %rd4;"
            "mov.b64 {%r3, %r4}, %rd3; xor.b32 %r2, %r3, %r4;",
            {0x3F800000: 0x3F800000 ^ 0x40000000, 1: 1 ^ 2, 0xFF800001: 0},
        ),
        ("abs.f32 %r2, %r1;", {0x80000001: 1, 0x80000000: 0, 0xFF800000: 0x7F800000}),
        ("abs.f16x2 %r2, %r1;", {0x8000FE01: 0x00007FFF, 0xBC003C00: 0x3C003C00}),
        ("cvt.u16.u32 %rs0, %r1; cvt.u32.u16 %r2, %rs0;", {0xABCDEF01: 0xEF01}),
        ("cvt.u16.u32 %rs0, %r1; cvt.s32.s16 %r2, %rs0;", {0xABCDEF01: 0xFFFFEF01}),
        ("mov.b32 {%rs0, %rs1}, %r1; mov.b32 %r2, {%rs1, %rs0};", {0x12345678: 0x56781234}),
        ("setp.lt.s32 %p0, %r1, 0; selp.b32 %r2, 1, 2, %p0;", {0x80000000: 1, 0: 2}),
        ("setp.ltu.f32 %p0, %r1, 0f00000000; selp.b32 %r2, 1, 2, %p0;", {0x7FC00000: 1, 0x80000000: 2}),
        ("setp.lt.f32 %p0, %r1, 0f00000000; selp.b32 %r2, 1, 2, %p0;", {0x7FC00000: 2, 0xBF800000: 1}),
        ("setp.lt.u32 %p0, %r1, 5; selp.b32 %r2, 1, 2, %p0;", {0x80000000: 2, 4: 1}),
        (
            "setp.lt.f16x2 %p0|%p1, %r1, 0x00003C00; selp.b32 %r3, 1, 0, %p0; selp.b32 %r2, 2, %r3, %p1;",
            {0x00000000: 1, 0x80013C00: 2, 0x7E007E00: 0},
        ),
        ("mov.b32 %r2, 7; setp.eq.s32 %p0, %r1, 0; @!%p0 mov.b32 %r2, 9;", {0: 7, 1: 9}),
    ],
)  # fmt: skip
def test_instruction(body: str, results: dict[int, int]) -> None:
    assert _stored(body, list(results)) == list(results.values())


@pytest.mark.parametrize(
    ("relation", "found"),
    [
        ("eq", [0, 1, 0, 0]), ("ne", [1, 0, 1, 0]), ("lt", [1, 0, 0, 0]), ("le", [1, 1, 0, 0]), ("gt", [0, 0, 1, 0]),
        ("ge", [0, 1, 1, 0]), ("ltu", [1, 0, 0, 1]), ("leu", [1, 1, 0, 1]), ("gtu", [0, 0, 1, 1]),
        ("geu", [0, 1, 1, 1]), ("num", [1, 1, 1, 0]), ("nan", [0, 0, 0, 1]),
    ],
)  # fmt: skip
def test_relation_of_floats(relation: str, found: list[int]) -> None:
    """Of -1, 1, 2 and a NaN to 1: with a NaN no relation holds, ``ne`` neither, but those that end in ``u``."""
    body = f"setp.{relation}.f32 %p0, %r1, 0f3F800000; selp.b32 %r2, 1, 0, %p0;"
    assert _stored(body, [0xBF800000, 0x3F800000, 0x40000000, 0x7FC00000]) == found


def test_threads_part_and_meet() -> None:
    """Odd threads walk a loop of their own length; all meet again at the barrier."""
    body = """
        mov.b32 %r2, 0;
        and.b32 %r3, %r0, 1;
        setp.eq.s32 %p0, %r3, 0;
        @%p0 bra $join;
    $loop:
        add.s32 %r2, %r2, %r1;
        add.s32 %r3, %r3, 1;
        setp.le.s32 %p1, %r3, %r0;
        @%p1 bra $loop;
    $join:
        bar.sync 0;
    """
    thread = np.arange(THREADS)
    assert _stored(body, np.full(THREADS, 3)) == np.where(thread % 2, 3 * thread, 0).tolist()


def test_a_barrier_that_some_threads_miss() -> None:
    with pytest.raises(AccessError, match=r"bar.sync 0: not all 64 threads"):
        _run("setp.lt.s32 %p0, %r0, 32; @%p0 bra $end; bar.sync 0; $end:", [0])


def test_lanes_of_a_warp() -> None:
    x = np.arange(THREADS) * 5 % 64
    assert _stored("shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;", x) == x[np.arange(THREADS) ^ 16].tolist()
    assert _stored("shfl.sync.bfly.b32 %r2, %r1, 33, 31, -1;", x) == x[np.arange(THREADS) ^ 1].tolist()  # 5 bits count
    assert _stored("redux.sync.min.s32 %r2, %r1, 0xffffffff;", x - 9) == _of_warps((x - 9).reshape(2, 32).min(1))
    assert _stored("redux.sync.min.u32 %r2, %r1, 0xffffffff;", x - 9) == _of_warps([1, 0])
    with pytest.raises(AccessError, match="not all 32 threads"):
        _run("setp.lt.s32 %p0, %r0, 8; @%p0 shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", [0])


@pytest.mark.parametrize(("form", "first", "second"), [("min", 0x80000000, NAN), ("min.NaN", NAN, NAN)])
def test_floats_of_a_warp(form: str, first: int, second: int) -> None:
    """Of zeros of both signs and a NaN, and of NaNs only."""
    x = np.where(np.arange(THREADS) < 32, 0, 0xFFC00001)
    x[[3, 5]] = 0x80000000, 0x7F800001
    assert _stored(f"redux.sync.{form}.f32 %r2, %r1, 0xffffffff;", x) == _of_warps([first, second])


def _of_warps(values: Sequence[int] | np.ndarray) -> list[int]:
    """Two values, each of the 32 threads of a warp."""
    return [int(value) & 0xFFFFFFFF for value in values for _ in range(32)]


def test_shared_memory() -> None:
    """Each thread reads what the thread opposite wrote before the barrier."""
    body = """
        mov.b32 %r4, global_smem;
        shl.b32 %r5, %r0, 2;
        add.s32 %r5, %r4, %r5;
        st.shared.b32 [ %r5 + 0 ], %r1;
        bar.sync 0;
        xor.b32 %r6, %r5, 252;
        ld.shared.b32 %r2, [ %r6 + 0 ];
    """
    x = np.arange(THREADS) + 1000
    assert _stored(body, x) == x[::-1].tolist()
    with pytest.raises(AccessError, match="beyond the 256 of shared memory"):
        _run("mov.b32 %r4, global_smem; st.shared.b32 [ %r4 + 256 ], %r1;", [0])


def test_shared_memory_of_another_warp_without_a_barrier() -> None:
    """Each warp may read what it wrote itself, and that of the other warp only after a barrier."""
    body = """
        shl.b32 %r5, %r0, 2;
        st.shared.b32 [ %r5 + 0 ], %r1;
        xor.b32 %r6, %r5, {};
        ld.shared.b32 %r2, [ %r6 + 0 ];
    """
    x = np.arange(THREADS)
    assert _stored(body.format(124), x) == (x ^ 31).tolist()
    with pytest.raises(AccessError, match=r"ld\.shared\.b32 .*another warp wrote, and no barrier"):
        _stored(body.format(252), x)


def test_matrices() -> None:
    """A row of 16 bytes from each of 8 threads; two of its elements to each thread, transposed or not."""
    body = """
        mov.b32 %r4, global_smem;
        shl.b32 %r5, %r0, 2;
        and.b32 %r5, %r5, 124;
        add.s32 %r5, %r4, %r5;
        st.shared.b32 [ %r5 + 0 ], %r1;
        bar.sync 0;
        and.b32 %r6, %r0, 7;
        shl.b32 %r6, %r6, 4;
        add.s32 %r6, %r4, %r6;
        ldmatrix.sync.aligned.m8n8.x1{}.shared.b16 {{%r2}}, [%r6];
    """
    halves = np.arange(64, dtype=np.uint16).reshape(8, 8)
    x = halves.reshape(-1, 2).view(np.uint32)[:, 0]
    assert _stored(body.format(""), np.tile(x, 2))[:32] == x.tolist()
    turned = np.ascontiguousarray(halves.T).reshape(-1, 2).view(np.uint32)[:, 0]
    assert _stored(body.format(".trans"), np.tile(x, 2))[:32] == turned.tolist()


@pytest.mark.parametrize("order", ["", ".trans"])
def test_matrices_are_stored_as_they_are_loaded(order: str) -> None:
    """Two to a warp, in the other order than they lay in, whose rows the threads 0 to 7 and 8 to 15 name."""
    body = f"""
        shr.u32 %r3, %r0, 5;
        mul.lo.s32 %r3, %r3, 128;
        and.b32 %r4, %r0, 7;
        shl.b32 %r4, %r4, 4;
        add.s32 %r5, %r3, %r4;
        stmatrix.sync.aligned.m8n8.x1{order}.shared.b16 [%r5], {{%r1}};
        and.b32 %r6, %r0, 31;
        shl.b32 %r6, %r6, 2;
        add.s32 %r6, %r3, %r6;
        ld.shared.b32 %r2, [ %r6 + 0 ];
    """
    x = np.arange(2 * THREADS, dtype=np.uint16).view(np.uint32)
    matrices = x.view(np.uint16).reshape(2, 8, 8)
    lies = np.ascontiguousarray(matrices.swapaxes(1, 2) if order else matrices)
    assert _stored(body, x) == lies.view(np.uint32).ravel().tolist()


def test_accesses_that_a_gpu_refuses() -> None:
    with pytest.raises(AccessError, match="not a multiple of 16"):
        _run("ld.global.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd0 + 0 ];", [0])
    with pytest.raises(AccessError, match="no argument's memory"):
        _run("", [0], readable=THREADS - 1)
    with pytest.raises(AccessError, match="no argument's memory"):
        _run("st.global.b32 [ %rd1 + 4 ], { %r1 };", [0])


@pytest.mark.parametrize(
    "instruction",
    [
        "fma.rn.f32 %r2, %r1, %r1, %r1",
        "add.ftz.f32 %r2, %r1, %r1",
        "add.sat.s32 %r2, %r1, %r1",
        "abs.ftz.f32 %r2, %r1",
        "mul.rn.ftz.f32 %r2, %r1, %r1",
        "mul.rz.f32 %r2, %r1, %r1",
        "mul24.lo.s32 %r2, %r1, %r1",
        "div.full.f32 %r2, %r1, %r1",
        "min.ftz.f32 %r2, %r1, %r1",
        "min.xorsign.abs.f32 %r2, %r1, %r1",
        "mad.lo.sat.s32 %r2, %r1, %r1, %r1",
        "setp.lt.ftz.f32 %p0, %r1, %r1",
        "setp.lt.and.s32 %p0, %r1, %r1, %p0",
        "cvt.rn.f32.s32 %r2, %r1",
        "cvt.sat.u8.u32 %rs2, %r1",
        "prmt.b32.f4e %r2, %r1, %r1, 0",
        "shf.r.clamp.b32 %r2, %r1, %r1, 0",
        "ld.volatile.global.b32 %r2, [%rd0]",
        "st.global.v8.b32 [%rd0], {%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1}",
        "bar.arrive 0, 64",
        "bar.sync 1",
        "shfl.sync.up.b32 %r2, %r1, 1, 0, -1",
        "shfl.sync.bfly.b32 %r2, %r1, 1, 0x1c1f, -1",
        "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff",
        "redux.sync.add.s32 %r2, %r1, -1",
        "redux.sync.min.abs.f32 %r2, %r1, -1",
        "redux.sync.min.s32 %r2, %r1, 0xffff",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r2, %r3}, [%r1]",
        "bra.other $end",
    ],
)
def test_what_it_does_not_know(instruction: str) -> None:
    with pytest.raises(NotImplementedError, match=re.escape(instruction.split()[0])):
        _run(f"{instruction}; $end:", [0])
