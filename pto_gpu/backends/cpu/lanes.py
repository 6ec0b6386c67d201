"""SIMD building blocks for Numba: rows of order keys, choices and products, 32 bytes at a time.

LLVM does not reliably vectorise rows of 3 to 40 elements, which is what tiles have, so they are written as LLVM
vectors here: whole blocks, and a last one of which only the part inside the row is stored.

A *tag* is ``numba.int8``, ``int16`` or ``int32``: bit patterns, whatever the element type. An *order* is an
:class:`~pto_gpu.backends.cpu.ordering.Ordering`. Addresses and byte counts are int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pto_gpu.backends.cpu.ordering import Ordering

#: Bytes of a block: rows (columns of a DN tile) are a multiple of it long.
BLOCK = 32

_RAMP = "pto_gpu_ramp"
_FLOATS = {16: ir.HalfType(), 32: ir.FloatType()}


def _vector(width: int, nbytes: int) -> ir.VectorType:
    """The LLVM type of ``nbytes`` bytes of ``width``-bit elements."""
    return ir.VectorType(ir.IntType(width), nbytes * 8 // width)


def _splat(builder: ir.IRBuilder, scalar: Any, like: ir.VectorType) -> Any:
    """The int64 ``scalar`` in every lane."""
    undefined = ir.Constant(like, ir.Undefined)
    single = builder.insert_element(undefined, builder.trunc(scalar, like.element), ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), like.count), [0] * like.count)
    return builder.shuffle_vector(single, undefined, zeros)


def _constant(like: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(like, [value] * like.count)


def _load(builder: ir.IRBuilder, address: Any, vector: ir.VectorType, width: int) -> Any:
    value = builder.load(builder.inttoptr(address, vector.as_pointer()))
    value.align = width // 8  # tiles are aligned to their elements and no further
    return value


def _store(builder: ir.IRBuilder, value: Any, address: Any, width: int) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = width // 8


def _key(builder: ir.IRBuilder, bits: Any, order: Any, nan_key: Any) -> Any:
    """Integers whose signed order is the order that the rule set asks for (see :mod:`.ordering`)."""
    fields = (order.bias, order.flip, order.infinity, order.fold)
    bias, flip, infinity, fold = (_splat(builder, x, bits.type) for x in fields)
    width = bits.type.element.width
    magnitude = _constant(bits.type, (1 << (width - 1)) - 1)
    biased = builder.xor(bits, bias)
    sign = builder.ashr(biased, _constant(bits.type, width - 1))
    key = builder.xor(biased, builder.and_(sign, flip))
    key = builder.select(builder.icmp_signed("==", key, _constant(bits.type, -1)), fold, key)
    is_nan = builder.icmp_signed(">", builder.and_(bits, magnitude), infinity)
    return builder.select(is_nan, _splat(builder, nan_key, bits.type), key)


def _unpack(builder: ir.IRBuilder, order: Any) -> Any:
    """An Ordering of LLVM values, from the LLVM value of one."""
    return Ordering(*(builder.extract_value(order, i) for i in range(len(Ordering._fields))))


def _width(tag: Any) -> int:
    return int(tag.instance_type.bitwidth)


def _resize(builder: ir.IRBuilder, value: Any, vector: ir.VectorType) -> Any:
    """The low lanes of ``value``, in a vector of another length; lanes that are added are arbitrary."""
    if value.type == vector:
        return value
    lanes = ir.Constant(
        ir.VectorType(ir.IntType(32), vector.count), [n % value.type.count for n in range(vector.count)]
    )
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)


def _int64(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


@contextmanager
def _each_block(builder: ir.IRBuilder, first: Any, last: Any) -> Iterator[Any]:
    """A loop over blocks ``first .. last``; its value is the offset of the block in bytes.

    It is not unrolled: a row has few blocks, and the branches around an unrolled loop are mispredicted for each tile.
    """
    before, body, after = builder.block, builder.append_basic_block("block"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), body, after)
    builder.position_at_end(body)
    index = builder.phi(first.type)
    index.add_incoming(first, before)
    yield builder.shl(index, _int64(5))
    following = builder.add(index, _int64(1))
    index.add_incoming(following, builder.block)
    again = builder.cbranch(builder.icmp_signed("<", following, last), body, after)
    disable = builder.module.add_metadata([ir.MetaDataString(builder.module, "llvm.loop.unroll.disable")])
    loop = builder.module.add_metadata([disable])
    loop.operands = (loop, disable)  # LLVM knows a loop's metadata by its reference to itself
    again.set_metadata("llvm.loop", loop)
    builder.position_at_end(after)


def _first_bytes(builder: ir.IRBuilder, nbytes: Any, vector: ir.VectorType) -> Any:
    """A block whose first ``nbytes`` bytes, 0 to 32, are ones and whose others are zeros."""
    table = builder.module.globals.get(_RAMP)
    if table is None:
        ramp = ir.Constant(ir.ArrayType(ir.IntType(8), 2 * BLOCK), [-1] * BLOCK + [0] * BLOCK)
        table = cgutils.global_constant(builder.module, _RAMP, ramp)
    start = builder.gep(table, [_int64(0), builder.sub(_int64(BLOCK), nbytes)])
    loaded = builder.load(builder.bitcast(start, _vector(8, BLOCK).as_pointer()), align=1)
    return builder.bitcast(loaded, vector)


def _blend(builder: ir.IRBuilder, mask: Any, a: Any, b: Any) -> Any:
    """The bits of ``a`` where ``mask`` has ones, else those of ``b``."""
    return builder.or_(builder.and_(mask, a), builder.and_(builder.not_(mask), b))


def _store_first(builder: ir.IRBuilder, value: Any, address: Any, nbytes: Any) -> None:
    """Store the first ``nbytes`` bytes, fewer than 32, of a block: a masked store of words, and what is left of one."""
    width = value.type.element.width
    words = _vector(32, BLOCK)
    boolean = ir.VectorType(ir.IntType(1), words.count)
    word_mask = _first_bytes(builder, builder.and_(nbytes, _int64(-4)), words)
    kind = ir.FunctionType(ir.VoidType(), [words, words.as_pointer(), ir.IntType(32), boolean])
    masked = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{words.count}i32.p0")
    as_words = builder.bitcast(value, words)
    to = builder.inttoptr(address, words.as_pointer())
    where = builder.icmp_signed("<", word_mask, _constant(words, 0))
    builder.call(masked, [as_words, to, ir.Constant(ir.IntType(32), width // 8), where])
    if width == 32:
        return
    last = builder.extract_element(as_words, builder.trunc(builder.lshr(nbytes, _int64(2)), ir.IntType(32)))
    end = builder.add(address, builder.and_(nbytes, _int64(-4)))
    for size in (2, 1)[: 1 if width == 16 else 2]:
        piece = ir.IntType(8 * size)
        with builder.if_then(builder.icmp_signed("!=", builder.and_(nbytes, _int64(size)), _int64(0))):
            done = builder.and_(nbytes, _int64(2 if size == 1 else 0))
            bits = builder.lshr(last, builder.trunc(builder.shl(done, _int64(3)), ir.IntType(32)))
            pointer = builder.inttoptr(builder.add(end, done), piece.as_pointer())
            builder.store(builder.trunc(bits, piece), pointer).align = width // 8


Compute = Callable[..., tuple[Any, ...]]


def _row(operands: int, compute: Compute) -> Callable[..., Any]:
    """What emits a row operation on ``operands`` addresses by ``compute(builder, vector, load, *rest)``.

    The arguments are tag, addresses (destinations first), byte count and ``rest``; ``load(n)`` reads operand n.
    The last block is read whole, so rows must have room for whole blocks.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(signature.args[0])
        whole = _vector(width, BLOCK)
        addresses, nbytes, rest = args[1 : 1 + operands], args[1 + operands], args[2 + operands :]

        def block(offset: Any, store: Callable[[Any, Any], None]) -> None:
            places = [builder.add(address, offset) for address in addresses]
            results = compute(builder, whole, lambda n: _load(builder, places[n], whole, width), *rest)
            for place, result in zip(places, results, strict=False):
                store(result, place)

        with _each_block(builder, _int64(0), builder.lshr(nbytes, _int64(5))) as offset:
            block(offset, lambda value, at: _store(builder, value, at, width))
        left = builder.and_(nbytes, _int64(BLOCK - 1))
        with builder.if_then(builder.icmp_signed("!=", left, _int64(0))):
            done = builder.and_(nbytes, _int64(-BLOCK))
            block(done, lambda value, at: _store_first(builder, value, at, left))
        return context.get_dummy_value()

    return emit


def _partial_row(dsts: int, compute: Compute) -> Callable[..., Any]:
    """What emits a row of which one side defines all and the other the first bytes: ``compute`` where both do.

    The arguments are tag, addresses of the destinations, of one side's operands, of the other's, and once more of
    those of the side that defines all; byte counts of the row and of its first part, and ``rest`` for ``compute``.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(signature.args[0])
        whole = _vector(width, BLOCK)
        to, side_a, side_b, cover = (args[1 + n * dsts : 1 + (n + 1) * dsts] for n in range(4))
        nbytes, common, *rest = args[1 + 4 * dsts :]

        def read(side: Sequence[Any], offset: Any) -> list[Any]:
            return [_load(builder, builder.add(address, offset), whole, width) for address in side]

        def computed(offset: Any) -> tuple[Any, ...]:
            pairs = zip(read(side_a, offset), read(side_b, offset), strict=True)
            loaded = dict(enumerate((x for pair in pairs for x in pair), dsts))
            return compute(builder, whole, loaded.__getitem__, *rest)

        def store(values: Sequence[Any], offset: Any, left: Any = None) -> None:
            for address, value in zip(to, values, strict=True):
                if left is None:
                    _store(builder, value, builder.add(address, offset), width)
                else:
                    _store_first(builder, value, builder.add(address, offset), left)

        def nonzero(value: Any) -> Any:
            return builder.icmp_signed("!=", value, _int64(0))

        first, last = (builder.lshr(n, _int64(5)) for n in (common, nbytes))
        mixed, left = (builder.and_(n, _int64(BLOCK - 1)) for n in (common, nbytes))
        start, end = (builder.shl(n, _int64(5)) for n in (first, last))
        with _each_block(builder, _int64(0), first) as offset:
            store(computed(offset), offset)
        with builder.if_then(nonzero(mixed)):
            mask = _first_bytes(builder, mixed, whole)
            pairs = zip(computed(start), read(cover, start), strict=True)
            values = [_blend(builder, mask, a, b) for a, b in pairs]
            with builder.if_else(builder.icmp_signed("<", first, last)) as (inside, at_end):
                with inside:
                    store(values, start)
                with at_end:
                    store(values, start, left)
        copied = builder.add(first, builder.zext(nonzero(mixed), ir.IntType(64)))
        with _each_block(builder, copied, last) as offset:
            store(read(cover, offset), offset)
        with builder.if_then(builder.and_(nonzero(left), builder.icmp_signed("<=", copied, last))):
            store(read(cover, end), end, left)
        return context.get_dummy_value()

    return emit


def _element(operands: int, compute: Compute) -> Callable[..., Any]:
    """As :func:`_row` for one element, of which no byte more is read; there is no byte count."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(signature.args[0])
        whole, single = _vector(width, BLOCK), _vector(width, width // 8)
        places, rest = args[1 : 1 + operands], args[1 + operands :]

        def load(operand: int) -> Any:
            return _resize(builder, _load(builder, places[operand], single, width), whole)

        for place, result in zip(places, compute(builder, whole, load, *rest), strict=False):
            _store(builder, _resize(builder, result, single), place, width)
        return context.get_dummy_value()

    return emit


def _same(builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any]) -> tuple[Any, ...]:
    return (load(1),)


def _chosen(builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any], order: Any) -> tuple[Any, ...]:
    params = _unpack(builder, order)
    a, b = load(1), load(2)
    key_a, key_b = _key(builder, a, params, params.nan0), _key(builder, b, params, params.nan1)
    less = builder.icmp_signed("<", key_b, key_a)
    is_nan = builder.icmp_signed("==", builder.select(less, key_b, key_a), _splat(builder, params.nan_key, vector))
    return (builder.select(is_nan, _splat(builder, params.nan_bits, vector), builder.select(less, b, a)),)


def _chosen_pair(
    builder: ir.IRBuilder, vector: ir.VectorType, load: Callable[[int], Any], order: Any
) -> tuple[Any, ...]:
    params = _unpack(builder, order)
    a, b, i, j = (load(n) for n in (2, 3, 4, 5))
    key_a, key_b = _key(builder, a, params, params.nan0), _key(builder, b, params, params.nan1)
    lax = builder.icmp_signed("==", _splat(builder, params.strict, vector), _constant(vector, 0))
    tie = builder.and_(builder.icmp_signed("==", key_a, key_b), lax)
    first = builder.or_(builder.icmp_signed("<", key_a, key_b), tie)
    return builder.select(first, a, b), builder.select(first, i, j)


def _prelu(
    builder: ir.IRBuilder, bits: ir.VectorType, load: Callable[[int], Any], keep_zero: Any, nan: Any
) -> tuple[Any, ...]:
    narrow, wide = (ir.VectorType(t, bits.count) for t in (_FLOATS[bits.element.width], ir.FloatType()))

    def number(value: Any) -> Any:  # the product of two halves is exact in a float, so one rounding is left
        value = builder.bitcast(value, narrow)
        return value if narrow == wide else builder.fpext(value, wide)

    x_bits = load(1)
    x = number(x_bits)
    product = builder.fmul(x, number(load(2)))
    rounded = product if narrow == wide else builder.fptrunc(product, narrow)
    is_nan = builder.fcmp_unordered("uno", product, product)
    product_bits = builder.select(is_nan, _splat(builder, nan, bits), builder.bitcast(rounded, bits))
    zero = _constant(wide, 0.0)
    keep = builder.icmp_signed("!=", _splat(builder, keep_zero, bits), _constant(bits, 0))
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
        width = _width(tag)
        vector = _vector(width, BLOCK)
        neutral = _constant(vector, (1 << (width - 1)) - 1)
        _, address, size, order_value = args
        params = _unpack(builder, order_value)
        least = cgutils.alloca_once_value(builder, neutral)

        def fold(keys: Any) -> None:
            seen = builder.load(least)
            builder.store(builder.select(builder.icmp_signed("<", keys, seen), keys, seen), least)

        def keys_at(offset: Any) -> Any:
            bits = _load(builder, builder.add(address, offset), vector, width)
            return _key(builder, bits, params, params.nan0)

        with _each_block(builder, _int64(0), builder.lshr(size, _int64(5))) as offset:
            fold(keys_at(offset))
        left = builder.and_(size, _int64(BLOCK - 1))
        with builder.if_then(builder.icmp_signed("!=", left, _int64(0))):
            keys = keys_at(builder.and_(size, _int64(-BLOCK)))
            fold(_blend(builder, _first_bytes(builder, left, vector), keys, neutral))
        reduce_type = ir.FunctionType(ir.IntType(width), [vector])
        name = f"llvm.vector.reduce.smin.v{vector.count}i{width}"
        result = builder.call(builder.module.declare_intrinsic(name, (), reduce_type), [builder.load(least)])
        return builder.sext(result, ir.IntType(64))

    return types.int64(tag, src, nbytes, order), emit


@intrinsic
def scalar_key(_: Any, tag: Any, address: Any, order: Any) -> Any:
    """The order key of one element, as int64."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(tag)
        params = _unpack(builder, args[2])
        key = _key(builder, _load(builder, args[1], _vector(width, width // 8), width), params, params.nan0)
        return builder.sext(builder.extract_element(key, ir.Constant(ir.IntType(32), 0)), ir.IntType(64))

    return types.int64(tag, address, order), emit


@intrinsic
def prefetch(_: Any, address: Any) -> Any:
    """Ask for the cache line at ``address``; an address that nothing lies at does no harm."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, keep, data = (ir.Constant(flag, n) for n in (0, 3, 1))
        builder.call(ask, [builder.inttoptr(args[0], pointer), to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def load_int64(_: Any, address: Any) -> Any:
    """The int64 at ``address``."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), emit


@intrinsic
def load_int32(_: Any, address: Any) -> Any:
    """The int32 at ``address``, as int64."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        value = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()))
        return builder.sext(value, ir.IntType(64))

    return types.int64(types.int64), emit


@intrinsic
def load_bits(_: Any, tag: Any, address: Any) -> Any:
    """One element, sign-extended to int64."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(tag)
        single = _load(builder, args[1], _vector(width, width // 8), width)
        return builder.sext(builder.extract_element(single, ir.Constant(ir.IntType(32), 0)), ir.IntType(64))

    return types.int64(tag, address), emit


@intrinsic
def store_bits(_: Any, tag: Any, address: Any, value: Any) -> Any:
    """Store the low bits of the int64 ``value`` as one element."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(tag)
        builder.store(
            builder.trunc(args[2], ir.IntType(width)), builder.inttoptr(args[1], ir.IntType(width).as_pointer())
        )
        return context.get_dummy_value()

    return types.void(tag, address, value), emit


@intrinsic
def size_of(_: Any, tag: Any) -> Any:
    """Bytes of one element."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return ir.Constant(ir.IntType(64), _width(tag) // 8)

    return types.int64(tag), emit
