"""The CPU backend's own machinery: threads over tiles, code kept on disk, descriptors. Results: test_conformance."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pto_gpu as pto
from pto_gpu import jit
from pto_gpu.backends.cpu import compile as cpu_compile
from pto_gpu.backends.cpu import pool


@pytest.mark.parametrize("threads", [1, 2, 5, None])
@pytest.mark.parametrize("batch", [1, 7, 1000, 1025])
def test_every_tile_is_worked_on_once(batch: int, threads: int | None) -> None:
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def work(begin: int, end: int) -> None:
        with lock:
            seen.update(range(begin, end))

    pool.over_tiles(work, batch, 1 << 14, threads)
    assert seen == Counter(range(batch))


def test_an_error_in_any_thread_is_raised() -> None:
    def work(begin: int, end: int) -> None:
        if begin <= 700 < end:
            raise ValueError("tile 700")

    with pytest.raises(ValueError, match="tile 700"):
        pool.over_tiles(work, 1000, 1 << 14, 4)


def test_small_batches_stay_in_the_calling_thread() -> None:
    names = []
    pool.over_tiles(lambda begin, end: names.append(threading.current_thread().name), 16, 1024, 8)
    assert names == [threading.current_thread().name]


PROGRAM = """
import numpy as np, pto_gpu as pto
from pto_gpu.backends.cpu import partial
ty = pto.TileBufType("f32", 4, 8)
x = np.arange(32, dtype=np.float32).reshape(1, 4, 8)
d = pto.tpartmin(pto.TileBuf.from_array(x, ty), pto.TileBuf.from_array(31 - x, ty), backend="cpu")
assert (d.numpy() == np.minimum(x, 31 - x)).all()
stats = partial.choose.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def _cache_counts(cache: Path) -> list[int]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_second_process_does_not_compile_again(tmp_path: Path) -> None:
    assert _cache_counts(tmp_path) == [0, 1]
    assert _cache_counts(tmp_path) == [1, 0]


def test_without_any_place_for_a_cache_it_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def njit(cache: bool = False, **options: object) -> object:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(jit, "njit", njit)
    assert cpu_compile.kernel(len) is len
    assert asked == [True, False]


def test_the_stamp_depends_on_every_source(tmp_path: Path) -> None:
    sources = Path(cpu_compile.__file__).parent
    for source in sources.glob("*.py"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = jit.source_stamp(tmp_path)
    assert before == jit.source_stamp(sources)
    (tmp_path / "lanes.py").write_text((tmp_path / "lanes.py").read_text() + "#")
    assert jit.source_stamp(tmp_path) != before


def test_a_rebound_tile_is_not_read_at_its_old_address() -> None:
    ub = pto.UnifiedBuffer(batch=2)
    ty = pto.TileBufType("i32", 4, 8)
    a, b, d = ub.tile(ty), ub.tile(ty), ub.tile(ty)
    for tile, address in ((a, 0), (b, 0x400), (d, 0x800)):
        pto.TASSIGN(tile, address)
    a.numpy()[...], b.numpy()[...] = 5, 9
    pto.TPARTMIN(d, a, b, backend="cpu")
    assert (d.numpy() == 5).all()
    pto.TASSIGN(a, 0x400)
    pto.TPARTMIN(d, a, b, backend="cpu")
    assert (d.numpy() == 9).all()


def test_column_major_tiles_run_along_their_columns() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, (3, 40, 16)).astype(np.int16)
    y = rng.integers(-9, 9, (3, 40, 16)).astype(np.int16)
    ty = pto.TileBufType("i16", 16, 40, blayout="col_major")
    a, b = (pto.TileBuf.from_array(v.swapaxes(1, 2), ty, valid_row=11, valid_col=29) for v in (x, y))
    d = pto.TileBuf.full(ty, 77, batch=3, valid_row=11, valid_col=29)
    pto.TPARTMIN(d, a, b, backend="cpu")
    wanted = np.full((3, 16, 40), 77, np.int16)
    wanted[:, :11, :29] = np.minimum(x, y).swapaxes(1, 2)[:, :11, :29]
    assert (d.numpy() == wanted).all()


FORK = """
import os, threading, time
import numpy as np, pto_gpu as pto
def least(dtype, cols):
    ty = pto.TileBufType(dtype, 4, cols)
    return pto.trowmin(pto.TileBuf.full(ty, 3), backend="cpu").numpy()[0, :4, 0].tolist()
compiling = threading.Thread(target=least, args=("i8", 32))
compiling.start()
while not pto.backends.__dict__.get("cpu") and compiling.is_alive():
    time.sleep(0.001)
time.sleep(0.1)
child = os.fork()
if child == 0:
    os._exit(0 if least("i32", 8) == [3, 3, 3, 3] else 1)
compiling.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_while_a_thread_compiles(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    program = FORK.replace("import numpy as np, pto_gpu as pto", "import pto_gpu as pto, pto_gpu.backends")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["0"]


def test_a_large_call_while_the_interpreter_exits() -> None:
    program = """
import atexit, numpy as np, pto_gpu as pto
ty = pto.TileBufType("f32", 16, 16)
a, d = pto.TileBuf.full(ty, 2, batch=4000), pto.TileBuf.zeros(ty, batch=4000)
def last():
    pto.TPARTMIN(d, a, a, backend="cpu")
    print((d.numpy() == 2).all())
atexit.register(last)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(("rows", "cols", "layout"), [(16, 1, "col_major"), (8, 4, "col_major"), (3, 24, "row_major")])
def test_nothing_is_read_past_rows_that_do_not_fill_blocks(rows: int, cols: int, layout: str) -> None:
    """Memory order against the type's layout, up to the last byte before a page that must not be touched."""
    page, size = mmap.PAGESIZE, rows * cols * 4
    memory = mmap.mmap(-1, 2 * page)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    shape = (1, rows, cols) if layout == "col_major" else (1, cols, rows)
    x = np.frombuffer(memory, np.float32, rows * cols, page - size).reshape(shape)
    x[...] = 7
    x = x if layout == "col_major" else x.swapaxes(1, 2)
    ty = pto.TileBufType("f32", rows, cols, blayout=layout)
    guarded, other = pto.TileBuf.from_array(x, ty), pto.TileBuf.full(ty, 9)
    result = pto.TileBuf.zeros(ty)
    pto.TPARTMIN(result, guarded, other, backend="cpu")
    assert (result.numpy() == 7).all()
    pto.TPARTMIN(guarded, other, other, backend="cpu")
    assert (x == 9).all()


WITHOUT_F16C = """
import numpy as np
import pto_gpu as pto
from pto_gpu.backends.cpu.halves import converted_by_processor

every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(1, 256, 256)
ty = pto.TileBufType("f16", 256, 256)
slopes = np.array([0x3C00, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0x7E01, 0x3555, 0x1400, 0xBC01, 0x0000], np.uint16)
for slope in [*slopes.view(np.float16), *np.random.default_rng(7).standard_normal(20).astype(np.float16)]:
    d, s = pto.TileBuf.zeros(ty), pto.TileBuf.from_array(np.full_like(every, slope), ty)
    pto.TPRELU(d, pto.TileBuf.from_array(every, ty), s, backend="cpu")
    with np.errstate(all="ignore"):
        product = (every.astype(np.float64) * np.float64(slope)).astype(np.float16)
    product[np.isnan(product)] = np.array(0x7E00, np.uint16).view(np.float16)
    wanted = np.where(every > 0, every, product)
    wrong = np.flatnonzero(d.numpy().view(np.uint16) != wanted.view(np.uint16))
    assert not len(wrong), (slope, [hex(n) for n in wrong[:5]])
print("converted by the processor:", converted_by_processor())
"""


def test_halves_on_a_processor_that_does_not_convert_them(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
    }
    command = [sys.executable, "-c", WITHOUT_F16C]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("converted by the processor: ")
    if platform.machine() == "x86_64":
        assert done.stdout == "converted by the processor: False\n"
