"""Writing the tiles of a campaign as dumps, to be run elsewhere and given back to ``pto-gpu check``.

``npz``: one file for each combination, ``tpartmin_f16.npz``, with the arrays that :mod:`pto_gpu.campaign.files.dumps`
reads but dst, and what the reference makes of them as ``golden_<dst>``. ``bin``: one directory for each, with a raw
file for each array, and a ``manifest.toml`` that expects the results as ``<dst>.bin`` beside them. bf16 is stored as
its bits. Files are made anew, never written over, and taken away again where one of them cannot be finished.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from pto_gpu import __version__, backends
from pto_gpu.campaign.files.raw import region_names
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.draw import Drawn, draw
from pto_gpu.campaign.tiles.storage import bits, block_tiles, logical_view
from pto_gpu.errors import FileError
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Call, Operand, Role
from pto_gpu.regions import Region
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import TileBufType

FORMATS: Final = ("npz", "bin")
#: Tiles of a dump that nobody chose a number for.
DEFAULT_TILES: Final = 1000
MANIFEST: Final = "manifest.toml"


def dump_path(campaign: Campaign, directory: Path, form: str) -> Path:
    """``tpartargmin_f16_u16.npz``, or a directory of that name for raw files."""
    name = _name(campaign)
    return directory / (f"{name}.npz" if form == "npz" else name)


def _name(campaign: Campaign) -> str:
    return "_".join([campaign.record.name.lower(), *campaign.dtypes])


def export(campaigns: Sequence[Campaign], directory: Path, form: str) -> list[Path]:
    """Write a dump of each campaign into ``directory``, which is made; returns what ``pto-gpu check`` is to be given.

    Raises FileError where a file exists already or cannot be written; nothing of this call is left then.
    """
    written = [dump_path(c, directory, form) for c in campaigns]
    paths = [directory / MANIFEST] if form == "bin" else written
    for path in (*written, *paths):
        if _exists(path):
            raise FileError(f"{path}: exists already: name another directory")
    with _undone_on_failure() as made:
        _make_directory(directory, made)
        for campaign, path in zip(campaigns, written, strict=True):
            if form == "npz":
                with _new(path, made) as file:
                    _write_npz(campaign, file)
            else:
                _write_raw(campaign, path, made)
        if form == "bin":
            with _new(directory / MANIFEST, made) as file:
                file.write(_manifest(campaigns).encode())
    return paths


# -- files ------------------------------------------------------------------------------------------------


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name too long
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """Files and directories that were made are removed if the block fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException as error:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            where = error.filename or (made[-1] if made else "")
            raise FileError(f"{where}: cannot be written: {error.strerror or error}") from None
        raise


def _make_directory(directory: Path, made: list[Path]) -> None:
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir()
        made.append(path)


@contextmanager
def _new(path: Path, made: list[Path]) -> Iterator[BinaryIO]:
    with path.open("xb") as file:
        made.append(path)
        yield file


# -- arrays -----------------------------------------------------------------------------------------------


class _Array:
    """One array of a dump: its name, type and shape, and its part that some drawn tiles make."""

    def __init__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], part: Callable[[Drawn], NumPyArray]):
        self.name, self.dtype, self.shape, self.part = name, dtype, shape, part

    def parts(self, campaign: Campaign) -> Iterator[bytes]:
        """The bytes, a block of tiles after the other: memory does not grow with the number of tiles."""
        step = block_tiles(campaign.grid)
        for first in range(0, campaign.tiles, step):
            drawn = draw(campaign, first, min(step, campaign.tiles - first))
            yield np.ascontiguousarray(self.part(drawn), self.dtype.newbyteorder("<")).tobytes()


def _arrays(campaign: Campaign) -> list[_Array]:
    record, n = campaign.record, campaign.tiles
    types = _types(campaign)
    arrays = []
    for operand in (*record.sources, *record.dsts):
        ty, source = types[operand.name], operand.role is Role.SRC
        name = operand.name if source else f"golden_{operand.name}"
        stored = ty.element.bits_dtype if ty.dtype == "bf16" else ty.element.numpy
        part = _source_part(operand) if source else _golden_part(campaign, operand)
        arrays.append(_Array(name, np.dtype(stored), (n, ty.rows, ty.cols), part))
    for operand in (*record.sources, *record.dsts):
        region = region_names(operand)[-1]
        if region not in [a.name for a in arrays]:
            arrays.append(_Array(region, np.dtype(np.int32), (n, 2), _region_part(operand)))
    return arrays


def _types(campaign: Campaign) -> dict[str, TileBufType]:
    """The logical type of each operand."""
    return {slot.operand.name: slot.logical for slot in draw(campaign, 0, 1).slots}


def _source_part(operand: Operand) -> Callable[[Drawn], NumPyArray]:
    def part(drawn: Drawn) -> NumPyArray:
        slot = next(s for s in drawn.slots if s.operand is operand)
        return _stored(logical_view(drawn.sources[operand.name], slot.logical, drawn.regions[operand.name]))

    return part


def _golden_part(campaign: Campaign, operand: Operand) -> Callable[[Drawn], NumPyArray]:
    options, record = campaign.options, campaign.record

    def part(drawn: Drawn) -> NumPyArray:
        dsts = {}
        for slot in drawn.slots:
            if slot.operand.role is Role.DST:
                rows, cols = drawn.regions[slot.operand.name]
                dsts[slot.operand.name] = TileBuf.zeros(slot.storage, drawn.batch, "cpu", rows, cols)
        tiles = drawn.logical({**dsts, **drawn.sources})
        call = Call(record, tiles, options.numerics, options.undefined, options.target.name, 1)
        backends.load("numpy").run(call)
        return _stored(tiles[operand.name])

    return part


def _region_part(operand: Operand) -> Callable[[Drawn], NumPyArray]:
    def part(drawn: Drawn) -> NumPyArray:
        region: Region = drawn.regions[operand.name]
        return np.stack([np.broadcast_to(np.asarray(count), (drawn.batch,)) for count in region], axis=1)

    return part


def _stored(tiles: TileBuf) -> NumPyArray:
    data: NumPyArray = tiles.data
    return bits(data) if tiles.type.dtype == "bf16" else data


def _write_npz(campaign: Campaign, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for array in _arrays(campaign):
            # Without a date of its own the member has 1980: the same campaign gives the same bytes.
            with archive.open(zipfile.ZipInfo(f"{array.name}.npy"), "w", force_zip64=True) as member:
                header = {"descr": array.dtype.newbyteorder("<").str, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(member, header)
                for part in array.parts(campaign):
                    member.write(part)


def _write_raw(campaign: Campaign, directory: Path, made: list[Path]) -> None:
    directory.mkdir()
    made.append(directory)
    for array in _arrays(campaign):
        with _new(directory / f"{array.name}.bin", made) as file:
            for part in array.parts(campaign):
                file.write(part)


def _manifest(campaigns: Sequence[Campaign]) -> str:
    first = campaigns[0]
    lines = [
        f"# Written by pto-gpu {__version__}, seed {first.seed}. Each golden file is what the reference computes.",
        "# The implementation under test writes the files of the dst operands; then: pto-gpu check manifest.toml",
        "[defaults]",
        'layout = "capacity"',
        'outside = "zero"',
        f"target = {_text(first.options.target.name)}",
        f"numerics = {_text(first.options.numerics.label)}",
        f"undefined = {_text(first.undefined)}",
    ]
    for campaign in campaigns:
        record, name = campaign.record, _name(campaign)
        shapes = {name: f"{ty.rows}x{ty.cols}" for name, ty in _types(campaign).items()}
        operands = (*record.dsts, *record.sources)
        files = [*(o.name for o in operands), *dict.fromkeys(region_names(o)[-1] for o in operands)]
        lines += [
            "",
            "[[case]]",
            f"name = {_text(name)}",
            f"dir = {_text(name)}",
            f"instruction = {_text(record.name)}",
            f"dtype = {_text('/'.join(campaign.dtypes))}",
            f"tiles = {campaign.tiles}",
            f"shape = {_table(shapes)}",
            f"operands = {_table({file: f'{file}.bin' for file in files})}",
        ]
    return "\n".join(lines) + "\n"


def _table(entries: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{name} = {_text(value)}" for name, value in entries.items()) + " }"


def _text(value: str) -> str:
    """A TOML string: of plain characters it is one of JSON."""
    return json.dumps(value)
