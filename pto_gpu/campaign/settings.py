"""What to run: one campaign's choices, checked as soon as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pto_gpu.backends import gpu
from pto_gpu.campaign.tiles.space import Space, space_of
from pto_gpu.campaign.tiles.storage import slots
from pto_gpu.defaults import BACKENDS, Options, current_options
from pto_gpu.errors import ConstraintError, TypeMismatch
from pto_gpu.isa import instruction as instruction_called
from pto_gpu.isa.record import Instruction
from pto_gpu.numerics import Numerics
from pto_gpu.types import ELEMENT_TYPES, count, resolve_element_type, smallest_row_multiple

#: Tiles of a campaign that nobody chose a number for.
DEFAULT_TILES: Final = 300_000
DEFAULT_SEED: Final = 20_250_101
DEFAULT_ROWS: Final = 16


def resolve_backend(name: str) -> str:
    """The backend that ``name`` means in a campaign: auto is triton where this process has a GPU for it, else cpu."""
    if name != "auto":
        return name
    return "cpu" if gpu() is None else "triton"


@dataclass(frozen=True)
class Campaign:
    """One instruction with one choice of element types, over ``tiles`` random tiles.

    ``instruction``: a name. ``dtypes``: the element type of the values, and of the indices if it has any.
    ``shape``: logical rows and columns; default 16x16, or more columns where a row would not fill 32 bytes.
    ``seed``: 0 to 2**64 - 1. ``backend``: the side under test; ``auto`` becomes what :func:`resolve_backend` says.
    ``against``: the backend whose results are expected; the default ``numpy`` is the reference.
    ``workers``: threads; default every core this process may use.
    ``exhaustive``: every combination of operand values once, instead of random tiles; shape and number of tiles follow
    from the instruction (:mod:`pto_gpu.campaign.tiles.space`), and there is no seed.

    Raises ConstraintError, TypeMismatch or LayoutError for a choice that cannot be run.
    """

    instruction: str
    dtypes: tuple[str, ...]
    shape: tuple[int, int] | None = None
    tiles: int = DEFAULT_TILES
    seed: int = DEFAULT_SEED
    target: str = "a5"
    numerics: str | Numerics = "isa"
    undefined: str = "error"
    backend: str = "auto"
    workers: int | None = None
    exhaustive: bool = False
    against: str = "numpy"

    def __post_init__(self) -> None:
        record = self.record
        object.__setattr__(self, "backend", resolve_backend(self.backend))
        if self.against not in BACKENDS:
            raise ConstraintError(f"against={self.against!r} is not known: allowed {', '.join(BACKENDS)}")
        object.__setattr__(self, "against", resolve_backend(self.against))
        if self.options.backend == self.against:
            what = " is the reference, which" if self.against == "numpy" else ""
            others = ", ".join(b for b in BACKENDS if resolve_backend(b) != self.against)
            raise ConstraintError(f"backend={self.against!r}{what} would be compared with itself: allowed {others}")
        dtypes = tuple(resolve_element_type(t).name for t in self.dtypes)
        object.__setattr__(self, "dtypes", dtypes)
        allowed = record.element_types[self.options.target.name]
        if dtypes not in allowed:
            raise TypeMismatch(
                f"{record.name}: element type {'/'.join(dtypes)} is not supported on {self.target}: "
                f"allowed {', '.join('/'.join(s) for s in allowed)}"
            )
        if self.exhaustive:
            self._take_space()
        if self.shape is None:
            cols = smallest_row_multiple(ELEMENT_TYPES[dtypes[0]], DEFAULT_ROWS)
            object.__setattr__(self, "shape", (DEFAULT_ROWS, cols))
        slots(record, dtypes, self.grid, "packed")  # refuses a shape that no tile can have
        if count(self.tiles, "tiles") < 1:
            raise ConstraintError(f"tiles={self.tiles} must be at least 1: no tile compared is no success")
        if count(self.seed, "seed", bits=64 if type(self.seed) is int else 63) < 0:
            raise ConstraintError(f"seed={self.seed} is out of range: allowed 0 to 2**64 - 1")
        if self.workers is not None and count(self.workers, "workers") < 1:
            raise ConstraintError(f"workers={self.workers} must be at least 1")

    def _take_space(self) -> None:
        space = space_of(self.record, self.dtypes)
        for field, only, default in (
            ("shape", space.shape, None),
            ("tiles", space.tiles, DEFAULT_TILES),
            ("seed", DEFAULT_SEED, DEFAULT_SEED),
        ):
            seen = getattr(self, field)
            if seen not in (only, default):
                raise ConstraintError(f"{field}={seen} is not for an exhaustive campaign, which has one of its own")
            object.__setattr__(self, field, only)

    @property
    def record(self) -> Instruction:
        """The record of the instruction."""
        return instruction_called(self.instruction)

    @property
    def grid(self) -> tuple[int, int]:
        """The logical shape, never None once constructed."""
        return self.shape or (0, 0)

    @property
    def space(self) -> Space | None:
        """What an exhaustive campaign covers."""
        return space_of(self.record, self.dtypes) if self.exhaustive else None

    def counted(self, tiles: int) -> tuple[int, str]:
        """What ``tiles`` tiles count as: themselves, or the combinations that they hold; and the unit."""
        space = self.space
        return (tiles, "tile") if space is None else (tiles * space.places, space.unit)

    @property
    def options(self) -> Options:
        """The options that the backend under test is called with."""
        return current_options().override(self.target, self.backend, self.numerics, self.undefined, 1)

    @property
    def expected_options(self) -> Options:
        """The options that what is expected is computed with."""
        return self.options.override(backend=self.against)

    @property
    def label(self) -> str:
        """``TPARTMIN f32 16x16``."""
        if self.exhaustive:
            return f"{self.record.name} {'/'.join(self.dtypes)} exhaustive"
        return f"{self.record.name} {'/'.join(self.dtypes)} {self.grid[0]}x{self.grid[1]}"

    @property
    def origin(self) -> str:
        """What the tiles come from, in the names of saved failures."""
        return "exhaustive" if self.exhaustive else f"seed{self.seed}"
