"""Sources defined wherever dst is: TPRELU and its kin."""

from __future__ import annotations

from numba import njit

from pto_gpu.backends.cpu.compile import kernel
from pto_gpu.backends.cpu.lanes import load_int64, prelu_row, size_of
from pto_gpu.backends.cpu.rows import place
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


@njit(nogil=True)
def prelu_rect(tag, size, dst, src, slope, rows, cols, keep_zero, nan):
    """``rows x cols`` elements."""
    if dst[2] == size and src[2] == size and slope[2] == size:
        width = cols * size
        if dst[1] == width and src[1] == width and slope[1] == width:  # the rows lie end to end
            width *= rows
            rows = min(rows, 1)
        for i in range(rows):
            prelu_row(tag, dst[0] + i * dst[1], src[0] + i * src[1], slope[0] + i * slope[1], width, keep_zero, nan)
    else:
        for i in range(rows):
            for j in range(cols):
                at = dst[0] + i * dst[1] + j * dst[2]
                x, s = src[0] + i * src[1] + j * src[2], slope[0] + i * slope[1] + j * slope[2]
                prelu_row(tag, at, x, s, size, keep_zero, nan)


@kernel
def prelu(stamp, tag, begin, end, dst, src0, src1, params):
    """Tiles ``begin .. end``."""
    keep_zero, nan = load_int64(params), load_int64(params + 8)
    size = size_of(tag)
    for tile in range(begin, end):
        to, rows, cols = place(dst, tile)
        prelu_rect(tag, size, to, place(src0, tile)[0], place(src1, tile)[0], rows, cols, keep_zero, nan)


def prelu_parameters(element: ElementType, rules: Numerics) -> tuple[int, ...]:
    """Whether x = +-0 is kept, and the bits of the canonical NaN."""
    return int(rules.zero == "keep"), element.canonical_nan or 0


#: combine -> kernel, and what makes its parameters
COMBINES = {"prelu": (prelu, prelu_parameters)}
