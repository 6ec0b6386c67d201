"""What pyproject.toml puts into a wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


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
