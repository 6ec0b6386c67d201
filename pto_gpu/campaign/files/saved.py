"""One tile and its call, as arrays: what a failure is saved as, read from and rerun from.

The file is a NumPy ``.npz`` without pickles: ``metadata`` (JSON as UTF-8 bytes), for each operand its storage as raw
bits (``src0``: unsigned ``[rows, cols]``; for dst what it held before the run) and ``src0_valid`` int32[2], and for
each dst ``seen_dst`` and ``expected_dst``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import numpy as np

from pto_gpu import __version__, intrinsics
from pto_gpu.array_files import read_npz
from pto_gpu.campaign.tiles.storage import bits, repeated
from pto_gpu.campaign.ulp import EXACT, Tolerance
from pto_gpu.defaults import Options, current_options
from pto_gpu.errors import FileError, PtoError, first_line
from pto_gpu.interop import NumPyArray
from pto_gpu.isa import instruction as instruction_called
from pto_gpu.isa.record import Call, Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import TileBufType

FORMAT: Final = "pto-gpu failure 1"
#: The array that tells a saved failure from a dump.
METADATA: Final = "metadata"
#: Fields that are stored as they are.
_PLAIN: Final = (
    *("undefined", "target", "backend", "origin", "tile", "outside", "against", "implementation", "causes"),
    *("error", "together"),
)
#: What a dump says about elements of dst outside its valid region.
OUTSIDE: Final = ("zero", "ignore")


@dataclass(frozen=True)
class SavedTile:
    """A call on a batch of one. ``arrays``: storage bits before the run; ``seen``, ``expected``: of each dst after.

    ``origin``: ``seed7`` of a campaign, or the name of a dump without ``.npz``; ``tile``: its number in there.
    ``outside``: for a tile of a dump, one of :data:`OUTSIDE`; None for what was under test here.
    ``tolerance``: what counted as equal, where the tile was compared.
    ``against``: the backend whose result was expected. ``implementation``: who computed it, if it was no backend.
    ``causes``: what explained it and the tiles around it when it was found.
    ``error``: what was raised in place of a result; ``together``: on how many tiles, of which this is the first.
    """

    instruction: Instruction
    types: Mapping[str, TileBufType]
    valid: Mapping[str, tuple[int, int]]
    arrays: Mapping[str, NumPyArray]
    seen: Mapping[str, NumPyArray]
    expected: Mapping[str, NumPyArray]
    numerics: Numerics
    undefined: str
    target: str
    backend: str
    origin: str
    tile: int
    outside: str | None = None
    tolerance: Tolerance = EXACT
    against: str = "numpy"
    implementation: str | None = None
    causes: tuple[str, ...] = ()
    error: str | None = None
    together: int = 1

    @classmethod
    def of(
        cls,
        instruction: Instruction,
        options: Options,
        tiles: Mapping[str, TileBuf],
        expected: Mapping[str, TileBuf],
        place: int,
        *,
        before: int,
        origin: str,
        first_tile: int = 0,
        outside: str | None = None,
        tolerance: Tolerance = EXACT,
        against: str = "numpy",
        implementation: str | None = None,
    ) -> SavedTile:
        """The tile at ``place`` of a batch after the run; every byte of dst was ``before`` until then."""

        def one(of: Mapping[str, TileBuf]) -> dict[str, NumPyArray]:
            return {name: bits(t.data)[place].copy() for name, t in of.items()}

        seen = one({o.name: tiles[o.name] for o in instruction.dsts})
        old = {name: np.full_like(x, repeated(before, x.itemsize)) for name, x in seen.items()}
        ordered = {o.name: tiles[o.name] for o in instruction.operands if o.name in tiles}
        return cls(
            instruction=instruction,
            types={name: t.type for name, t in ordered.items()},
            valid={name: t.region.of_tile(place) for name, t in ordered.items()},
            arrays={**one(ordered), **old},
            seen=seen,
            expected=one(expected),
            numerics=options.numerics,
            undefined=options.undefined,
            target=options.target.name,
            backend=options.backend,
            origin=origin,
            tile=first_tile + place,
            outside=outside,
            tolerance=tolerance,
            against=against,
            implementation=implementation,
        )

    @property
    def options(self) -> Options:
        """The options of the call."""
        return current_options().override(self.target, self.backend, self.numerics, self.undefined, 1)

    @property
    def file_name(self) -> str:
        """The name that the tile is saved under, if there is no such file."""
        dtypes = "_".join(self.instruction.signature(self.types))
        return f"{self.instruction.name.lower()}_{dtypes}_{self.origin}_tile{self.tile}.npz"

    def tiles(self) -> dict[str, TileBuf]:
        """New tiles that hold what the operands held before the run."""
        result = {}
        for name, ty in self.types.items():
            tiles = TileBuf.empty(ty, 1)
            bits(tiles.data)[0] = self.arrays[name]
            result[name] = tiles.with_valid(*self.valid[name])
        return result

    def seen_tiles(self) -> dict[str, TileBuf]:
        """New tiles that hold what was seen after the run."""
        tiles = self.tiles()
        for name, seen in self.seen.items():
            bits(tiles[name].data)[0] = seen
        return tiles

    def call(self) -> Call:
        """The call on new tiles."""
        return Call(self.instruction, self.tiles(), self.numerics, self.undefined, self.target, 1)

    def run_expected(self) -> dict[str, TileBuf]:
        """The tiles after the backend that is right ran on them; raises for a call that the rules refuse."""
        tiles = self.tiles()
        intrinsics.execute(self.instruction, tiles, self.options.override(backend=self.against))
        return tiles


def save(tile: SavedTile, directory: Path) -> Path:
    """Write ``tile`` to a new file in ``directory``, which is made; raises FileError where that fails."""
    path = directory / tile.file_name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _new_file(path) as file:
            write(tile, file)
            return Path(file.name)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def write(tile: SavedTile, file: IO[bytes]) -> None:
    """Write ``tile`` to ``file``, an ``.npz``."""
    metadata = {
        "format": FORMAT,
        "version": __version__,
        "instruction": tile.instruction.name,
        "types": {
            name: {"dtype": t.dtype, "rows": t.rows, "cols": t.cols, "blayout": t.blayout}
            for name, t in tile.types.items()
        },
        "numerics": asdict(tile.numerics),
        **({} if tile.tolerance.exact else {"tolerance": asdict(tile.tolerance)}),
        **{key: getattr(tile, key) for key in _PLAIN},
    }
    arrays: dict[str, Any] = {METADATA: np.frombuffer(json.dumps(metadata).encode(), np.uint8)}
    for name, array in tile.arrays.items():
        arrays[name] = array
        arrays[f"{name}_valid"] = np.array(tile.valid[name], np.int32)
    for prefix, group in (("seen", tile.seen), ("expected", tile.expected)):
        arrays.update({f"{prefix}_{name}": array for name, array in group.items()})
    np.savez(file, **arrays)


def _new_file(path: Path) -> BinaryIO:
    """A file that did not exist: ``path``, or with -1, -2 ... after its stem."""
    stem, number = path.stem, itertools.count(1)
    while True:
        try:
            return path.open("xb")
        except FileExistsError:
            path = path.with_stem(f"{stem}-{next(number)}")


def load(path: Path) -> SavedTile:
    """Read what :func:`save` wrote; raises FileError for anything else."""
    return from_arrays(path, read_npz(path))


def from_arrays(path: Path, arrays: dict[str, NumPyArray]) -> SavedTile:
    """The tile that was written as ``arrays``; ``path`` is what errors are about."""
    try:
        metadata = json.loads(bytes(arrays.pop(METADATA)).decode())
        if metadata["format"] != FORMAT:
            raise FileError(f"{path}: format is {metadata['format']!r}: allowed {FORMAT!r}")
        return _from(metadata, arrays)
    except FileError:
        raise
    except PtoError as error:
        raise FileError(f"{path}: {error}") from None
    except KeyError as error:
        raise FileError(f"{path}: {error.args[0]} is missing: this is not a failure that pto-gpu saved") from None
    except Exception as error:  # metadata is anybody's JSON: what is wrong with it shows as almost any type
        raise FileError(f"{path}: not a failure that pto-gpu saved: {first_line(error)}") from None


def _from(metadata: dict[str, Any], arrays: dict[str, NumPyArray]) -> SavedTile:
    instruction = instruction_called(metadata["instruction"])
    names = [name for name in instruction.by_name if name in metadata["types"]]
    types = {name: TileBufType(**metadata["types"][name]) for name in names}
    missing = [o.name for o in (*instruction.dsts, *instruction.sources) if o.name not in types]
    if missing:
        raise KeyError(f"type of {missing[0]}")
    options = current_options().override(metadata["target"], metadata["backend"], None, metadata["undefined"])
    dsts = [o.name for o in instruction.dsts]

    def held(key: str, name: str) -> NumPyArray:
        array, ty = arrays[key], types[name]
        if array.shape != (ty.rows, ty.cols) or array.dtype != ty.element.bits_dtype:
            raise TypeError(f"{key} is {array.dtype}{list(array.shape)}: allowed raw bits of {ty}")
        return array

    return SavedTile(
        instruction=instruction,
        types=types,
        valid={name: _pair(arrays[f"{name}_valid"]) for name in names},
        arrays={name: held(name, name) for name in names},
        seen={name: held(f"seen_{name}", name) for name in dsts},
        expected={name: held(f"expected_{name}", name) for name in dsts},
        numerics=Numerics(**metadata["numerics"]),
        undefined=options.undefined,
        target=options.target.name,
        backend=options.backend,
        tolerance=Tolerance(**metadata.get("tolerance", {})),
        against=options.override(backend=metadata.get("against", "numpy")).backend,
        **_history(metadata),
    )


def _history(metadata: dict[str, Any]) -> dict[str, Any]:
    """Where a tile comes from and what is known about it."""
    origin, tile, outside = metadata["origin"], metadata["tile"], metadata.get("outside")
    if not isinstance(origin, str) or type(tile) is not int or not 0 <= tile < 1 << 63:
        raise TypeError("origin must be text and tile the number of one")
    if outside not in (None, *OUTSIDE):
        raise TypeError(f"outside is {outside!r}: allowed null, {', '.join(OUTSIDE)}")
    causes, together = metadata.get("causes", []), metadata.get("together", 1)
    texts = {key: metadata.get(key) for key in ("implementation", "error")}
    for key, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{key} must be text")
    if not isinstance(causes, list) or not all(isinstance(cause, str) for cause in causes):
        raise TypeError("causes must be a list of texts")
    if type(together) is not int or together < 1:
        raise TypeError("together must be an integer of at least 1")
    found = {"origin": origin, "tile": tile, "outside": outside, "together": together, **texts}
    return {**found, "causes": tuple(causes)}


def _pair(array: NumPyArray) -> tuple[int, int]:
    if array.shape != (2,) or array.dtype.kind not in "iu":
        raise TypeError(f"a valid region is {array.dtype}{list(array.shape)}: allowed two integers")
    return int(array[0]), int(array[1])
