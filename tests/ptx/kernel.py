"""The text of a PTX module as instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

#: Registers of a class, by the type that they are declared with.
WIDTHS = {"pred": 0, "b8": 1, "b16": 2, "b32": 4, "b64": 8, "f32": 4, "f64": 8}


class Guard(NamedTuple):
    """``@%p`` or ``@!%p``: threads where the predicate is ``value`` execute the instruction."""

    register: str
    value: bool


@dataclass(frozen=True)
class Instruction:
    """``opcode`` in its parts, ``("ld", "global", "v4", "b32")``. An operand in braces or brackets is one operand."""

    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    guard: Guard | None
    text: str


@dataclass(frozen=True)
class Kernel:
    """The only kernel of a module; ``threads`` are those of a CTA.

    ``labels``: the number of the instruction that each stands before.
    """

    parameters: tuple[str, ...]
    threads: int
    registers: dict[str, int]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


def parse(text: str) -> Kernel:
    """The kernel in ``text``; raises ValueError where it is not understood."""
    text = re.sub(r"//[^\n]*", "", text)
    entry = re.search(r"\.visible \.entry \w+\(\s*(.*?)\)\s*((?:\.\w+ [\d, ]+\s*)*)\{\n(.*?)\n\}", text, re.DOTALL)
    if entry is None:
        raise ValueError("no kernel in this PTX")
    parameters, bounds, body = entry.groups()
    names = tuple(words[-1] for parameter in parameters.split(",") if (words := parameter.split()))
    threads = re.search(r"\.reqntid (\d+)", bounds)
    if threads is None:
        raise ValueError("this kernel does not say how many threads a CTA has")
    registers: dict[str, int] = {}
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for statement in _statements(body):
        if label := re.fullmatch(r"([$\w]+):", statement):
            labels[label[1]] = len(instructions)
        elif declared := re.fullmatch(r"\.reg \.(\w+)\s+(%\w+)(<\d+>)?", statement):
            registers[declared[2]] = WIDTHS[declared[1]]
        elif not statement.startswith("."):
            instructions.append(_instruction(statement))
    return Kernel(names, int(threads[1]), registers, tuple(instructions), labels)


def _statements(body: str) -> list[str]:
    """Labels with their colon, and statements without their semicolon; scopes and lines for debuggers are dropped."""
    body = re.sub(r"^\s*\.(loc|pragma)[^\n]*", "", body, flags=re.MULTILINE)
    found = []
    for piece in body.split(";"):
        rest = piece.strip()
        while scope := re.match(r"[{}](?!\s*%)\s*|[$\w]+:\s*", rest):  # not the brace of a vector
            if ":" in scope[0]:
                found.append(scope[0].strip())
            rest = rest[scope.end() :]
        if rest:
            found.append(rest)
    return found


def _instruction(statement: str) -> Instruction:
    match = re.fullmatch(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)", statement, re.DOTALL)
    if match is None:
        raise ValueError(f"not understood: {statement!r}")
    negated, register, opcode, operands = match.groups()
    guard = Guard(register, not negated) if register else None
    split = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", operands)
    return Instruction(tuple(re.split(r"\.|::", opcode)), tuple(split), guard, " ".join(statement.split()))
