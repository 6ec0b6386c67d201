"""The journal of a long run: every wave that was compared, in an SQLite file that outlives the process.

A wave is one transaction of a write-ahead log, so a process that is killed loses at most the waves that it had not
finished, and its journal never holds half of one. ``first`` is a key: no wave can be in there twice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from pto_gpu import __version__
from pto_gpu.campaign.encoded import decode, encode
from pto_gpu.campaign.recipe import fingerprint
from pto_gpu.campaign.results import Wave
from pto_gpu.campaign.settings import Campaign
from pto_gpu.errors import FileError, PtoError

#: Version of what the tables hold, in the header of the file.
FORMAT: Final = 1
#: Tells a journal from any other SQLite file, in its header.
APPLICATION: Final = int.from_bytes(b"PTOJ")
_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = struct.Struct(">16sH10xI28xI4xI")  # magic, bytes of a page, pages, user version, application id
_TABLES: Final = """
CREATE TABLE run (settings TEXT NOT NULL, program TEXT NOT NULL, status INTEGER);
CREATE TABLE wave (
    campaign INTEGER, first INTEGER, tiles INTEGER NOT NULL, seconds REAL NOT NULL, found TEXT NOT NULL, failure BLOB,
    PRIMARY KEY (campaign, first)
) WITHOUT ROWID;
"""
#: Seconds to wait for another process that is about to let go of the file.
_PATIENCE: Final = 1.0


def settings_of(campaign: Campaign) -> dict[str, Any]:
    """What decides the result of ``campaign``, as JSON holds it; the number of workers does not."""
    chosen = {f.name: getattr(campaign, f.name) for f in fields(campaign) if f.name != "workers"}
    chosen["instruction"] = campaign.record.name
    chosen["target"], chosen["numerics"] = campaign.options.target.name, campaign.options.numerics.label
    result: dict[str, Any] = json.loads(json.dumps(chosen, default=repr))
    return result


class Journal:
    """The journal at ``path`` of a run over ``campaigns``, of which this process does ``share``: (number, of how many).

    ``implementation``: what is under test in place of their backend.
    A new file is made; with ``resume`` the one that is there is continued, if there is one. Raises FileError for a file
    that cannot be used: made with other settings, by a version that draws other operands, for another share, damaged,
    in use by another process, or not a journal.
    """

    def __init__(
        self,
        path: Path,
        campaigns: Sequence[Campaign],
        *,
        resume: bool = False,
        share: tuple[int, int] = (0, 1),
        implementation: str | None = None,
    ) -> None:
        self.path = path
        made = {
            "share": list(share),
            "implementation": implementation,
            "campaigns": [{"settings": settings_of(c), "recipe": fingerprint(c)} for c in campaigns],
        }
        with self._errors():
            if os.path.lexists(path):
                if not resume:
                    raise FileError(f"{path}: already there: --resume continues it, or name another file")
                _check_header(path)
            else:
                self._create(json.dumps(made))
            self._db = self._open()
            try:
                self._check(made)
            except BaseException:
                self.close()
                raise

    def of(self, number: int) -> CampaignJournal:
        """The part of the journal that is about campaign ``number``."""
        return CampaignJournal(self, number)

    @property
    def status(self) -> int | None:
        """The exit status of the run, once :meth:`finish` was told."""
        with self._errors():
            (status,) = self._db.execute("SELECT status FROM run").fetchone()
        return None if status is None else int(status)

    def finish(self, status: int | None) -> None:
        """Note that the run was reported, with this exit status; None: that it was not."""
        with self._errors():
            self._db.execute("UPDATE run SET status = ?", (status,))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def add(self, campaign: int, wave: Wave, seconds: float) -> None:
        """Store a wave; when this returns it is kept, whatever happens to the process."""
        with self._errors(": what it holds is kept, and --resume continues from there"):
            row = (campaign, wave.first, wave.tiles, seconds, *encode(wave))
            self._db.execute("INSERT INTO wave VALUES (?, ?, ?, ?, ?, ?)", row)

    def waves(self, campaign: int, first: int) -> Iterator[tuple[Wave, float]]:
        """The waves of a campaign in tile order, from tile ``first``, and the seconds each took."""
        query = "SELECT first, tiles, seconds, found, failure FROM wave WHERE campaign = ? ORDER BY first"
        with self._errors(), closing(self._db.execute(query, (campaign,))) as rows:
            for start, tiles, seconds, found, failure in rows:
                if start != first:
                    raise FileError(f"{self.path}: a damaged journal: tiles {first} to {start - 1} are missing")
                try:
                    wave = decode(self.path, start, tiles, found, failure)
                except Exception as error:  # damaged text shows as almost any type
                    raise FileError(f"{self.path}: a damaged journal: tiles from {start}: {error}") from None
                first += tiles
                yield wave, seconds

    def _create(self, settings: str) -> None:
        """Make the whole file under another name first: a kill leaves no half of a journal at ``path``."""
        log = _log_of(self.path)
        if os.path.lexists(log):  # SQLite would take it for the new file's
            raise FileError(f"{log}: left from another journal: remove it, or name another file")
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        new.open("xb").close()
        try:
            db = sqlite3.connect(new, isolation_level=None)
            try:
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
                db.executescript(_TABLES)
                db.execute("INSERT INTO run VALUES (?, ?, NULL)", (settings, __version__))
            finally:
                db.close()
            os.link(new, self.path)  # unlike a rename, never over a file that has come up meanwhile
        finally:
            with suppress(OSError):
                new.unlink()

    def _open(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        db = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")  # also: no shared memory, which network file systems lack
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # a commit does not wait for the disk; the log stays in order
            db.execute("BEGIN EXCLUSIVE")
            db.execute("COMMIT")
            (sound,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise FileError(f"{self.path}: a damaged journal: {' '.join(sound.split())}")
        except BaseException:
            db.close()
            raise
        return db

    def _check(self, made: Mapping[str, Any]) -> None:
        """Refuse a journal whose settings are not ``made``."""
        try:
            text, program = self._db.execute("SELECT settings, program FROM run").fetchone()
            held = json.loads(text)
        except (TypeError, ValueError):
            raise FileError(f"{self.path}: a damaged journal: it has no settings") from None
        if difference := _difference(held, made):
            raise FileError(f"{self.path}: cannot be continued: {difference}")
        for old, new in zip(held["campaigns"], made["campaigns"], strict=True):
            if old["recipe"] != new["recipe"]:
                raise FileError(
                    f"{self.path}: cannot be continued: pto-gpu {program} made it, which drew other operands for "
                    f"{_named(new['settings'])}, or expected other results of them, than this pto-gpu {__version__}"
                )

    @contextmanager
    def _errors(self, consequence: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FileError(f"{self.path}: {_cause(error)}{consequence}") from None
        except PtoError:
            raise
        except OSError as error:
            raise FileError(f"{self.path}: cannot be written: {error.strerror or error}") from None


@dataclass(frozen=True)
class CampaignJournal:
    """What a journal holds of one campaign."""

    journal: Journal
    number: int

    def waves(self, first: int) -> Iterator[tuple[Wave, float]]:
        """The waves of the campaign in tile order, from tile ``first``, and the seconds each took."""
        return self.journal.waves(self.number, first)

    def add(self, wave: Wave, seconds: float) -> None:
        """Store a wave; when this returns it is kept, whatever happens to the process."""
        self.journal.add(self.number, wave, seconds)


def _check_header(path: Path) -> None:
    """Refuse a file that is no journal of this format, before SQLite would write into it."""
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
    if not start:
        raise FileError(f"{path}: not a journal: the file is empty")
    if not start.startswith(_MAGIC[: len(start)]):
        raise FileError(f"{path}: not a journal of pto-gpu")
    if len(start) < _HEADER.size:
        raise FileError(f"{path}: a damaged journal: it ends after {len(start)} bytes")
    _, page, pages, version, application = _HEADER.unpack(start)
    if application != APPLICATION:
        raise FileError(f"{path}: not a journal of pto-gpu")
    if version != FORMAT:
        raise FileError(f"{path}: journal format {version}: allowed {FORMAT}, that of pto-gpu {__version__}")
    size, log = path.stat().st_size, _log_of(path)
    # Pages that are still in the log may be missing; without one SQLite would read zeros for what was cut off.
    if size < page * pages and not (log.exists() and log.stat().st_size):
        raise FileError(f"{path}: a damaged journal: it ends after {size} of {page * pages} bytes")


def _log_of(path: Path) -> Path:
    """Where SQLite has the latest transactions while the journal is open, or after a kill."""
    return path.with_name(path.name + "-wal")


def _difference(held: Mapping[str, Any], made: Mapping[str, Any]) -> str | None:
    """What of the settings is not the same, if anything."""
    if held["share"] != made["share"]:
        (old, of_old), (new, of_new) = held["share"], made["share"]
        return f"it is that of process {old} of {of_old}, this is process {new} of {of_new}"
    if held["implementation"] != made["implementation"]:
        tested = [of["implementation"] or "a backend" for of in (held, made)]
        return f"it was made with {tested[0]} under test, this run has {tested[1]}"
    old_campaigns, new_campaigns = ([c["settings"] for c in of["campaigns"]] for of in (held, made))
    old_names, new_names = [_named(c) for c in old_campaigns], [_named(c) for c in new_campaigns]
    if old_names != new_names:
        return f"it was made for {_listed(old_names)}, this run is for {_listed(new_names)}"
    for old, new in zip(old_campaigns, new_campaigns, strict=True):
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                return f"it was made with {key}={_text(old.get(key))}, this run has {key}={_text(new.get(key))}"
    return None


def _named(settings: Mapping[str, Any]) -> str:
    return f"{settings['instruction']} {'/'.join(settings['dtypes'])}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _cause(error: sqlite3.Error) -> str:
    """What an error of SQLite means for a journal."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "in use by another process"
    if name.startswith("SQLITE_NOTADB"):
        return "not a journal of pto-gpu"
    if name.startswith("SQLITE_CORRUPT") or name in ("", "SQLITE_ERROR"):
        return f"a damaged journal: {error}"
    return f"cannot be written: {error}"
