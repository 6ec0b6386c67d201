"""Every page: its commands are ones that there are, its links lead somewhere, and README leads to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from documentation import PAGES, README, ROOT, blocks, commands

from pto_gpu import cli

COMMANDS = typer.main.get_command(cli.app)
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _parse(words: list[str]) -> None:
    """Raises for a command or an option that there is not; nothing is run."""
    context = COMMANDS.make_context("pto-gpu", list(words))
    name, command, rest = COMMANDS.resolve_command(context, list(words))
    command.make_context(name, rest, parent=context)


def _lines(page: Path) -> Iterator[list[str]]:
    """The commands of the blocks, and those within a sentence that have arguments."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(text, "console"):
        for command in commands(block):
            yield command.words
    for line in re.findall(r"`(?:\w+=\S+ )?(pto-gpu \w+ [^`]+)`", text):
        yield line.split()


@EVERY_PAGE
def test_every_command_is_one_that_there_is(page: Path) -> None:
    for program, *words in _lines(page):
        if program == "pto-gpu":
            _parse(words)
        elif program == "torchrun":
            _parse(words[words.index("pto_gpu") + 1 :])
        elif program.startswith("./"):
            assert (ROOT / program).is_file(), program
        else:
            assert program in ("python", "pytest"), program


def test_a_command_that_there_is_not_is_found() -> None:
    for words in (["valdate"], ["validate", "--tile", "9"], ["check", "x.npz", "--ulp", "many"]):
        with pytest.raises(cli._UsageError):
            _parse(words)


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EVERY_PAGE
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.is_file(), link
        assert not anchor or anchor in _anchors(there), link


def test_readme_leads_to_every_page_and_names_every_command() -> None:
    text = README.read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"]({page.relative_to(ROOT)})" in text
    for name in COMMANDS.commands:
        assert f"\n| `pto-gpu {name}" in text
