"""What the Triton compiler makes of the kernels, without a GPU: ``python bench/codegen.py [--arch sm_90]``.

Compiles every instruction x element type x {full, uniform, per tile} x architecture for a set of tile shapes. Fails
(exit status 1) where a bulk access is narrower than 16 bytes though the rows allow it, anything spills, a product is
fused or flushes subnormals, or an offset made of a program's number is 32-bit. The generator of campaigns is compiled
too, for every element size x shape x {alone, like a partner, by row}.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pto_gpu.backends.triton import COMPILER_OPTIONS, kernel_of
from pto_gpu.backends.triton_plan import VECTOR_BYTES, Plan, Shape, machine_of, make_plan
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Family, Instruction, Kind, Pattern
from pto_gpu.numerics import NUMERICS, Numerics, resolve_numerics
from pto_gpu.types import ELEMENT_TYPES, ElementType, TileBufType

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
#: full: every region is the whole tile. uniform: counts are run-time scalars. per_tile: read from memory.
MODES = ("full", "uniform", "per_tile")
SHAPES = ((16, 32), (127, 64), (1, 16384))
NAN_RULES = ("isa", "formal", "simulator")
#: What ``--op`` calls the kernel that draws the operands of campaigns.
GENERATOR = "generator"


@dataclass(frozen=True)
class Case:
    """One compilation."""

    name: str
    elements: tuple[str, ...]
    mode: str
    shape: tuple[int, int]
    rules: Numerics
    target: str

    @property
    def label(self) -> str:
        """What to call it in output."""
        rows, cols = self.shape
        return f"{self.name} {'/'.join(self.elements)} {rows}x{cols} {self.mode} {self.rules.label} {self.target}"

    @property
    def instruction(self) -> Instruction:
        """Its record; looked up, because a record does not travel between processes."""
        return instructions()[self.name]


@dataclass
class Report:
    """What came out. Accesses by width in bytes and machine instructions are counted in the text of the program."""

    label: str
    loads: dict[int, int] = field(default_factory=dict)
    stores: dict[int, int] = field(default_factory=dict)
    instructions: int = 0
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def cases(targets: Any, modes: Any, shapes: Any, rules: tuple[str, ...]) -> Iterator[Case]:
    """Every combination; rule sets that an instruction's kernel cannot tell apart are compiled once."""
    for instruction in instructions().values():
        signatures = dict.fromkeys(s for allowed in instruction.element_types.values() for s in allowed)
        for elements in signatures:
            is_float = ELEMENT_TYPES[elements[0]].is_float
            distinct = {}
            for name in rules:
                numerics = resolve_numerics(name)
                used = tuple(getattr(numerics, axis) for axis in instruction.rules_used) if is_float else ()
                distinct.setdefault(used, numerics)
            for numerics in distinct.values():
                for mode in modes:
                    for shape in shapes:
                        for target in targets:
                            yield Case(instruction.name, elements, mode, shape, numerics, target)


def plan_of_case(case: Case) -> Plan:
    """The plan the backend would make for contiguous, aligned tiles of this shape."""
    shapes = {}
    for operand in (*case.instruction.dsts, *case.instruction.sources):
        element = ELEMENT_TYPES[case.elements[1 if operand.kind is Kind.INDEX else 0]]
        rows, cols = case.shape
        strides = (rows * cols, cols, 1)
        if case.instruction.family == Family.ROW_REDUCE and operand in case.instruction.dsts:  # a DN column
            lanes = 32 // element.itemsize
            rows, cols = -(-rows // lanes) * lanes, 1
            strides = (rows, 1, rows)
        shapes[operand.name] = Shape(rows, cols, strides, element, True)
    return make_plan(case.instruction, shapes, case.rules, case.mode == "full", machine_of(TARGETS[case.target]))


def compile_plan(kernel: Any, plan: Plan, elements: dict[str, ElementType], per_tile: bool, target: GPUTarget) -> Any:
    """Compile ``kernel`` as the backend would launch it: aligned bases, 32-bit strides, everything else unknown."""
    types = {name: f"*i{element.bits}" for name, element in elements.items()}
    if per_tile:
        types |= {name: "*i32" for name in kernel.arg_names if name.endswith(("_rows", "_cols"))}
    return compile_kernel(kernel, plan.constants, types, list(elements), plan.threads, target)


def compile_kernel(
    kernel: Any,
    constants: Mapping[str, Any],
    types: dict[str, str],
    aligned: list[str],
    threads: int,
    target: GPUTarget,
) -> Any:
    """Compile ``kernel``; arguments that are neither constants nor in ``types`` are 32-bit numbers."""
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel, signature, {n: constants[n] for n in kernel.arg_names if n in constants}, attributes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a default that is set here
        return triton.compile(
            source, target=target, options={"num_warps": threads // target.warp_size, **COMPILER_OPTIONS}
        )


def compile_case(case: Case) -> Report:
    """Compile one case and judge it."""
    plan = plan_of_case(case)
    kernel = kernel_of(plan)
    elements = {
        o.name: ELEMENT_TYPES[case.elements[1 if o.kind is Kind.INDEX else 0]]
        for o in (*case.instruction.dsts, *case.instruction.sources)
    }
    compiled = compile_plan(kernel, plan, elements, case.mode == "per_tile", TARGETS[case.target])
    return judge(case.label, compiled, expected_bytes(case, plan, elements), case.mode == "full")


def expected_bytes(case: Case, plan: Plan, elements: dict[str, ElementType]) -> tuple[int, int]:
    """Bytes that a program must load and store in vectors; the dst of a row reduction is one element a row."""
    c = plan.constants
    block = c["BT"] * c["BR"] * c["BC"]
    loaded = sum(block * elements[o.name].itemsize for o in case.instruction.sources)
    stored = sum(block * elements[o.name].itemsize for o in case.instruction.dsts)
    return loaded, 0 if case.instruction.family == Family.ROW_REDUCE else stored


@dataclass(frozen=True)
class GeneratorCase:
    """One compilation: for elements like those of ``dtype``, drawn by ``pattern``; None: the words of valid regions."""

    dtype: str
    pattern: Pattern | None
    partner: bool
    shape: tuple[int, int]
    target: str

    @property
    def label(self) -> str:
        """What to call it in output."""
        how = f"{self.pattern or 'words'}{' like a partner' if self.partner else ''}"
        return f"generator i{ELEMENT_TYPES[self.dtype].bits} {self.shape[0]}x{self.shape[1]} {how} {self.target}"


def generator_cases(targets: Any, shapes: Any) -> Iterator[GeneratorCase]:
    """Every combination that an instruction's operands need; element types of one size share a kernel."""
    needed: dict[tuple[Any, ...], tuple[str, Pattern | None, bool]] = {(): ("i32", None, False)}
    for instruction in instructions().values():
        for elements in (s for allowed in instruction.element_types.values() for s in allowed):
            for source in instruction.sources:
                draw, dtype = instruction.draws[source.name], elements[1 if source.kind is Kind.INDEX else 0]
                by_row = draw.pattern is Pattern.ROW
                key = (ELEMENT_TYPES[dtype].bits, by_row, draw.like is not None)
                needed.setdefault(key, (dtype, draw.pattern, draw.like is not None))
    for dtype, pattern, partner in needed.values():
        for shape in shapes:
            for target in targets:
                yield GeneratorCase(dtype, pattern, partner, shape, target)


def compile_generator(case: GeneratorCase) -> Report:
    """Compile the generator for one case and judge it: partner and result go in vectors, tables cannot."""
    from pto_gpu.kernels.generate import generate, words

    from pto_gpu.campaign.tiles.categories import tables
    from pto_gpu.campaign.tiles.device_draw import THREADS, WORD_TILES, kernel_constants
    from pto_gpu.campaign.tiles.valid import VALID_BLOCKS

    numbers, target = {"first": "i64", "seed": "u64"}, TARGETS[case.target]
    if case.pattern is None:
        constants = {"BLOCKS": VALID_BLOCKS, "BT": WORD_TILES}
        compiled = compile_kernel(words, constants, {"out": "*i32", **numbers}, ["out"], THREADS, target)
        return judge(case.label, compiled, (0, WORD_TILES * VALID_BLOCKS * 16), full=False)
    storage = TileBufType(case.dtype, *case.shape)
    constants = kernel_constants(case.shape, storage, tables(case.dtype, case.pattern, case.partner), case.partner)
    bits = storage.element.bits
    types = {"out": f"*i{bits}", "partner": f"*i{bits}", "profiles": "*u8", "valid_cols": "*i32", **numbers}
    types |= dict.fromkeys(("profile_of", "force", "masks", "flips", "keep", "flip"), "*i32")
    compiled = compile_kernel(generate, constants, types, ["out", "partner"], THREADS, target)
    block = constants["BT"] * constants["BR"] * constants["BC"] * bits // 8
    return judge(case.label, compiled, (block if case.partner else 0, block), full=False)


def judge(label: str, compiled: Any, expected: tuple[int, int], full: bool) -> Report:
    """Measure a compiled kernel and list what is wrong with it."""
    report = Report(label, shared_bytes=compiled.metadata.shared)
    report.problems += narrow_offsets(compiled.asm["ttir"])
    if "ptx" not in compiled.asm:  # AMD: compiling is what is asked, and no scratch memory
        text = compiled.asm["amdgcn"]
        report.instructions = len(re.findall(r"^\t[a-z]\w+(?:\s|$)", text, re.MULTILINE))
        report.registers = max(map(int, re.findall(r"\.vgpr_count:\s*(\d+)", text)), default=0)
        report.spill_bytes = max(map(int, re.findall(r"\.private_segment_fixed_size:\s*(\d+)", text)))
        wide = re.findall(r"(?:global|buffer)_load_dwordx4", text)
        report.loads = {VECTOR_BYTES: len(wide)}
        if expected[0] and not wide:
            report.problems.append("no 16-byte load")
    else:
        ptx = compiled.asm["ptx"]
        report.loads, report.stores = accesses(ptx, "ld"), accesses(ptx, "st")
        report.instructions, report.registers, report.spill_bytes = resources(compiled.asm["cubin"])
        threads = compiled.metadata.num_warps * 32
        report.problems += narrow_accesses(report, expected, threads, full)
        report.problems += inexact_products(ptx)
    if report.spill_bytes:
        report.problems.append(f"{report.spill_bytes} bytes spilled")
    return report


def accesses(ptx: str, kind: str) -> dict[int, int]:
    """How many global accesses (``"ld"`` or ``"st"``) there are of each width in bytes."""
    counts: dict[int, int] = {}
    for lanes, bits in re.findall(rf"\b{kind}\.global(?:\.[a-uw-z]\w*(?:::\w+)*)*?(?:\.v(\d))?\.[bsuf](\d+)\s", ptx):
        width = int(lanes or 1) * int(bits) // 8
        counts[width] = counts.get(width, 0) + 1
    return dict(sorted(counts.items()))


def narrow_accesses(report: Report, expected: tuple[int, int], threads: int, full: bool) -> list[str]:
    """Vector accesses must move the whole block: then what is narrow is valid counts and ragged ends."""
    problems = []
    for what, seen, wanted in (("loads", report.loads, expected[0]), ("stores", report.stores, expected[1])):
        vectors = sum(n for width, n in seen.items() if width >= VECTOR_BYTES)
        needed = -(-wanted // (VECTOR_BYTES * threads))
        if vectors < needed:
            problems.append(f"{what}: {vectors} of 16 bytes a thread, {needed} needed; by width {seen}")
        # A row reduction (nothing stored in vectors) by select reads the first element of each row once more.
        allowed = vectors if wanted and not expected[1] else 0
        if full and wanted and sum(seen.values()) - vectors > allowed:
            problems.append(f"{what}: narrow access in a full tile; by width {seen}")
    return problems


def inexact_products(ptx: str) -> list[str]:
    """A product is rounded once, by itself, and keeps subnormals."""
    found = sorted(set(re.findall(r"\b(?:fma|mad)\.(?:rn\.)?(?:ftz\.)?[fb]\S*|\b\w+\.(?:\w+\.)*ftz\S*", ptx)))
    return [f"fused or flushed: {', '.join(found)}"] if found else []


def resources(cubin: bytes) -> tuple[int, int, int]:
    """Instructions, registers of a thread, and bytes of local memory (spills), as cuobjdump reports them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        command = [tool, "-res-usage", "-sass", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no resource usage: {text[:200]}")
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?!NOP)(?:@!?\w+ +)?[A-Z]", text)
    return len(instructions), int(found[1]), int(found[2]) + int(found[3])


def narrow_offsets(ttir: str) -> list[str]:
    """Where a 32-bit value made of the program's number is multiplied, or added to a pointer: it wraps past 2^31."""
    tainted: set[str] = set()
    problems = []
    for line in ttir.splitlines():
        found = re.match(r"\s*(%[\w#]+) = (\S+)(.*)", line)
        if not found:
            continue
        name, op, rest = found.groups()
        result = rest.split(" loc(")[0].rsplit(":", 1)[-1]
        uses = set(re.findall(r"%[\w#]+", rest)) & tainted
        if op.endswith("get_program_id"):
            tainted.add(name)
        elif uses and op == "tt.addptr":
            problems.append(f"32-bit offset: {line.split(' loc(')[0].strip()}")
        elif uses and "i32" in result and "i64" not in result and not op.endswith("cmpi"):
            tainted.add(name)
            if op == "arith.muli":
                problems.append(f"32-bit offset: {line.split(' loc(')[0].strip()}")
    return problems


def compile_any(case: Case | GeneratorCase) -> Report:
    """The report for a case of either kind."""
    return compile_case(case) if isinstance(case, Case) else compile_generator(case)


def compile_cases(chosen: list[Case | GeneratorCase], jobs: int) -> Iterator[Report]:
    """A report for each case, in order, compiled by ``jobs`` processes."""
    if jobs == 1:
        yield from map(compile_any, chosen)
        return
    # Spawned, not forked: the compiler has threads of its own.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(compile_any, chosen, chunksize=8)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", action="append", choices=[*TARGETS], help="default: all")
    parser.add_argument("--op", action="append", choices=[*instructions(), GENERATOR], help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    parser.add_argument("--numerics", action="append", choices=[*NUMERICS], help="default: one for each NaN rule")
    parser.add_argument("--shape", action="append", help="ROWSxCOLS; default: a set of three")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; default: one a core")
    parser.add_argument("--json", type=Path, help="write every report here")
    options = parser.parse_args(argv)
    shapes = [tuple(map(int, s.split("x"))) for s in options.shape or ()] or SHAPES
    targets, ops = options.arch or [*TARGETS], options.op or [*instructions(), GENERATOR]
    rules = tuple(options.numerics or NAN_RULES)
    chosen: list[Case | GeneratorCase] = [
        case for case in cases(targets, options.mode or MODES, shapes, rules) if case.name in ops
    ]
    if GENERATOR in ops:
        chosen += generator_cases(targets, shapes)
    reports = []
    for report in compile_cases(chosen, options.jobs):
        reports.append(report)
        state = "; ".join(report.problems) or "ok"
        size = f"{report.instructions} instructions, {report.registers} registers"
        print(f"{report.label}: {size}, loads {report.loads}, stores {report.stores}: {state}")
    bad = sum(bool(r.problems) for r in reports)
    print(f"{len(reports)} kernels, {bad} with problems, at most {max(r.registers for r in reports)} registers")
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in reports], indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
