"""The order of elements, which come in as signed integers of their bits.

``NAN_BITS`` is the bit pattern of the element type's canonical NaN (0 for integers). ``ORDER`` says how bits are
compared: ``"signed"`` and ``"unsigned"`` for integers, and for floats the NaN rule, ``"propagate"``, ``"number"`` or
``"select"``: by order keys, integers that serve every element type and that no compiler gets wrong.

NVIDIA's own minimum of floats orders -0 before +0 and makes canonical NaNs, by the PTX ISA, and takes a fraction of the
instructions: ``ORDER`` is then ``"propagate native"`` or ``"number native"``.
"""

import triton
import triton.language as tl


@triton.jit
def order_key(x):
    """Bits of a float to an integer in the same order, with -0 < +0; its own inverse."""
    W: tl.constexpr = x.dtype.primitive_bitwidth
    HIGH: tl.constexpr = (1 << (W - 1)) - 1
    return x ^ ((x >> (W - 1)) & HIGH)


@triton.jit
def is_nan(x, NAN_BITS: tl.constexpr):
    """Where the float with bits x is a NaN."""
    HIGH: tl.constexpr = (1 << (x.dtype.primitive_bitwidth - 1)) - 1
    INFINITY: tl.constexpr = NAN_BITS & (NAN_BITS << 1)  # without the quiet bit, and the bit shifted in is 0
    return (x & HIGH) > INFINITY


@triton.jit
def as_float(x, NAN_BITS: tl.constexpr):
    """The float with bits x."""
    if NAN_BITS == 0x7E00:
        return x.to(tl.float16, bitcast=True)
    elif NAN_BITS == 0x7FC0:
        return x.to(tl.bfloat16, bitcast=True)
    else:
        return x.to(tl.float32, bitcast=True)


@triton.jit
def key_with_nan(x, NAN_BITS: tl.constexpr, NAN_KEY: tl.constexpr, FOLD: tl.constexpr):
    """The order key, with every NaN on ``NAN_KEY``; ``FOLD`` puts -0 (key -1) on +0, for an IEEE comparison."""
    key = order_key(x)
    if FOLD:
        key = tl.where(key == -1, 0, key)
    return tl.where(is_nan(x, NAN_BITS), NAN_KEY, key)


@triton.jit
def min_key(x, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """The key whose integer minimum is the minimum: NaN wins (propagate) or loses (number, select)."""
    W: tl.constexpr = x.dtype.primitive_bitwidth
    LOW: tl.constexpr = -(1 << (W - 1))
    NAN_KEY: tl.constexpr = LOW if ORDER == "propagate" else -LOW - 1
    if ORDER == "signed":
        return x
    elif ORDER == "unsigned":
        return x.to(tl.uint8 if W == 8 else tl.uint16 if W == 16 else tl.uint32, bitcast=True)
    else:
        return key_with_nan(x, NAN_BITS, NAN_KEY, ORDER == "select")


@triton.jit
def bits_of_min_key(key, ORDER: tl.constexpr, NAN_BITS: tl.constexpr):
    """Back from :func:`min_key`; a NaN is canonical."""
    W: tl.constexpr = key.dtype.primitive_bitwidth
    LOW: tl.constexpr = -(1 << (W - 1))
    NAN_KEY: tl.constexpr = LOW if ORDER == "propagate" else -LOW - 1
    if ORDER == "signed":
        return key
    elif ORDER == "unsigned":
        return key.to(tl.int8 if W == 8 else tl.int16 if W == 16 else tl.int32, bitcast=True)
    else:
        return tl.where(key == NAN_KEY, NAN_BITS, order_key(key))


@triton.jit
def to_native(x, NAN_BITS: tl.constexpr):
    """The float with bits x; bf16 as the f32 that it is the upper half of."""
    if NAN_BITS == 0x7FC0:
        return (x.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return as_float(x, NAN_BITS)


@triton.jit
def native_minimum(x, y):
    """A NaN wins."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def native_minimum_number(x, y):
    """A NaN loses."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.NONE)


@triton.jit
def native_min2(x, y, ORDER: tl.constexpr):
    """The smaller of two floats."""
    if ORDER == "propagate native":
        return native_minimum(x, y)
    else:
        return native_minimum_number(x, y)


@triton.jit
def from_native(least, NAN_BITS: tl.constexpr):
    """Bits of a minimum of at least two: its NaN has all bits but the sign, and is above the canonical one."""
    if NAN_BITS == 0x7FC0:
        bits = (least.to(tl.int32, bitcast=True) >> 16).to(tl.int16)
    else:
        bits = least.to(tl.int16 if NAN_BITS == 0x7E00 else tl.int32, bitcast=True)
    return tl.minimum(bits, NAN_BITS)
