"""CuPy arrays in and out through the DLPack protocol, with a stand-in for CuPy on host memory."""

from __future__ import annotations

import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import pto_gpu as pto
from pto_gpu import interop


class ndarray:  # noqa: N801  (CuPy's name)
    """What the interop uses of ``cupy.ndarray``: dtype, shape, view and DLPack, which has no bf16 (cupy#8801)."""

    __cuda_array_interface__ = None

    def __init__(self, host: np.ndarray) -> None:
        self.host = host

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.host.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    def view(self, dtype: Any) -> ndarray:
        return ndarray(self.host.view(dtype))

    def __dlpack__(self, **keywords: Any) -> Any:
        if self.host.dtype == ml_dtypes.bfloat16:
            raise AssertionError("bf16 must not go through DLPack: CuPy has crashed on it")
        return torch.from_numpy(self.host).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return torch.from_numpy(self.host).__dlpack_device__()


ndarray.__module__ = "cupy"


@pytest.fixture(autouse=True)
def _cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("cupy")
    module.from_dlpack = lambda x: ndarray(x.numpy())
    monkeypatch.setitem(sys.modules, "cupy", module)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "i8", "u8", "u16", "u32"])
def test_a_cupy_array_is_used_without_a_copy(name: str) -> None:
    ty = pto.TileBufType(name, 4, 32)
    host = np.zeros((3, 4, 32), ty.element.numpy)
    tiles = pto.TileBuf.from_array(ndarray(host), ty)
    host[1, 2, 3] = 1
    assert tiles.numpy()[1, 2, 3] == 1


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_the_element_type_of_a_cupy_array_is_checked(name: str) -> None:
    ty = pto.TileBufType(name, 4, 32)
    with pytest.raises(pto.TypeMismatch, match=f"array of float16: the tile type says {name}"):
        pto.TileBuf.from_array(ndarray(np.zeros((3, 4, 32), np.float16)), ty)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int8", "uint16"])
def test_a_tensor_becomes_a_cupy_array_without_a_copy(name: str) -> None:
    tensor = torch.zeros((2, 4), dtype=getattr(torch, name))
    array = interop.to_cupy(tensor)
    tensor[1, 2] = 1
    assert array.dtype.name == name
    assert array.host[1, 2] == 1


def test_host_tiles_have_no_cupy_array() -> None:
    with pytest.raises(pto.BackendError, match=r"TileBuf.cupy: the tiles are in host memory"):
        pto.TileBuf.zeros(pto.TileBufType("f32", 4, 8)).cupy()
