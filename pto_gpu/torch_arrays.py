"""torch under the names of the array API, for code that is written once for every array library.

Plain torch functions, which a compiler can look into; a machine with a GPU need not have array-api-compat.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

import torch

TORCH: Final = SimpleNamespace(
    **{
        **vars(torch),
        "astype": lambda x, dtype, copy=True: x.to(dtype, copy=copy),
        "take_along_axis": lambda x, indices, axis: torch.take_along_dim(x, indices, dim=axis),
    }
)
