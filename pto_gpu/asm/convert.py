"""From one form to another: the same program with results in place of destinations, or the other way round.

A destination becomes a result where nothing can tell: the tile has no address, nothing else writes it or changes its
valid region, and every use of it comes after. A result becomes a destination: a tile that is allocated just before,
or in a snippet a name that nothing defines. The synchronous form has no scratch tile.
"""

from __future__ import annotations

from typing import Any, Final

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from pto_gpu.asm import analysis
from pto_gpu.asm.diagnostics import Diagnostic, asm_error
from pto_gpu.asm.ops import AllocTileOp, AssignOp, StoreOp, TileOp
from pto_gpu.asm.parser import Parsed
from pto_gpu.asm.reading import flag
from pto_gpu.asm.structure import structure_problems
from pto_gpu.asm.type_spellings import OpenTile
from pto_gpu.asm.types import TileAttr, TileBufAttr, tile_type
from pto_gpu.errors import ConstraintError
from pto_gpu.types import DYNAMIC

FORMS: Final = ("sync", "ssa", "dps")


def converted(parsed: Parsed, form: str) -> Parsed:
    """A copy of the program in ``form``. Raises AsmError at what the form cannot say, ConstraintError for no form."""
    if form not in FORMS:
        raise ConstraintError(f"form {form!r} is not known: allowed {', '.join(FORMS)}")
    problems = structure_problems(parsed)
    if problems:
        raise asm_error(problems)
    copy = _copied(parsed)
    conversion = _Conversion(copy, form)
    conversion.run()
    if conversion.problems:
        raise asm_error(conversion.problems)
    return copy


def _copied(parsed: Parsed) -> Parsed:
    copy = Parsed(parsed.source)
    copy.snippet = parsed.snippet
    values: dict[SSAValue, SSAValue] = {}
    copy.module = parsed.module.clone(values)
    operations = dict(zip(parsed.module.walk(), copy.module.walk(), strict=True))
    copy.names = {values[v]: name for v, name in parsed.names.items() if v in values}
    for node, span in parsed.spans.items():
        new = operations.get(node) if isinstance(node, Operation) else values.get(node)
        if new is not None:
            copy.spans[new] = span
    return copy


class _Conversion:
    """The rewriting of one program."""

    def __init__(self, parsed: Parsed, form: str) -> None:
        self.parsed = parsed
        self.form = form
        self.problems: list[Diagnostic] = []

    def run(self) -> None:
        """Rewrite every operation that has forms."""
        sync, dps = self.form == "sync", self.form == "dps"
        carried = set().union(*(analysis.handed_on(f) for f in self._functions))
        for op in list(self.parsed.module.walk()):
            if isinstance(op, StoreOp) or (isinstance(op, AssignOp) and op.res is None):
                op.dps, op.sync = flag(dps), flag(sync)
            elif isinstance(op, TileOp):
                self._convert(op, carried)
        if self.parsed.snippet:
            self._spell_types()
        for function in self._functions:
            function.properties["function_type"] = FunctionType.from_lists(
                [a.type for a in function.args], function.function_type.outputs.data
            )

    @property
    def _functions(self) -> list[func.FuncOp]:
        return [f for f in self.parsed.functions.values() if not f.is_declaration]

    def _convert(self, op: TileOp, carried: set[SSAValue]) -> None:
        problem = self._as_destinations(op, carried) if self.form == "dps" else self._as_results(op)
        if problem is not None:
            self.problems.append(Diagnostic(f"{op.name}: {problem}", self.parsed.span_of(op)))

    # -- to destinations ------------------------------------------------------------------------------------

    def _as_destinations(self, op: TileOp, carried: set[SSAValue]) -> str | None:
        if op.outs:
            return None
        outs = []
        for result in op.res:
            name = self.parsed.name_of(result)
            if result in carried and not isinstance(op.next_op, func.ReturnOp):
                return f"%{name} is handed on: the dps form would share one tile"
            ty = tile_type(result.type)
            if not self.parsed.snippet and ty is not None and DYNAMIC in (ty.v_row, ty.v_col):
                return f"the valid region of %{name} is known at run time only: the dps form needs it"
            outs.append(self._destination(op, result, name))
        self._replace(op, op.make(op.ins, op.tmp, outs, [], sync=False, attributes=op.attributes), outs)
        return None

    def _destination(self, op: TileOp, result: OpResult, name: str) -> SSAValue:
        if self.parsed.snippet:
            arguments = self._functions[0].body.block
            value: SSAValue = arguments.insert_arg(result.type, len(arguments.args))
        else:
            alloc = AllocTileOp(operands=[[], [], []], result_types=[result.type])
            self._insert(alloc, op)
            value = alloc.res
        self.parsed.names[value] = name
        return value

    # -- to results -----------------------------------------------------------------------------------------

    def _as_results(self, op: TileOp) -> str | None:
        sync = self.form == "sync"
        tmp = None if sync else op.tmp
        dropped = op.tmp if sync else None
        if not op.outs:
            new = op.make(op.ins, tmp, [], [r.type for r in op.res], sync=sync, attributes=op.attributes)
            self._replace(op, new, list(new.res))
        else:
            for value in op.outs:
                problem = self._obstacle(op, value)
                if problem is not None:
                    return problem
            outs = list(op.outs)
            new = op.make(op.ins, tmp, [], [v.type for v in outs], sync=sync, attributes=op.attributes)
            self._replace(op, new, list(new.res))
            for value, result in zip(outs, new.res, strict=True):
                self.parsed.names[result] = self.parsed.name_of(value)
                value.replace_all_uses_with(result)
                self._drop(value)
        if dropped is not None and not dropped.uses:
            self._drop(dropped)
        return None

    def _obstacle(self, op: TileOp, value: SSAValue) -> str | None:
        """Why a destination cannot be a result."""
        name, block = self.parsed.name_of(value), op.parent
        if isinstance(value, BlockArgument):
            if not self.parsed.snippet or value.block is not block:
                return f"%{name} is not made here: the {self.form} form has no destination"
        elif isinstance(value.owner, AllocTileOp) and (value.owner.valid_row or value.owner.valid_col):
            return f"%{name} has a valid region of its own: the {self.form} form cannot give it one"
        elif not isinstance(value.owner, AllocTileOp) or value.owner.operands:
            return f"%{name} is no tile of its own: the {self.form} form has no destination"
        for use in value.uses:
            other = use.operation
            if other is op and list(op.operands).count(value) == 1:
                continue
            if not analysis.is_after(other, op):
                return f"%{name} is used before it is written: the {self.form} form has no destination"
            if isinstance(other, TileOp) and value in other.outs:
                return f"%{name} is written more than once: the {self.form} form has no destination"
            if not isinstance(other, (TileOp, StoreOp, func.ReturnOp)):
                return f"%{name} is changed by {other.name}: the {self.form} form has no destination"
        return None

    # -- rewriting ------------------------------------------------------------------------------------------

    def _insert(self, new: Operation, before: Operation) -> None:
        assert before.parent is not None
        before.parent.insert_op_before(new, before)
        self.parsed.spans[new] = self.parsed.span_of(before)

    def _replace(self, op: TileOp, new: TileOp, values: list[Any]) -> None:
        """Put ``new`` in the place of ``op``; ``values`` stand for its results."""
        self._insert(new, op)
        for result, value in zip(op.res, values, strict=bool(op.res)):
            self.parsed.names[value] = self.parsed.name_of(result)
            result.replace_all_uses_with(value)
        op.detach()
        op.erase()

    def _drop(self, value: SSAValue) -> None:
        """Remove a tile that nothing uses any more."""
        self.parsed.names.pop(value, None)
        if isinstance(value.owner, AllocTileOp):
            value.owner.detach()
            value.owner.erase()
        elif isinstance(value, BlockArgument) and self.parsed.snippet and isinstance(value.block, Block):
            value.block.erase_arg(value)

    def _spell_types(self) -> None:
        """Tiles of a snippet as the pages write them: !pto.tile_buf in the dps form, !pto.tile<...> in the others."""
        respell = _as_tile_buf if self.form == "dps" else _as_tile
        for value in list(self.parsed.names):
            ty = respell(value.type)
            if ty != value.type and (isinstance(value, BlockArgument) or isinstance(value.owner, TileOp)):
                name = self.parsed.names.pop(value)
                self.parsed.names[Rewriter.replace_value_with_new_type(value, ty)] = name


def _as_tile_buf(ty: Any) -> Any:
    return TileBufAttr(ty.data) if isinstance(ty, TileAttr) else ty


def _as_tile(ty: Any) -> Any:
    return TileAttr(ty.data) if isinstance(ty, TileBufAttr) and isinstance(ty.data, OpenTile) else ty
