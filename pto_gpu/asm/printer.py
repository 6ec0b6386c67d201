"""From IR to text: xDSL's printer with the names of the text, and operations in the form that they are in."""

from __future__ import annotations

import io
from collections.abc import Mapping

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer


class PtoPrinter(Printer):
    """Prints values under the names that they have in ``names``."""

    def __init__(self, stream: io.StringIO, names: Mapping[SSAValue, str]) -> None:
        super().__init__(stream)
        self._names = names

    def print_ssa_value(self, value: SSAValue) -> str:
        """``%name``; returns the name."""
        name = self._names[value]
        self.print_string(f"%{name}")
        return name

    def print_string_literal(self, string: str) -> None:
        """Text stays text: escaped as UTF-8 bytes, as xDSL prints it, it would be read back as bytes."""
        escaped = "".join(f"\\{ord(c):02X}" if c < " " or c in '"\\\x7f' else c for c in string)
        self.print_string(f'"{escaped}"')

    def print_op(self, op: Operation) -> None:
        """One operation; one in the synchronous form stands without the prefix of the dialect."""
        if op.name.startswith("pto.") and _malformed(op):
            self.print_generic_format, before = True, self.print_generic_format
            super().print_op(op)
            self.print_generic_format = before
            return
        if "sync" not in op.properties:
            super().print_op(op)
            return
        self._print_results(op)
        self.print_string(op.name.partition(".")[2])
        op.print(self)


def _malformed(op: Operation) -> bool:
    """Whether ``op`` has too few or too many operands for the forms of its text; it came from the generic form."""
    try:
        op.verify_()
    except Exception:  # operand segments that do not add up fail in other ways than VerifyException
        return True
    return False


def new_name(taken: set[str], stem: str) -> str:
    """A name like ``stem`` that is not taken."""
    if stem not in taken:
        return stem
    number = 0
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"


def printed(module: ModuleOp, names: Mapping[SSAValue, str], *, snippet: bool) -> str:
    """The text of a program."""
    stream = io.StringIO()
    printer = PtoPrinter(stream, names)
    if not snippet:
        printer.print_op(module)
        return stream.getvalue() + "\n"
    attributes = module.attributes
    function = module.body.block.first_op
    assert isinstance(function, func.FuncOp)
    body = [op for op in function.body.block.ops if not isinstance(op, func.ReturnOp)]
    if attributes:  # the target, for one
        printer.print_string("builtin.module")
        printer.print_op_attributes(attributes, print_keyword=True)
        printer.print_string(" {\n")
    for op in body:
        if attributes:
            printer.print_string("  ")
        with printer.indented(1 if attributes else 0):
            printer.print_op(op)
        printer.print_string("\n")
    if attributes:
        printer.print_string("}\n")
    return stream.getvalue()
