"""Triton kernels inside an operator, on tensors that may be traced: nothing is read, no address is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.library import wrap_triton

from pto_gpu import interop
from pto_gpu.backends import triton as backend
from pto_gpu.backends.triton_plan import INTEGERS, VECTOR_BYTES, Plan, Shape, make_plan
from pto_gpu.checks import check_memory
from pto_gpu.isa import instruction
from pto_gpu.isa.record import Call, Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.torch_ops.arguments import Arguments
from pto_gpu.torch_ops.tiles import Static, regions_of
from pto_gpu.types import TileBufType


def launch(
    record: Instruction, call: Arguments, static: Static, dsts: Mapping[str, torch.Tensor], *, traced: bool
) -> None:
    """Write the valid region of each dst with one launch. ``traced``: as a node of the graph that is being made.

    Valid regions stay on the device: they are not checked, but brought into their tiles, and what a page leaves open
    comes out as ``undefined="zero"`` has it.
    """
    tensors = {o.name: dsts[o.name] for o in record.dsts}
    tensors |= {o.name: _with_known_strides(call.sources[o.name]) for o in record.sources}
    full = all(valid is None for valid in call.valid.values())
    facts = tuple((name, static.types[name], *_facts(x)) for name, x in tensors.items())
    plan = _plan(record.name, facts, call.rules, full)
    batch: Any = next(iter(tensors.values())).shape[0]
    if isinstance(batch, int) and batch == 0:
        return
    arguments: dict[str, Any] = {"batch": batch, **plan.strides, **plan.constants}
    regions = regions_of(record, call, static.types)
    for name, x in tensors.items():
        arguments[name] = x if traced else x.view(getattr(torch, INTEGERS[x.element_size()]))
        rows, cols = (n if isinstance(n, int) else n.contiguous() for n in regions[name])
        arguments[f"{name}_rows"], arguments[f"{name}_cols"] = (cols, rows) if plan.swapped else (rows, cols)
    if not traced:
        if call.dsts:
            _check_memory(record, call, static, tensors)
        backend.launch_plan(plan, batch, arguments, str(dsts[record.dsts[0].name].device))
        return
    kernel = backend.kernel_of(plan)
    # A graph's kernel takes no COMPILER_OPTIONS: there must be no product and sum to fuse.
    wrap_triton(kernel)[(plan.programs(batch),)](
        **{name: arguments[name] for name in kernel.arg_names}, num_warps=backend.warps(plan.threads)
    )


def _check_memory(record: Instruction, call: Arguments, static: Static, tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse a dst that shares memory it must not share; in a traced graph no memory is known."""
    tiles = {}
    for name, x in tensors.items():
        ty = static.types[name]
        data, device = interop.adopt(x, ty.element, record.name)
        tiles[name] = TileBuf(ty, data, x.shape[0], device, Region(ty.rows, ty.cols))
    check_memory(Call(record, tiles, call.rules, call.undefined, call.target))


def _with_known_strides(x: torch.Tensor) -> torch.Tensor:
    """A plan needs strides as numbers: those that depend on the batch of a traced graph are laid out anew."""
    return x if all(is_concrete_int(step) for step in x.stride()) else x.contiguous()


def _facts(x: torch.Tensor) -> tuple[tuple[int, ...], bool]:
    offset = x.storage_offset()
    aligned = is_concrete_int(offset) and int(offset) * x.element_size() % VECTOR_BYTES == 0
    return tuple(int(step) for step in x.stride()), aligned


@lru_cache(maxsize=4096)
def _plan(
    name: str, facts: tuple[tuple[str, TileBufType, tuple[int, int, int], bool], ...], rules: Numerics, full: bool
) -> Plan:
    shapes = {n: Shape(ty.rows, ty.cols, strides, ty.element, aligned) for n, ty, strides, aligned in facts}
    return make_plan(instruction(name), shapes, rules, full, backend.machine())
