"""From text to IR: xDSL's parser, and what PTO-AS adds to MLIR.

Added are unprefixed operations, names that nothing defines (inputs, outside of functions), types that may be open in
one place and complete in another, and the position of every operation and input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, scf
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, ParserState, UnresolvedOperand
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from pto_gpu.asm import diagnostics
from pto_gpu.asm.dialect import dialect
from pto_gpu.asm.lexer import PtoLexer, check_depth
from pto_gpu.asm.ops import StoreOp, TileOp
from pto_gpu.asm.printer import new_name
from pto_gpu.asm.types import merged
from pto_gpu.errors import nearest


@cache
def context() -> Context:
    """The dialects that a program may use."""
    known = Context()
    for one in (builtin.Builtin, func.Func, arith.Arith, scf.Scf, dialect()):
        known.load_dialect(one)
    return known


class Parsed:
    """What a text holds: the module, and what the IR itself does not keep.

    ``spans``: the name of each operation in the text, and of each argument. ``names``: of values. ``snippet``: whether
    the text has no function; its operations are then those of the only function, and its inputs the arguments.
    """

    def __init__(self, source: Input[str]) -> None:
        self.source = source
        self.module = builtin.ModuleOp([])
        self.spans: dict[Operation | SSAValue, Span[str]] = {}
        self.names: dict[SSAValue, str] = {}
        self.snippet = False

    @property
    def functions(self) -> dict[str, func.FuncOp]:
        """The functions by name."""
        return {op.sym_name.data: op for op in self.module.body.block.ops if isinstance(op, func.FuncOp)}

    def span_of(self, node: Operation | SSAValue) -> Span[str]:
        """Where ``node`` stands in the text; what the parser added stands where its parent does."""
        span = self.spans.get(node)
        if span is None and isinstance(node, Operation):
            parent = node.parent_op()
            return self.span_of(parent) if parent is not None else Span(0, 0, self.source)
        return span or Span(0, 0, self.source)

    def name_of(self, value: SSAValue) -> str:
        """The name of ``value`` in the text, without ``%``."""
        return self.names[value]


def parse(text: str, filename: str) -> Parsed:
    """Parse ``text``; raises AsmError for the first error in it."""
    source = Input(text.removeprefix("\ufeff"), filename)
    parser: PtoParser | None = None
    try:
        check_depth(source)
        parser = PtoParser(source)
        return parser.parse_program()
    except ParseError as error:
        raise diagnostics.from_parse_error(error) from None
    except RecursionError:
        raise diagnostics.asm_error_at("the text is nested too deeply", _here(parser, source)) from None
    except Exception as error:  # xDSL meets malformed text with almost any exception, assertions among them
        message = diagnostics.sentence(str(error)) or type(error).__name__
        raise diagnostics.asm_error_at(message, _here(parser, source)) from error


def _here(parser: PtoParser | None, source: Input[str]) -> Span[str]:
    return parser.running if parser is not None else Span(0, 0, source)


class PtoParser(Parser):
    """The parser; ``parse_program`` is its entry."""

    def __init__(self, source: Input[str]) -> None:
        super().__init__(context(), "", source.name)
        self._parser_state = ParserState(PtoLexer(source))
        self._parsed = Parsed(source)
        self._arguments = Block()
        self._inputs: dict[str, BlockArgument] = {}
        self._functions = 0  # bodies that are being parsed
        self._stems: dict[SSAValue, str] = {}  # of values that share a name, %x#0 and %x#1
        self._name_spans: list[Span[str]] = []
        self.spelled = ""

    @property
    def here(self) -> Span[str]:
        """The token that is next."""
        return self._current_token.span

    @property
    def running(self) -> Span[str]:
        """The name of the innermost operation that is being parsed; outside of them the next token."""
        return self._name_spans[-1] if self._name_spans else self.here

    # -- programs -----------------------------------------------------------------------------------------

    def parse_program(self) -> Parsed:
        """The whole text."""
        operations: list[Operation] = []
        while self._current_token.kind is not MLIRTokenKind.EOF:
            if self._current_token.kind in (MLIRTokenKind.HASH_IDENT, MLIRTokenKind.EXCLAMATION_IDENT):
                self._parse_alias_def()
                continue
            operation = self.parse_optional_operation()
            if operation is None:
                self.raise_error("an operation is expected")
            operations.append(operation)
        if not operations:
            self.raise_error("the text has no operation")
        self._finish(operations)
        self._name_all()
        return self._parsed

    def _name_all(self) -> None:
        """Give a name to every value that the text gives none: a result may be returned by it."""
        names = self._parsed.names
        taken = set(names.values())
        for op in self._parsed.module.walk():
            arguments = [a for region in op.regions for block in region.blocks for a in block.args]
            for value in (*op.results, *arguments):
                if value not in names:
                    names[value] = new_name(taken, self._stems.get(value, "v"))
                    taken.add(names[value])

    def _finish(self, operations: list[Operation]) -> None:
        parsed = self._parsed
        if len(operations) == 1 and isinstance(operations[0], builtin.ModuleOp):
            parsed.module = operations[0]
            operations = list(parsed.module.body.ops)
        elif all(isinstance(op, func.FuncOp) for op in operations):
            parsed.module = builtin.ModuleOp(operations)
        functions = [op for op in operations if isinstance(op, func.FuncOp)]
        others = [op for op in operations if not isinstance(op, func.FuncOp)]
        for op in others:
            if isinstance(op, builtin.ModuleOp):
                self.raise_error("a module stands alone at the top of a text", parsed.spans[op])
        if functions and others:
            self.raise_error("this operation is outside of the functions", parsed.spans[others[0]])
        if others:
            self._finish_snippet(others)

    def _finish_snippet(self, operations: list[Operation]) -> None:
        """Make the operations the body of a function whose arguments are the inputs."""
        parsed, body = self._parsed, self._arguments
        for op in operations:
            if isinstance(op, func.ReturnOp):
                self.raise_error("a return stands in a function", parsed.spans[op])
            if op.parent is not None:
                op.detach()
            body.add_op(op)
        body.add_op(func.ReturnOp())
        function = func.FuncOp("snippet", (body.arg_types, ()), Region(body))
        parsed.module.body.block.add_op(function)
        parsed.snippet = True

    # -- operations ---------------------------------------------------------------------------------------

    def _parse_op_result_list(self) -> list[tuple[Span[Any], int]]:
        results = super()._parse_op_result_list()
        self._name_spans.append(self.here)  # the name of the operation comes next
        return results

    def parse_operation(self) -> Operation:
        """One operation; its position is that of its name."""
        operation = super().parse_operation()
        span = self._parsed.spans[operation] = self._name_spans.pop()
        if span.text.startswith('"'):
            if isinstance(operation, (TileOp, StoreOp)):
                operation.complete_segments()
            try:  # this form lets anything pass: what follows relies on what must be there
                type(operation).get_irdl_definition().verify(operation)  # type: ignore[attr-defined]  # an IRDLOperation
            except Exception as error:  # mostly VerifyException; segments that do not add up fail in other ways
                self.raise_error(diagnostics.sentence(str(error)) or "malformed operation", span)
        return operation

    def _parse_block(self) -> Block:
        if self._current_token.kind is not MLIRTokenKind.CARET_IDENT:
            self.raise_error("an operation or '}' is expected")
        return super()._parse_block()

    def _get_op_by_name(self, name: str) -> type[Operation]:
        self.spelled = name
        for candidate in (name, f"pto.{name}"):
            found = self.ctx.get_optional_op(candidate, dialect_stack=self._parser_state.dialect_stack)
            if found is not None:
                if not issubclass(found, IRDLOperation):
                    break
                return found
        known = [word for op in self.ctx.loaded_ops for word in (op.name, op.name.removeprefix("pto."))]
        raise ParseError(self._name_spans[-1], f"operation {name} is not known{nearest(name, known)}")

    # -- values -------------------------------------------------------------------------------------------

    def parse_optional_region(self, arguments: Sequence[Parser.Argument] | None = None) -> Region | None:
        """A region; one of a function sees no name from outside."""
        if self._parser_state.dialect_stack[-1] != func.Func.name:
            return super().parse_optional_region(arguments)
        outside, self.ssa_values = self.ssa_values, {}
        self._functions += 1
        region = super().parse_optional_region(arguments)
        self._functions -= 1
        self.ssa_values = outside
        return region

    def resolve_operand(self, operand: UnresolvedOperand, type: Attribute | None) -> SSAValue:  # type: ignore[override]  # None is new
        """The value of that name; a new input if there is none. ``type`` None: whatever the value has."""
        name = operand.operand_name
        value = self._inputs.get(name) if not self._functions else None
        if value is None and name not in self.ssa_values:
            return self._undefined(operand, type)
        if value is None:
            values = self.ssa_values[name]
            if operand.index >= len(values):
                self.raise_error(f"%{name} has {len(values)} values: #{operand.index} is none", operand.span)
            defined: SSAValue = values[operand.index]
            if type is None or merged(defined.type, type) is not None:
                return defined
            self.raise_error(f"%{name} has type {defined.type}: used with {type}", operand.span)
        if type is None:
            return value
        fuller = merged(value.type, type)
        if fuller is None:
            self.raise_error(f"%{name} has type {value.type}: used with {type}", operand.span)
        return value if fuller == value.type else self._retyped(name, value, fuller)

    def _undefined(self, operand: UnresolvedOperand, type: Attribute | None) -> BlockArgument:
        name = operand.operand_name
        if self._functions:
            hint = nearest(f"%{name}", [f"%{known}" for known in self.ssa_values])
            self.raise_error(f"%{name} is not defined{hint}", operand.span)
        if operand.index:
            self.raise_error(f"%{name} is an input, which has no #{operand.index}", operand.span)
        if type is None:
            self.raise_error(f"%{name} is an input: its type must be given", operand.span)
        value = self._arguments.insert_arg(type, len(self._arguments.args))
        self._inputs[name] = value
        self._parsed.names[value] = name
        self._parsed.spans[value] = operand.span
        return value

    def _retyped(self, name: str, value: BlockArgument, type: Attribute) -> BlockArgument:
        """The input ``value`` with a fuller type."""
        span = self._parsed.spans.pop(value)
        del self._parsed.names[value]
        new: Any = Rewriter.replace_value_with_new_type(value, type)
        self._inputs[name] = new
        self._parsed.names[new] = name
        self._parsed.spans[new] = span
        return self._inputs[name]

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span[Any]) -> None:
        if not self._functions and name in self._inputs:
            self.raise_error(f"%{name} is used before it is defined", span)
        if name in self.ssa_values:
            self.raise_error(f"%{name} is defined twice", span)
        self.ssa_values[name] = tuple(values)
        for i, value in enumerate(values):
            if len(values) == 1:
                self._parsed.names[value] = name
            else:
                self._stems[value] = f"{name}_{i}"
            self._parsed.spans[value] = span

    def is_defined(self, name: str) -> bool:
        """Whether a value or an input of this name has been seen."""
        return name in self.ssa_values or (not self._functions and name in self._inputs)

    def resume_at(self, position: int) -> None:
        """Read on from a position that was passed."""
        self._resume_from(position)

    # -- what types and operations of the dialect read ----------------------------------------------------

    def parse_angle_text(self) -> tuple[str, int]:
        """The text between ``<`` and the next ``>`` as it stands, and the position of its first character."""
        if self._current_token.kind is not MLIRTokenKind.LESS:
            self.raise_error("'<' expected")
        start = self._current_token.span.end
        end = self.lexer.input.content.find(">", start)
        if end < 0:
            self.raise_error("this '<' has no '>'")
        self._resume_from(end + 1)
        return self.lexer.input.content[start:end], start

    def fail_at(self, message: str, start: int, end: int) -> NoReturn:
        """Report an error about characters ``start`` to ``end`` of the text."""
        self.raise_error(message, start, max(start + 1, end))
