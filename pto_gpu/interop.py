"""Arrays of other libraries in and out of tiles, without a copy: NumPy, torch, CuPy."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pto_gpu.errors import BackendError, ConstraintError, LayoutError, TypeMismatch
from pto_gpu.types import ElementType, element_type_of

if TYPE_CHECKING:
    import torch

NumPyArray = np.ndarray[Any, np.dtype[Any]]


def is_torch(x: Any) -> bool:
    """Whether ``x`` is a torch tensor; torch is not imported to find out."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(x, module.Tensor)


def is_cupy(x: Any) -> bool:
    """Whether ``x`` is a CuPy array; CuPy is not imported to find out."""
    return type(x).__module__.partition(".")[0] == "cupy" and hasattr(x, "__cuda_array_interface__")


def adopt(x: Any, element: ElementType, what: str) -> tuple[Any, str]:
    """The memory of ``x`` as (NumPy array or CUDA torch tensor, device), sharing it with ``x``.

    ``x``: NumPy, torch or CuPy array whose dtype is that of ``element``. ``what`` starts the errors.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise TypeMismatch(f"{what}: a masked array is not allowed: pass its .data and a valid region")
    if isinstance(x, np.ndarray):
        if x.dtype != element.numpy or not x.dtype.isnative:
            raise TypeMismatch(f"{what}: array of {_numpy_name(x.dtype)}: the tile type says {element}")
        return x.view(np.ndarray), "cpu"  # a view: changing the shape of x in place must not reach the tiles
    if is_torch(x):
        return _adopt_torch(x, element, what)
    if is_cupy(x):
        return _adopt_torch(_cupy_to_torch(x, element, what), element, what)
    raise TypeMismatch(f"{what}: a NumPy, torch or CuPy array is needed: seen {type(x).__name__}")


def _numpy_name(dtype: np.dtype[Any]) -> str:
    found = element_type_of(dtype)
    return found.name if found else f"{dtype}{'' if dtype.isnative else ' (byte-swapped)'}"


def _adopt_torch(x: torch.Tensor, element: ElementType, what: str) -> tuple[Any, str]:
    import torch

    if x.dtype != getattr(torch, element.torch_name):
        raise TypeMismatch(f"{what}: tensor of {x.dtype}: the tile type says {element}")
    if x.layout != torch.strided:
        raise LayoutError(f"{what}: a {x.layout} tensor is not allowed: only strided ones")
    x = x.detach()
    if x.device.type == "cuda":
        return x, str(x.device)
    if x.device.type == "cpu":
        try:
            if element.name == "bf16":
                return x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16), "cpu"
            return x.numpy(), "cpu"
        except (RuntimeError, TypeError) as error:  # a lazy negative, a nested, fake or functional tensor
            reason = str(error).partition("\n")[0]
            raise LayoutError(f"{what}: this tensor shows no memory of its own: {reason}") from None
    raise BackendError(f"{what}: device {x.device} is not supported: allowed cpu and cuda")


def _cupy_to_torch(x: Any, element: ElementType, what: str) -> torch.Tensor:
    import torch

    if element.name == "bf16":  # DLPack of bf16 has crashed in CuPy: go through 16-bit integers
        if x.dtype != np.dtype(ml_dtypes.bfloat16):
            raise TypeMismatch(f"{what}: array of {x.dtype}: the tile type says bf16")
        return torch.utils.dlpack.from_dlpack(x.view(np.uint16)).view(torch.bfloat16)
    if x.dtype != element.numpy:
        raise TypeMismatch(f"{what}: array of {x.dtype}: the tile type says {element}")
    return torch.utils.dlpack.from_dlpack(x)


def to_torch(x: Any) -> torch.Tensor:
    """The memory of ``x`` (a NumPy array or a tensor) as a torch tensor, without a copy."""
    import torch

    if not isinstance(x, np.ndarray):
        tensor: torch.Tensor = x.detach()
        return tensor
    if not x.flags.writeable:
        raise LayoutError(
            "TileBuf.torch: the memory is read-only, which a torch tensor cannot be: copy the array first"
        )
    if min(x.strides, default=0) < 0:
        raise LayoutError("TileBuf.torch: a torch tensor cannot have negative strides: use .numpy()")
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def to_cupy(x: Any) -> Any:
    """The memory of ``x`` (a CUDA torch tensor) as a CuPy array, without a copy."""
    import torch

    if isinstance(x, np.ndarray):
        raise BackendError("TileBuf.cupy: the tiles are in host memory: CuPy arrays live on a GPU")
    try:
        import cupy
    except ImportError:
        raise BackendError("TileBuf.cupy: CuPy is not installed: pip install cupy-cuda12x (or 13x)") from None
    if x.dtype == torch.bfloat16:
        return cupy.from_dlpack(x.view(torch.uint16)).view(ml_dtypes.bfloat16)
    return cupy.from_dlpack(x)


def to_numpy(x: Any) -> NumPyArray:
    """``x`` as a NumPy array: the memory itself where it is host memory, else a copy."""
    if isinstance(x, np.ndarray):
        return x.view()
    import torch

    host = x.cpu()
    if host.dtype == torch.bfloat16:
        array: NumPyArray = host.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return array
    result: NumPyArray = host.numpy()
    return result


def allocate(
    shape: tuple[int, ...], element: ElementType, device: str, *, zero: bool, allocator: str = "default"
) -> Any:
    """New C-contiguous memory on ``device``: a NumPy array, or a torch tensor on a GPU.

    ``allocator``: as :func:`resolve_allocator` gave it. CuPy memory lives as long as the tensor that shows it.
    """
    try:
        if device == "cpu":
            return np.zeros(shape, element.numpy) if zero else np.empty(shape, element.numpy)
        if allocator == "cupy":
            return _allocate_in_cupy(shape, element, device, zero=zero)
        import torch

        make = torch.zeros if zero else torch.empty
        return make(shape, dtype=getattr(torch, element.torch_name), device=device)
    except (MemoryError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise BackendError(f"no memory for {' x '.join(map(str, shape))} {element} on {device}: {reason}") from None


def _allocate_in_cupy(shape: tuple[int, ...], element: ElementType, device: str, *, zero: bool) -> torch.Tensor:
    import cupy
    import torch

    with cupy.cuda.Device(int(device.partition(":")[2])):
        # The bytes are used on torch's stream: make them there, so that the pool gives them back in order.
        with cupy.cuda.ExternalStream(torch.cuda.current_stream(device).cuda_stream):
            make = cupy.zeros if zero else cupy.empty
            array = make(shape, f"i{element.itemsize}")
        return torch.utils.dlpack.from_dlpack(array).view(getattr(torch, element.torch_name))


def resolve_allocator(allocator: str | None, device: str) -> str:
    """``"default"`` or ``"cupy"``; raises where that is not known or CuPy cannot give memory on ``device``."""
    if allocator is None:
        return "default"
    if allocator != "cupy":
        raise ConstraintError(
            f"allocator={allocator!r} is not known: allowed cupy, or None for torch's and NumPy's own"
        )
    if device == "cpu":
        raise BackendError("allocator='cupy': the device is cpu: CuPy's pool has memory of a GPU")
    if importlib.util.find_spec("cupy") is None:
        raise BackendError("allocator='cupy': CuPy is not installed: pip install cupy-cuda12x (or 13x)")
    return allocator


def resolve_device(device: Any) -> str:
    """``device`` as ``"cpu"`` or ``"cuda:N"``; raises where there is no such device."""
    name = str(device)
    if name == "cpu":
        return name
    import torch

    try:
        parsed = torch.device(name)
    except RuntimeError:
        raise BackendError(f"device {name!r} is not known: allowed cpu, cuda, cuda:N") from None
    if parsed.type != "cuda":
        raise BackendError(f"device {name!r} is not supported: allowed cpu, cuda, cuda:N")
    if not torch.cuda.is_available():
        raise BackendError(f"device {name!r}: no GPU found on this machine")
    index = torch.cuda.current_device() if parsed.index is None else parsed.index
    if index >= torch.cuda.device_count():
        raise BackendError(f"device {name!r}: this machine has {torch.cuda.device_count()} GPUs")
    return f"cuda:{index}"
