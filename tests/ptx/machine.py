"""Every thread of a grid in lock step: an instruction is a few operations of NumPy on all threads at once.

Threads whose way parts are executed in turns, those that are furthest behind first, so that they meet again where
their ways do. What an instruction of PTX does is in :mod:`ptx.operations`; moving data about is here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptx.memory import AccessError, Array, GlobalMemory, SharedMemory
from ptx.operations import OPERATIONS, TYPES, UNSIGNED
from ptx.program import Instruction, Program

WARP = 32


def run(program: Program, programs: int, arguments: Sequence[int], memory: GlobalMemory, shared_bytes: int = 0) -> None:
    """Execute ``program``; ``arguments``: the bits of each parameter, pointers as addresses."""
    with np.errstate(all="ignore"):
        _Machine(program, programs, arguments, memory, shared_bytes).run()


class _Machine:
    def __init__(
        self, program: Program, programs: int, arguments: Sequence[int], memory: GlobalMemory, shared_bytes: int
    ) -> None:
        self.program = program
        self.memory = memory
        self.shared = SharedMemory(programs, shared_bytes)
        self.size = programs * program.threads
        thread = np.arange(self.size, dtype=np.uint32)
        self.program_of = thread // np.uint32(program.threads)
        self.special = {
            "%tid.x": thread % np.uint32(program.threads),
            "%ctaid.x": self.program_of,
            "%laneid": thread % np.uint32(WARP),
            "global_smem": np.zeros(self.size, np.uint32),
        }
        self.parameters = dict(zip(program.parameters, arguments, strict=True))
        self.registers: dict[str, Array] = {}
        self.next = np.zeros(self.size, np.int64)
        self.lanes = thread.astype(np.int64)

    def run(self) -> None:
        """Until every thread has returned."""
        end = len(self.program.instructions)
        while (at := int(self.next.min())) < end:
            self.lanes = np.flatnonzero(self.next == at)
            others = self.next[self.next > at]
            meeting = int(others.min()) if len(others) else end
            while at < meeting:
                instruction = self.program.instructions[at]
                at += 1
                if self._step(instruction, at):
                    break
            else:
                self.next[self.lanes] = at

    def _step(self, instruction: Instruction, following: int) -> bool:
        """Execute one instruction; whether it says itself where its threads go on."""
        everyone = self.lanes
        taken = everyone
        if instruction.guard is not None:
            predicate = self._register(instruction.guard.register)
            taken = everyone[predicate == instruction.guard.value]
        name = instruction.opcode[0]
        if name in ("bra", "ret"):
            self.next[everyone] = following
            target = self.program.labels[instruction.operands[0]] if name == "bra" else len(self.program.instructions)
            self.next[taken] = target
            return True
        self.lanes = taken
        try:
            self._execute(instruction)
        except (AccessError, KeyError) as error:
            raise type(error)(f"{instruction.text}: {error}") from None
        finally:
            self.lanes = everyone
        return False

    def _execute(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        name, kind = opcode[0], opcode[-1]
        if name == "ld":
            self._load(opcode, *operands)
        elif name == "st":
            self._store(opcode, *operands)
        elif name == "mov":
            self._move(kind, *operands)
        elif name in ("shfl", "redux", "bar", "ldmatrix", "stmatrix"):
            self._together(instruction)
        else:
            operation = OPERATIONS.get(name)
            if operation is None:
                raise NotImplementedError(instruction.text)
            dst, *sources = operands
            types = operation.types(opcode, len(sources))
            values = [self._value(x, t) for x, t in zip(sources, types, strict=True)]
            result = operation.compute(opcode, *values)
            for number, name in enumerate(names := dst.split("|")):  # a predicate for each half of a register
                self._write(name, result[number :: len(names)])

    def _register(self, name: str) -> Array:
        """The bits of a register in the threads at hand."""
        if name in self.special:
            return self.special[name][self.lanes]
        return self.registers[name][self.lanes]

    def _value(self, operand: str, kind: str) -> Array:
        """A register, or a constant, as values of a type."""
        dtype = TYPES[kind]
        if operand[0] == "%" or operand in self.special:
            bits = self._register(operand)
            if dtype.kind == "b" or bits.dtype.itemsize == dtype.itemsize:
                return bits if dtype.kind == "b" else bits.view(dtype)
            return bits.astype(UNSIGNED[dtype.itemsize]).view(dtype)
        bits = int(operand[2:], 16) if operand[:2].lower() in ("0f", "0d") else int(operand.rstrip("U"), 0)
        if dtype.kind == "b":
            return np.full(len(self.lanes), bool(bits))
        unsigned = UNSIGNED[dtype.itemsize]
        return np.full(len(self.lanes), bits % (1 << 8 * dtype.itemsize), unsigned).view(dtype)

    def _write(self, operand: str, value: Array) -> None:
        """A value into a register, widened by its sign if it has one."""
        width = self.program.registers.get(operand)
        if width is None:
            width = self.program.registers[re.sub(r"\d+$", "", operand)]
        if width == 0:
            bits = value.astype(bool)
        else:
            if value.dtype.itemsize < width:
                value = value.astype(f"{'i' if value.dtype.kind == 'i' else 'u'}{width}")
            bits = value.view(UNSIGNED[width])
        register = self.registers.get(operand)
        if register is None:
            register = self.registers[operand] = np.zeros(self.size, bits.dtype)
        register[self.lanes] = bits

    def _move(self, kind: str, dst: str, src: str) -> None:
        """``mov``, which also takes registers apart and puts them together."""
        if dst[0] == "{":
            parts = _parts(dst)
            whole = self._value(src, kind)
            pieces = whole.view(UNSIGNED[whole.dtype.itemsize // len(parts)]).reshape(-1, len(parts))
            for number, part in enumerate(parts):
                if part != "_":
                    self._write(part, np.ascontiguousarray(pieces[:, number]))
        elif src[0] == "{":
            parts = _parts(src)
            unsigned = UNSIGNED[TYPES[kind].itemsize // len(parts)]
            pieces = np.stack([self._value(part, f"u{8 * unsigned.itemsize}") for part in parts], axis=1)
            self._write(dst, np.ascontiguousarray(pieces).view(UNSIGNED[TYPES[kind].itemsize])[:, 0])
        else:
            self._write(dst, self._value(src, kind))

    def _load(self, opcode: tuple[str, ...], dst: str, source: str) -> None:
        base, offset = _address(source)
        dtype = TYPES[opcode[-1]]
        if opcode[1] == "param":
            size = dtype.itemsize
            bits = np.full(len(self.lanes), self.parameters[base] % (1 << 8 * size), UNSIGNED[size])
            self._write(dst, bits.view(dtype))
            return
        names = _parts(dst)
        size = dtype.itemsize * len(names)
        if opcode[1] == "shared":
            address = self._value(base, "u32") + np.uint32(offset)
            data = self.shared.load(self.program_of[self.lanes], address, size)
        else:
            address = self._value(base, "s64") + offset
            data = self.memory.load(address.view(np.uint64), size)
        values = data.view(dtype)
        for number, name in enumerate(names):
            self._write(name, np.ascontiguousarray(values[:, number]))

    def _store(self, opcode: tuple[str, ...], target: str, src: str) -> None:
        base, offset = _address(target)
        kind = opcode[-1]
        values = np.stack([self._value(name, kind) for name in _parts(src)], axis=1)
        data = np.ascontiguousarray(values).view(np.uint8)
        if opcode[1] == "shared":
            address = self._value(base, "u32") + np.uint32(offset)
            self.shared.store(self.program_of[self.lanes], address, data)
        else:
            address = self._value(base, "s64") + offset
            self.memory.store(address.view(np.uint64), data)

    def _together(self, instruction: Instruction) -> None:
        """What the threads of a warp, or at a barrier of a program, do with one another: all of them must be there."""
        name, opcode, operands = instruction.opcode[0], instruction.opcode, instruction.operands
        group = self.program.threads if name == "bar" else WARP
        lanes = self.lanes.reshape(-1, group) if len(self.lanes) % group == 0 else None
        if lanes is None or (lanes[:, 0] % group).any() or (lanes[:, -1] - lanes[:, 0] != group - 1).any():
            raise AccessError(f"not all {group} threads of a group are here")
        if name == "shfl":
            if opcode[2] != "bfly" or operands[3] not in ("31", "0x1f"):
                raise NotImplementedError(instruction.text)
            values = self._value(operands[1], "u32").reshape(-1, WARP)
            other = np.arange(WARP) ^ int(operands[2], 0)
            self._write(operands[0].partition("|")[0], values[:, other].ravel())
        elif name == "redux":
            step = OPERATIONS[opcode[2]].compute
            values = self._value(operands[1], opcode[-1]).reshape(-1, WARP)
            self._write(operands[0], np.repeat(step(opcode, *values.T), WARP))
        elif name == "ldmatrix":
            self._load_matrices(opcode, *operands)
        elif name == "stmatrix":
            self._store_matrices(opcode, *operands)

    def _load_matrices(self, opcode: tuple[str, ...], dst: str, source: str) -> None:
        """8x8 elements of 16 bits to each register, two to a thread, in rows whose addresses threads hold in turn."""
        for number, name in enumerate(_parts(dst)):
            data = self.shared.load(*self._matrix_rows(source, number), 16).view(np.uint16).reshape(-1, 8, 8)
            matrices = data.swapaxes(1, 2) if "trans" in opcode else data
            self._write(name, np.ascontiguousarray(matrices).reshape(-1, 2).view(np.uint32)[:, 0])

    def _store_matrices(self, opcode: tuple[str, ...], target: str, src: str) -> None:
        """The other way round."""
        for number, name in enumerate(_parts(src)):
            matrices = self._value(name, "u32").view(np.uint16).reshape(-1, 8, 8)
            data = np.ascontiguousarray(matrices.swapaxes(1, 2) if "trans" in opcode else matrices)
            self.shared.store(*self._matrix_rows(target, number), data.reshape(-1, 8).view(np.uint8))

    def _matrix_rows(self, operand: str, number: int) -> tuple[Array, Array]:
        """Program and address of each row of the matrix ``number`` of every warp."""
        base, offset = _address(operand)
        address = self._value(base, "u32") + np.uint32(offset)
        rows = slice(8 * number, 8 * number + 8)
        return self.program_of[self.lanes].reshape(-1, WARP)[:, rows].ravel(), address.reshape(-1, WARP)[
            :, rows
        ].ravel()


def _parts(operand: str) -> list[str]:
    """The registers of a vector, or the only one."""
    return [part.strip() for part in operand.strip("{}").split(",")]


def _address(operand: str) -> tuple[str, int]:
    """Base and offset of ``[base+offset]``."""
    match: Any = re.fullmatch(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
    return match[1], int(match[2] or "0", 0)
