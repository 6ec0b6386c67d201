"""The opt-in tuner: what it chooses, keeps and survives. The timer is a script: nothing here depends on speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import GPU
from rig import assert_same

import pto_gpu as pto
from pto_gpu.backends import triton as backend
from pto_gpu.backends import triton_tune
from pto_gpu.backends.triton_plan import Block, Machine, Plan, plan_of
from pto_gpu.backends.triton_tune import CANDIDATES, Tuner
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Call, Kind

DEVICE = "cuda:0" if GPU else "cpu"
pytestmark = [pytest.mark.gpu] if GPU else []  # so that the GPU check runs them too


class Script:
    """A timer that runs the action once and says how long it took, in the order of the candidates."""

    def __init__(self, *times: float) -> None:
        self.times = times
        self.asked = 0

    def __call__(self, action: Callable[[], None]) -> float:
        action()
        self.asked += 1
        return self.times[(self.asked - 1) % len(CANDIDATES)]


def best(place: int) -> Script:
    return Script(*(1.0 if i == place else 2.0 + i for i in range(len(CANDIDATES))))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_tune, "LEAST_BYTES", 1)


def call_of(name: str, dtype: str, tiles: dict[str, pto.TileBuf] | None = None, **changes: Any) -> Call:
    """TPARTMIN or TPRELU on 5 tiles of 8x32."""
    rules = pto.NUMERICS[changes.pop("rules", "isa")]
    if tiles is None:
        ty = pto.TileBufType(dtype, changes.pop("rows", 8), 32)
        tiles = {o: pto.TileBuf.zeros(ty, 5, DEVICE, **changes) for o in ("dst", "src0", "src1")}
    return Call(instructions()[name], tiles, rules, "error", "a5")


def tuned(tuner: Tuner, call: Call) -> Plan:
    return tuner.tuned(call, plan_of(call, Machine()))


def test_the_fastest_block_is_chosen_once(tmp_path: Path) -> None:
    timer = best(3)
    tuner, call = Tuner(backend.launch_call, tmp_path / "tuned.json", timer), call_of("TPARTMIN", "f32")
    assert tuned(tuner, call) is plan_of(call, Machine(CANDIDATES[3]))
    assert tuned(tuner, call) is plan_of(call, Machine(CANDIDATES[3]))
    assert timer.asked == len(CANDIDATES)


def test_a_tie_goes_to_the_fixed_rule() -> None:
    call = call_of("TPARTMIN", "f32")
    assert tuned(Tuner(backend.launch_call, None, Script(1.0, 1.0, 1.0, 1.0, 1.0)), call) is plan_of(call, Machine())


def test_a_second_process_times_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "tuned.json"
    first, second = best(1), best(4)
    calls = [call_of("TPARTMIN", "f32"), call_of("TPRELU", "f16")]
    for call in calls:
        tuned(Tuner(backend.launch_call, path, first), call)
    assert first.asked == 2 * len(CANDIDATES)
    tuner = Tuner(backend.launch_call, path, second)
    for call in calls:
        assert tuned(tuner, call) is plan_of(call, Machine(CANDIDATES[1]))
    assert second.asked == 0
    assert [p.name for p in path.parent.iterdir()] == ["tuned.json"]


def test_what_the_times_depend_on_is_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.arange(5, dtype=np.int32)
    calls = [
        call_of("TPARTMIN", "f32"),
        call_of("TPRELU", "f32"),
        call_of("TPARTMIN", "i32"),
        call_of("TPARTMIN", "f32", rows=16),
        call_of("TPARTMIN", "f32", valid_row=3),
        call_of("TPARTMIN", "f32", valid_row=counts),
        call_of("TPARTMIN", "f32", rules="formal"),
    ]
    timer = best(0)
    tuner = Tuner(backend.launch_call, None, timer)
    for done, call in enumerate(calls, 1):
        tuned(tuner, call)
        assert timer.asked == done * len(CANDIDATES)
    for changes in ({"valid_row": 5}, {"valid_row": counts[::-1]}):  # other counts, same pattern
        tuned(tuner, call_of("TPARTMIN", "f32", **changes))
    assert timer.asked == len(calls) * len(CANDIDATES)
    monkeypatch.setattr(triton_tune, "_device_name", lambda device: "another")
    tuned(tuner, calls[0])
    assert timer.asked == (len(calls) + 1) * len(CANDIDATES)


def test_timing_writes_no_tile_of_the_call(rng: np.random.Generator) -> None:
    """dst is src0: TPRELU twice in place would be wrong."""
    ty = pto.TileBufType("f32", 8, 32)
    x, slope = rng.standard_normal((2, 5, 8, 32)).astype(np.float32)
    a, b = (pto.TileBuf.from_array(torch.from_numpy(v.copy()).to(DEVICE), ty, 7, 30) for v in (x, slope))
    call = call_of("TPRELU", "f32", {"dst": a, "src0": a, "src1": b})
    plan = tuned(Tuner(backend.launch_call, None, best(2)), call)
    assert_same(a.numpy(), x, "after timing")
    backend.launch_call(call, plan)
    wanted = pto.TileBuf.from_array(x.copy(), ty, 7, 30)
    pto.TPRELU(wanted, wanted, pto.TileBuf.from_array(slope, ty, 7, 30), backend="numpy")
    assert_same(a.numpy(), wanted.numpy(), "after the call")


@pytest.mark.parametrize("block", CANDIDATES)
@pytest.mark.parametrize(("op", "dtypes"), [(op, r.element_types["a5"][-1]) for op, r in instructions().items()])
def test_every_candidate_gives_the_same_bits(op: str, dtypes: tuple[str, ...], block: Block) -> None:
    from pto_gpu.campaign.device import run_on_device
    from pto_gpu.campaign.settings import Campaign

    def execute(call: Call) -> None:
        backend.launch_call(call, plan_of(call, backend.machine()._replace(block=block)))

    assert run_on_device(Campaign(op, dtypes, tiles=7, backend="triton"), execute, device=DEVICE).equal


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"3",
        b'{"a": 3}',
        b'{"a": [1]}',
        b'{"a": {"b": 1}}',
        b'{"a": null}',
    ],
)
def test_a_damaged_file_costs_the_timing_only(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_bytes(content)
    call = call_of("TPARTMIN", "f32")
    assert tuned(Tuner(backend.launch_call, path, best(2)), call) is plan_of(call, Machine(CANDIDATES[2]))
    again = best(1)
    assert tuned(Tuner(backend.launch_call, path, again), call) is plan_of(call, Machine(CANDIDATES[2]))
    assert again.asked == 0


def test_a_block_that_is_no_candidate_is_not_used(tmp_path: Path) -> None:
    path, call = tmp_path / "tuned.json", call_of("TPARTMIN", "f32")
    tuned(Tuner(backend.launch_call, path, best(2)), call)
    held = json.loads(path.read_text())
    path.write_text(json.dumps({key: [3, 5] for key in held}))
    assert tuned(Tuner(backend.launch_call, path, best(1)), call) is plan_of(call, Machine(CANDIDATES[1]))
    path.write_text(json.dumps({key: list(map(float, CANDIDATES[2])) for key in held}))
    plan = tuned(Tuner(backend.launch_call, path, best(1)), call)
    assert plan.constants == plan_of(call, Machine(CANDIDATES[2])).constants
    assert type(plan.threads) is int


def test_a_file_that_cannot_be_written_breaks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    call = call_of("TPARTMIN", "f32")
    for path in (tmp_path / "file" / "tuned.json", tmp_path / ("x" * 300) / "tuned.json", None):
        assert tuned(Tuner(backend.launch_call, path, best(2)), call) is plan_of(call, Machine(CANDIDATES[2]))
    assert [r.message[:33] for r in caplog.records] == ["what tuning found is not kept: [E"] * 2


def test_two_processes_keep_what_the_other_found(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    one, other = (Tuner(backend.launch_call, path, best(i)) for i in (1, 2))
    tuned(one, call_of("TPARTMIN", "f32"))
    tuned(other, call_of("TPRELU", "f32"))
    assert sorted(json.loads(path.read_text()).values()) == sorted(map(list, CANDIDATES[1:3]))


def test_a_candidate_that_fails_is_passed_over() -> None:
    def failing(action: Callable[[], None]) -> float:
        action()
        raise RuntimeError("out of resource: shared memory")

    call, timer = call_of("TPARTMIN", "f32"), best(0)
    fixed = plan_of(call, Machine())
    assert tuned(Tuner(backend.launch_call, None, failing), call) is fixed

    def first_fails(action: Callable[[], None]) -> float:
        return failing(action) if not timer.asked and timer(action) else timer(action)

    assert tuned(Tuner(backend.launch_call, None, first_fails), call) is not fixed


def test_a_call_too_small_to_be_timed_is_not_and_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_tune, "LEAST_BYTES", 5 * 8 * 32 * 4 + 1)
    timer, call = best(2), call_of("TPARTMIN", "f32")
    tuner = Tuner(backend.launch_call, None, timer)
    assert tuned(tuner, call) is plan_of(call, Machine())
    assert timer.asked == 0
    monkeypatch.setattr(triton_tune, "LEAST_BYTES", 1)
    assert tuned(tuner, call) is plan_of(call, Machine(CANDIDATES[2]))


def test_no_thread_is_left_with_less_than_a_vector() -> None:
    """TPARTARGMIN has twice the threads of TPARTMIN, for the same block."""
    value, index = (pto.TileBufType(t, 8, 32) for t in ("f32", "i32"))
    record, timer = instructions()["TPARTARGMIN"], best(0)
    types = {o.name: value if o.kind is Kind.VALUE else index for o in record.operands}
    call = Call(record, {n: pto.TileBuf.zeros(t, 5, DEVICE) for n, t in types.items()}, pto.NUMERICS["isa"], "", "a5")
    tuned(Tuner(backend.launch_call, None, timer), call)
    assert timer.asked == sum(plan_of(call, Machine(b)).threads * 16 <= b.bytes for b in CANDIDATES) == 3


def test_a_call_that_is_captured_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, call = best(2), call_of("TPARTMIN", "f32")
    monkeypatch.setattr(triton_tune, "_capturing", lambda: True)
    assert tuned(Tuner(backend.launch_call, None, timer), call) is plan_of(call, Machine())
    assert timer.asked == 0


def test_a_large_call_is_timed_on_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_tune, "MOST_BYTES", 2 * 8 * 32 * 4)
    batches = []

    def launch(call: Call, plan: Plan) -> None:
        batches.append((call.batch, [t.region.rows.tolist() for t in call.tiles.values()]))

    tuned(Tuner(launch, None, best(0)), call_of("TPARTMIN", "f32", valid_row=np.arange(5, dtype=np.int32)))
    assert batches == [(2, [[0, 1]] * 3)] * len(CANDIDATES)


def test_no_memory_for_timing_is_no_error() -> None:
    def launch(call: Call, plan: Plan) -> None:
        raise torch.OutOfMemoryError("no")

    call = call_of("TPARTMIN", "f32")
    assert tuned(Tuner(launch, None, best(2)), call) is plan_of(call, Machine())


def test_it_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, wanted in ((None, False), ("0", False), ("", False), ("1", True)):
        if value is None:
            monkeypatch.delenv("PTO_GPU_TUNE", raising=False)
        else:
            monkeypatch.setenv("PTO_GPU_TUNE", value)
        assert triton_tune.asked_for() is wanted
    monkeypatch.setenv("PTO_GPU_TUNE", "yes")
    with pytest.raises(pto.ConstraintError, match="variable PTO_GPU_TUNE='yes' is out of range: allowed 0 to 1"):
        triton_tune.asked_for()


def test_only_compiled_kernels_are_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for interpreted, value, wanted in ((False, "1", True), (True, "1", False), (False, "0", False)):
        monkeypatch.setattr(backend, "INTERPRETED", interpreted)
        monkeypatch.setenv("PTO_GPU_TUNE", value)
        assert isinstance(backend._tuner.__wrapped__(), Tuner) is wanted
    assert list(tmp_path.iterdir()) == []


def test_a_call_goes_through_the_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def launch(call: Call, plan: Plan) -> None:
        launched.append(plan)

    monkeypatch.setattr(backend, "_tuner", lambda: Tuner(launch, None, best(2)))
    monkeypatch.setattr(backend, "launch_call", launch)
    call = call_of("TPARTMIN", "f32")
    backend.run(call)
    assert launched == [plan_of(call, backend.machine()._replace(block=b)) for b in (*CANDIDATES, CANDIDATES[2])]


def test_the_file_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert triton_tune.cache_file() == tmp_path / "pto-gpu" / "tuned.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert triton_tune.cache_file() == tmp_path / ".cache" / "pto-gpu" / "tuned.json"


@pytest.mark.gpu
def test_on_a_gpu_a_second_process_times_nothing(tmp_path: Path) -> None:
    program = """
import pto_gpu as pto
from pto_gpu.backends import triton_tune
times, real = [], triton_tune.Tuner._time
triton_tune.Tuner._time = lambda *a: times.append(real(*a)) or times[-1]
a = pto.TileBuf.full(pto.TileBufType("f32", 64, 64), 2.0, 2000, "cuda:0")
d = pto.tpartmin(a, a)
print(len(times), (d.numpy() == 2).all())
"""
    environment = {**os.environ, "PTO_GPU_TUNE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    for asked in (len(CANDIDATES), 0):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(asked), "True"]
