"""SIMD building blocks for Numba: rows of order keys, choices and products, 32 bytes at a time.

LLVM does not reliably vectorise rows of 3 to 40 elements, which is what tiles have, so they are written as LLVM
vectors here: whole blocks, and a last one of which only the part inside the row is stored.

A *tag* is ``numba.int8``, ``int16`` or ``int32``: bit patterns, whatever the element type. An *order* is an
:class:`~pto_gpu.backends.cpu.ordering.Ordering`. Addresses and byte counts are int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _first_bytes(builder: ir.IRBuilder, nbytes: Any, vector: ir.VectorType) -> Any:
    """A block whose first ``nbytes`` bytes are ones and whose others are zeros; all, where there are more."""
    ramp = ir.ArrayType(ir.IntType(8), 2 * BLOCK)
    table = builder.module.globals.get(_RAMP)
    if table is None:
        table = cgutils.global_constant(builder.module, _RAMP, ir.Constant(ramp, [-1] * BLOCK + [0] * BLOCK))
    block = _int64(BLOCK)
    nbytes = builder.select(builder.icmp_signed("<", nbytes, block), nbytes, block)
    start = builder.sub(builder.add(builder.ptrtoint(table, ir.IntType(64)), block), nbytes)
    return builder.bitcast(_load(builder, start, _vector(8, BLOCK), 8), vector)


def _blend(builder: ir.IRBuilder, mask: Any, a: Any, b: Any) -> Any:
    """The bits of ``a`` where ``mask`` has ones, else those of ``b``."""
    return builder.or_(builder.and_(mask, a), builder.and_(builder.not_(mask), b))


def _store_first(builder: ir.IRBuilder, value: Any, address: Any, left: Any, width: int) -> None:
    """Store ``value`` so that only the first ``left`` bytes change.

    The rest of the block, which belongs to the same row of the same tile, is written back as it was: on machines
    without a cheap masked store that is faster than storing in pieces.
    """
    whole = builder.icmp_signed(">=", left, _int64(BLOCK))
    with builder.if_else(whole) as (full, part):
        with full:
            _store(builder, value, address, width)
        with part:
            mask = _first_bytes(builder, left, value.type)
            _store(builder, _blend(builder, mask, value, _load(builder, address, value.type, width)), address, width)


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

        with cgutils.for_range(builder, builder.lshr(nbytes, _int64(5))) as loop:
            block(builder.shl(loop.index, _int64(5)), lambda value, at: _store(builder, value, at, width))
        left = builder.and_(nbytes, _int64(BLOCK - 1))
        with builder.if_then(builder.icmp_signed("!=", left, _int64(0))):
            done = builder.and_(nbytes, _int64(-BLOCK))
            block(done, lambda value, at: _store_first(builder, value, at, left, width))
        return context.get_dummy_value()

    return emit


def _partial_row(dsts: int, compute: Compute) -> Callable[..., Any]:
    """What emits a row of which each of two sides defines the first bytes: ``compute`` where both do, else the one.

    The arguments are tag, addresses of the destinations, of one side's operands and of the other's, byte counts of
    the destination and of each side, and ``rest`` for ``compute``. A byte that no side defines becomes zero.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(signature.args[0])
        whole = _vector(width, BLOCK)
        to, side_a, side_b = (args[1 + n * dsts : 1 + (n + 1) * dsts] for n in range(3))
        nbytes, bytes_a, bytes_b, *rest = args[1 + 3 * dsts :]

        def read(address: Any, offset: Any) -> Any:
            return _load(builder, builder.add(address, offset), whole, width)

        def computed(a: list[Any], b: list[Any]) -> tuple[Any, ...]:
            loaded = dict(enumerate([None] * dsts + [x for pair in zip(a, b, strict=True) for x in pair]))
            return compute(builder, whole, loaded.__getitem__, *rest)

        least = builder.select(builder.icmp_signed("<", bytes_a, bytes_b), bytes_a, bytes_b)
        least = builder.select(builder.icmp_signed("<", least, nbytes), least, nbytes)
        clean = builder.lshr(least, _int64(5))
        with cgutils.for_range(builder, clean) as loop:
            offset = builder.shl(loop.index, _int64(5))
            results = computed([read(x, offset) for x in side_a], [read(x, offset) for x in side_b])
            for address, result in zip(to, results, strict=True):
                _store(builder, result, builder.add(address, offset), width)
        held = [cgutils.alloca_once(builder, whole) for _ in range(dsts)]
        blocks = builder.lshr(builder.add(nbytes, _int64(BLOCK - 1)), _int64(5))
        with cgutils.for_range(builder, blocks, start=clean, intp=ir.IntType(64)) as loop:
            offset = builder.shl(loop.index, _int64(5))
            left_a, left_b = builder.sub(bytes_a, offset), builder.sub(bytes_b, offset)
            in_a, in_b = (builder.icmp_signed(">", left, _int64(0)) for left in (left_a, left_b))
            with builder.if_else(builder.and_(in_a, in_b)) as (both, one):
                with both:
                    a, b = [read(x, offset) for x in side_a], [read(x, offset) for x in side_b]
                    mask_a, mask_b = (_first_bytes(builder, left, whole) for left in (left_a, left_b))
                    where = builder.and_(mask_a, mask_b)
                    for place, x, y, result in zip(held, a, b, computed(a, b), strict=True):
                        either = builder.or_(builder.and_(mask_a, x), builder.and_(mask_b, y))
                        builder.store(_blend(builder, where, result, either), place)
                with one:
                    left = builder.select(in_a, left_a, left_b)
                    for place in held:
                        builder.store(_constant(whole, 0), place)
                    with builder.if_then(builder.icmp_signed(">", left, _int64(0))):
                        mask = _first_bytes(builder, left, whole)
                        for place, x, y in zip(held, side_a, side_b, strict=True):
                            value = read(builder.select(in_a, x, y), offset)
                            builder.store(builder.and_(mask, value), place)
            left = builder.sub(nbytes, offset)
            for place, address in zip(held, to, strict=True):
                _store_first(builder, builder.load(place), builder.add(address, offset), left, width)
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
    _: Any, tag: Any, dst: Any, src0: Any, src1: Any, nbytes: Any, bytes0: Any, bytes1: Any, order: Any
) -> Any:
    """``dst = src1 if key(src1) < key(src0) else src0``; ``nan_bits`` where the lesser key is ``nan_key``.

    ``bytes0`` and ``bytes1`` say how much of the row each source defines; where one does not, the other is taken.
    """
    return types.void(tag, dst, src0, src1, nbytes, bytes0, bytes1, order), _partial_row(1, _chosen)


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
    nbytes: Any,
    bytes0: Any,
    bytes1: Any,
    order: Any,
) -> Any:
    """Value and index of src0 where ``key(val0) <= key(val1)`` (``<`` if the order is strict), else of src1.

    ``bytes0`` and ``bytes1`` as for :func:`choose_row`.
    """
    signature = types.void(tag, val, idx, val0, idx0, val1, idx1, nbytes, bytes0, bytes1, order)
    return signature, _partial_row(2, _chosen_pair)


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
def least_key(_: Any, tag: Any, src: Any, elements: Any, order: Any) -> Any:
    """The least key of ``elements`` packed elements, as int64. Whole blocks of 32 bytes are read."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = _width(tag)
        vector = _vector(width, 32)
        neutral = _constant(vector, (1 << (width - 1)) - 1)
        params = _unpack(builder, args[3])
        least = cgutils.alloca_once_value(builder, neutral)
        lane = ir.Constant(vector, list(range(vector.count)))
        per_block = ir.Constant(args[2].type, vector.count)
        blocks = builder.udiv(builder.add(args[2], ir.Constant(args[2].type, vector.count - 1)), per_block)
        with cgutils.for_range(builder, blocks) as loop:
            place = builder.add(args[1], builder.mul(loop.index, ir.Constant(args[1].type, 32)))
            keys = _key(builder, _load(builder, place, vector, width), params, params.nan0)
            left = builder.sub(args[2], builder.mul(loop.index, per_block))
            whole = builder.icmp_signed(">=", left, per_block)
            left = builder.select(whole, per_block, left)  # so that it fits a lane
            keys = builder.select(builder.icmp_signed("<", lane, _splat(builder, left, vector)), keys, neutral)
            seen = builder.load(least)
            builder.store(builder.select(builder.icmp_signed("<", keys, seen), keys, seen), least)
        reduce_type = ir.FunctionType(ir.IntType(width), [vector])
        name = f"llvm.vector.reduce.smin.v{vector.count}i{width}"
        result = builder.call(builder.module.declare_intrinsic(name, (), reduce_type), [builder.load(least)])
        return builder.sext(result, ir.IntType(64))

    return types.int64(tag, src, elements, order), emit


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
