"""The ``pto`` dialect as a whole."""

from __future__ import annotations

from functools import cache

from xdsl.ir import Dialect

from pto_gpu.asm.ops import AllocTileOp, AssignOp, LoadOp, SetValidShapeOp, StoreOp, instruction_ops
from pto_gpu.asm.types import ATTRIBUTES
from pto_gpu.asm.view_ops import MakeTensorViewOp, PartitionViewOp


@cache
def dialect() -> Dialect:
    """An operation for every record, and those around them."""
    around = [LoadOp, StoreOp, AllocTileOp, AssignOp, SetValidShapeOp, MakeTensorViewOp, PartitionViewOp]
    return Dialect("pto", [*instruction_ops().values(), *around], ATTRIBUTES)
