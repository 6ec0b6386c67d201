"""A TOML file that says what a directory of foreign dumps is: which files are the operands of which call.

``[defaults]`` holds what the cases share, each ``[[case]]`` the rest; in a case the keys of the defaults may stand
again. ``operands``, ``shape`` and ``valid`` are merged operand by operand. Files are relative to the manifest, or to
``dir``, which is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pto_gpu.array_files import opened
from pto_gpu.campaign.files.raw import Pair, RawOperands, element_types, rows_by_cols
from pto_gpu.campaign.files.saved import OUTSIDE
from pto_gpu.campaign.ulp import Tolerance
from pto_gpu.defaults import Options
from pto_gpu.errors import FileError, PtoError, first_line, nearest
from pto_gpu.isa import instruction, instructions

#: Every key of ``[defaults]``, and the types that its value may have.
KEYS: Final[Mapping[str, tuple[type, ...]]] = {
    "instruction": (str,),
    "dtype": (str,),
    "shape": (str, dict),
    "valid": (str, dict),
    "layout": (str,),
    "dir": (str,),
    "operands": (dict,),
    "tiles": (int,),
    "target": (str,),
    "numerics": (str,),
    "undefined": (str,),
    "outside": (str,),
    "ulp": (int,),
    "nan": (str,),
}
#: Keys of a ``[[case]]`` only.
CASE_KEYS: Final[Mapping[str, tuple[type, ...]]] = {"name": (str,)}
_NAMES: Final = {str: "a string", int: "an integer", dict: "a table"}
_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class Case:
    """One entry: a call in files, and under which rules its result is to be compared.

    ``outside`` is None where the manifest does not say it.
    """

    name: str
    raw: RawOperands
    options: Options
    outside: str | None
    tolerance: Tolerance


def read_manifest(path: Path, options: Options, given: Mapping[str, Any]) -> list[Case]:
    """The cases of a manifest. ``given``: what the command line says, which wins over the manifest.

    ``options``: what holds where neither says anything. Raises FileError for a manifest that cannot be used.
    """
    data = _table(path)
    _check_keys(path, "the manifest", data, {"defaults": (dict,), "case": (list,)})
    defaults = data.get("defaults", {})
    _check_keys(path, "defaults", defaults, KEYS)
    entries = data.get("case", [])
    if not entries:
        raise FileError(f"{path}: no [[case]]: nothing to compare")
    cases: dict[str, Case] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise FileError(f"{path}: case must be tables, [[case]]: seen {entry!r}")
        name = entry.get("name", f"case{number}")
        where = f"case {name!r}"
        _check_keys(path, where, entry, {**KEYS, **CASE_KEYS})
        if not _NAME.fullmatch(name):
            raise FileError(f"{path}: {where}: a name has letters, digits and _ . + - only")
        if name in cases:
            raise FileError(f"{path}: two cases are called {name!r}")
        try:
            cases[name] = _case(path, name, _merged(defaults, entry), options, given)
        except PtoError as error:
            raise FileError(f"{path}: {where}: {error}") from None
    return list(cases.values())


def _table(path: Path) -> dict[str, Any]:
    try:
        with opened(path, pipes=True) as file:
            return tomllib.load(file)
    except FileError:
        raise
    except (RecursionError, ValueError) as error:  # of TOML, or of UTF-8
        raise FileError(f"{path}: no TOML: {first_line(error)}") from None


def _check_keys(path: Path, where: str, table: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> None:
    for key, value in table.items():
        if key not in known:
            hint = nearest(key, known, cutoff=0.5)
            raise FileError(f"{path}: {where}: unknown key {key!r}: allowed {', '.join(known)}{hint}")
        if type(value) not in known[key] and list not in known[key]:  # a bool is no integer
            allowed = " or ".join(_NAMES[t] for t in known[key])
            raise FileError(f"{path}: {where}: {key} must be {allowed}: seen {value!r}")
        if list in known[key] and not isinstance(value, list):
            raise FileError(f"{path}: {where}: {key} must be tables, [[{key}]]: seen {value!r}")
        for name, inner in value.items() if isinstance(value, dict) and key in KEYS else ():
            if not isinstance(inner, str):
                raise FileError(f"{path}: {where}: {key}.{name} must be a string: seen {inner!r}")


def _merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a case over those of the defaults, tables entry by entry."""
    merged = {**defaults, **entry}
    for key in ("operands", "shape", "valid"):
        tables = [_by_operand(table[key]) for table in (defaults, entry) if key in table]
        merged[key] = {name: text for table in tables for name, text in table.items()}
    return merged


def _by_operand(value: Any) -> dict[str | None, str]:
    return {None: value} if isinstance(value, str) else {**value}


def _case(path: Path, name: str, entry: Mapping[str, Any], options: Options, given: Mapping[str, Any]) -> Case:
    if "instruction" not in entry:
        raise FileError(f"instruction is missing: allowed {', '.join(instructions())}")
    said = {**entry, **{key: value for key, value in given.items() if value is not None}}
    options = options.override(said.get("target"), None, said.get("numerics"), said.get("undefined"))
    record = instruction(entry["instruction"])
    if said.get("outside") not in (None, *OUTSIDE):
        raise FileError(f"outside {said['outside']!r} is not known: allowed {', '.join(OUTSIDE)}")
    directory = path.parent / entry.get("dir", "")
    raw = RawOperands(
        record,
        {operand: directory / file for operand, file in entry["operands"].items()},
        element_types(record, entry.get("dtype"), options.target.name),
        _pairs("shape", entry),
        _pairs("valid", entry),
        entry.get("layout", "capacity"),
        entry.get("tiles"),
    )
    tolerance = Tolerance(said.get("ulp", 0), said.get("nan", "bits"))
    return Case(name, raw, options, said.get("outside"), tolerance)


def _pairs(key: str, entry: Mapping[str, Any]) -> dict[str | None, Pair]:
    return {name: rows_by_cols(text, key if name is None else f"{key}.{name}") for name, text in entry[key].items()}
