"""Each mutant is reported, explained by its cause, and shrunk. ``run_campaign`` gets it in place of a backend."""

from functools import cache

import oracle
import pytest
from mutant_table import ALONE, MUTANTS, RULE_SETS
from mutants import reference
from rig import rules_of

from pto_gpu.campaign.explain import diagnose
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.isa import instructions

TILES = 4096  # four blocks of 16x16: two of each storage plan
CASES = [
    pytest.param(what, place, id=f"{what}: {mutant[0]}")
    for what, mutants in MUTANTS.items()
    for place, mutant in enumerate(mutants)
]


@cache
def reported(what: str, place: int) -> Result:
    op, dtypes = what.split()
    campaign = Campaign(op, tuple(dtypes.split("/")), tiles=TILES, workers=1)
    return run_campaign(campaign, MUTANTS[what][place][1])


@cache
def diagnosed(what: str, place: int) -> diagnose.Diagnosis:
    found = diagnose.diagnose(reported(what, place), MUTANTS[what][place][1])
    assert found is not None
    assert found.notes == []
    return found


@pytest.mark.parametrize(("what", "place"), CASES)
def test_a_mutant_is_reported(what: str, place: int) -> None:
    result = reported(what, place)
    assert result.crash is None
    assert not result.equal
    assert result.tiles == TILES
    assert result.first_failure is not None
    assert MUTANTS[what][place][2] in result.categories


@pytest.mark.parametrize(("what", "place"), CASES)
def test_a_mutant_is_explained(what: str, place: int) -> None:
    cause = MUTANTS[what][place][3]
    explanation = diagnosed(what, place).explanation
    assert explanation.complete
    if cause is None:
        assert explanation.causes == ()
    else:
        assert cause in explanation.causes
    assert len(explanation.causes) <= 3


@pytest.mark.parametrize(("what", "place"), CASES)
def test_a_mutant_that_is_another_rule_set_is_called_so(what: str, place: int) -> None:
    expected = RULE_SETS.get((what, MUTANTS[what][place][0]), ())
    assert diagnosed(what, place).explanation.agrees_with == expected


@pytest.mark.parametrize(("what", "place"), CASES)
def test_a_mutant_is_shrunk(what: str, place: int) -> None:
    name, execute, _, _ = MUTANTS[what][place]
    shrunk = diagnosed(what, place).shrunk
    assert shrunk.calls < 100
    if name in ALONE:
        assert shrunk.tile is None
        assert "depends on the rest of its batch" in shrunk.why_not
        return
    tile = shrunk.tile
    assert not shrunk.flaky
    assert all(rows <= 2 and cols <= 2 for rows, cols in tile.valid.values())
    call = tile.call()
    execute(call)
    right = by_oracle(tile)
    for dst in tile.instruction.dsts:
        seen = call.tiles[dst.name].data[0].view(tile.seen[dst.name].dtype)
        assert seen.tolist() == tile.seen[dst.name].tolist()
        assert tile.expected[dst.name].tolist() == right[dst.name]
    assert any(tile.seen[name].tolist() != right[name] for name in right)


def by_oracle(tile: SavedTile) -> dict[str, list[list[int]]]:
    """The bits of each dst as the page has them."""
    record = tile.instruction
    tiles = {name: oracle.Tile(bits.tolist(), *tile.valid[name]) for name, bits in tile.arrays.items()}
    oracle.ORACLES[record.name](record.signature(tile.types)[0], rules_of("isa"), **tiles)
    return {o.name: tiles[o.name].bits for o in record.dsts}


@pytest.mark.parametrize(("op", "dtypes"), [(op, d) for op, r in instructions().items() for d in r.element_types["a5"]])
def test_the_reference_itself_is_not_reported(op: str, dtypes: tuple[str, ...]) -> None:
    assert run_campaign(Campaign(op, dtypes, tiles=1100), reference).equal
