"""A wave as text and bytes, without pickles: what a journal holds, and what ranks send each other."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pto_gpu.array_files import read_arrays
from pto_gpu.campaign.compare import Input, Mismatch
from pto_gpu.campaign.files.saved import SavedTile, from_arrays, write
from pto_gpu.campaign.results import Crash, Wave

#: Fields of a wave that are stored beside the text.
_APART = ("first", "tiles", "first_failure")


def encode(wave: Wave) -> tuple[str, bytes | None]:
    """All of ``wave`` but which tiles it is about: JSON, and the first failure as a saved failure is stored."""
    data = {f.name: getattr(wave, f.name) for f in fields(wave) if f.name not in _APART}
    data["mismatches"] = [asdict(m) for m in wave.mismatches]
    data["crash"] = wave.crash and asdict(wave.crash)
    text = json.dumps({name: value for name, value in data.items() if value}, separators=(",", ":"))
    return text, _tile_bytes(wave.first_failure)


def decode(where: Path, first: int, tiles: int, text: str, failure: bytes | None) -> Wave:
    """The wave that was encoded; ``where`` it comes from is what errors are about.

    Raises FileError, or any other error for text that :func:`encode` did not make.
    """
    data: dict[str, Any] = json.loads(text)
    data["mismatches"] = tuple(map(_mismatch, data.get("mismatches", ())))
    if "crash" in data:
        data["crash"] = Crash(**data["crash"])
    tile = None if failure is None else from_arrays(where, read_arrays(where, io.BytesIO(failure)))
    return Wave(first, tiles, first_failure=tile, **data)


def _tile_bytes(tile: SavedTile | None) -> bytes | None:
    if tile is None:
        return None
    file = io.BytesIO()
    write(tile, file)
    return file.getvalue()


def _mismatch(data: dict[str, Any]) -> Mismatch:
    inputs = tuple(Input(**{**i, "bits": tuple(i["bits"])}) for i in data["inputs"])
    regions = {name: tuple(region) for name, region in data["valid_regions"].items()}
    return Mismatch(**{**data, "inputs": inputs, "valid_regions": regions})
