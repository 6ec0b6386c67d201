"""How the operators behave under autograd, vmap and autocast."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from pto_gpu.backends.numpy import onto_grid, plane
from pto_gpu.errors import ConstraintError
from pto_gpu.isa.record import Family, Instruction, Kind
from pto_gpu.torch_arrays import TORCH
from pto_gpu.torch_ops.arguments import Arguments, bind, signature
from pto_gpu.torch_ops.tiles import regions_of, static_of

_DEVICES: Final = ("cpu", "cuda")
#: Holds what is registered for one dispatch key; it must live as long as the operators.
_library: Any = torch.library.Library("pto", "FRAGMENT")  # type: ignore[no-untyped-call]


def add_autograd(record: Instruction, operator: Any) -> None:
    """Gradients for the sources of values, by the record's formula; indices and valid regions have none."""
    values = tuple(o.name for o in record.sources if o.kind is Kind.VALUE)

    def setup(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
        tensors = [x if isinstance(x, torch.Tensor) else None for x in inputs]
        ctx.save_for_backward(*tensors)
        ctx.words = [x for x in inputs if isinstance(x, str)]
        ctx.keywords = dict(keyword_only_inputs)

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors
        args = (*tensors[: len(tensors) - len(ctx.words)], *ctx.words)
        call = bind(record, False, args, ctx.keywords)
        found = dict(zip(values, _gradients(record, call, values, gradients[0]), strict=True))
        places = [found.get(name) for name in record.assembly]
        wanted = [g if needed else None for g, needed in zip(places, ctx.needs_input_grad, strict=False)]
        return (*wanted, *(None for _ in tensors[len(wanted) :]))

    if record.gradient is not None:
        operator.register_autograd(backward, setup_context=setup)


def _gradients(record: Instruction, call: Arguments, values: tuple[str, ...], g: torch.Tensor) -> list[torch.Tensor]:
    static = static_of(record, call)
    regions = regions_of(record, call, static.types)
    rows, cols = (max(x.shape[axis] for x in call.sources.values()) for axis in (1, 2))
    planes = {name: plane(TORCH, call.sources[name], regions[name], rows, cols) for name in values}
    if record.family is not Family.ROW_REDUCE:
        g = onto_grid(TORCH, g, rows, cols)
    element = static.types[values[0]].element
    assert record.gradient is not None
    found = record.gradient(TORCH, call.rules, element, g, **planes)
    shapes = [call.sources[name].shape for name in values]
    return [x[:, : shape[1], : shape[2]] for x, shape in zip(found, shapes, strict=True)]


def refuse_gradients(record: Instruction, overload: Any) -> None:
    """Raise where a gradient would be lost without a word: an operator that writes into dst has none."""

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> None:
        if torch.is_grad_enabled():
            for parameter, x in zip(signature(record, True).parameters, args, strict=False):
                if isinstance(x, torch.Tensor) and x.requires_grad:
                    raise ConstraintError(
                        f"{record.name}: {parameter} requires grad, but an operator that writes into dst has no "
                        f"gradient: allowed torch.ops.pto.{record.name.lower()}, or torch.no_grad()"
                    )
        with torch._C._AutoDispatchBelowAutograd():
            overload.redispatch(keyset & torch._C._after_autograd_keyset, *args, **kwargs)

    for device in _DEVICES:
        _library.impl(f"{record.name.lower()}_out", kernel, f"Autograd{device.upper()}", with_keyset=True)


def add_vmap(operator: Any) -> None:
    """A vmapped dimension becomes a part of the batch."""

    def folded(info: Any, in_dims: tuple[Any, ...], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        size = info.batch_size

        def fold(x: Any, dim: int | None) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.reshape(size * x.shape[1], *x.shape[2:])

        results = operator(*map(fold, args, in_dims), **kwargs)
        if isinstance(results, torch.Tensor):
            return _unfold(results, size), 0
        return tuple(_unfold(x, size) for x in results), tuple(0 for _ in results)

    operator.register_vmap(folded)


def _unfold(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.reshape(size, x.shape[0] // max(size, 1), *x.shape[1:])


def add_autocast(record: Instruction, overload: Any) -> None:
    """Under autocast, sources of values of different float types are cast to the widest of them; else nothing is.

    So a layer's f16 output meets an f32 parameter as it does in torch's own operators that promote.
    """
    values = [i for i, name in enumerate(record.assembly) if record.by_name[name].kind is Kind.VALUE]

    def kernel(device: str) -> Any:
        def promoted(*args: Any, **kwargs: Any) -> Any:
            tensors = list(args)
            dtypes = [tensors[i].dtype for i in values]
            if len(set(dtypes)) > 1 and all(dtype.is_floating_point for dtype in dtypes):
                widest = functools.reduce(torch.promote_types, dtypes)
                for i in values:
                    tensors[i] = tensors[i].to(widest)
            with torch.autocast(device, enabled=False):
                return overload(*tensors, **kwargs)

        return promoted

    for device in _DEVICES:
        _library.impl(record.name.lower(), kernel(device), f"Autocast{device.upper()}")
