"""Single elements and addresses for Numba. A *tag* is ``numba.int8``, ``int16`` or ``int32``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pto_gpu.backends.cpu.vectors import load_vector, order_key, unpack_order, vector_of, width_of


@intrinsic
def scalar_key(_: Any, tag: Any, address: Any, order: Any) -> Any:
    """The order key of one element, as int64."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = width_of(tag)
        params = unpack_order(builder, args[2])
        key = order_key(
            builder, load_vector(builder, args[1], vector_of(width, width // 8), width), params, params.nan0
        )
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
        width = width_of(tag)
        single = load_vector(builder, args[1], vector_of(width, width // 8), width)
        return builder.sext(builder.extract_element(single, ir.Constant(ir.IntType(32), 0)), ir.IntType(64))

    return types.int64(tag, address), emit


@intrinsic
def store_bits(_: Any, tag: Any, address: Any, value: Any) -> Any:
    """Store the low bits of the int64 ``value`` as one element."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        width = width_of(tag)
        builder.store(
            builder.trunc(args[2], ir.IntType(width)), builder.inttoptr(args[1], ir.IntType(width).as_pointer())
        )
        return context.get_dummy_value()

    return types.void(tag, address, value), emit


@intrinsic
def size_of(_: Any, tag: Any) -> Any:
    """Bytes of one element."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return ir.Constant(ir.IntType(64), width_of(tag) // 8)

    return types.int64(tag), emit
