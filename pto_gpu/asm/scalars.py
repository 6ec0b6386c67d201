"""Scalar operations: what xDSL's interpreter lacks of ``arith``, and what a loop refuses.

Scalars are the same for every element of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerType
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.interpreters.arith import ArithFunctions
from xdsl.interpreters.builtin import scalar_attr
from xdsl.interpreters.func import FuncFunctions
from xdsl.interpreters.scf import ScfFunctions
from xdsl.utils.comparisons import to_signed, to_unsigned
from xdsl.utils.exceptions import InterpretationError


def _width(interpreter: Interpreter, ty: Any) -> int:
    return interpreter.index_bitwidth if isinstance(ty, IndexType) else int(ty.width.data)


def _divisor(value: int) -> int:
    if value == 0:
        raise InterpretationError("division by zero")
    return value


def _quotient(a: int, b: int) -> int:
    """Towards zero."""
    quotient = abs(a) // abs(_divisor(b))
    return quotient if (a < 0) == (b < 0) else -quotient


#: Operations on two integers of one type, and whether they read them as signed.
_BINARY: dict[type[Any], tuple[bool, Callable[[int, int], int]]] = {
    arith.MinSIOp: (True, min),
    arith.MaxSIOp: (True, max),
    arith.MinUIOp: (False, min),
    arith.MaxUIOp: (False, max),
    arith.DivSIOp: (True, _quotient),
    arith.RemSIOp: (True, lambda a, b: a - b * _quotient(a, b)),
    arith.DivUIOp: (False, lambda a, b: a // _divisor(b)),
    arith.RemUIOp: (False, lambda a, b: a % _divisor(b)),
    arith.FloorDivSIOp: (True, lambda a, b: a // _divisor(b)),
    arith.CeilDivSIOp: (True, lambda a, b: -(-a // _divisor(b))),
    arith.CeilDivUIOp: (False, lambda a, b: -(-a // _divisor(b))),
}
_SHIFTS: dict[type[Any], tuple[bool, Callable[[int, int], int]]] = {
    arith.ShLIOp: (True, lambda a, b: a << b),
    arith.ShRSIOp: (True, lambda a, b: a >> b),
    arith.ShRUIOp: (False, lambda a, b: a >> b),
}
#: Casts between integer types, and whether they read the value as signed.
_CASTS: dict[type[Any], bool] = {arith.ExtSIOp: True, arith.ExtUIOp: False, arith.TruncIOp: True}


def _run_binary(_: Any, interpreter: Interpreter, op: Any, args: PythonValues) -> PythonValues:
    signed, compute = (_BINARY | _SHIFTS)[type(op)]
    read, width = (to_signed if signed else to_unsigned), _width(interpreter, op.result.type)
    a, b = (read(x.value.data, width) for x in args)
    if type(op) in _SHIFTS and not 0 <= b < width:
        raise InterpretationError(f"a shift by {b}: allowed 0 to {width - 1}")
    return (scalar_attr(compute(a, b), op.result.type, interpreter.index_bitwidth),)


def _run_cast(_: Any, interpreter: Interpreter, op: Any, args: PythonValues) -> PythonValues:
    ty: IntegerType = op.input.type
    read = to_signed if _CASTS[type(op)] else to_unsigned
    return (scalar_attr(read(args[0].value.data, ty.width.data), op.result.type, interpreter.index_bitwidth),)


def _methods() -> dict[str, Any]:
    methods = {}
    for op in (*_BINARY, *_SHIFTS):
        methods[f"run_{op.__name__}"] = impl(op)(_run_binary)
    for op in _CASTS:
        methods[f"run_{op.__name__}"] = impl(op)(_run_cast)
    return methods


@register_impls
class ScalarFunctions(type("_Scalars", (ArithFunctions,), _methods())):  # type: ignore[misc]  # generated methods
    """xDSL's implementations of ``arith``; those of integers completed, and with errors in place of assertions."""

    @impl(arith.DivfOp)
    def run_divf(self, interpreter: Interpreter, op: arith.DivfOp, args: PythonValues) -> PythonValues:
        """Division of floats."""
        a, b = (x.value.data for x in args)
        if b == 0:
            raise InterpretationError("division by zero")
        return (FloatAttr(a / b, op.result.type),)

    @impl(arith.NegfOp)
    def run_negf(self, interpreter: Interpreter, op: arith.NegfOp, args: PythonValues) -> PythonValues:
        """Negation of a float."""
        return (FloatAttr(-args[0].value.data, op.result.type),)


@register_impls
class LoopFunctions(ScfFunctions):
    """xDSL's implementations of ``scf``; a loop goes upwards."""

    @impl(scf.ForOp)
    def run_for(self, interpreter: Interpreter, op: scf.ForOp, args: PythonValues) -> PythonValues:
        """Refuse a step that is not positive."""
        step = args[2].value.data
        if step <= 0:
            raise InterpretationError(f"the step of a loop must be positive: seen {step}")
        result: PythonValues = super().run_for(interpreter, op, args).values
        return result


def functions() -> list[InterpreterFunctions]:
    """Everything but the operations of the ``pto`` dialect."""
    return [ScalarFunctions(), LoopFunctions(), FuncFunctions()]


def supported() -> set[type[Any]]:
    """The operations that these run."""
    return {op for one in functions() for op, _ in one._impls()}
