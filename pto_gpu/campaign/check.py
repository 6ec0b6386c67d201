"""Results that somebody else computed, compared with the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pto_gpu import intrinsics
from pto_gpu.campaign.compare import Comparison, compare
from pto_gpu.campaign.explain.evidence import Evidence
from pto_gpu.campaign.files.dumps import read_dump, tiles_of
from pto_gpu.campaign.files.raw import RawOperands, read_operands
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.ulp import EXACT, Tolerance
from pto_gpu.defaults import Options
from pto_gpu.errors import ConstraintError, FileError, PtoError
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.tilebuf import TileBuf
from pto_gpu.types import ElementType


@dataclass(frozen=True)
class Checked:
    """A dump compared with the reference. ``only_outside``: elements differ, all outside the valid region.

    ``numerics``: the rule set of the reference. ``tolerance``: what counted as equal.
    ``evidence``: all the tiles, where some differ.
    """

    path: Path
    instruction: Instruction
    dtypes: tuple[str, ...]
    batch: int
    comparison: Comparison
    first_failure: SavedTile | None
    only_outside: bool
    numerics: Numerics
    tolerance: Tolerance = EXACT
    evidence: Evidence | None = None

    @property
    def equal(self) -> bool:
        """Whether no bit differs, or no element by more than the tolerance."""
        return not self.comparison.elements


def check_dump(
    path: Path,
    instruction: Instruction,
    options: Options,
    outside: str = "zero",
    dtype: ElementType | None = None,
    tolerance: Tolerance = EXACT,
) -> Checked:
    """Compare the results in ``path`` with the reference under ``options``.

    ``outside``: ``"zero"`` if dst was zero before the run and all of it is to be compared, ``"ignore"`` to
    compare valid regions only. ``dtype``: the element type of values that a file holds as bare bits; default bf16
    for 16-bit arrays of a file with the word bf16 in its name.

    Raises FileError for a file that cannot be used, and what the instruction raises for operands that it refuses.
    """
    return _checked(path, path.stem, instruction, read_dump(path, instruction), options, outside, dtype, tolerance)


def check_raw(
    label: str,
    name: str,
    raw: RawOperands,
    options: Options,
    outside: str | None = None,
    tolerance: Tolerance = EXACT,
) -> Checked:
    """Compare the results in raw files as :func:`check_dump` does; ``label`` is what the report calls them.

    ``name``: what a saved failure is called after. ``outside``: None is ``"zero"`` where the files have what lies
    outside the valid regions, else ``"ignore"``.
    """
    if outside is None:
        outside = "zero" if raw.layout == "capacity" else "ignore"
    elif outside == "zero" and raw.layout == "valid":
        raise ConstraintError("outside 'zero' is not for the layout valid, whose files hold nothing outside")
    return _checked(Path(label), name, raw.instruction, read_operands(raw), options, outside, None, tolerance)


def _checked(
    path: Path,
    origin: str,
    instruction: Instruction,
    arrays: Mapping[str, NumPyArray],
    options: Options,
    outside: str,
    dtype: ElementType | None,
    tolerance: Tolerance,
) -> Checked:
    try:
        tiles = tiles_of(path, instruction, arrays, dtype)
        tolerance.check_for(tiles[instruction.dsts[0].name].type.element)
        expected = {o.name: _zeros_like(tiles[o.name]) for o in instruction.dsts}
        intrinsics.execute(instruction, {**tiles, **expected}, options.override(backend="numpy"))
    except FileError:
        raise
    except PtoError as error:
        raise type(error)(f"{path}: {error}") from None
    return _compared(path, origin, instruction, options, tiles, expected, outside, tolerance)


def _compared(
    path: Path,
    origin: str,
    instruction: Instruction,
    options: Options,
    tiles: Mapping[str, TileBuf],
    expected: Mapping[str, TileBuf],
    outside: str,
    tolerance: Tolerance,
) -> Checked:
    """The dst tiles of the dump against ``expected``, with what is to be said and kept where they differ."""
    seen = {o.name: tiles[o.name] for o in instruction.dsts}
    sources = {o.name: tiles[o.name] for o in instruction.sources}
    whole = outside == "zero"
    found = compare(instruction, sources, seen, expected, outside=whole, tolerance=tolerance)
    failure, only_outside, evidence = None, False, None
    if found.elements:
        inside = compare(instruction, sources, seen, expected, outside=False, tolerance=tolerance)
        only_outside = not inside.elements
        before = {**sources, **{name: _zeros_like(t) for name, t in seen.items()}}
        evidence = Evidence.of(instruction, options, before, seen, found.tiles, whole=whole, tolerance=tolerance)
        first = int(found.tiles[0])
        failure = SavedTile.of(
            instruction, options, tiles, expected, first, before=0, origin=origin, outside=outside, tolerance=tolerance
        )
    return Checked(
        path=path,
        instruction=instruction,
        dtypes=instruction.signature({name: t.type for name, t in tiles.items()}),
        batch=tiles[instruction.dsts[0].name].batch,
        comparison=found,
        first_failure=failure,
        only_outside=only_outside,
        numerics=options.numerics,
        tolerance=tolerance,
        evidence=evidence,
    )


def _zeros_like(tiles: TileBuf) -> TileBuf:
    return TileBuf.zeros(tiles.type, tiles.batch, "cpu", *tiles.region)
