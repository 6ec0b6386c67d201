"""Sources defined wherever dst is: TPRELU and its kin."""

from __future__ import annotations

from pto_gpu.backends.cpu.compile import inlined, kernel
from pto_gpu.backends.cpu.lanes import prelu_element, prelu_row
from pto_gpu.backends.cpu.rows import offset, place
from pto_gpu.backends.cpu.scalars import load_int64, size_of
from pto_gpu.numerics import Numerics
from pto_gpu.types import ElementType


@inlined
def prelu_rect(tag, size, dst, src, slope, rows, cols, keep_zero, nan):
    """``rows x cols`` elements."""
    packed = dst[3] and src[3] and slope[3]
    width = cols * size
    if packed and dst[1] == width and src[1] == width and slope[1] == width:  # the rows lie end to end
        width *= rows
        rows = min(rows, 1)
    for i in range(rows):
        to, x, s = offset(dst, i, 0)[0], offset(src, i, 0)[0], offset(slope, i, 0)[0]
        if packed:
            prelu_row(tag, to, x, s, width, keep_zero, nan)
        else:
            for j in range(cols):
                prelu_element(tag, to + j * dst[2], x + j * src[2], s + j * slope[2], keep_zero, nan)


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
