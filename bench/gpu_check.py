"""What only a GPU can show; run it by ``scripts/gpu_check``. Writes gpu_check.json and gpu_check.md.

Exit status: 0 all good, 1 something differs or fails, 2 no GPU or a usage error.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

import pto_gpu as pto
from pto_gpu.backends.numpy import evaluate
from pto_gpu.campaign.device import run_on_device
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.settings import Campaign
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Instruction, Kind, Role
from pto_gpu.numerics import NUMERICS
from pto_gpu.regions import Region
from pto_gpu.torch_arrays import TORCH
from pto_gpu.types import ELEMENT_TYPES, ElementType, TileBufType

ROOT = Path(__file__).resolve().parent.parent
SEED = 20240607


def integer_of(element: ElementType) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, f"int{element.bits}")
    return dtype


def element_of(instruction: Instruction, operand: Any, signature: tuple[str, ...]) -> ElementType:
    return ELEMENT_TYPES[signature[1 if operand.kind is Kind.INDEX else 0]]


def operands(instruction: Instruction) -> list[Any]:
    return [o for o in instruction.operands if o.role is not Role.TMP]


def signatures() -> Iterator[tuple[Instruction, tuple[str, ...]]]:
    for instruction in instructions().values():
        for signature in dict.fromkeys(s for allowed in instruction.element_types.values() for s in allowed):
            yield instruction, signature


def random_regions(instruction: Instruction, rows: int, cols: int, batch: int, rng: Any) -> dict[str, Any]:
    """Valid counts for each operand, per tile; every source its own where the instruction allows it."""

    def drawn(low: int) -> tuple[Any, Any]:
        return tuple(rng.integers(low, n + 1, batch).astype(np.int32) for n in (rows, cols))

    if instruction.valid_pattern == "rows":
        r, c = drawn(1)
        return {"src": (r, c), "dst": (r, 1)}
    pairs = {pair: drawn(0) for pair in ("dst", "src0", "src1")}
    if instruction.valid_pattern == "same":
        pairs = dict.fromkeys(pairs, pairs["dst"])
    return {o.name: pairs[o.name.partition("_")[0]] for o in operands(instruction)}


def full_regions(instruction: Instruction, rows: int, cols: int) -> dict[str, Any]:
    narrow = instruction.valid_pattern == "rows"
    return {o.name: (rows, 1 if narrow and o.role is Role.DST else cols) for o in operands(instruction)}


def random_bits(element: ElementType, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Any bit pattern; small numbers (ties), NaN, infinities and zeros are frequent."""
    bits, device = element.bits, generator.device
    dtype = integer_of(element)
    low, high = -(1 << (bits - 1)), 1 << (bits - 1)
    x = torch.randint(low, high, shape, generator=generator, device=device, dtype=torch.int64)
    special = [0, low, 1, low + 1, -1, high - 1]
    if element.canonical_nan:
        infinity = element.canonical_nan & (element.canonical_nan << 1)
        special += [infinity, infinity + low, infinity - 1, element.canonical_nan, infinity + 1, infinity + low + 1]
    table = torch.tensor(special, device=device)
    pick = torch.randint(0, 2 * len(special), shape, generator=generator, device=device)
    return torch.where(pick < len(special), table[pick % len(special)], x).to(dtype)


def tiles_of(bits: torch.Tensor, element: ElementType, region: Any) -> pto.TileBuf:
    x = bits.view(getattr(torch, element.torch_name))
    return pto.TileBuf.from_array(x, TileBufType(element.name, x.shape[1], x.shape[2]), *region)


def compare_on_host(device: str) -> dict[str, Any]:
    """Every instruction, element type and rule set, full and ragged, against the NumPy reference."""
    rng, generator = np.random.default_rng(SEED), torch.Generator(device).manual_seed(SEED)
    rows, cols, batch, failures, count = 9, 64, 257, [], 0
    for instruction, signature in signatures():
        for numerics in NUMERICS:
            for regions in (full_regions(instruction, rows, cols), random_regions(instruction, rows, cols, batch, rng)):
                tiles, host = {}, {}
                for o in operands(instruction):
                    element = element_of(instruction, o, signature)
                    bits = random_bits(element, (batch, rows, cols), generator)
                    tiles[o.name] = tiles_of(bits, element, regions[o.name])
                    host[o.name] = tiles_of(bits.cpu(), element, regions[o.name])
                call = getattr(pto, instruction.name)
                call(**tiles, numerics=numerics, undefined="zero", backend="triton")
                call(**host, numerics=numerics, undefined="zero", backend="numpy")
                count += 1
                for o in operands(instruction):  # sources too: nothing may touch them
                    if tiles[o.name].numpy().tobytes() != host[o.name].numpy().tobytes():
                        failures.append(f"{instruction.name} {'/'.join(signature)} {numerics} {o.name}")
    return {"calls": count, "failures": failures}


def every_f16_pair(device: str) -> dict[str, Any]:
    """All 2^32 pairs of f16 for TPARTMIN and TPRELU, against the reference formula on the device."""
    element, failures = ELEMENT_TYPES["f16"], []
    right = torch.arange(1 << 16, device=device, dtype=torch.int32).to(torch.int16)
    rows, cols, step = 32, 32, 1 << 10
    for name, numerics in (("TPARTMIN", "isa"), ("TPARTMIN", "formal"), ("TPARTMIN", "simulator"), ("TPRELU", "isa")):
        instruction, rules = instructions()[name], NUMERICS[numerics]
        for start in range(0, 1 << 16, step):
            left = torch.arange(start, start + step, device=device, dtype=torch.int32).to(torch.int16)
            bits = [x.reshape(-1, rows, cols) for x in torch.meshgrid(left, right, indexing="ij")]
            whole = (rows, cols)
            tiles = {f"src{i}": tiles_of(x, element, whole) for i, x in enumerate(bits)}
            tiles["dst"] = tiles_of(torch.zeros_like(bits[0]), element, whole)
            wanted = tiles_of(torch.zeros_like(bits[0]), element, whole)
            getattr(pto, name)(**tiles, numerics=numerics, backend="triton")
            arrays = {**{n: t.data for n, t in tiles.items()}, "dst": wanted.data}
            evaluate(TORCH, instruction, rules, element, arrays, dict.fromkeys(arrays, Region(*whole)))
            differ = tiles["dst"].data.view(torch.int16) != wanted.data.view(torch.int16)
            if differ.any():
                at = int(differ.flatten().nonzero()[0])
                a, b = (int(x.flatten()[at]) & 0xFFFF for x in bits)
                failures.append(f"{name} {numerics}: a={a:#06x} b={b:#06x}")
                break
    return {"pairs": 1 << 32, "failures": failures}


def past_2_to_the_31(device: str) -> dict[str, Any]:
    """More than 2^31 elements of i8, contiguous, uniform and per tile."""
    batch, shape = (1 << 21) + 5, (32, 32)
    if torch.cuda.mem_get_info(device)[0] < 4 * batch * 1024:
        return {"skipped": "less than 8 GiB of memory free", "failures": []}
    failures, ty = [], TileBufType("i8", *shape)
    generator = torch.Generator(device).manual_seed(SEED)
    a, b = (torch.empty((batch, *shape), dtype=torch.int8, device=device) for _ in range(2))
    for x in (a, b):
        x.random_(-128, 128, generator=generator)
    for counts in (32, np.full(batch, 32, np.int32)):
        dst = pto.TileBuf.zeros(ty, batch, device, 32, counts)
        pto.TPARTMIN(dst, *(pto.TileBuf.from_array(x, ty, 32, counts) for x in (a, b)), backend="triton")
        for part in torch.arange(batch, device=device).split(1 << 18):
            block = slice(int(part[0]), int(part[-1]) + 1)
            if not torch.equal(dst.data[block], torch.minimum(a[block], b[block])):
                failures.append(f"{'uniform' if isinstance(counts, int) else 'per tile'}: tiles from {block.start}")
    return {"elements": a.numel(), "failures": failures}


def seconds(action: Callable[[], Any], repeat: int = 12) -> tuple[float, float]:
    """Median and spread (interquartile range over median) of ``action`` on the device, by events."""
    for _ in range(3):
        action()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeat)]
    for begin, end in pairs:
        begin.record()
        action()
        end.record()
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) / 1e3 for begin, end in pairs)
    median = times[len(times) // 2]
    return median, (times[3 * len(times) // 4] - times[len(times) // 4]) / median


def copy_bandwidth(nbytes: int, device: str) -> float:
    """Bytes a second that a copy on the device reads and writes."""
    source = torch.zeros(nbytes, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * nbytes / seconds(lambda: target.copy_(source))[0]


def sectors(region: Any, itemsize: int, cols: int) -> Region:
    """The region with its columns rounded up to whole 32-byte sectors: what the memory moves."""
    rows, valid = region
    step = 32 // itemsize
    return Region(rows, np.minimum(-(-np.asarray(valid) // step) * step, max(cols, step)))


def measure(
    instruction: Instruction, signature: tuple[str, ...], nbytes: int, full: bool, device: str, copy: float
) -> dict[str, Any]:
    """Bandwidth of one instruction on operands of ``nbytes`` each, as a fraction of the copy."""
    rows = cols = 32
    elements = {o.name: element_of(instruction, o, signature) for o in operands(instruction)}
    batch = nbytes // (rows * cols * max(e.itemsize for e in elements.values()))
    rng = np.random.default_rng(SEED)
    regions = full_regions(instruction, rows, cols)
    if not full:
        regions = random_regions(instruction, rows, cols, batch, rng)
    generator = torch.Generator(device).manual_seed(SEED)
    tiles = {}
    for o in operands(instruction):
        if instruction.valid_pattern == "rows" and o.role is Role.DST:
            ty = TileBufType(elements[o.name].name, rows, 1, blayout="col_major")
            tiles[o.name] = pto.TileBuf.zeros(ty, batch, device, *regions[o.name])
        else:
            bits = torch.empty((batch, rows, cols), dtype=integer_of(elements[o.name]), device=device)
            tiles[o.name] = tiles_of(bits.random_(0, 127, generator=generator), elements[o.name], regions[o.name])
    call = getattr(pto, instruction.name)
    median, spread = seconds(lambda: call(**tiles, undefined="zero", backend="triton"))
    sizes = {n: e.itemsize for n, e in elements.items()}
    counted = {n: sectors(r, sizes[n], tiles[n].type.cols) for n, r in regions.items()}
    moved = instruction.bytes_moved(counted, sizes) * (batch if full else 1)
    return {
        "instruction": instruction.name,
        "elements": "/".join(signature),
        "regions": "full" if full else "random",
        "tiles": batch,
        "seconds": median,
        "spread": spread,
        "bytes": moved,
        "of_copy": moved / median / copy,
    }


def bandwidth(device: str) -> dict[str, Any]:
    """Every instruction and element type on 1 GiB operands, or less where six do not fit."""
    nbytes = min(1 << 30, torch.cuda.mem_get_info(device)[0] // 10) // 4096 * 4096
    copy = copy_bandwidth(nbytes, device)
    rows = []
    for instruction, signature in signatures():
        for full in (True, False):
            rows.append(measure(instruction, signature, nbytes, full, device, copy))
            torch.cuda.empty_cache()
    impossible = [f"{r['instruction']} {r['elements']} {r['regions']}" for r in rows if r["of_copy"] > 1.1]
    again = copy_bandwidth(nbytes, device)
    return {
        "operand_bytes": nbytes,
        "copy_bytes_per_second": copy,
        "copy_again": again,
        "rows": rows,
        "failures": [f"{w}: faster than a copy, the byte count must be wrong" for w in impossible],
    }


#: Tiles of the campaigns that compile and find the rate, seconds that the measured one is to take, seconds of the step.
CAMPAIGN_TILES, CAMPAIGN_SECONDS, CAMPAIGNS_LIMIT = 200_000, 1.5, 100


def campaigns(device: str) -> dict[str, Any]:
    """A campaign on the device for every instruction and element type, with the tiles that fit the time."""
    begin = time.perf_counter()
    rows, failures, skipped = [], [], []
    for name, instruction in instructions().items():
        for dtypes in instruction.element_types["a5"]:
            campaign = Campaign(name, dtypes, tiles=CAMPAIGN_TILES, backend="triton", seed=SEED)
            if time.perf_counter() - begin > CAMPAIGNS_LIMIT:
                skipped.append(campaign.label)
                continue
            run_on_device(campaign, device=device)  # compiles
            again = run_on_device(campaign, device=device)
            tiles = max(1, round(again.tiles / again.seconds * CAMPAIGN_SECONDS))
            result = run_on_device(dataclasses.replace(campaign, tiles=tiles), device=device)
            for r in (again, result):
                failures += [] if r.equal else report.result_lines(r)
            rows.append(
                {
                    "instruction": name,
                    "elements": "/".join(dtypes),
                    "shape": "x".join(map(str, campaign.grid)),
                    "tiles": result.tiles,
                    "seconds": result.seconds,
                    "tiles_per_second": result.tiles / result.seconds,
                }
            )
    return {"rows": rows, "skipped": skipped, "failures": failures}


def campaign_lines(step: dict[str, Any]) -> list[str]:
    """The table of what :func:`campaigns` measured."""
    if "rows" not in step:
        return []
    return [
        "",
        "Campaigns: tiles drawn, executed and compared with the reference on the device, all included.",
        "",
        "| instruction | elements | tile | tiles | s | million tiles a second |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {r['instruction']} | {r['elements']} | {r['shape']} | {r['tiles']} | {r['seconds']:.2f} "
            f"| {r['tiles_per_second'] / 1e6:.2f} |"
            for r in step["rows"]
        ),
        *(f"- {label}: not run, no time left" for label in step["skipped"]),
    ]


def gpu_tests(device: str) -> dict[str, Any]:
    """The tests marked gpu, in a process of their own; in several where pytest-xdist is there."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(ROOT / "tests")]
    command += ["-W", "default"]  # this machine's versions may warn of what ours do not
    if importlib.util.find_spec("xdist"):
        command += ["-n", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    tail = done.stdout.strip().splitlines()[-15:]
    return {"summary": tail[-1:], "failures": [] if done.returncode == 0 else tail}


STEPS: dict[str, Callable[[str], dict[str, Any]]] = {
    "compare": compare_on_host,
    "f16_pairs": every_f16_pair,
    "large": past_2_to_the_31,
    "bandwidth": bandwidth,
    "campaigns": campaigns,
    "tests": gpu_tests,
}


def markdown(result: dict[str, Any]) -> str:
    """The same as tables for people."""
    machine = ", ".join(f"{k} {v}" for k, v in result["machine"].items())
    lines = [f"# GPU check, {result['date']}", "", machine, "", "| step | seconds | failures |", "| --- | --- | --- |"]
    lines += [f"| {n} | {s['took']:.0f} | {len(s['failures'])} |" for n, s in result["steps"].items()]
    measured = result["steps"].get("bandwidth", {})
    if "rows" in measured:
        copy, size = measured["copy_bytes_per_second"], measured["operand_bytes"]
        lines += [
            "",
            f"Copy on the device in the same run: {copy / 1e9:.0f} GB/s. Operands of {size >> 20} MiB, 32x32.",
        ]
        lines += ["Bytes: whole 32-byte sectors that hold valid elements.", ""]
        lines += [
            "| instruction | elements | valid regions | ms | spread | of copy |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {r['instruction']} | {r['elements']} | {r['regions']} | {r['seconds'] * 1e3:.3f} "
            f"| {r['spread']:.1%} | {r['of_copy']:.2f} |"
            for r in measured["rows"]
        ]
    lines += campaign_lines(result["steps"].get("campaigns", {}))
    for name, step in result["steps"].items():
        lines += [f"- {name}: {failure}" for failure in step["failures"][:20]]
    return "\n".join(lines) + "\n"


def machine(device: str) -> dict[str, str]:
    return {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="folder for the two files")
    parser.add_argument("--step", action="append", choices=[*STEPS], help="default: all, in this order")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("gpu_check: no GPU found: torch.cuda.is_available() is false", file=sys.stderr)
        return 2
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result: dict[str, Any] = {"date": date, "machine": machine(options.device), "steps": {}}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.step or STEPS:
        begin = time.perf_counter()
        try:
            step = STEPS[name](options.device)
        except Exception as error:  # one step that breaks must not take the others' results along
            step = {"failures": [f"{type(error).__name__}: {error}"]}
        step["took"] = time.perf_counter() - begin
        result["steps"][name] = step
        print(f"{name}: {step['took']:.0f} s, {len(step['failures'])} failures", file=sys.stderr)
        (options.out / "gpu_check.json").write_text(json.dumps(result, indent=1) + "\n")
        (options.out / "gpu_check.md").write_text(markdown(result))
        torch.cuda.empty_cache()
    print(markdown(result))
    return 1 if any(s["failures"] for s in result["steps"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
