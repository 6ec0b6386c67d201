"""The reference formulas are array-API code: on torch tensors they give the bits that they give on NumPy arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from rig import Case, cases, draw_bits, legal_regions, types_for

from pto_gpu.backends.numpy import evaluate
from pto_gpu.interop import to_numpy, to_torch
from pto_gpu.numerics import NAN_RULES, TIE_RULES, ZERO_RULES, Numerics
from pto_gpu.regions import Region
from pto_gpu.types import ELEMENT_TYPES

array_api_compat = pytest.importorskip("array_api_compat")  # a machine with a GPU may lack it
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def signed(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Unsigned integers as signed ones: torch 2.9 has next to nothing for u16 and u32."""
    return x.view(f"i{x.itemsize}") if x.dtype.kind == "u" else x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", cases("a5"))
def test_torch_gives_the_bits_of_numpy(case: Case, device: str, rng: np.random.Generator) -> None:
    types = types_for(case, 9, 24, grow=True)
    bits = draw_bits(rng, case, types, 6)
    regions = legal_regions(rng, case, types, 6)
    element = ELEMENT_TYPES[case.signature[0]]
    for nan, tie, zero in itertools.product(NAN_RULES, TIE_RULES, ZERO_RULES):
        on_numpy: dict[str, Any] = {n: bits[n].copy().view(types[n].element.numpy) for n in case.operands}
        on_torch = {n: to_torch(signed(x).copy()).to(device) for n, x in on_numpy.items()}
        tensor = next(iter(on_torch.values()))
        xp = array_api_compat.array_namespace(tensor)
        counts = {n: Region(*regions[n]) for n in case.operands}
        on_device = {n: Region(*(torch.tensor(c, device=device) for c in regions[n])) for n in case.operands}
        rules = Numerics(nan, tie, zero)
        with np.errstate(all="ignore"):
            evaluate(np, case.record, rules, element, on_numpy, counts)
        evaluate(xp, case.record, rules, element, on_torch, on_device)
        for name in case.dsts:
            assert to_numpy(on_torch[name]).tobytes() == on_numpy[name].tobytes(), (name, rules)
