"""Imports go along the arrows of CONTRIBUTING.md, and no two modules import each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from documentation import ROOT, blocks

#: The public names; they are imported when they are asked for.
PUBLIC: Final = ""
FOLDERS: Final = {"": ROOT / "pto_gpu", "kernels": ROOT / "kernels"}


@cache
def modules() -> dict[str, Path]:
    """Every module by its name in the package: ``isa.record``."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(p for p in parts if p not in ("", "__init__"))] = path
    return found


def imports(module: str, *, later: bool) -> Iterator[str]:
    """The modules that ``module`` imports; ``later``: in functions, and for type checkers, as well."""
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree) if later else tree.body:
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(str(node.module), f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        for package, name in names:
            home, _, rest = name.partition(".")
            if home == "pto_gpu":
                yield rest if rest in modules() else package.partition(".")[2]


@cache
def arrows() -> dict[str, set[str]]:
    """For each name on the right of an arrow those that stand left of it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = (b for b in blocks(text, "text") if "<-" in b.text)
    found: dict[str, set[str]] = {}
    for line in block.text.splitlines():
        groups = [set(group.strip().split(", ")) for group in line.split("<-")]
        for left, right in pairwise(groups):
            for name in left | right:
                found.setdefault(name, set())
            for name in right:
                found[name] |= left
    return found


def reached(name: str) -> set[str]:
    """What ``name`` may import: itself, and all that stands left of it."""
    return {name}.union(*(reached(left) for left in arrows()[name]))


def home_of(module: str) -> str:
    """The longest name among the arrows that ``module`` is, or lies in."""
    parts = module.split(".")
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    found = next((name for name in names if name in arrows()), None)
    assert found, f"{module} is missing among the arrows of CONTRIBUTING.md"
    return found


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_arrows_are_of_names_that_there_are_and_have_no_cycle() -> None:
    assert set(arrows()) <= set(modules())
    assert cycle(arrows()) == []
    assert "errors" in reached("cli")
    assert "campaign" not in reached("asm")


@pytest.mark.parametrize("module", sorted(set(modules()) - {PUBLIC}))
def test_every_import_is_along_the_arrows(module: str) -> None:
    allowed = reached(home_of(module))
    against = {name for name in imports(module, later=True) if name != PUBLIC and home_of(name) not in allowed}
    assert not against, f"{module} may not import {', '.join(sorted(against))}"


def test_no_two_modules_import_each_other() -> None:
    graph = {module: set(imports(module, later=False)) for module in modules()}
    assert sum(map(len, graph.values())) > len(graph)
    assert cycle(graph) == []
    assert cycle({**graph, "errors": {"cli"}})


def sections() -> dict[str, str]:
    """What CONTRIBUTING.md says about each large package: from the paragraph that starts with its name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"\n\n`(\w+)/` |\n## ", text)
    return {name: part for name, part in zip(parts[::2], parts[1::2], strict=True) if name}


def is_named(module: str, text: str) -> bool:
    return bool(re.search(rf"`([\w./]*/)?{module.rpartition('.')[2]}(\.py|/)?`", text))


def test_every_module_of_the_large_packages_is_described() -> None:
    found = sections()
    assert set(found) == {"asm", "bench", "campaign"}
    large = [m for m in modules() if m.partition(".")[0] in found and not m.endswith("_faults")]
    assert len(large) > 50
    assert [m for m in large if m not in found and not is_named(m, found[m.partition(".")[0]])] == []
