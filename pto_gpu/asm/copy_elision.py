"""Loads and stores that need no copy: the tile lies in the array that it is loaded from, or will be stored to.

A tile that nothing but loads write, from arrays that the program does not store to, is a view of them. A tile that one
instruction writes and one later store moves lies in the stored-to array from the start, where nothing can see that
the elements come early: no load reads the array, no other store writes to it, and the place is known before the tile
is written. (A verified program reads no tile before the text writes it, so all that reads this one comes later.)
"""

from __future__ import annotations

from collections import defaultdict

from xdsl.dialects import func
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from pto_gpu.asm import analysis
from pto_gpu.asm.ops import AllocTileOp, AssignOp, InstructionOp, LoadOp, SetValidShapeOp, StoreOp, TileOp


class Transfers:
    """What can be done without a copy in a program of one function; nothing in one with calls.

    ``loaded``: tiles that may be views. ``stored``: the store of each tile that may lie in the stored-to array.
    """

    def __init__(self, function: func.FuncOp) -> None:
        self.loaded: set[SSAValue] = set()
        self.stored: dict[SSAValue, StoreOp] = {}
        operations = list(function.walk())
        if any(isinstance(op, func.CallOp) for op in operations):
            return
        self._writers: dict[SSAValue, list[TileOp]] = defaultdict(list)
        self._stores: dict[SSAValue, list[StoreOp]] = defaultdict(list)
        loads: set[SSAValue] = set()
        moved: set[SSAValue] = set()
        for op in operations:
            if isinstance(op, TileOp):
                for value in op.targets:
                    self._writers[value].append(op)
            if isinstance(op, LoadOp):
                loads |= analysis.roots(op.ins[0])
            elif isinstance(op, StoreOp):
                for root in analysis.roots(op.dst):
                    self._stores[root].append(op)
            elif isinstance(op, (AssignOp, SetValidShapeOp)):
                moved.add(analysis.origin(op.tile))
        own = {v for v in self._writers if _is_own(v)} - moved - analysis.handed_on(function)
        partly = analysis.partly_written(function)
        for value in own:
            if all(isinstance(op, LoadOp) for op in self._writers[value]):
                self.loaded.add(value)
            elif value not in partly:
                self._plan_store(value, loads)

    def _plan_store(self, value: SSAValue, loads: set[SSAValue]) -> None:
        stores = [use.operation for use in value.uses if isinstance(use.operation, StoreOp)]
        writers = self._writers[value]
        if len(stores) != 1 or len(writers) != 1 or not isinstance(writers[0], InstructionOp):
            return
        store, writer = stores[0], writers[0]
        roots = analysis.roots(store.dst)
        if len(roots) != 1 or roots & loads or any(len(self._stores[root]) != 1 for root in roots):
            return
        if store.parent is writer.parent and _known_before(store.dst, writer):
            self.stored[value] = store


def _is_own(value: SSAValue) -> bool:
    """Whether the tile has storage that no address gives it."""
    if not isinstance(value, OpResult):
        return False
    return isinstance(value.op, TileOp) or (isinstance(value.op, AllocTileOp) and value.op.addr is None)


def _known_before(value: SSAValue, op: Operation) -> bool:
    """Whether ``value`` is there when ``op`` runs."""
    if isinstance(value, BlockArgument):
        return True
    return isinstance(value, OpResult) and analysis.is_after(op, value.op)
