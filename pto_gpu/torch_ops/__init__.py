"""The instructions as torch operators, ``torch.ops.pto.*``; importing this module registers them.

Each record of :mod:`pto_gpu.isa` gives two operators. ``torch.ops.pto.tpartmin(src0, src1, valid0=None, valid1=None,
numerics="isa", *, target="a5", undefined="error", formulation="kernel")`` returns a new tensor (TPARTARGMIN: a pair).
``torch.ops.pto.tpartmin_out(dst, src0, src1, ...)`` writes dst's valid region and nothing else, and returns nothing.

Sources are ``[batch, rows, cols]`` and stand in text order; ``valid`` is ``int32 [batch, 2]`` (rows, columns), None for
full, one for each group of sources that may differ. Elements of a result outside its valid region are zero. See
``docs/torch.md``.
"""

from __future__ import annotations

from pto_gpu.isa import instructions
from pto_gpu.torch_ops.register import register

for _record in instructions().values():
    register(_record)
