"""The pages of the documentation, and how the blocks of code on them are run."""

from __future__ import annotations

import glob
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from command_line import Inside

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
PAGES: Final = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
#: Tiles of a campaign, where what is shown does not depend on them, and of one of which nothing is shown.
MANY, FEW = 3000, 300


class Block(NamedTuple):
    """Code on a page; ``kind``: what the fence calls it."""

    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is the content of, if its first line is a comment that names one."""
        named = re.match(r"(?:#|//) (\S+\.(?:py|toml|pto))\n", self.text)
        return named[1] if named else None


class Command(NamedTuple):
    """A line after ``$``, and the lines of its output that are shown."""

    words: list[str]
    shown: list[str]


_FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(text: str, kind: str | None = None) -> list[Block]:
    """The blocks of code, or those of one kind."""
    return [b for b in (Block(*parts) for parts in _FENCED.findall(text)) if kind in (None, b.kind)]


def section(page: Path, title: str) -> str:
    """What stands under a heading such as ``## Speed``, with what is under it."""
    text = page.read_text(encoding="utf-8")
    prose = _FENCED.sub(lambda found: " " * len(found[0]), text)  # a comment in code is no heading
    start = prose.index(f"\n{title}\n") + len(title) + 2
    after = re.compile(rf"^#{{1,{len(title.split()[0])}}} ", re.MULTILINE).search(prose, start)
    return text[start : after.start() if after else None]


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        yield Command(shlex.split(line, comments=True), shown)


def python_output(text: str, timeout: float = 300) -> str:
    """What the Python blocks print, run as one program in a process of its own."""
    code = "\n".join(b.text for b in blocks(text, "python"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_blocks(found: list[Block], inside: Inside) -> None:
    """Write the files that blocks name, run the commands, and compare what is shown, all in the order of the page."""
    assert found
    for block in found:
        if block.file:
            Path(block.file).write_text(block.text)
            continue
        assert block.kind == "console", f"nobody runs this: {block.text}"
        for command in commands(block):
            _run(command, inside)


def _run(command: Command, inside: Inside) -> None:
    program, *arguments = command.words
    if program == "pto-gpu":
        status, out, err = inside(*_expanded(_fewer(arguments, shown=bool(command.shown))))
        assert err == "", command
        assert status == ("MISMATCH" in out), (command, out)
    elif program in ("python", "pytest"):
        start = [sys.executable] if program == "python" else [sys.executable, "-m", "pytest"]
        done = subprocess.run([*start, *arguments], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        out = done.stdout
    else:
        raise AssertionError(f"{command.words}: nobody runs this")
    place = 0
    for line in command.shown:
        found = _pattern(line).search(out, place)
        assert found, f"{shlex.join(command.words)} does not show {line!r}:\n{out}"
        place = found.end()


def _expanded(words: list[str]) -> list[str]:
    return [path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])]


def _fewer(words: list[str], *, shown: bool) -> list[str]:
    """The same command on fewer tiles, unless it says how many there are in what is shown."""
    if words[0] != "validate" or {"--exhaustive", "--dump"} & {*words}:
        return words
    if "--tiles" not in words:
        return [*words, "--tiles", str(MANY if shown else FEW)]
    place = words.index("--tiles") + 1
    return words if shown else [*words[:place], str(FEW), *words[place + 1 :]]


def _pattern(line: str) -> re.Pattern[str]:
    """A line as it is shown: ``...`` is anything, and times are those of another machine."""
    text = re.escape(line).replace(r"\.\.\.", ".*")
    text = re.sub(r"[\d.\\]+\\ s\b", r"[\\d.]+ s", text)
    text = re.sub(r"[\d\\ ]*\d\\ tiles/s", r"[\\d ]+ tiles/s", text)
    text = re.sub(r"\d+\\ tiles;\\ differs(.*)in\\ \d+\\ elements", r"\\d+ tiles; differs\1in \\d+ elements", text)
    return re.compile(f"^{text}$", re.MULTILINE)
