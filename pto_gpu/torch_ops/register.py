"""Registers the operators of one instruction with torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.library import custom_op, triton_op

from pto_gpu.isa.record import Instruction
from pto_gpu.torch_ops import transforms
from pto_gpu.torch_ops.arguments import bind, signature
from pto_gpu.torch_ops.implementations import new_results, run_eager, run_on_cpu, run_traced
from pto_gpu.torch_ops.tiles import static_of


def register(record: Instruction) -> None:
    """Define ``pto::name`` and ``pto::name_out``, and ``pto_cpu::name``, which compiled graphs call on the CPU."""
    name = record.name.lower()
    written = [o.argument for o in record.dsts]

    def results(run: Callable[..., None]) -> Callable[..., Any]:
        def operator(*args: Any, **kwargs: Any) -> Any:
            call = bind(record, False, args, kwargs)
            static = static_of(record, call)
            dsts = new_results(record, call, static)
            run(record, call, static, dsts)
            return next(iter(dsts.values())) if len(dsts) == 1 else tuple(dsts.values())

        return _with_signature(operator, signature(record, False))

    def in_place(run: Callable[..., None]) -> Callable[..., None]:
        def operator(*args: Any, **kwargs: Any) -> None:
            call = bind(record, True, args, kwargs)
            run(record, call, static_of(record, call), call.dsts)

        return _with_signature(operator, signature(record, True))

    on_cpu: Any = custom_op(f"pto_cpu::{name}", in_place(run_on_cpu), mutates_args=written, device_types="cpu")
    on_cpu.register_fake(in_place(_nothing))
    value: Any = triton_op(f"pto::{name}", results(run_traced), mutates_args=())
    out: Any = triton_op(f"pto::{name}_out", in_place(run_traced), mutates_args=written)
    for operator, form in ((value, results), (out, in_place)):
        operator.register_fake(form(_nothing))
        operator.register_kernel(("cpu", "cuda"))(form(run_eager))
    transforms.add_autograd(record, value)
    transforms.add_vmap(value)
    transforms.add_autocast(record, getattr(torch.ops.pto, name).default)
    transforms.refuse_gradients(record, getattr(torch.ops.pto, f"{name}_out").default)


def _nothing(*_: Any) -> None:
    """What a fake tensor needs computed."""


def _with_signature(function: Callable[..., Any], wanted: inspect.Signature) -> Callable[..., Any]:
    function.__signature__ = wanted  # type: ignore[attr-defined]  # torch reads the schema from it
    return function
