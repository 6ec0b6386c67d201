"""Tiles made on a device are those of the CPU generator, bit for bit; interpreted where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from conftest import GPU

from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.categories import tables as tables_of
from pto_gpu.campaign.tiles.device_draw import DeviceBuffers, draw_on_device, kernel_constants, parts
from pto_gpu.campaign.tiles.draw import Drawn, draw
from pto_gpu.campaign.tiles.storage import PLANS, bits, block_tiles, plan_of, slots
from pto_gpu.isa import instructions

DEVICE = torch.device("cuda:0" if GPU else "cpu")
pytestmark = [pytest.mark.gpu] if GPU else []  # so that the GPU check runs them too
STEP = block_tiles((16, 16))
CASES = [(op, types) for op, r in instructions().items() for types in dict.fromkeys(sum(r.element_types.values(), ()))]


def on_host(count: Any) -> Any:
    return count if isinstance(count, int) else count.cpu().numpy()


def assert_drawn_alike(campaign: Campaign, first: int, n: int) -> None:
    """The ``n`` tiles from ``first``, against what the host draws block by block."""
    buffers, seen, wanted = DeviceBuffers(DEVICE), Counter[str](), Counter[str]()
    step, tiles = block_tiles(campaign.grid), 0
    for part in parts(first, n, campaign.grid):
        drawn = draw_on_device(campaign, part, buffers)
        numbers = part.numbers(np.arange(part.n))
        for block in dict.fromkeys((numbers // step).tolist()):
            local = np.flatnonzero(numbers // step == block)
            assert plan_of(block * step, campaign.grid) == part.plan
            expected = draw(campaign, int(numbers[local[0]]), len(local))
            for name, host in expected.sources.items():
                held = drawn.sources[name].bits[local].cpu().numpy()
                assert held.view(f"u{held.itemsize}").tobytes() == bits(host.data).tobytes(), (name, block)
            assert_regions_alike(drawn.regions, expected, local)
            wanted.update(expected.valid_kinds)
            wanted.update(expected.operand_kinds)
            tiles += len(local)
        for kind, count in (*drawn.valid_kinds.items(), *drawn.operand_kinds):
            seen[kind] += int(count)
    assert tiles == n
    assert seen == wanted


def assert_regions_alike(regions: Any, expected: Drawn, local: Any) -> None:
    assert set(regions) == set(expected.regions)
    for name, region in expected.regions.items():
        for seen, wanted in zip(map(on_host, regions[name]), region, strict=True):
            assert np.array_equal(seen if isinstance(seen, int) else seen[local], wanted), name


@pytest.mark.parametrize(("op", "dtypes"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_every_operand_of_both_plans_is_that_of_the_host(op: str, dtypes: tuple[str, ...]) -> None:
    """From the middle of a packed block to the middle of a padded one."""
    target = "a5" if dtypes in instructions()[op].element_types["a5"] else "a2a3"
    campaign = Campaign(op, dtypes, target=target, seed=2024)
    step = block_tiles(campaign.grid)
    assert_drawn_alike(campaign, step - 20, 45)


@pytest.mark.parametrize(
    ("seed", "first"),
    [
        (0, 0),
        (2**31, 2**31 - 5),
        (2**32 + 5, 2**32 - 7),
        (2**63, (2**40 + 1) * STEP - 3),
        (2**64 - 1, 2**32 + STEP - 2),
    ],
)
def test_any_seed_and_any_tile_number(seed: int, first: int) -> None:
    assert_drawn_alike(Campaign("TPARTMIN", ("f16",), seed=seed), first, 12)
    assert_drawn_alike(Campaign("TROWMIN", ("i8",), seed=seed), first, 12)


@pytest.mark.parametrize("shape", [(1, 8), (127, 64), (3, 24), (1, 2048), (300, 8)])
@pytest.mark.parametrize("op", sorted(instructions()))
def test_other_shapes(op: str, shape: tuple[int, int]) -> None:
    dtypes = next(t for t in instructions()[op].element_types["a5"] if t[0] == "f32")
    step = block_tiles(shape)
    assert_drawn_alike(Campaign(op, dtypes, shape=shape), step - min(step, 3), 7)


@pytest.mark.parametrize("op", sorted(instructions()))
def test_regions_that_the_page_leaves_open(op: str) -> None:
    assert_drawn_alike(Campaign(op, instructions()[op].element_types["a5"][0], undefined="zero"), 2 * STEP - 40, 80)


def test_several_runs_of_a_plan_follow_each_other() -> None:
    """Shape 64x64 has 64 tiles in a block: three packed and two padded runs, from the middle of a run."""
    campaign = Campaign("TPARTMIN", ("i16",), shape=(64, 64))
    first, second = parts(50, 64 * 4, campaign.grid)
    assert (first.n, second.n) == (14 + 64 + 50, 128)
    assert first.numbers(np.array([0, 13, 14, 77, 78])).tolist() == [50, 63, 128, 191, 256]
    assert second.numbers(np.array([0, 63, 64])).tolist() == [64, 127, 192]
    assert_drawn_alike(campaign, 50, 64 * 4)


def test_the_kernels_are_specialised_on_no_number() -> None:
    """One compilation for every seed, tile number, storage plan and batch: only memory and constants are looked at."""
    program = """
from pto_gpu.kernels import generate
for kernel in (generate.generate, generate.words):
    print(*(p.name for p in kernel.params if not (p.is_constexpr or p.do_not_specialize)))
    print(*(p.name + "=" + p.annotation_type for p in kernel.params if p.annotation_type))
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    tables = "profile_of force masks flips keep flip"
    assert done.stdout.splitlines() == [
        f"out partner profiles valid_cols {tables}",
        "first=i64 seed=u64",
        "out",
        "first=i64 seed=u64",
    ]
    constants = {
        plan: [
            kernel_constants((16, 16), slot.storage, tables_of("f32", "value", False), True)
            for slot in slots(instructions()["TPARTMIN"], ("f32",), (16, 16), plan)
        ]
        for plan in PLANS
    }
    assert constants["packed"] == constants["padded"] == constants["packed"][:1] * 3
