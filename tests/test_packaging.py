"""What pyproject.toml puts into a wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


def _folder(package: str) -> Path:
    return ROOT / SETUPTOOLS["package-dir"].get(package, package.replace(".", "/"))


def test_every_package_is_named() -> None:
    """Setuptools finds none by itself where a package lies under another name."""
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "pto_gpu").rglob("__init__.py")}
    assert sorted(found | {"pto_gpu.kernels"}) == sorted(SETUPTOOLS["packages"])
    for package in SETUPTOOLS["packages"]:
        assert (_folder(package) / "__init__.py").is_file(), package


def test_every_file_beside_the_modules_is_named() -> None:
    for package in SETUPTOOLS["packages"]:
        files = [p for p in _folder(package).iterdir() if p.is_file() and p.suffix not in (".py", ".pyc")]
        assert sorted(p.name for p in files) == sorted(SETUPTOOLS["package-data"].get(package, [])), package


def test_what_ci_uses_is_within_the_bounds() -> None:
    """And nothing that it installs is left to the day it is installed on."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = PYPROJECT["project"]
    needed = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    assert sorted(pins) == sorted({r.name for r in needed})
    assert [str(r) for r in needed if not r.specifier.contains(pins[r.name])] == []
