"""What views, parts of them and transfers must be: before a run as far as it is known, while it runs all of it.

Each function says what is wrong. A number that is not known is None, in a shape DYNAMIC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from pto_gpu.types import DYNAMIC


def view_problems(stated: Sequence[int], sizes: Sequence[int | None], strides: Sequence[int | None]) -> Iterator[str]:
    """A view of ``sizes``, whose type says ``stated``."""
    for said, size in zip(stated, sizes, strict=True):
        if size is not None and (size < 0 or said not in (DYNAMIC, size)):
            yield f"shape has {size} where the type has {'?' if said == DYNAMIC else said}"
    for stride in strides:
        if stride is not None and stride < 0:
            yield f"stride {stride} must not be negative"


def part_problems(
    whole: Sequence[int], stated: Sequence[int], offsets: Sequence[int | None], sizes: Sequence[int | None]
) -> Iterator[str]:
    """``sizes`` elements from ``offsets`` on of a view of the sizes ``whole``; the type of the part says ``stated``."""
    for axis, (limit, said, offset, size) in enumerate(zip(whole, stated, offsets, sizes, strict=True)):
        if offset is not None and offset < 0:
            yield f"offset {offset} of dimension {axis} must not be negative"
        if size is None:
            continue
        if size <= 0:
            yield f"size {size} of dimension {axis} must be positive"
        elif said not in (DYNAMIC, size):
            yield f"size {size} of dimension {axis} differs from the type, which says {said}"
        elif offset is not None and limit != DYNAMIC and offset + size > limit:
            yield f"{offset} + {size} in dimension {axis} is past the end of the view, which has {limit}"


def transfer_problems(
    sizes: Sequence[int], view_dtype: str, tile_dtype: str | None, region: tuple[int, int] | str | None
) -> Iterator[str]:
    """A copy between a view of ``sizes`` and the valid region of a tile; text for a region that is no pair."""
    if tile_dtype not in (None, view_dtype):
        yield f"the tile has element type {tile_dtype}: allowed {view_dtype}, that of the view"
    if region is None or DYNAMIC in sizes or (prod(sizes[:-1]), sizes[-1]) == region:
        return
    seen = region if isinstance(region, str) else "x".join(map(str, region))
    part = "x".join(map(str, sizes))
    yield f"the view has {part} elements, the tile's valid region is {seen}: they must be equal"
