"""What computes an operator: compiled CPU code, a Triton kernel, or the reference formula as torch operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pto_gpu import interop
from pto_gpu.backends.numpy import evaluate
from pto_gpu.defaults import Options, current_options
from pto_gpu.intrinsics import execute
from pto_gpu.isa.record import Instruction
from pto_gpu.regions import Region
from pto_gpu.targets import resolve_target
from pto_gpu.tilebuf import TileBuf, region_of
from pto_gpu.torch_arrays import TORCH
from pto_gpu.torch_ops.arguments import Arguments
from pto_gpu.torch_ops.tiles import Static, regions_of
from pto_gpu.types import TileBufType


def new_results(record: Instruction, call: Arguments, static: Static) -> dict[str, torch.Tensor]:
    """Memory for the results: zero where a valid region can leave elements unwritten."""
    like = call.sources[record.assembly[0]]
    full = all(valid is None for valid in call.valid.values())
    make = like.new_empty if full else like.new_zeros
    results = {}
    for name, (rows, cols) in static.shapes.items():
        dtype = getattr(torch, static.types[name].element.torch_name)
        results[name] = make((like.shape[0], rows, cols), dtype=dtype)
    return results


def run_on_cpu(record: Instruction, call: Arguments, static: Static, dsts: Mapping[str, torch.Tensor]) -> None:
    """The cpu backend, with every check of the instruction; strided and expanded sources are not copied."""
    tiles = {}
    for name, x in call.sources.items():
        ty, what = static.types[name], f"{record.name}: {record.by_name[name].argument}"
        data, device = interop.adopt(x, ty.element, what)
        tiles[name] = TileBuf(ty, data, x.shape[0], device, _region(ty, call.valid[name], x.shape[0], what))
    regions = {name: tile.region for name, tile in tiles.items()}
    results = record.result(static.types, regions)
    whole = {}
    for operand, result in zip(record.dsts, results, strict=True):
        ty, x = static.types[operand.name], dsts[operand.name]
        if x.shape[1:] != (ty.rows, ty.cols):  # a column whose end is no whole block: through one that has room
            whole[operand.name] = x
            x = x.new_zeros((x.shape[0], ty.rows, ty.cols))
            _overlay(x, whole[operand.name])
        valid = region_of(ty, x.shape[0], *result.region, f"{record.name}: {operand.argument}")
        tiles[operand.name] = TileBuf(ty, interop.adopt(x, ty.element, record.name)[0], x.shape[0], "cpu", valid)
    threads = current_options().threads or torch.get_num_threads()
    options = Options(resolve_target(call.target), "cpu", call.rules, call.undefined, threads)
    execute(record, {o.name: tiles[o.name] for o in (*record.dsts, *record.sources)}, options)
    for name, x in whole.items():
        x.copy_(tiles[name].torch()[:, : x.shape[1], : x.shape[2]])


def _overlay(large: torch.Tensor, small: torch.Tensor) -> None:
    large[:, : small.shape[1], : small.shape[2]] = small


def _region(ty: TileBufType, valid: torch.Tensor | None, batch: int, what: str) -> Region:
    if valid is None:
        return Region(ty.rows, ty.cols)
    counts = valid.detach().numpy()
    return region_of(ty, batch, counts[:, 0], counts[:, 1], what)


def run_formula(record: Instruction, call: Arguments, static: Static, dsts: Mapping[str, torch.Tensor]) -> None:
    """The reference formula as torch operations, which a compiler can fuse with what stands around them."""
    regions = regions_of(record, call, static.types)
    element = static.types[record.operands[0].name].element
    arrays = {name: _workable(x) for name, x in {**dsts, **call.sources}.items()}
    evaluate(TORCH, record, call.rules, element, arrays, regions)


def _workable(x: torch.Tensor) -> torch.Tensor:
    """The same memory as signed integers, where torch can do nothing with the unsigned ones."""
    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32}.get(x.dtype)
    return x if signed is None else x.view(signed)


def run_traced(record: Instruction, call: Arguments, static: Static, dsts: Mapping[str, torch.Tensor]) -> None:
    """Write the valid region of each dst by what a compiler may look into: torch operations, or a kernel launch."""
    if call.formulation == "torch":
        run_formula(record, call, static, dsts)
    elif next(iter(dsts.values())).device.type == "cpu":
        _call_operator_on_cpu(record, call, dsts)
    else:
        from pto_gpu.torch_ops.launch import launch  # here, since Triton is there on Linux only

        launch(record, call, static, dsts, traced=True)


def run_eager(record: Instruction, call: Arguments, static: Static, dsts: Mapping[str, torch.Tensor]) -> None:
    """Write the valid region of each dst, now."""
    if call.formulation == "torch":
        run_formula(record, call, static, dsts)
    elif next(iter(dsts.values())).device.type == "cpu":
        run_on_cpu(record, call, static, dsts)
    else:
        from pto_gpu.torch_ops.launch import launch

        launch(record, call, static, dsts, traced=False)


def _call_operator_on_cpu(record: Instruction, call: Arguments, dsts: Mapping[str, Any]) -> None:
    """:func:`run_on_cpu` as an operator of its own, which a compiler calls and does not look into."""
    tensors = [*(dsts[o.name] for o in record.dsts), *(call.sources[name] for name in record.assembly)]
    valid = [call.valid[group[0]] for group in record.region_groups]
    operator = getattr(torch.ops.pto_cpu, record.name.lower())
    operator(*tensors, *valid, call.rules.label, target=call.target, undefined=call.undefined)
