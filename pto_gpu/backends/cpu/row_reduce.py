"""A row folded to one element: TROWMIN and its kin."""

from __future__ import annotations

from pto_gpu.backends.cpu import ordering
from pto_gpu.backends.cpu.compile import inlined, kernel
from pto_gpu.backends.cpu.lanes import least_key
from pto_gpu.backends.cpu.rows import AHEAD, fetch_ahead, load_ordering, place
from pto_gpu.backends.cpu.scalars import load_bits, scalar_key, size_of, store_bits


@inlined
def least_of_row(tag, size, address, step, cols, order):
    """The least key of a row. A packed row is a multiple of 32 bytes long, so whole blocks of it can be read."""
    if step == size:
        return least_key(tag, address, cols * size, order)
    least = scalar_key(tag, address, order)
    for j in range(1, cols):
        least = min(least, scalar_key(tag, address + j * step, order))
    return least


@inlined
def bits_of_key(size, key, order):
    """The element that has ``key``; the canonical one for the key of NaN."""
    if key == order.nan_key:
        return order.nan_bits
    return (key ^ ((key >> (8 * size - 1)) & order.flip)) ^ order.bias


@inlined
def first_zero(tag, address, step, cols, order):
    """Where the first zero of either sign stands in a row that has one."""
    for j in range(cols):
        if scalar_key(tag, address + j * step, order) == 0:
            return address + j * step
    return address


@kernel
def fold(stamp, tag, begin, end, dst, src, params):
    """Tiles ``begin .. end``: one element for each valid row, to column 0 of dst."""
    order = load_ordering(params)
    size = size_of(tag)
    for tile in range(begin, end):
        fetch_ahead(size, src, tile + AHEAD, end)
        to, rows, _ = place(dst, tile)
        row, _, cols = place(src, tile)
        address, step = row[0], row[2]
        for i in range(rows):
            at = to[0] + i * to[1]
            least = least_of_row(tag, size, address, step, cols, order)
            if order.select == 0:
                store_bits(tag, at, bits_of_key(size, least, order))
            elif scalar_key(tag, address, order) == order.nan0:  # compare-and-select never leaves a NaN in front
                store_bits(tag, at, load_bits(tag, address))
            elif least == 0:
                store_bits(tag, at, load_bits(tag, first_zero(tag, address, step, cols, order)))
            else:
                store_bits(tag, at, bits_of_key(size, least, order))
            address += row[1]


#: combine -> kernel, and what makes its parameters
COMBINES = {"min": (fold, ordering.for_fold)}
