"""Journals: a run that is killed, interrupted or out of space goes on where it was, and nothing counts twice."""

import dataclasses
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import Inside

import pto_gpu as pto
from pto_gpu import backends
from pto_gpu.campaign import journal, recipe
from pto_gpu.campaign.journal import Journal
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.run import run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles import draw

#: The backend under test is wrong in some blocks.
WRONG = f"""
import signal, sys, resource, os
sys.path.append({str(Path(__file__).parent)!r})
from wrong_backend import Journal, cli, run, wrong_execute
run.backend_execute = wrong_execute
"""
START = "sys.argv = ['pto-gpu', *sys.argv[1:]]\ncli.main()"
ARGUMENTS = ["validate", "TPARTMIN", "TPRELU", "--dtype", "f16", "--tiles", "60000", "--seed", "3", "--json"]


def wrong_run(*arguments: Any, cwd: Path, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRONG + before + START, *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def totals(out: str) -> Any:
    """The report without what differs between two runs: time, and where a failure was saved."""
    data = json.loads(out)
    del data["seconds"]
    for campaign in data["campaigns"]:
        for key in ("seconds", "tiles_per_second", "saved"):
            del campaign[key]
    return data


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out, _ = wrong_run(*ARGUMENTS, cwd=tmp_path_factory.mktemp("whole")).communicate()
    data = totals(out)
    assert data["status"] == 1
    assert [c["tiles"] for c in data["campaigns"]] == [60000, 60000]
    assert all(c["mismatched_tiles"] > 10 and len(c["mismatches"]) == 20 for c in data["campaigns"])
    return data


def stored(directory: Path) -> int:
    return sum(p.stat().st_size for p in directory.glob("run*.db*"))


def test_a_run_killed_again_and_again_has_the_totals_of_one_that_was_not(uninterrupted: Any, tmp_path: Path) -> None:
    moments = random.Random(5)
    kills = 0
    while kills < 5:
        grown = stored(tmp_path) + moments.randrange(0, 60_000)
        process = wrong_run(*ARGUMENTS, "--journal", "run.db", "--resume", cwd=tmp_path)
        while stored(tmp_path) <= grown and process.poll() is None:
            time.sleep(0.001)
        assert process.poll() is None, "the run is to be killed before its end"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    out, _ = wrong_run(*ARGUMENTS, "--journal", "run.db", "--resume", cwd=tmp_path).communicate()
    assert totals(out) == uninterrupted
    assert list(tmp_path.glob("run.db*")) == [tmp_path / "run.db"]


def test_a_full_disk_is_one_error_and_the_run_goes_on_from_there(uninterrupted: Any, tmp_path: Path) -> None:
    full = """
add = Journal.add
def limited(self, *wave):
    if wave[1].first == 20 * 1024:
        size = max(os.path.getsize(p) for p in ("run.db", "run.db-wal"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, -1))
    add(self, *wave)
Journal.add = limited
"""
    process = wrong_run(*ARGUMENTS, "--journal", "run.db", cwd=tmp_path, before=full)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    message = (
        "error: run.db: cannot be written: disk I/O error: what it holds is kept, and --resume continues from there"
    )
    assert err.splitlines() == [message]
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        assert db.execute("SELECT count(*), sum(tiles) FROM wave").fetchone() == (20, 20 * 1024)
    out, _ = wrong_run(*ARGUMENTS, "--journal", "run.db", "--resume", cwd=tmp_path).communicate()
    assert totals(out) == uninterrupted


def test_ctrl_c_ends_with_the_results_so_far_and_the_run_can_go_on(uninterrupted: Any, tmp_path: Path) -> None:
    pressed = """
add = Journal.add
def press(self, *wave):
    add(self, *wave)
    if wave[1].first == 20 * 1024: signal.raise_signal(signal.SIGINT)
Journal.add = press
"""
    process = wrong_run(*ARGUMENTS, "--journal", "run.db", cwd=tmp_path, before=pressed)
    out, err = process.communicate()
    data = json.loads(out)
    assert process.returncode == data["status"] == 130
    assert data["campaigns"][0]["interrupted"]
    assert "not covered: TPRELU f16 16x16 (not started)" in err
    assert "Traceback" not in err
    out, _ = wrong_run(*ARGUMENTS, "--journal", "run.db", "--resume", cwd=tmp_path).communicate()
    assert totals(out) == uninterrupted


def reference(call):
    backends.load("numpy").run(call)


def sometimes_wrong(call):
    reference(call)
    if call.tiles["src0"].data[0, 0, 0] > 0:
        call.tiles["dst"].data[5, 0, 0] = 99


def fields_of(result: Result) -> dict[str, Any]:
    found = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    failure = found.pop("first_failure")
    found["failure"] = failure and {
        **{name: failure.__dict__[name] for name in ("types", "valid", "origin", "tile")},
        **{name: {k: v.tolist() for k, v in getattr(failure, name).items()} for name in ("arrays", "seen", "expected")},
    }
    del found["seconds"]
    return found


CAMPAIGN = Campaign("TPARTMIN", ("i32",), tiles=20_000, workers=2)


def interrupted_after(waves: int, path: Path, **changes: Any) -> Result:
    done = []

    def progress(tiles):
        done.append(tiles)
        if len(done) == waves:
            raise KeyboardInterrupt

    campaign = dataclasses.replace(CAMPAIGN, **changes)
    held = Journal(path, [campaign], resume=True)
    result = run_campaign(campaign, sometimes_wrong, progress, journal=held.of(0))
    held.close()
    return result


def test_a_resumed_campaign_has_every_field_of_one_run(tmp_path: Path) -> None:
    whole = run_campaign(CAMPAIGN, sometimes_wrong)
    parts = [interrupted_after(waves, tmp_path / "run.db", workers=workers) for waves, workers in ((3, 1), (5, 3))]
    assert [(p.tiles, p.interrupted) for p in parts] == [(3 * 1024, True), (8 * 1024, True)]
    end = interrupted_after(0, tmp_path / "run.db")
    assert fields_of(end) == {**fields_of(whole), "campaign": end.campaign}
    ran = []
    held = Journal(tmp_path / "run.db", [CAMPAIGN], resume=True)
    again = run_campaign(CAMPAIGN, ran.append, journal=held.of(0))
    assert (fields_of(again), ran) == (fields_of(whole), [])
    assert again.seconds > 0
    with pytest.raises(pto.FileError, match=r"run\.db: in use by another process$"):
        Journal(tmp_path / "run.db", [CAMPAIGN], resume=True)
    held.close()


def test_tiles_on_which_the_backend_raised_are_run_again(tmp_path: Path) -> None:
    held = Journal(tmp_path / "run.db", [CAMPAIGN])

    def broken(call):
        if call.tiles["dst"].type.cols > 16:
            raise RuntimeError("device lost")
        reference(call)

    result = run_campaign(CAMPAIGN, broken, journal=held.of(0))
    assert (result.tiles, result.crash.first) == (1024, 1024)
    assert run_campaign(CAMPAIGN, reference, journal=held.of(0)).equal
    held.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiles": 20_001}, "it was made with tiles=20000, this run has tiles=20001"),
        ({"seed": 1}, "it was made with seed=20250101, this run has seed=1"),
        ({"shape": (16, 32)}, "it was made with shape=16x16, this run has shape=16x32"),
        ({"numerics": "formal"}, "it was made with numerics=isa, this run has numerics=formal"),
        ({"target": "a2a3"}, "it was made with target=a5, this run has target=a2a3"),
        ({"undefined": "zero"}, "it was made with undefined=error, this run has undefined=zero"),
        ({"backend": "triton"}, "it was made with backend=cpu, this run has backend=triton"),
        ({"dtypes": ("i16",)}, "it was made for TPARTMIN i32, this run is for TPARTMIN i16"),
        ({"instruction": "TROWMIN"}, "it was made for TPARTMIN i32, this run is for TROWMIN i32"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    Journal(tmp_path / "run.db", [CAMPAIGN]).close()
    before = (tmp_path / "run.db").read_bytes()
    with pytest.raises(pto.FileError, match=rf"run\.db: cannot be continued: {message}$"):
        Journal(tmp_path / "run.db", [dataclasses.replace(CAMPAIGN, **changes)], resume=True)
    Journal(tmp_path / "run.db", [dataclasses.replace(CAMPAIGN, workers=7)], resume=True).close()
    assert (tmp_path / "run.db").read_bytes() == before


def test_another_implementation_under_test_is_refused(inside: Inside, tmp_path: Path) -> None:
    body = "    call.arrays['dst'][:1, :1, :1] = 0\n"
    (tmp_path / "journaled_mine.py").write_text(f"def one(call):\n{body}\n\ndef other(call):\n{body}")
    arguments = ["validate", "TPARTMIN", "--dtype", "i8", "--tiles", 64, "--journal", "run.db", "--resume", "--json"]
    status, out, _ = inside(*arguments, "--against", "journaled_mine:one")
    again, out_again, _ = inside(*arguments, "--against", "journaled_mine:one")
    assert status == again == 1
    assert totals(out)["campaigns"][0]["mismatches"] == totals(out_again)["campaigns"][0]["mismatches"]
    for side, tested in (("journaled_mine:other", "journaled_mine:other"), ("numpy", "a backend")):
        status, _, err = inside(*arguments, "--against", side)
        message = f"it was made with journaled_mine:one under test, this run has {tested}"
        assert (status, err) == (2, f"error: run.db: cannot be continued: {message}\n")


def test_every_setting_is_compared() -> None:
    settings = journal.settings_of(CAMPAIGN)
    assert settings.keys() == {f.name for f in dataclasses.fields(Campaign)} - {"workers"}
    assert settings == journal.settings_of(dataclasses.replace(CAMPAIGN, instruction="tpartmin", backend="auto"))


@pytest.mark.parametrize("what", ["operands", "regions", "reference"])
def test_a_version_with_other_tiles_or_results_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    Journal(tmp_path / "run.db", [CAMPAIGN]).close()
    if what == "operands":
        real = draw.draw_elements

        def other_draw(out, *arguments):
            profiles = real(out, *arguments)
            out[3, 2, 1] ^= 1
            return profiles

        monkeypatch.setattr(draw, "draw_elements", other_draw)
    elif what == "regions":
        regions = draw.draw_regions
        monkeypatch.setattr(draw, "draw_regions", lambda *a: regions(*a[:4], a[4] + 1, *a[5:]))
    else:
        loaded = backends.load("numpy")

        class OtherReference:
            @staticmethod
            def run(call):
                loaded.run(call)
                call.tiles["dst"].data[0, 0, 0] ^= 1

        monkeypatch.setattr(recipe.backends, "load", lambda name: OtherReference)
    message = r"cannot be continued: pto-gpu [\d.a-z]+ made it, which drew other operands for TPARTMIN i32, or expected"
    with pytest.raises(pto.FileError, match=message):
        Journal(tmp_path / "run.db", [CAMPAIGN], resume=True)


def test_a_journal_is_not_written_over(tmp_path: Path) -> None:
    interrupted_after(2, tmp_path / "run.db")
    with pytest.raises(pto.FileError, match=r"run\.db: already there: --resume continues it, or name another file"):
        Journal(tmp_path / "run.db", [CAMPAIGN])
    assert interrupted_after(1, tmp_path / "run.db").tiles == 3 * 1024
    (tmp_path / "run.db").unlink()
    (tmp_path / "run.db-wal").write_bytes(b"of the journal that was removed")
    with pytest.raises(pto.FileError, match=r"run\.db-wal: left from another journal"):
        Journal(tmp_path / "run.db", [CAMPAIGN], resume=True)


def test_a_truncated_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path, short = tmp_path / "run.db", tmp_path / "short.db"
    interrupted_after(12, path)
    whole = path.read_bytes()
    assert len(whole) > 3 * 4096
    for n in (0, 10, 50, 99, 100, 600, 4095, 4096, 8192, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        short.write_bytes(whole[:n])
        with pytest.raises(pto.FileError, match=r"short\.db: (a damaged journal|not a journal: the file is empty)"):
            Journal(short, [CAMPAIGN], resume=True)
        assert short.read_bytes() == whole[:n]
    assert sorted(os.listdir(tmp_path)) == ["run.db", "short.db"]


def read_through(path: Path) -> int:
    with closing(Journal(path, [CAMPAIGN], resume=True)) as held:
        return sum(wave.tiles for wave, _ in held.waves(0, 0))


def test_damaged_content_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    interrupted_after(12, path)
    assert read_through(path) == 12 * 1024
    for change in (
        "DELETE FROM wave WHERE first = 2048",
        "UPDATE wave SET found = '{' WHERE first = 2048",
        "UPDATE wave SET found = '[]' WHERE first = 2048",
        "UPDATE wave SET found = '{\"mismatches\":[3]}' WHERE first = 2048",
        "UPDATE wave SET failure = 'x' WHERE first = 2048",
        "UPDATE wave SET failure = x'00' WHERE first = 2048",
        "DELETE FROM run",
        "UPDATE run SET settings = '{'",
        "DROP TABLE wave",
    ):
        damaged = Path(shutil.copy(path, tmp_path / "damaged.db"))
        db = sqlite3.connect(damaged)
        db.execute(change)
        db.commit()
        db.close()
        with pytest.raises(pto.FileError, match=r"damaged\.db: a damaged journal[^\n]+$"):
            read_through(damaged)


def test_other_files_are_no_journals(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE wave (first)")
    db.commit()
    before = other.read_bytes()
    with pytest.raises(pto.FileError, match=r"other\.db: not a journal of pto-gpu$"):
        Journal(other, [CAMPAIGN], resume=True)
    db.execute(f"PRAGMA application_id = {journal.APPLICATION}")
    db.execute(f"PRAGMA user_version = {journal.FORMAT + 1}")
    db.close()
    with pytest.raises(pto.FileError, match=r"other\.db: journal format 2: allowed 1, that of pto-gpu "):
        Journal(other, [CAMPAIGN], resume=True)
    other.write_text("hello, this is no database" * 9)
    with pytest.raises(pto.FileError, match=r"other\.db: not a journal of pto-gpu$"):
        Journal(other, [CAMPAIGN], resume=True)
    assert before[:15] == b"SQLite format 3"


@pytest.mark.parametrize("name", ["absent/run.db", "file/run.db", ".", "a" * 300])
@pytest.mark.parametrize("resume", [False, True])
def test_a_place_that_cannot_be_written_is_one_error(inside: Inside, tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["validate", "TPARTMIN", "--dtype", "i8", "--tiles", 64, "--journal", name]
    status, out, err = inside(*arguments, *(["--resume"] if resume else []))
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {name}")
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_resume_needs_a_journal(inside: Inside) -> None:
    assert inside("validate", "--resume") == (2, "", "error: --resume needs --journal FILE: the journal to continue\n")


def test_a_run_resumed_from_its_whole_journal_reports_the_same(inside: Inside) -> None:
    arguments = ["validate", "TROWMIN", "--dtype", "f16", "--tiles", 3000, "--json", "--journal", "run.db"]
    status, out, _ = inside(*arguments)
    again, out_again, _ = inside(*arguments, "--resume")
    assert (status, totals(out)) == (again, totals(out_again)) == (0, totals(out))
    assert json.loads(out)["campaigns"][0]["seconds"] == json.loads(out_again)["campaigns"][0]["seconds"]
