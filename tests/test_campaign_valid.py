"""Valid regions: every one is permitted, and every permitted pattern occurs."""

import numpy as np
import pytest

from pto_gpu.campaign.tiles.valid import draw_regions
from pto_gpu.checks import check_regions
from pto_gpu.errors import ConstraintError
from pto_gpu.isa import instructions
from pto_gpu.regions import Region

SHAPES = [(16, 16), (1, 64), (64, 8), (1, 8), (127, 64), (3, 24)]


def drawn(op, shape, undefined="error", n=2000):
    return draw_regions(instructions()[op], shape, 4, 99, 0, n, undefined)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", sorted(instructions()))
def test_regions_lie_in_the_shape_and_are_permitted(op: str, shape: tuple[int, int]) -> None:
    record = instructions()[op]
    regions = drawn(op, shape).regions
    assert set(regions) == {o.name for o in (*record.dsts, *record.sources)}
    for region in regions.values():
        assert np.min(region.rows) >= 0
        assert np.min(region.cols) >= 0
        assert np.max(region.rows) <= shape[0]
        assert np.max(region.cols) <= shape[1]
    for target in record.element_types:
        check_regions(record, regions, {}, target, "error", 2000)


@pytest.mark.parametrize("op", ["TPARTMIN", "TPARTARGMIN"])
def test_every_partial_pattern_occurs_on_both_sides(op: str) -> None:
    regions = drawn(op, (16, 16)).regions
    value = [o.name for o in instructions()[op].sources][:2]
    dst = regions[instructions()[op].dsts[0].name]
    for a, b in (value, value[::-1]):
        main, other = regions[a], regions[b]
        defines = ~dst.differs(main) & dst.differs(other) & ~dst.empty
        fewer_rows, fewer_cols = other.rows < main.rows, other.cols < main.cols
        assert (defines & fewer_rows & (other.cols == main.cols)).sum() > 50
        assert (defines & fewer_cols & (other.rows == main.rows)).sum() > 50
        assert (defines & fewer_rows & fewer_cols).sum() > 50
        assert (defines & other.empty).sum() > 20
        longer = other.exceeds(dst)
        assert (longer.sum() > 50) == (op == "TPARTARGMIN")
    assert (~dst.differs(regions[value[0]]) & ~dst.differs(regions[value[1]]) & ~dst.empty).sum() > 200
    assert dst.empty.sum() > 50


def test_edges_and_extremes_of_the_main_region_occur() -> None:
    region = drawn("TPRELU", (16, 32)).regions["dst"]
    rows, cols = region
    for case in (
        (rows == 16) & (cols == 32), rows == 0, cols == 0, (rows == 1) & (cols > 1), (cols == 1) & (rows > 1),
        cols == 7, cols == 9, cols == 15, cols == 31,
    ):  # fmt: skip
        assert case.sum() > 10


def test_undefined_zero_adds_regions_that_the_page_leaves_open() -> None:
    record = instructions()["TPARTMIN"]
    regions = drawn("TPARTMIN", (16, 16), "zero").regions
    with pytest.raises(ConstraintError, match="of 2000 tiles break this"):
        check_regions(record, regions, {}, "a5", "error", 2000)
    check_regions(record, regions, {}, "a5", "zero", 2000)


def test_regions_do_not_depend_on_the_split() -> None:
    whole = drawn("TPARTARGMIN", (16, 16)).regions
    part = draw_regions(instructions()["TPARTARGMIN"], (16, 16), 4, 99, 700, 50, "error").regions
    for name, region in part.items():
        assert isinstance(region, Region)
        assert region.rows.tolist() == whole[name].rows[700:750].tolist()
        assert region.cols.tolist() == whole[name].cols[700:750].tolist()
