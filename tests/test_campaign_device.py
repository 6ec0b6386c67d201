"""A campaign on a device finds what the same campaign finds on the host; interpreted where there is no GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import GPU
from torch.utils._python_dispatch import TorchDispatchMode

import pto_gpu as pto
from pto_gpu import backends
from pto_gpu.backends.numpy import evaluate
from pto_gpu.campaign import device
from pto_gpu.campaign.device import run_on_device
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.journal import Journal
from pto_gpu.campaign.results import Crash, Result
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles import storage
from pto_gpu.campaign.tiles.device_draw import DeviceBuffers, draw_on_device, parts
from pto_gpu.campaign.tiles.storage import block_tiles
from pto_gpu.campaign.tiles.valid import regions_of
from pto_gpu.isa import instructions
from pto_gpu.torch_arrays import TORCH
from pto_gpu.types import ELEMENT_TYPES

DEVICE = "cuda:0" if GPU else "cpu"
pytestmark = [pytest.mark.gpu] if GPU else []  # so that the GPU check runs them too
SHAPE = (16, 32)
STEP = 64  # tiles of this shape in a block
CASES = [(op, types) for op, r in instructions().items() for types in r.element_types["a5"]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few tiles cover several blocks of both storage plans, on the host too."""
    monkeypatch.setattr(storage, "BLOCK_ELEMENTS", STEP * SHAPE[0] * SHAPE[1])
    assert block_tiles(SHAPE) == STEP


def on_device(campaign: Campaign, execute: Any = None, **options: Any) -> Result:
    return run_on_device(campaign, execute, device=DEVICE, **options)


def assert_same_result(seen: Result, expected: Result) -> None:
    """Everything that was found, but for the time it took."""
    for field in dataclasses.fields(Result):
        a, b = getattr(seen, field.name), getattr(expected, field.name)
        if field.name == "first_failure" and b is not None:
            assert_same_tile(a, b)
        elif field.name != "seconds":
            assert a == b, field.name


def assert_same_tile(seen: SavedTile, expected: SavedTile) -> None:
    for field in dataclasses.fields(SavedTile):
        a, b = getattr(seen, field.name), getattr(expected, field.name)
        if field.name in ("arrays", "seen", "expected"):
            assert list(a) == list(b)
            for name in a:
                assert (a[name].dtype, a[name].tolist()) == (b[name].dtype, b[name].tolist()), name
        else:
            assert a == b, field.name


def reference(call):
    backends.load("numpy").run(call)


def wrong_bits(call):
    """One element in eight, chosen by its bits, is another one, wherever in dst it stands."""
    for operand in call.instruction.dsts:
        data = call.tiles[operand.name].data
        if isinstance(data, torch.Tensor):
            bits = data.view(getattr(torch, f"int{8 * data.element_size()}"))
            bits ^= ((bits & 7) == 7).to(bits.dtype)
        else:
            bits = data.view(f"u{data.itemsize}")
            bits ^= ((bits & 7) == 7).astype(bits.dtype)


def wrong_on_host(call):
    reference(call)
    wrong_bits(call)


def wrong_on_device(call):
    backends.load("triton").run(call)
    wrong_bits(call)


@pytest.mark.parametrize(("op", "dtypes"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_every_instruction_and_element_type_is_equal(op: str, dtypes: tuple[str, ...]) -> None:
    campaign = Campaign(op, dtypes, shape=SHAPE, tiles=3 * STEP + 20, backend="triton", seed=5)
    result = on_device(campaign)
    assert result.equal
    expected = run_campaign(campaign, reference)
    expected.backend = "triton"
    assert_same_result(result, expected)


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [("TPARTMIN", ("i8",)), ("TPARTARGMIN", ("f16", "u16")), ("TROWMIN", ("f32",)), ("TPRELU", ("f16",))],
)
def test_a_mutant_gives_the_same_mismatches(op: str, dtypes: tuple[str, ...]) -> None:
    campaign = Campaign(op, dtypes, shape=SHAPE, tiles=64 * 3 + 20, backend="triton", seed=9)
    expected = run_campaign(campaign, wrong_on_host)
    assert expected.mismatched_tiles > 40
    for wave in (128, 256):
        assert_same_result(on_device(campaign, wrong_on_device, wave=wave), expected)


@pytest.mark.parametrize("rules", ["formal", "simulator"])
@pytest.mark.parametrize("op", ["TPARTMIN", "TROWMIN"])
def test_a_wrong_nan_rule_gives_the_same_mismatches(op: str, rules: str) -> None:
    def by(run_call):
        return lambda call: run_call(call._replace(rules=pto.NUMERICS[rules]))

    campaign = Campaign(op, ("f32",), shape=SHAPE, tiles=150, backend="triton", undefined="zero")
    expected = run_campaign(campaign, by(reference))
    result = on_device(campaign, by(backends.load("triton").run))
    assert result.mismatched_tiles > 10
    assert_same_result(result, expected)


def test_one_wrong_tile_of_many_comes_back_and_can_be_run_again() -> None:
    def one_wrong(call):
        backends.load("triton").run(call)
        if call.tiles["dst"].type.cols > SHAPE[1]:  # the padded plan: tiles 64 to 127, 192 to 255
            call.tiles["dst"].data[70, 1, 2] = 77

    campaign = Campaign("TPARTMIN", ("i32",), shape=SHAPE, tiles=256, backend="triton")
    result = on_device(campaign, one_wrong, wave=256)
    assert result.crash is None
    (mismatch,) = result.mismatches
    assert (mismatch.tile, mismatch.row, mismatch.col, mismatch.seen) == (192 + 6, 1, 2, 77)
    assert result.tiles == 256
    assert not result.equal
    failure = result.first_failure
    assert failure is not None
    assert failure.tile == 198
    expected = failure.run_expected()["dst"].data[0]
    assert expected.view(np.uint32).tolist() == failure.expected["dst"].tolist()


def test_a_backend_that_raises_is_a_failure() -> None:
    calls = []

    def raising(call):
        calls.append(call.batch)
        if len(calls) > 2:
            raise ZeroDivisionError("no luck")
        backends.load("triton").run(call)

    campaign = Campaign("TPRELU", ("f32",), shape=SHAPE, tiles=500, backend="triton")
    result = on_device(campaign, raising, wave=128)
    assert result.crash == Crash(128, 191, "ZeroDivisionError: no luck")
    assert result.tiles == 128


def test_no_memory_is_one_clear_error() -> None:
    def broken(call):
        raise torch.OutOfMemoryError("out of memory\nby far")

    campaign = Campaign("TPRELU", ("f32",), shape=SHAPE, tiles=300, backend="triton")
    with pytest.raises(pto.BackendError, match=r"^no memory for a wave of tiles on .*: out of memory$"):
        on_device(campaign, broken)


def failing_at_the_fourth_part(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Campaign:
    """A campaign in which ``error`` comes up outside of the backend."""
    landed, real = [], device._to_host

    def failing(counts):
        landed.append(counts)
        if len(landed) == 4:
            raise error
        return real(counts)

    monkeypatch.setattr(device, "_to_host", failing)
    return Campaign("TPRELU", ("f32",), shape=SHAPE, tiles=1000, backend="triton")


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA driver error: invalid argument"),
        RuntimeError("HIP error: unspecified launch failure"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("Triton Error [HIP]:  Code: 1, Messsage: invalid argument"),
    ],
    ids=str,
)
def test_an_error_that_the_device_reports_later_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    message, advice = str(error), "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    result = on_device(failing_at_the_fourth_part(monkeypatch, type(error)(message + advice)), wave=128)
    assert result.crash == Crash(128, 383, f"{type(error).__name__}: {message}")
    assert not result.equal


@pytest.mark.parametrize("error", [RuntimeError("The size of tensor a must match"), TypeError("CUDA error: none")])
def test_a_fault_of_ours_is_no_failure_of_the_backend(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        on_device(failing_at_the_fourth_part(monkeypatch, error), wave=128)


def test_what_the_backend_raises_is_a_failure_whatever_it_is() -> None:
    def raising(call):
        raise RuntimeError("The size of tensor a must match")

    campaign = Campaign("TPRELU", ("f32",), shape=SHAPE, tiles=64, backend="triton")
    assert on_device(campaign, raising).crash == Crash(0, 63, "RuntimeError: The size of tensor a must match")


def test_ctrl_c_keeps_what_was_done() -> None:
    def progress(done):
        if done >= 256:
            raise KeyboardInterrupt

    campaign = Campaign("TPARTMIN", ("i16",), shape=SHAPE, tiles=1000, backend="triton")
    result = on_device(campaign, progress=progress, wave=128)
    assert result.interrupted
    assert result.tiles == 256
    assert not result.equal


def test_a_run_cut_anywhere_and_resumed_from_its_journal_is_that_of_the_host(tmp_path: Path) -> None:
    campaign = Campaign("TPARTARGMIN", ("f16", "u16"), shape=SHAPE, tiles=9 * STEP + 20, backend="triton", seed=9)
    expected = run_campaign(campaign, wrong_on_host)
    assert expected.mismatched_tiles > 100
    journal = Journal(tmp_path / "run.db", [campaign])

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    cut = on_device(campaign, wrong_on_device, progress=stop, wave=2 * STEP, journal=journal.of(0))
    assert (cut.interrupted, cut.spans) == (True, [(0, 2 * STEP)])
    again = on_device(campaign, wrong_on_device, wave=3 * STEP, journal=journal.of(0))
    journal.close()
    assert_same_result(again, expected)
    merged = Result(campaign, "execute")
    for span in ((0, 3 * STEP), (3 * STEP, 7 * STEP), (7 * STEP, campaign.tiles)):
        part = on_device(campaign, wrong_on_device, wave=2 * STEP, span=span)
        assert part.spans == [span]
        merged.add(part.as_wave(span[0]))
    assert_same_result(merged, expected)


def test_memory_does_not_grow_with_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wave is bounded whatever the number of tiles, and smaller where there is less memory."""
    campaign = Campaign("TPARTARGMIN", ("f32", "i32"), shape=SHAPE, tiles=10**9, backend="triton")
    sizes = []
    for gigabytes in (140, 12, 0.001):
        free = int(gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        sizes.append(device._wave_tiles(campaign, torch.device("cuda:0")))
    large, small, least = sizes
    assert large * SHAPE[0] * SHAPE[1] == device.WAVE_ELEMENTS
    assert least == 2 * STEP < small < large
    assert small % (2 * STEP) == 0


def test_run_campaign_goes_to_the_device_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    went = []

    def recorded(campaign, **how):
        went.append(campaign)
        return Result(campaign, "triton")

    monkeypatch.setattr(backends, "gpu", lambda: "cuda:0")
    monkeypatch.setattr(device, "run_on_device", recorded)
    campaign = Campaign("TPARTMIN", ("f32",), tiles=10, backend="triton")
    run_campaign(campaign)
    assert went == [campaign]
    assert run_campaign(dataclasses.replace(campaign, backend="cpu")).equal
    assert len(went) == 1


@pytest.mark.gpu
def test_the_default_shape_on_a_gpu() -> None:
    for op, dtypes in CASES:
        campaign = Campaign(op, dtypes, tiles=10_000, backend="triton")
        expected = run_campaign(campaign, reference)
        expected.backend = "triton"
        assert_same_result(run_campaign(campaign), expected)


class Waits(TorchDispatchMode):
    """Notes every operation that on a GPU would wait for it: values brought to the host, or from there."""

    NAMES = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "bincount", "equal", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.NAMES:
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("op", "dtypes"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_regions_and_reference_never_wait_for_the_device(op: str, dtypes: tuple[str, ...]) -> None:
    campaign = Campaign(op, dtypes, shape=SHAPE, tiles=8, undefined="zero")
    (part,) = parts(0, 8, SHAPE)
    drawn = draw_on_device(campaign, part, DeviceBuffers(torch.device(DEVICE)))
    words = torch.randint(0, 2**32, (8, 3, 4), device=DEVICE)
    for rules in ("isa", "formal", "simulator", "a5"):
        expected = drawn.poisoned_dsts("expected")
        arrays = drawn.logical({**expected, **drawn.sources})
        with Waits() as waits:
            regions_of(TORCH, words, campaign.record, SHAPE, 4, "zero")
            evaluate(TORCH, campaign.record, pto.NUMERICS[rules], ELEMENT_TYPES[dtypes[0]], arrays, drawn.regions)
        assert not waits.seen
    with Waits() as waits:
        torch.tensor([1]).item()
    assert waits.seen == ["aten.lift_fresh.default", "aten._local_scalar_dense.default"]


def test_waves_of_a_part_of_the_tiles_add_up_to_the_whole() -> None:
    """Tiles in the middle of a run of blocks, as a campaign that goes on where it was stopped has them."""
    campaign = Campaign("TPARTMIN", ("i8",), shape=SHAPE, tiles=300, backend="triton", seed=9)
    result = Result(campaign, "execute")
    for first, end in ((0, 70), (70, 192), (192, 300)):
        waves = list(device.device_waves(campaign, first, end, wrong_on_device, DEVICE, wave=64))
        assert [w.tiles for w in waves] == [min(64, end - t) for t in range(first, end, 64)]
        for wave in waves:
            result.add(wave)
    expected = run_campaign(campaign, wrong_on_host)
    # A block that was split is sampled twice for its categories; all else is the same.
    assert dataclasses.replace(result, categories=expected.categories, first_failure=None) == dataclasses.replace(
        expected, first_failure=None, seconds=0.0
    )
