"""Ranks: processes that torchrun starts share a run, one of them dies, and the report is that of one process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Inside

import pto_gpu as pto
from pto_gpu import cores
from pto_gpu.campaign.ranks import CtrlC, Ranks, ranks
from pto_gpu.campaign.reports import text as report
from pto_gpu.campaign.results import Crash, Result, Wave
from pto_gpu.campaign.settings import Campaign

SCRIPT = Path(__file__).parent / "wrong_backend.py"
ARGUMENTS = ["validate", "TPARTMIN", "TPRELU", "--dtype", "f16", "--tiles", "30000", "--seed", "3", "--json"]
ARGUMENTS += ["--backend", "cpu"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]


def data_of(*command: Any, cwd: Path, **variables: str) -> tuple[int, Any, str]:
    """Exit status, the one JSON object on stdout without times, and stderr."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    data = json.loads(done.stdout) if done.stdout else None
    if data:
        del data["seconds"]
        for campaign in data["campaigns"]:
            del campaign["seconds"], campaign["tiles_per_second"]
    return done.returncode, data, done.stderr


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    status, data, err = data_of(sys.executable, SCRIPT, *ARGUMENTS, cwd=tmp_path_factory.mktemp("alone"))
    assert status == data["status"] == 1
    assert [c["tiles"] for c in data["campaigns"]] == [30000, 30000]
    assert all(c["mismatched_tiles"] > 5 for c in data["campaigns"])
    return data, err.splitlines()


def test_two_ranks_report_once_what_one_process_finds(alone: Any, tmp_path: Path) -> None:
    status, data, err = data_of(*TORCHRUN, SCRIPT, *ARGUMENTS, "--journal", "run.db", cwd=tmp_path)
    assert (status, data) == (1, alone[0])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["failures", "run.rank0.db", "run.rank1.db"]
    assert len(list((tmp_path / "failures").iterdir())) == 2
    reported, expected = (
        [line for line in lines if line.startswith(("  tile ", "    dst("))] for lines in (err.splitlines(), alone[1])
    )
    assert reported == expected
    assert len(reported) > 8


def test_a_rank_that_is_killed_continues_from_its_journal(alone: Any, tmp_path: Path) -> None:
    command = [*TORCHRUN, SCRIPT, *ARGUMENTS, "--journal", "run.db"]
    status, data, err = data_of(*command, cwd=tmp_path, DIE_AFTER="7")
    assert (status, data) == (1, alone[0])
    assert "SIGKILL" in err or "-9" in err
    status, data, _ = data_of(sys.executable, SCRIPT, *ARGUMENTS, "--journal", "run.rank0.db", "--resume", cwd=tmp_path)
    assert (status, data) == (2, None), "a share is not the whole"


def test_every_tile_belongs_to_one_rank() -> None:
    for tiles in (1, 1024, 1025, 10_000, 1_000_000):
        campaign = Campaign("TPARTMIN", ("f32",), tiles=tiles)
        for size in (1, 2, 3, 8, 64):
            spans = [Ranks(rank, size, size, 0).span(campaign) for rank in range(size)]
            assert [first for first, _ in spans] == [0, *(end for _, end in spans[:-1])]
            assert spans[-1][1] == tiles
            assert all(first % 1024 == 0 or first == tiles for first, _ in spans)
            sizes = [end - first for first, end in spans]
            assert max(sizes) - min(sizes) <= 2048


def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_process_is_a_rank_only_with_all_of_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, RANK="1", WORLD_SIZE="2")
    assert ranks() is None
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    assert ranks() == Ranks(1, 2, 2, 0)
    environment(monkeypatch, RANK="5", WORLD_SIZE="8", LOCAL_WORLD_SIZE="4", MASTER_ADDR="localhost", MASTER_PORT="1")
    assert ranks() == Ranks(5, 8, 4, 0)
    environment(monkeypatch, RANK="2", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    with pytest.raises(pto.ConstraintError, match="environment variable RANK='2' is out of range: allowed 0 to 1"):
        ranks()


def test_ranks_of_one_machine_share_its_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pto_gpu.campaign.ranks.available_cores", lambda: 16)
    assert [Ranks(0, 8, local, 0).workers for local in (1, 4, 8, 32)] == [16, 4, 2, 1]
    environment(monkeypatch)
    assert cores.device_of_this_process(4) == 0
    seen = []
    for local in range(6):
        environment(monkeypatch, LOCAL_RANK=str(local))
        seen.append(cores.device_of_this_process(4))
    assert seen == [0, 1, 2, 3, 0, 1]


def test_ctrl_c_ends_a_campaign_once_and_nothing_else() -> None:
    campaign = Campaign("TPARTMIN", ("f32",), tiles=10_000)
    done, otherwise = Result(campaign, "cpu"), Result(campaign, "cpu", interrupted=True)

    def pressed() -> Result:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the work went on")

    before = signal.getsignal(signal.SIGINT)
    with CtrlC().heard() as ctrl_c:
        assert ctrl_c.during(lambda: done, otherwise) is done
        assert ctrl_c.during(pressed, otherwise) is otherwise
        signal.raise_signal(signal.SIGINT)  # torchrun's, after the terminal's
        assert ctrl_c.during(pressed, otherwise) is otherwise
    with CtrlC().heard() as ctrl_c:
        signal.raise_signal(signal.SIGINT)  # while this rank waits for the others
        assert ctrl_c.asked
        assert ctrl_c.during(pressed, otherwise) is otherwise
    assert signal.getsignal(signal.SIGINT) is before


def test_what_interrupted_ranks_left_out_is_named() -> None:
    campaign = Campaign("TPARTMIN", ("f32",), tiles=10_000)
    result = Result(campaign, "cpu", interrupted=True)
    for first, tiles in ((0, 1024), (1024, 1024), (5120, 1024), (6144, 0), (8192, 1808)):
        result.add(Wave(first, tiles))
    assert (result.tiles, result.gaps) == (4880, [(2048, 5120), (6144, 8192)])
    assert report.coverage_lines([result], 1.0)[-2:] == [
        "not covered: TPARTMIN f32 16x16, tiles 2048 to 5119 (interrupted)",
        "not covered: TPARTMIN f32 16x16, tiles 6144 to 8191 (interrupted)",
    ]
    result.add(Wave(9999, 0, crash=Crash(9999, 9999, "lost")))
    result.add(Wave(2048, 1024))
    assert result.tiles == 4880


def test_an_error_says_which_rank(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    status, out, err = inside("validate", "TPARTMIN", "--dtype", "i8", "--tiles", 64, "--journal", "absent/run.db")
    assert (status, out) == (2, "")
    assert err == "error: rank 1: absent/run.rank1.db: cannot be written: No such file or directory\n"
