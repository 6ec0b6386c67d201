"""SIMD rows for Numba: choices, products and minima over order keys, 32 bytes at a time.

LLVM does not reliably vectorise rows of 3 to 40 elements, which is what tiles have, so they are written as LLVM
vectors here: whole blocks, and a last one of which only the part inside the row is stored.

A *tag* is ``numba.int8``, ``int16`` or ``int32``: bit patterns, whatever the element type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pto_gpu.backends.cpu.halves import extend, truncate
from pto_gpu.backends.cpu.vectors import (
    BLOCK,
    blend,
    constant,
    each_block,
    first_bytes,
    int64,
    load_vector,
    order_key,
    resize,
    splat,
    store_first,
    store_vector,
    unpack_order,
    vector_of,
    width_of,
)

Compute = Callable[..., tuple[Any, ...]]


def _row(operands: int, compute: Compute) -> Callable[..., Any]:
    """What emits a row operation on ``operands`` addresses by ``compute(builder, vector, load, *rest)``.

    The arguments are tag, addresses (destinations first), byte count and ``rest``; ``load(n)`` reads operand n.
    The last block is read whole, so rows must have room for whole blocks.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = width_of(signature.args[0])
        whole = vector_of(width, BLOCK)
        addresses, nbytes, rest = args[1 : 1 + operands], args[1 + operands], args[2 + operands :]

        def block(offset: Any, store: Callable[[Any, Any], None]) -> None:
            places = [builder.add(address, offset) for address in addresses]
            results = compute(builder, whole, lambda n: load_vector(builder, places[n], whole, width), *rest)
            for place, result in zip(places, results, strict=False):
                store(result, place)

        with each_block(builder, int64(0), builder.lshr(nbytes, int64(5))) as offset:
            block(offset, lambda value, at: store_vector(builder, value, at, width))
        left = builder.and_(nbytes, int64(BLOCK - 1))
        with builder.if_then(_nonzero(builder, left)):
            done = builder.and_(nbytes, int64(-BLOCK))
            block(done, lambda value, at: store_first(builder, value, at, left))
        return context.get_dummy_value()

    return emit


class _Blocks:
    """Blocks of some operands, at the same offset from the address of each."""

    def __init__(self, builder: ir.IRBuilder, width: int) -> None:
        self.builder, self.width = builder, width
        self.vector = vector_of(width, BLOCK)

    def read(self, addresses: Sequence[Any], offset: Any) -> list[Any]:
        """The block of each operand, whole."""
        places = (self.builder.add(address, offset) for address in addresses)
        return [load_vector(self.builder, place, self.vector, self.width) for place in places]

    def store(self, addresses: Sequence[Any], values: Sequence[Any], offset: Any, left: Any = None) -> None:
        """Write each block, or the first ``left`` bytes of it."""
        for address, value in zip(addresses, values, strict=True):
            place = self.builder.add(address, offset)
            if left is None:
                store_vector(self.builder, value, place, self.width)
            else:
                store_first(self.builder, value, place, left)


def _partial_row(dsts: int, compute: Compute) -> Callable[..., Any]:
    """What emits a row of which one side defines all and the other the first bytes: ``compute`` where both do.

    The arguments are tag, addresses of the destinations, of one side's operands, of the other's, and once more of
    those of the side that defines all; byte counts of the row and of its first part, and ``rest`` for ``compute``.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        blocks = _Blocks(builder, width_of(signature.args[0]))
        to, side_a, side_b, cover = (args[1 + n * dsts : 1 + (n + 1) * dsts] for n in range(4))
        nbytes, common, *rest = args[1 + 4 * dsts :]

        def computed(offset: Any) -> tuple[Any, ...]:
            pairs = zip(blocks.read(side_a, offset), blocks.read(side_b, offset), strict=True)
            loaded = dict(enumerate((x for pair in pairs for x in pair), dsts))
            return compute(builder, blocks.vector, loaded.__getitem__, *rest)

        first, last = (builder.lshr(n, int64(5)) for n in (common, nbytes))
        mixed, left = (builder.and_(n, int64(BLOCK - 1)) for n in (common, nbytes))
        start, end = (builder.shl(n, int64(5)) for n in (first, last))
        with each_block(builder, int64(0), first) as offset:
            blocks.store(to, computed(offset), offset)
        with builder.if_then(_nonzero(builder, mixed)):
            mask = first_bytes(builder, mixed, blocks.vector)
            pairs = zip(computed(start), blocks.read(cover, start), strict=True)
            values = [blend(builder, mask, a, b) for a, b in pairs]
            with builder.if_else(builder.icmp_signed("<", first, last)) as (inside, at_end):
                with inside:
                    blocks.store(to, values, start)
                with at_end:
                    blocks.store(to, values, start, left)
        copied = builder.add(first, builder.zext(_nonzero(builder, mixed), ir.IntType(64)))
        with each_block(builder, copied, last) as offset:
            blocks.store(to, blocks.read(cover, offset), offset)
        with builder.if_then(builder.and_(_nonzero(builder, left), builder.icmp_signed("<=", copied, last))):
            blocks.store(to, blocks.read(cover, end), end, left)
        return context.get_dummy_value()

    return emit


def _nonzero(builder: ir.IRBuilder, value: Any) -> Any:
    return builder.icmp_signed("!=", value, int64(0))


def _element(operands: int, compute: Compute) -> Callable[..., Any]:
    """As :func:`_row` for one element, of which no byte more is read; there is no byte count."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = width_of(signature.args[0])
        whole, single = vector_of(width, BLOCK), vector_of(width, width // 8)
        places, rest = args[1 : 1 + operands], args[1 + operands :]

        def load(operand: int) -> Any:
            return resize(builder, load_vector(builder, places[operand], single, width), whole)

        for place, result in zip(places, compute(builder, whole, load, *rest), strict=False):
            store_vector(builder, resize(builder, result, single), place, width)
        return context.get_dummy_value()

    return emit


def _same(builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any]) -> tuple[Any, ...]:
    return (load(1),)


def _chosen(builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any], order: Any) -> tuple[Any, ...]:
    params = unpack_order(builder, order)
    a, b = load(1), load(2)
    key_a, key_b = order_key(builder, a, params, params.nan0), order_key(builder, b, params, params.nan1)
    less = builder.icmp_signed("<", key_b, key_a)
    is_nan = builder.icmp_signed("==", builder.select(less, key_b, key_a), splat(builder, params.nan_key, vector))
    return (builder.select(is_nan, splat(builder, params.nan_bits, vector), builder.select(less, b, a)),)


def _chosen_pair(
    builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any], order: Any
) -> tuple[Any, ...]:
    params = unpack_order(builder, order)
    a, b, i, j = (load(n) for n in (2, 3, 4, 5))
    key_a, key_b = order_key(builder, a, params, params.nan0), order_key(builder, b, params, params.nan1)
    lax = builder.icmp_signed("==", splat(builder, params.strict, vector), constant(vector, 0))
    tie = builder.and_(builder.icmp_signed("==", key_a, key_b), lax)
    first = builder.or_(builder.icmp_signed("<", key_a, key_b), tie)
    return builder.select(first, a, b), builder.select(first, i, j)


def _prelu(
    builder: ir.IRBuilder, bits: ir.VectorType, load: Callable[[int], Any], keep_zero: Any, nan: Any
) -> tuple[Any, ...]:
    wide = ir.VectorType(ir.FloatType(), bits.count)
    halves = bits.element.width == 16

    def number(value: Any) -> Any:  # the product of two halves is exact in a float, so one rounding is left
        return extend(builder, value) if halves else builder.bitcast(value, wide)

    x_bits = load(1)
    x = number(x_bits)
    product = builder.fmul(x, number(load(2)))
    rounded = truncate(builder, product) if halves else builder.bitcast(product, bits)
    is_nan = builder.fcmp_unordered("uno", product, product)
    product_bits = builder.select(is_nan, splat(builder, nan, bits), rounded)
    zero = constant(wide, 0.0)
    keep = builder.icmp_signed("!=", splat(builder, keep_zero, bits), constant(bits, 0))
    kept = builder.or_(builder.fcmp_ordered(">", x, zero), builder.and_(builder.fcmp_ordered("==", x, zero), keep))
    return (builder.select(kept, x_bits, product_bits),)


@intrinsic
def choose_row(
    _: Any, tag: Any, dst: Any, src0: Any, src1: Any, cover: Any, nbytes: Any, common: Any, order: Any
) -> Any:
    """``dst = src1 if key(src1) < key(src0) else src0``; ``nan_bits`` where the lesser key is ``nan_key``.

    Both sources define the first ``common`` bytes, and ``cover``, one of them, all of the ``nbytes``.
    """
    return types.void(tag, dst, src0, src1, cover, nbytes, common, order), _partial_row(1, _chosen)


@intrinsic
def copy_row(_: Any, tag: Any, dst: Any, src: Any, nbytes: Any) -> Any:
    """Copy bit for bit; both may be the same place."""
    return types.void(tag, dst, src, nbytes), _row(2, _same)


@intrinsic
def choose_element(_: Any, tag: Any, dst: Any, src0: Any, src1: Any, order: Any) -> Any:
    """:func:`choose_row` for one element."""
    return types.void(tag, dst, src0, src1, order), _element(3, _chosen)


@intrinsic
def choose_pair_row(
    _: Any,
    tag: Any,
    val: Any,
    idx: Any,
    val0: Any,
    idx0: Any,
    val1: Any,
    idx1: Any,
    cover_val: Any,
    cover_idx: Any,
    nbytes: Any,
    common: Any,
    order: Any,
) -> Any:
    """Value and index of src0 where ``key(val0) <= key(val1)`` (``<`` if the order is strict), else of src1.

    Both sources define the first ``common`` bytes, and the covering pair, one of them, all of the ``nbytes``.
    """
    operands = (val, idx, val0, idx0, val1, idx1, cover_val, cover_idx)
    return types.void(tag, *operands, nbytes, common, order), _partial_row(2, _chosen_pair)


@intrinsic
def choose_pair_element(
    _: Any, tag: Any, val: Any, idx: Any, val0: Any, val1: Any, idx0: Any, idx1: Any, order: Any
) -> Any:
    """:func:`choose_pair_row` for one element."""
    return types.void(tag, val, idx, val0, val1, idx0, idx1, order), _element(6, _chosen_pair)


@intrinsic
def prelu_row(_: Any, tag: Any, dst: Any, src: Any, slope: Any, nbytes: Any, keep_zero: Any, nan: Any) -> Any:
    """``x > 0 ? x : x * slope`` (``x >= 0`` with ``keep_zero``), the product rounded once, its NaN the bits ``nan``."""
    return types.void(tag, dst, src, slope, nbytes, keep_zero, nan), _row(3, _prelu)


@intrinsic
def prelu_element(_: Any, tag: Any, dst: Any, src: Any, slope: Any, keep_zero: Any, nan: Any) -> Any:
    """:func:`prelu_row` for one element."""
    return types.void(tag, dst, src, slope, keep_zero, nan), _element(3, _prelu)


@intrinsic
def least_key(_: Any, tag: Any, src: Any, nbytes: Any, order: Any) -> Any:
    """The least key of ``nbytes`` bytes of packed elements, as int64. Whole blocks of 32 bytes are read."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = width_of(tag)
        vector = vector_of(width, BLOCK)
        neutral = constant(vector, (1 << (width - 1)) - 1)
        _, address, size, order_value = args
        params = unpack_order(builder, order_value)
        least = cgutils.alloca_once_value(builder, neutral)

        def fold(keys: Any) -> None:
            seen = builder.load(least)
            builder.store(builder.select(builder.icmp_signed("<", keys, seen), keys, seen), least)

        def keys_at(offset: Any) -> Any:
            bits = load_vector(builder, builder.add(address, offset), vector, width)
            return order_key(builder, bits, params, params.nan0)

        with each_block(builder, int64(0), builder.lshr(size, int64(5))) as offset:
            fold(keys_at(offset))
        left = builder.and_(size, int64(BLOCK - 1))
        with builder.if_then(_nonzero(builder, left)):
            keys = keys_at(builder.and_(size, int64(-BLOCK)))
            fold(blend(builder, first_bytes(builder, left, vector), keys, neutral))
        reduce_type = ir.FunctionType(ir.IntType(width), [vector])
        name = f"llvm.vector.reduce.smin.v{vector.count}i{width}"
        result = builder.call(builder.module.declare_intrinsic(name, (), reduce_type), [builder.load(least)])
        return builder.sext(result, ir.IntType(64))

    return types.int64(tag, src, nbytes, order), emit
