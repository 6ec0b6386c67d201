"""Vectors of f16 to f32 and back, on processors that have no instruction for it too.

LLVM then calls a function of the compiler's library, which is not there in a process that Numba compiles in: the
process would end. x86 has the instructions (F16C) since 2012, emulated machines often have not.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from llvmlite import binding, ir
from numba import config

from pto_gpu.backends.cpu.vectors import constant

_HALF: Final = ir.HalfType()


def converted_by_processor() -> bool:
    """Whether code for the processor that Numba compiles for has instructions for it."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:  # another one than this, by its name
        return "+f16c" in (config.CPU_FEATURES or "").split(",")
    return bool(config.ENABLE_AVX and binding.get_host_cpu_features().get("f16c"))


def extend(builder: ir.IRBuilder, bits: Any) -> Any:
    """The f32 values of f16 bit patterns; exact."""
    floats, ints = (ir.VectorType(t, bits.type.count) for t in (ir.FloatType(), ir.IntType(32)))
    if converted_by_processor():
        return builder.fpext(builder.bitcast(bits, ir.VectorType(_HALF, bits.type.count)), floats)
    wide = builder.zext(bits, ints)
    magnitude = builder.and_(wide, constant(ints, 0x7FFF))
    moved = builder.shl(magnitude, constant(ints, 13))
    # As f32 the exponent is 112 too low; a product with a power of two is exact, and makes subnormals normal.
    scaled = builder.bitcast(builder.fmul(builder.bitcast(moved, floats), constant(floats, 2.0**112)), ints)
    special = builder.icmp_unsigned(">=", magnitude, constant(ints, 0x7C00))
    value = builder.select(special, builder.or_(moved, constant(ints, 0x7F800000)), scaled)
    sign = builder.shl(builder.and_(wide, constant(ints, 0x8000)), constant(ints, 16))
    return builder.bitcast(builder.or_(value, sign), floats)


def truncate(builder: ir.IRBuilder, value: Any) -> Any:
    """The f16 bit patterns nearest to f32 values, ties to even, subnormals kept; arbitrary for NaN."""
    count = value.type.count
    floats, ints, shorts = (ir.VectorType(t, count) for t in (ir.FloatType(), ir.IntType(32), ir.IntType(16)))
    if converted_by_processor():
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(_HALF, count)), shorts)
    bits = builder.bitcast(value, ints)
    magnitude = builder.and_(bits, constant(ints, 0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, constant(ints, 13)), constant(ints, 1))
    rebased = builder.sub(magnitude, constant(ints, (112 << 23) - 0xFFF))
    normal = builder.lshr(builder.add(rebased, odd), constant(ints, 13))
    # 0.5 has steps of 2**-24, those of f16 subnormals: adding it rounds to them.
    half = constant(floats, 0.5)
    summed = builder.bitcast(builder.fadd(builder.bitcast(magnitude, floats), half), ints)
    small = builder.sub(summed, builder.bitcast(half, ints))
    result = builder.select(builder.icmp_unsigned("<", magnitude, constant(ints, 113 << 23)), small, normal)
    too_large = builder.icmp_unsigned(">=", magnitude, constant(ints, 0x477FF000))  # 65520 rounds to infinity
    result = builder.select(too_large, constant(ints, 0x7C00), result)
    sign = builder.and_(builder.lshr(bits, constant(ints, 16)), constant(ints, 0x8000))
    return builder.trunc(builder.or_(result, sign), shorts)
