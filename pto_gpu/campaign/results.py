"""What was found: by one wave of tiles, and by a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pto_gpu.campaign.compare import SHOWN, Mismatch
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.settings import Campaign


@dataclass(frozen=True)
class Crash:
    """The backend under test raised, instead of computing tiles ``first`` to ``last``."""

    first: int
    last: int
    error: str


@dataclass
class Wave:
    """What comparing ``tiles`` tiles from ``first`` onwards gave; a crash kept those after them from being compared."""

    first: int
    tiles: int
    mismatched_elements: int = 0
    mismatched_tiles: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    first_failure: SavedTile | None = None
    crash: Crash | None = None
    valid_kinds: Mapping[str, int] = field(default_factory=dict)
    operand_kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Result:
    """What a campaign found. ``tiles``: compared so far; all counts are about those.

    ``spans``: which ones, as (first, end) in order: one span, unless several processes were interrupted.
    ``valid_kinds``: tiles with each kind of valid region. ``operand_kinds``: tiles of value operands drawn with each
    profile of :mod:`pto_gpu.campaign.tiles.categories`; where rows have profiles of their own, rows
    (``ordinary rows``).
    """

    campaign: Campaign
    backend: str
    tiles: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    mismatched_elements: int = 0
    mismatched_tiles: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    categories: Counter[str] = field(default_factory=Counter)
    first_failure: SavedTile | None = None
    crash: Crash | None = None
    valid_kinds: Counter[str] = field(default_factory=Counter)
    operand_kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def equal(self) -> bool:
        """Whether every tile of the campaign was compared, and no bit differed."""
        return self.tiles == self.campaign.tiles and not self.mismatched_elements and self.crash is None

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The tiles that were not compared, as (first, end) in order."""
        edges = [0, *(edge for span in self.spans for edge in span), self.campaign.tiles]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]

    def add(self, wave: Wave) -> None:
        """Take in the next wave, in tile order; nothing counts that comes after a crash."""
        if self.crash is not None:
            return
        self.crash = wave.crash
        if wave.tiles:
            self._extend(wave.first, wave.first + wave.tiles)
        self.tiles += wave.tiles
        self.mismatched_elements += wave.mismatched_elements
        self.mismatched_tiles += wave.mismatched_tiles
        self.categories.update(wave.categories)
        self.mismatches += wave.mismatches[: SHOWN - len(self.mismatches)]
        self.first_failure = self.first_failure or wave.first_failure
        self.valid_kinds.update(wave.valid_kinds)
        self.operand_kinds.update(wave.operand_kinds)

    def as_wave(self, first: int) -> Wave:
        """All that was found, as one wave of the tiles from ``first`` onwards."""
        return Wave(
            first=first,
            tiles=self.tiles,
            mismatched_elements=self.mismatched_elements,
            mismatched_tiles=self.mismatched_tiles,
            mismatches=tuple(self.mismatches),
            categories=self.categories,
            first_failure=self.first_failure,
            crash=self.crash,
            valid_kinds=self.valid_kinds,
            operand_kinds=self.operand_kinds,
        )

    def _extend(self, first: int, end: int) -> None:
        if self.spans and self.spans[-1][1] == first:
            first, _ = self.spans.pop()
        self.spans.append((first, end))
