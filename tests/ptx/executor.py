"""Every thread of a grid in lock step: an instruction is a few operations of NumPy on all threads at once.

Threads whose way parts are executed in turns, those that are furthest behind first, so that they meet again where
their ways do. What an instruction of PTX does is in :mod:`ptx.operations`; moving data about is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ptx.kernel import Instruction, Kernel
from ptx.memory import AccessError, Array, GlobalMemory, SharedMemory
from ptx.operations import OPERATIONS, TYPES, UNSIGNED, refuse_unknown

WARP = 32
ALL_LANES = 0xFFFFFFFF


#: Instructions that say where a thread goes on: what may follow their name.
_JUMPS = {"bra": r"(uni)?", "ret": ""}


class _Action(NamedTuple):
    """``forms``: what may follow the name. ``execute``: on a grid, with opcode and operands."""

    forms: str
    execute: Callable[..., None]


def run(kernel: Kernel, ctas: int, arguments: Sequence[int], memory: GlobalMemory, shared_bytes: int = 0) -> None:
    """Execute ``kernel``; ``arguments``: the bits of each parameter, pointers as addresses."""
    for instruction in kernel.instructions:
        _refuse_unknown(instruction)
    with np.errstate(all="ignore"):
        _Grid(kernel, ctas, arguments, memory, shared_bytes).run()


def _refuse_unknown(instruction: Instruction) -> None:
    name = instruction.opcode[0]
    known = OPERATIONS.get(name) or _ACTIONS.get(name)
    if known is None and name not in _JUMPS:
        raise NotImplementedError(instruction.text)
    refuse_unknown(instruction.opcode, known.forms if known else _JUMPS[name])


class _Grid:
    def __init__(
        self, kernel: Kernel, ctas: int, arguments: Sequence[int], memory: GlobalMemory, shared_bytes: int
    ) -> None:
        self.kernel = kernel
        self.memory = memory
        self.shared = SharedMemory(ctas, shared_bytes)
        self.size = ctas * kernel.threads
        thread = np.arange(self.size, dtype=np.uint32)
        self.cta_of = thread // np.uint32(kernel.threads)
        self.warp_of = (thread // np.uint32(WARP)).astype(np.int64)
        self.special = {
            "%tid.x": thread % np.uint32(kernel.threads),
            "%ctaid.x": self.cta_of,
            "%laneid": thread % np.uint32(WARP),
            "global_smem": np.zeros(self.size, np.uint32),
        }
        self.parameters = dict(zip(kernel.parameters, arguments, strict=True))
        self.registers: dict[str, Array] = {}
        self.next = np.zeros(self.size, np.int64)
        self.lanes = thread.astype(np.int64)

    def run(self) -> None:
        """Until every thread has returned."""
        end = len(self.kernel.instructions)
        while (at := int(self.next.min())) < end:
            self.lanes = np.flatnonzero(self.next == at)
            others = self.next[self.next > at]
            meeting = int(others.min()) if len(others) else end
            while at < meeting:
                instruction = self.kernel.instructions[at]
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
        if name in _JUMPS:
            self.next[everyone] = following
            target = self.kernel.labels[instruction.operands[0]] if name == "bra" else len(self.kernel.instructions)
            self.next[taken] = target
            return True
        self.lanes = taken
        try:
            self._execute(instruction)
        except (AccessError, KeyError, NotImplementedError) as error:
            raise type(error)(f"{instruction.text}: {error}") from None
        finally:
            self.lanes = everyone
        return False

    def _execute(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        if action := _ACTIONS.get(opcode[0]):
            action.execute(self, opcode, *operands)
            return
        operation = OPERATIONS[opcode[0]]
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
        width = self.kernel.registers.get(operand)
        if width is None:
            width = self.kernel.registers[re.sub(r"\d+$", "", operand)]
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

    def _move(self, opcode: tuple[str, ...], dst: str, src: str) -> None:
        """``mov``, which also takes registers apart and puts them together."""
        kind = opcode[-1]
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
            data = self.shared.load(self.cta_of[self.lanes], self.warp_of[self.lanes], address, size)
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
            self.shared.store(self.cta_of[self.lanes], self.warp_of[self.lanes], address, data)
        else:
            address = self._value(base, "s64") + offset
            self.memory.store(address.view(np.uint64), data)

    def _gather(self, group: int) -> None:
        """What threads do together wants all of a warp or CTA to be there."""
        lanes = self.lanes.reshape(-1, group) if len(self.lanes) % group == 0 else None
        if lanes is None or (lanes[:, 0] % group).any() or (lanes[:, -1] - lanes[:, 0] != group - 1).any():
            raise AccessError(f"not all {group} threads of a group are here")

    def _expect(self, operand: str, value: int) -> None:
        """An operand that is understood with one value only."""
        if (self._value(operand, "u32") != np.uint32(value)).any():
            raise NotImplementedError(f"{operand} is not {value:#x}")

    def _barrier(self, _: tuple[str, ...], number: str) -> None:
        self._gather(self.kernel.threads)
        self._expect(number, 0)
        self.shared.barrier(np.unique(self.cta_of[self.lanes]))

    def _shuffle(self, _: tuple[str, ...], dst: str, src: str, by: str, clamp: str, members: str) -> None:
        """``bfly``: the value of the lane with some bits of its number turned over."""
        self._gather(WARP)
        self._expect(clamp, WARP - 1)
        self._expect(members, ALL_LANES)
        other = np.arange(WARP) ^ (self._value(by, "u32") & 31).reshape(-1, WARP)
        values = self._value(src, "u32").reshape(-1, WARP)
        self._write(dst, np.take_along_axis(values, other, axis=1).ravel())

    def _reduce(self, opcode: tuple[str, ...], dst: str, src: str, members: str) -> None:
        self._gather(WARP)
        self._expect(members, ALL_LANES)
        values = self._value(src, opcode[-1]).reshape(-1, WARP)
        self._write(dst, np.repeat(OPERATIONS[opcode[2]].compute(opcode, *values.T), WARP))

    def _load_matrices(self, opcode: tuple[str, ...], dst: str, source: str) -> None:
        """8x8 elements of 16 bits to each register, two to a thread, in rows whose addresses threads hold in turn."""
        self._gather(WARP)
        for number, name in enumerate(_parts(dst)):
            data = self.shared.load(*self._matrix_rows(source, number), 16).view(np.uint16).reshape(-1, 8, 8)
            matrices = data.swapaxes(1, 2) if "trans" in opcode else data
            self._write(name, np.ascontiguousarray(matrices).reshape(-1, 2).view(np.uint32)[:, 0])

    def _store_matrices(self, opcode: tuple[str, ...], target: str, src: str) -> None:
        """The other way round."""
        self._gather(WARP)
        for number, name in enumerate(_parts(src)):
            matrices = self._value(name, "u32").view(np.uint16).reshape(-1, 8, 8)
            data = np.ascontiguousarray(matrices.swapaxes(1, 2) if "trans" in opcode else matrices)
            self.shared.store(*self._matrix_rows(target, number), data.reshape(-1, 8).view(np.uint8))

    def _matrix_rows(self, operand: str, number: int) -> tuple[Array, Array, Array]:
        """CTA, warp and address of each row of the matrix ``number`` of every warp."""
        base, offset = _address(operand)
        address = self._value(base, "u32") + np.uint32(offset)
        lanes = np.arange(len(address)).reshape(-1, WARP)[:, 8 * number : 8 * number + 8].ravel()
        return self.cta_of[self.lanes[lanes]], self.warp_of[self.lanes[lanes]], address[lanes]


_NUMBER, _MATRICES = r"[bsu](8|16|32|64)", r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16"
_ACTIONS = {
    "ld": _Action(rf"(param|(global|shared)(\.v[24])?)\.{_NUMBER}", _Grid._load),
    "st": _Action(rf"(global|shared)(\.v[24])?\.{_NUMBER}", _Grid._store),
    "mov": _Action(r"[bsu](16|32|64)|f32|pred", _Grid._move),
    "bar": _Action(r"sync", _Grid._barrier),
    "shfl": _Action(r"sync\.bfly\.b32", _Grid._shuffle),
    "redux": _Action(r"sync\.(min|max)\.([su]32|(NaN\.)?f32)", _Grid._reduce),
    "ldmatrix": _Action(_MATRICES, _Grid._load_matrices),
    "stmatrix": _Action(_MATRICES, _Grid._store_matrices),
}


def _parts(operand: str) -> list[str]:
    """The registers of a vector, or the only one."""
    return [part.strip() for part in operand.strip("{}").split(",")]


def _address(operand: str) -> tuple[str, int]:
    """Base and offset of ``[base+offset]``."""
    match: Any = re.fullmatch(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
    return match[1], int(match[2] or "0", 0)
