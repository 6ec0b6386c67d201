"""A PTO-AS program: what :func:`parse` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import SSAValue

from pto_gpu.asm import analysis, parser, printer
from pto_gpu.asm.bind import bind, scalar
from pto_gpu.asm.diagnostics import asm_error, asm_error_at
from pto_gpu.asm.run import Allocate, Runner
from pto_gpu.asm.structure import structure_problems
from pto_gpu.asm.types import VIEW_TYPES, element_of, is_scalar, is_tile, tile_type, view_shape
from pto_gpu.asm.verify import Verifier
from pto_gpu.defaults import current_options
from pto_gpu.errors import TypeMismatch
from pto_gpu.numerics import Numerics
from pto_gpu.targets import TARGETS
from pto_gpu.types import DYNAMIC, ElementType


def parse(text: str, filename: str = "<text>") -> Program:
    """Parse a PTO-AS text: a bare snippet, or a module of functions, in any of the three forms.

    ``filename`` is what errors call it. Raises AsmError with line and column for a text that is none.
    """
    for what, seen in (("text", text), ("filename", filename)):
        if not isinstance(seen, str):
            raise TypeMismatch(f"asm.parse: {what} must be a string: seen {type(seen).__name__}")
    return Program(parser.parse(text, filename))


class Program:
    """A parsed program. ``str()`` prints it; :meth:`emit` prints it in another form."""

    def __init__(self, parsed: parser.Parsed) -> None:
        """Not for callers: use :func:`parse`."""
        self._parsed = parsed
        self._verified: dict[tuple[str, str], Verifier] = {}

    def __str__(self) -> str:
        parsed = self._parsed
        return printer.printed(parsed.module, parsed.names, snippet=parsed.snippet)

    def __repr__(self) -> str:
        return f"<Program {self._parsed.source.name}>"

    @property
    def target(self) -> str | None:
        """The target that the module names, or None. Raises AsmError for one that is not known."""
        architectures = {word: t.name for t in TARGETS.values() for word in t.architectures}
        devices = {word: t.name for t in TARGETS.values() for word in t.devices}
        for key, known in (("pto.target_arch", architectures), ("pto.device-spec", devices)):
            seen = self._parsed.module.attributes.get(key)
            if seen is None:
                continue
            word = seen.data if isinstance(seen, StringAttr) else ""
            name = word.lower() if known is architectures else next(filter(word.startswith, devices), "")
            if name not in known:
                message = f"{key} is {seen}: allowed {', '.join(known)}"
                raise asm_error_at(message, self._parsed.span_of(self._parsed.module))
            return known[name]
        return None

    def verify(self, target: str | None = None) -> None:
        """Check everything that can be known before a run, and raise AsmError with every error that there is.

        ``target``: default that of the module, or else of the options. Each error has file, line, column and source
        line. The rules on tiles are those of the Python calls.
        """
        self._verifier(target)

    def _verifier(self, target: str | None, undefined: str | None = None) -> Verifier:
        options = current_options().override(target=target or self.target, undefined=undefined)
        key = (options.target.name, options.undefined)
        if key not in self._verified:
            problems = structure_problems(self._parsed)
            if problems:
                raise asm_error(problems)
            verifier = Verifier(self._parsed, *key)
            verifier.run()
            if verifier.problems:
                raise asm_error(verifier.problems)
            self._verified[key] = verifier
        return self._verified[key]

    def emit(self, form: str) -> str:
        """The text of the program in another form: ``"sync"``, ``"ssa"`` or ``"dps"``.

        Raises AsmError where the form cannot say what the program does.
        """
        from pto_gpu.asm.convert import converted

        parsed = converted(self._parsed, form)
        return printer.printed(parsed.module, parsed.names, snippet=parsed.snippet)

    def inputs(self, function: str | None = None) -> dict[str, str]:
        """The inputs of ``function``, and the type of each as the text has it."""
        return {self._parsed.name_of(v): str(v.type) for v in self._function(function).args}

    def element_shape(
        self, name: str, scalars: Mapping[str, Any] | None = None, function: str | None = None
    ) -> tuple[ElementType, tuple[int, ...]]:
        """Element type and shape, without the batch, of an input: what a raw file of it holds.

        ``scalars``: inputs that are numbers, which a shape may depend on. Raises AsmError where the program does not
        say the shape, or has no such input.
        """
        for value in self._function(function).args:
            if self._parsed.name_of(value) != name:
                continue
            element, shape = element_of(value.type), self._shape_of(value, scalars or {}, function)
            if element is None or shape is None:
                message = f"the program does not say the shape of input {name}: bind an .npy file"
                raise asm_error_at(message, self._parsed.span_of(value))
            return element, shape
        raise asm_error_at(f"there is no input {name!r}", self._parsed.span_of(self._parsed.module))

    def _shape_of(self, value: SSAValue, scalars: Mapping[str, Any], function: str | None) -> tuple[int, ...] | None:
        if isinstance(value.type, VIEW_TYPES):
            sizes = view_shape(value).sizes
            return None if DYNAMIC in sizes else sizes
        ty = tile_type(value.type)
        if ty is not None:
            return ty.rows, ty.cols
        given: dict[SSAValue, Any] = {}
        for argument in self._function(function).args:
            name = self._parsed.name_of(argument)
            if name in scalars and is_scalar(argument.type):
                given[argument] = scalar(name, argument.type, scalars[name])
        walk = Verifier(self._parsed, self._verifier(None).target, "error", given)
        walk.run()
        return walk.shapes.get(value)

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        backend: str | None = None,
        numerics: str | Numerics | None = None,
        undefined: str | None = None,
        function: str | None = None,
        outputs: Sequence[str] | None = None,
        allocate: Allocate | None = None,
    ) -> dict[str, Any]:
        """Run over a batch and return the results by name.

        ``inputs``, by the name of the argument or of the name that nothing defines: for a tile an array
        ``[batch, rows, cols]``, with ``NAME_valid`` (rows, columns; integers ``[batch, 2]`` or ``[2]``) where the type
        leaves the valid region open, or a TileBuf; for a pointer or a view an array ``[batch, ...]``; for a scalar
        a number. Inputs are not changed.

        Results: arrays that the program stores to, tiles among the arguments of a function that it writes, what it
        returns; of a snippet the tiles that no later operation reads. ``outputs`` names tiles to return instead.
        Elements outside a tile's valid region are zero. ``allocate(name, shape, element)`` makes the arrays.

        ``function``: which one to run; default the one with ``pto.entry``, or the one that no other calls.
        Other keywords as those of an intrinsic. Raises AsmError with the position of what went wrong.
        """
        if not isinstance(inputs or {}, Mapping):
            raise TypeMismatch(f"inputs must be a mapping of names to arrays: seen {type(inputs).__name__}")
        verifier = self._verifier(target, undefined)
        options = current_options().override(verifier.target, backend, numerics, undefined)
        entry = self._function(function)
        written = analysis.written_arguments(entry, self._parsed.functions)
        arguments: list[SSAValue] = list(entry.args)
        bound = bind(self._parsed, arguments, inputs or {}, verifier.needed, written)
        wanted = self._outputs(entry, written, outputs)
        return Runner(self._parsed, entry, bound, options, wanted, allocate).run()

    def _outputs(self, entry: func.FuncOp, written: set[SSAValue], names: Sequence[str] | None) -> dict[str, SSAValue]:
        name_of = self._parsed.name_of
        if names is not None:
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise TypeMismatch(f"outputs must be a list of names: seen {type(names).__name__}")
            known = {name_of(v): v for v in analysis.top_level_tiles(entry)}
            for name in names:
                if name not in known:
                    message = f"there is no tile {name!r} to return: allowed {', '.join(known) or 'none'}"
                    raise asm_error_at(message, self._parsed.span_of(self._parsed.module))
            return {name: analysis.origin(known[name]) for name in names}
        if self._parsed.snippet:
            return {name_of(v): v for v in analysis.final_tiles(entry)}
        last = entry.body.block.last_op
        returned = [v for v in (last.operands if last is not None else ()) if is_tile(v.type)]
        return {name_of(v): v for v in [*(a for a in entry.args if is_tile(a.type) and a in written), *returned]}

    def _function(self, name: str | None) -> func.FuncOp:
        """The function of that name, or the one to run."""
        functions = {n: f for n, f in self._parsed.functions.items() if not f.is_declaration}
        at = self._parsed.span_of(self._parsed.module)
        if name is not None:
            if name not in functions:
                raise asm_error_at(f"there is no function {name!r}: allowed {', '.join(functions) or 'none'}", at)
            return functions[name]
        if not functions:
            raise asm_error_at("the program has no function with a body", at)
        entries = [f for f in functions.values() if isinstance(f.attributes.get("pto.entry"), UnitAttr)]
        called = {c.callee.string_value() for f in functions.values() for c in f.walk() if isinstance(c, func.CallOp)}
        candidates = entries or [f for n, f in functions.items() if n not in called]
        if len(candidates) != 1:
            raise asm_error_at(f"more than one function could be run: name one of {', '.join(functions)}", at)
        return candidates[0]
