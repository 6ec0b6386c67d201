"""Who is measured computes what the instructions say; the tiles and the bytes that are counted."""

import dataclasses
import shutil
from typing import Any

import numpy as np
import pytest
from oracle import ORACLES, RULE_SETS, Tile

from pto_gpu.bench.baseline import LOOPS, VECTORISED
from pto_gpu.bench.providers import COMPILED, CPU, PROVIDERS, difference
from pto_gpu.bench.workload import REGIONS, Workload, make, regions, workload_of
from pto_gpu.isa import instructions
from pto_gpu.isa.record import Role

SIGNATURES = [(name, s) for name, record in instructions().items() for s in record.element_types["a5"]]
HOST = [p for p in PROVIDERS.values() if not p.on_gpu and p.name != COMPILED]


def workload(name: str, signature: tuple[str, ...], valid: str = "random") -> Workload:
    return make(instructions()[name], signature, 5, 9 if name != "TROWMIN" else 32, 32, valid, seed=3)


def expected(work: Workload) -> dict[str, np.ndarray]:
    """What dst must hold, by the oracle of the tests."""
    arrays = {n: t.numpy().view(f"u{t.type.element.itemsize}").copy() for n, t in work.tiles.items()}
    for t in range(work.batch):
        tiles = {n: Tile(arrays[n][t].tolist(), *tile.region.of_tile(t)) for n, tile in work.tiles.items()}
        ORACLES[work.instruction.name](work.signature[0], RULE_SETS["isa"], **tiles)
        for n, tile in tiles.items():
            arrays[n][t] = tile.bits
    return {o.name: arrays[o.name] for o in work.instruction.dsts}


@pytest.mark.parametrize("provider", HOST, ids=lambda p: p.name)
@pytest.mark.parametrize(("name", "signature"), SIGNATURES, ids=lambda x: "/".join(x) if isinstance(x, tuple) else x)
def test_every_provider_gives_the_bits_of_the_oracle(name: str, signature: tuple[str, ...], provider: Any) -> None:
    for valid in REGIONS:
        work = workload(name, signature, valid)
        want = expected(work)
        run = provider.prepare(work)
        assert run is not None
        run()
        for dst, bits in want.items():
            assert work.tiles[dst].numpy().tobytes() == bits.tobytes(), (valid, dst)
        assert difference(run, work) is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # what torch's compiler warns of is not ours
def test_the_compiled_reference() -> None:
    work = workload("TPRELU", ("f32",))
    want = expected(work)
    run = PROVIDERS[COMPILED].prepare(work)
    assert run is not None
    run()
    assert work.tiles["dst"].numpy().tobytes() == want["dst"].tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "signature"), SIGNATURES, ids=lambda x: "/".join(x) if isinstance(x, tuple) else x)
def test_triton_on_the_tiles_of_a_benchmark(name: str, signature: tuple[str, ...]) -> None:
    host = workload(name, signature)
    work = host.to("cuda")
    run = PROVIDERS["triton"].prepare(work)
    assert run is not None
    run()
    for dst, bits in expected(host).items():
        assert work.tiles[dst].numpy().tobytes() == bits.tobytes()
    assert difference(run, work) is None


def test_wrong_results_are_found_and_nothing_is_taken_from_the_run_before() -> None:
    work = workload("TPARTMIN", ("i16",), "full")
    right = PROVIDERS[CPU].prepare(work)
    assert right is not None
    assert difference(right, work) is None
    assert "dst is not what the reference computes in 5 of the first 5 tiles" in str(difference(lambda: None, work))

    def wrong_in_one() -> None:
        right()
        work.tiles["dst"].data[3, 1, 1] ^= 1

    found = difference(wrong_in_one, work)
    assert found == "dst is not what the reference computes in 1 of the first 5 tiles, first tile 3"


def test_an_instruction_that_nobody_wrote_by_hand_has_no_baseline() -> None:
    work = workload("TPARTMIN", ("i16",))
    other = dataclasses.replace(work, instruction=dataclasses.replace(work.instruction, combine="median"))
    assert [p.name for p in HOST if p.prepare(other) is None] == ["numpy loop", "numpy"]
    assert VECTORISED.keys() == LOOPS.keys()


@pytest.mark.parametrize("kind", REGIONS)
def test_one_source_covers_dst_and_the_other_is_a_part_of_it(rng: np.random.Generator, kind: str) -> None:
    found = regions(rng, kind, 500, 16, 32)
    pairs = {name: np.broadcast_to(np.array(counts).T, (500, 2)) for name, counts in found.items()}
    covers = [(pairs[name] == pairs["dst"]).all(axis=1) for name in ("src0", "src1")]
    assert (covers[0] | covers[1]).all()
    assert all((pairs[name] <= pairs["dst"]).all() for name in ("src0", "src1"))
    assert pairs["dst"].max(axis=0).tolist() == ([4, 4] if kind == "tiny" else [16, 32])


def test_bytes_of_elements_and_of_cache_lines() -> None:
    record = instructions()["TPRELU"]
    work = make(record, ("f32",), 3, 8, 32, "full")
    assert (work.nbytes, work.line_bytes) == (3 * 3 * 8 * 32 * 4,) * 2
    ragged = workload_of(record, ("f32",), {name: tile.with_valid(2, 17) for name, tile in work.tiles.items()})
    assert (ragged.nbytes, ragged.line_bytes) == (
        3 * 3 * 2 * 17 * 4,
        3 * 3 * 2 * 128,
    )  # 17 f32 touch two lines of a row


def test_a_large_operand_repeats_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pto_gpu.bench.workload._DRAWN", 3 * 8 * 8)
    work = make(instructions()["TPARTMIN"], ("f32",), 8, 8, 8)
    source = work.tiles["src0"].numpy()
    assert (source[:3] == source[3:6]).all()
    assert (source[6:] == source[:2]).all()
    assert not (source[0] == source[1]).any()
    assert {o.name for o in work.instruction.operands if o.role is not Role.TMP} == set(work.tiles)
