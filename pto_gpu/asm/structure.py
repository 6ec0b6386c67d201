"""What is wrong with a program whatever the target: xDSL's own checks, and what cannot be run at all."""

from __future__ import annotations

from typing import Final

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from pto_gpu.asm import scalars
from pto_gpu.asm.diagnostics import Diagnostic, sentence
from pto_gpu.asm.dialect import dialect
from pto_gpu.asm.parser import Parsed

#: Calls inside calls; a chain of calls is run by recursion.
MAX_CALL_DEPTH: Final = 16


def structure_problems(parsed: Parsed) -> list[Diagnostic]:
    """Every error that does not depend on the target, each at its operation."""
    problems = []
    runnable = {*scalars.supported(), *dialect().operations, ModuleOp, func.FuncOp}
    for op in parsed.module.walk():
        span = parsed.span_of(op)
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:  # mostly VerifyException; malformed generic forms fail in other ways
            problems.append(Diagnostic(f"{op.name}: {sentence(str(error).removeprefix(f'{op.name} '))}", span))
            continue
        if type(op) not in runnable:
            problems.append(Diagnostic(f"{op.name} cannot be run", span))
        elif any(len(region.blocks) > 1 for region in op.regions):
            problems.append(Diagnostic(f"{op.name}: branches between blocks are not supported: use scf", span))
    return problems or _call_problems(parsed)


def _call_problems(parsed: Parsed) -> list[Diagnostic]:
    """Calls of functions without a body, and chains of calls that are too deep or never end."""
    functions = parsed.functions
    calls = {name: [op for op in f.walk() if isinstance(op, func.CallOp)] for name, f in functions.items()}
    problems = []
    depths: dict[str, int] = {}

    def depth(name: str, above: tuple[str, ...]) -> int:
        if name in above or len(above) > MAX_CALL_DEPTH:
            return MAX_CALL_DEPTH + 1
        if name not in depths:
            depths[name] = 1 + max((depth(c.callee.string_value(), (*above, name)) for c in calls[name]), default=0)
        return depths[name]

    for name, ops in calls.items():
        for op in ops:
            callee = op.callee.string_value()
            if functions[callee].is_declaration:
                problems.append(Diagnostic(f"func.call: @{callee} has no body", parsed.span_of(op)))
            elif depth(callee, (name,)) > MAX_CALL_DEPTH:
                message = f"func.call: calls are nested too deeply, or never end: allowed {MAX_CALL_DEPTH} levels"
                problems.append(Diagnostic(message, parsed.span_of(op)))
    return problems
