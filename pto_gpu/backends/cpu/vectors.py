"""LLVM vectors of 32 bytes: what the rows of :mod:`.lanes` are emitted with.

``width`` is the number of bits of an element. Addresses and byte counts are int64. An *order* is an
:class:`~pto_gpu.backends.cpu.ordering.Ordering`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils

from pto_gpu.backends.cpu.ordering import Ordering

#: Bytes of a block: rows (columns of a DN tile) are a multiple of it long.
BLOCK: Final = 32
_RAMP: Final = "pto_gpu_ramp"


def vector_of(width: int, nbytes: int) -> ir.VectorType:
    """The LLVM type of ``nbytes`` bytes of ``width``-bit elements."""
    return ir.VectorType(ir.IntType(width), nbytes * 8 // width)


def splat(builder: ir.IRBuilder, scalar: Any, like: ir.VectorType) -> Any:
    """The int64 ``scalar`` in every lane."""
    undefined = ir.Constant(like, ir.Undefined)
    single = builder.insert_element(undefined, builder.trunc(scalar, like.element), ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), like.count), [0] * like.count)
    return builder.shuffle_vector(single, undefined, zeros)


def constant(like: ir.VectorType, value: float) -> ir.Constant:
    """``value`` in every lane."""
    return ir.Constant(like, [value] * like.count)


def load_vector(builder: ir.IRBuilder, address: Any, vector: ir.VectorType, width: int) -> Any:
    """The ``vector`` at an address that is aligned to its elements."""
    value = builder.load(builder.inttoptr(address, vector.as_pointer()))
    value.align = width // 8  # tiles are aligned to their elements and no further
    return value


def store_vector(builder: ir.IRBuilder, value: Any, address: Any, width: int) -> None:
    """Store at an address that is aligned to the elements."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = width // 8


def width_of(tag: Any) -> int:
    """Bits of an element."""
    return int(tag.instance_type.bitwidth)


def resize(builder: ir.IRBuilder, value: Any, vector: ir.VectorType) -> Any:
    """The low lanes of ``value``, in a vector of another length; lanes that are added are arbitrary."""
    if value.type == vector:
        return value
    lanes = ir.Constant(
        ir.VectorType(ir.IntType(32), vector.count), [n % value.type.count for n in range(vector.count)]
    )
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)


def int64(value: int) -> ir.Constant:
    """A constant address or byte count."""
    return ir.Constant(ir.IntType(64), value)


@contextmanager
def each_block(builder: ir.IRBuilder, first: Any, last: Any) -> Iterator[Any]:
    """A loop over blocks ``first .. last``; its value is the offset of the block in bytes.

    It is not unrolled: a row has few blocks, and the branches around an unrolled loop are mispredicted for each tile.
    """
    before, body, after = builder.block, builder.append_basic_block("block"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), body, after)
    builder.position_at_end(body)
    index = builder.phi(first.type)
    index.add_incoming(first, before)
    yield builder.shl(index, int64(5))
    following = builder.add(index, int64(1))
    index.add_incoming(following, builder.block)
    again = builder.cbranch(builder.icmp_signed("<", following, last), body, after)
    disable = builder.module.add_metadata([ir.MetaDataString(builder.module, "llvm.loop.unroll.disable")])
    loop = builder.module.add_metadata([disable])
    loop.operands = (loop, disable)  # LLVM knows a loop's metadata by its reference to itself
    again.set_metadata("llvm.loop", loop)
    builder.position_at_end(after)


def first_bytes(builder: ir.IRBuilder, nbytes: Any, vector: ir.VectorType) -> Any:
    """A block whose first ``nbytes`` bytes, 0 to 32, are ones and whose others are zeros."""
    table = builder.module.globals.get(_RAMP)
    if table is None:
        ramp = ir.Constant(ir.ArrayType(ir.IntType(8), 2 * BLOCK), [-1] * BLOCK + [0] * BLOCK)
        table = cgutils.global_constant(builder.module, _RAMP, ramp)
    start = builder.gep(table, [int64(0), builder.sub(int64(BLOCK), nbytes)])
    loaded = builder.load(builder.bitcast(start, vector_of(8, BLOCK).as_pointer()), align=1)
    return builder.bitcast(loaded, vector)


def blend(builder: ir.IRBuilder, mask: Any, a: Any, b: Any) -> Any:
    """The bits of ``a`` where ``mask`` has ones, else those of ``b``."""
    return builder.or_(builder.and_(mask, a), builder.and_(builder.not_(mask), b))


def store_first(builder: ir.IRBuilder, value: Any, address: Any, nbytes: Any) -> None:
    """Store the first ``nbytes`` bytes, fewer than 32, of a block: a masked store of words, and what is left of one."""
    width = value.type.element.width
    words = vector_of(32, BLOCK)
    boolean = ir.VectorType(ir.IntType(1), words.count)
    word_mask = first_bytes(builder, builder.and_(nbytes, int64(-4)), words)
    kind = ir.FunctionType(ir.VoidType(), [words, words.as_pointer(), ir.IntType(32), boolean])
    masked = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{words.count}i32.p0")
    as_words = builder.bitcast(value, words)
    to = builder.inttoptr(address, words.as_pointer())
    where = builder.icmp_signed("<", word_mask, constant(words, 0))
    builder.call(masked, [as_words, to, ir.Constant(ir.IntType(32), width // 8), where])
    if width == 32:
        return
    last = builder.extract_element(as_words, builder.trunc(builder.lshr(nbytes, int64(2)), ir.IntType(32)))
    end = builder.add(address, builder.and_(nbytes, int64(-4)))
    for size in (2, 1)[: 1 if width == 16 else 2]:
        piece = ir.IntType(8 * size)
        with builder.if_then(builder.icmp_signed("!=", builder.and_(nbytes, int64(size)), int64(0))):
            done = builder.and_(nbytes, int64(2 if size == 1 else 0))
            bits = builder.lshr(last, builder.trunc(builder.shl(done, int64(3)), ir.IntType(32)))
            pointer = builder.inttoptr(builder.add(end, done), piece.as_pointer())
            builder.store(builder.trunc(bits, piece), pointer).align = width // 8


def order_key(builder: ir.IRBuilder, bits: Any, order: Any, nan_key: Any) -> Any:
    """Integers whose signed order is the order that the rule set asks for (see :mod:`.ordering`)."""
    fields = (order.bias, order.flip, order.infinity, order.fold)
    bias, flip, infinity, fold = (splat(builder, x, bits.type) for x in fields)
    width = bits.type.element.width
    magnitude = constant(bits.type, (1 << (width - 1)) - 1)
    biased = builder.xor(bits, bias)
    sign = builder.ashr(biased, constant(bits.type, width - 1))
    key = builder.xor(biased, builder.and_(sign, flip))
    key = builder.select(builder.icmp_signed("==", key, constant(bits.type, -1)), fold, key)
    is_nan = builder.icmp_signed(">", builder.and_(bits, magnitude), infinity)
    return builder.select(is_nan, splat(builder, nan_key, bits.type), key)


def unpack_order(builder: ir.IRBuilder, order: Any) -> Any:
    """An Ordering of LLVM values, from the LLVM value of one."""
    return Ordering(*(builder.extract_value(order, i) for i in range(len(Ordering._fields))))
