"""What a run tells people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from pto_gpu.campaign.check import Checked
from pto_gpu.campaign.compare import Input, Mismatch, value_of
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.settings import Campaign
from pto_gpu.types import ELEMENT_TYPES

#: Mismatches that text lists; the data of ``--json`` has more.
LISTED = 4
#: Elements of a row that a mismatch shows.
_ROW_SHOWN = 4
_WIDTH = 100


def printer(*, to_stderr: bool, quiet: bool = False) -> Console:
    """A console without wrapping, so that lines can be copied and searched; ``quiet``: nothing is shown."""
    return Console(stderr=to_stderr, quiet=quiet, soft_wrap=True, highlight=False, markup=False)


def element_text(pattern: int, dtype: str) -> str:
    """``0x3f800000 (1.0)``: the bits and the value of an element."""
    digits = ELEMENT_TYPES[dtype].bits // 4
    return f"0x{pattern:0{digits}x} ({value_of(pattern, dtype)!r})"


def counted(number: int, what: str) -> str:
    """``1 tile``, ``2 tiles``, ``100 000 tiles``."""
    return f"{_readable(number)} {what}" if number == 1 else f"{_readable(number)} {what}s"


def _readable(number: int) -> str:
    """Grouped from five digits on."""
    return grouped(number) if number >= 10_000 else str(number)


def grouped(number: int) -> str:
    """``4 294 967 296``."""
    return f"{number:,}".replace(",", " ")


def differ_text(elements: int, tiles: int | None = None) -> str:
    """``3 elements of 1 tile differ``."""
    of = f" of {counted(tiles, 'tile')}" if tiles is not None else ""
    return f"{counted(elements, 'element')}{of} {'differs' if elements == 1 else 'differ'}"


def mismatch_lines(mismatches: Sequence[Mismatch], total: int, categories: Mapping[str, int]) -> list[str]:
    """How many of each category, then a line for each of a few mismatches."""
    if not total:
        return []
    sampled = sum(categories.values())
    of = "" if sampled == total else f" (of {sampled} elements looked at)"
    counts = sorted(categories.items(), key=lambda item: -item[1])
    lines = _wrapped(f"  by category{of}: ", [f"{kind} {n}" for kind, n in counts])
    tile, listed = None, _listed(mismatches)
    for m in listed:
        if m.tile != tile:
            regions = ", ".join(f"{name} {rows}x{cols}" for name, (rows, cols) in m.valid_regions.items())
            lines.append(f"  tile {m.tile}, valid regions: {regions}")
            tile = m.tile
        lines.append(_mismatch_line(m))
    if total > len(listed):
        lines.append(f"  ... and {_readable(total - len(listed))} more")
    return lines


def _listed(mismatches: Sequence[Mismatch]) -> list[Mismatch]:
    """Up to :data:`LISTED`, in their order: those that are the first of a category go before the others."""
    categories = [m.category for m in mismatches]
    chosen = sorted(range(len(mismatches)), key=lambda place: categories[place] in categories[:place])[:LISTED]
    return [mismatches[place] for place in sorted(chosen)]


def _wrapped(head: str, items: Iterable[str]) -> list[str]:
    """``head`` and the items, on lines of at most _WIDTH characters where no item is longer."""
    lines = [head]
    for place, item in enumerate(items):
        text = item if not place else f", {item}"
        if place and len(lines[-1]) + len(text) >= _WIDTH:
            lines[-1] += ","
            lines.append("    ")
            text = item
        lines[-1] += text
    return lines


def _mismatch_line(m: Mismatch) -> str:
    operands = ", ".join(_input_text(i) for i in m.inputs)
    return (
        f"    {m.operand}({m.row}, {m.col}) [{m.category}]: {operands}: "
        f"seen {element_text(m.seen, m.dtype)}, expected {element_text(m.expected, m.dtype)}"
    )


def _input_text(i: Input) -> str:
    shown = " ".join(element_text(b, i.dtype) for b in i.bits[:_ROW_SHOWN]) or "none"
    more = f" ... {len(i.bits)} elements" if len(i.bits) > _ROW_SHOWN else ""
    return f"{i.name}={shown}{more}{'' if i.valid else ' outside its valid region'}"


def replay_command(tile: SavedTile, path: Path) -> str:
    """The command that runs a saved failure again, on what it failed on."""
    return f"pto-gpu replay {path}" + (f" --against {tile.implementation}" if tile.implementation is not None else "")


def again_text(tile: SavedTile) -> str:
    """What :func:`replay_command` is for."""
    if tile.together == 1:
        return "run it again"
    return f"run the first of {counted(tile.together, 'tile')} that raised together, none known to raise alone"


def raised_text(tile: SavedTile) -> str:
    """``it raised ValueError: no luck``, where it was saved for that."""
    others = f", with the {counted(tile.together - 1, 'tile')} after it" if tile.together > 1 else ""
    return f"it raised{others}: {tile.error}"


def result_line(result: Result) -> str:
    """One line for a campaign."""
    number, unit = result.campaign.counted(result.tiles)
    rate = f"{counted(number, unit)}, {result.seconds:.1f} s, {rate_text(number, result.seconds, unit)}"
    if result.crash:
        crash = result.crash
        return f"{result.campaign.label}: FAILED on tiles {crash.first} to {crash.last}: {crash.error}"
    if result.mismatched_elements:
        counts = differ_text(result.mismatched_elements, result.mismatched_tiles)
        return f"{result.campaign.label}: MISMATCH, {counts}, {rate}"
    return f"{result.campaign.label}: {'interrupted, ' if result.interrupted else ''}equal, {rate}"


def result_lines(result: Result) -> list[str]:
    """A campaign and what differs in it."""
    return [
        result_line(result),
        *mismatch_lines(result.mismatches, result.mismatched_elements, result.categories),
    ]


def checked_lines(checked: Checked) -> list[str]:
    """A dump and what differs in it."""
    found = checked.comparison
    what = f"{checked.instruction.name} {'/'.join(checked.dtypes)}"
    verdict = "equal" if checked.equal else "MISMATCH"
    if not checked.tolerance.exact:
        verdict += f" ({_tolerated_text(checked)})"
    counts = f", {differ_text(found.elements, len(found.tiles))}" if found.elements else ""
    lines = [f"{checked.path}: {what}: {verdict}, {counted(checked.batch, 'tile')}{counts}"]
    if checked.only_outside:
        lines.append("  every one is outside the valid region: `--outside ignore` leaves them out")
    return lines + mismatch_lines(found.mismatches, found.elements, found.categories)


def _tolerated_text(checked: Checked) -> str:
    """What the tolerance accepted, and how far the numbers are off, those that it did not accept too."""
    found = checked.comparison
    accepted = f"{counted(found.tolerated, 'element')} not bit for bit"
    if not found.farthest:
        return f"{checked.tolerance.text}: {accepted}"
    if checked.equal:
        return f"{checked.tolerance.text}: {accepted}, at most {found.farthest} ULP off"
    return f"{checked.tolerance.text}: {accepted}; the farthest of all is {found.farthest} ULP off"


def rate_text(number: int, seconds: float, unit: str = "tile") -> str:
    """``123 456 tiles/s``."""
    return f"{grouped(round(number / seconds) if seconds else 0)} {unit}s/s"


def rate_of(campaign: Campaign) -> Callable[[int, float], str]:
    """What says how fast ``campaign`` goes, from the tiles that were done and the seconds that they took."""

    def text(tiles: int, seconds: float) -> str:
        number, unit = campaign.counted(tiles)
        return rate_text(number, seconds, unit)

    return text


def coverage_lines(results: Sequence[Result], seconds: float, not_started: Sequence[Campaign] = ()) -> list[str]:
    """What a whole run covered, all of it counted while it ran, and what it did not get to."""
    covered = [r for r in results if r.tiles]
    lines = _covered_lines(covered, seconds) if covered else []
    for r in results:
        why = "interrupted" if r.interrupted else "the backend failed"
        lines += _part_lines(r) if r.gaps else []
        lines += [f"not covered: {r.campaign.label}, tiles {first} to {end - 1} ({why})" for first, end in r.gaps]
    return lines + [f"not covered: {campaign.label} (not started)" for campaign in not_started]


def _covered_lines(results: Sequence[Result], seconds: float) -> list[str]:
    first, tiles = results[0], sum(r.tiles for r in results)
    rules = first.campaign.options.numerics
    names = dict.fromkeys(r.campaign.record.name for r in results)
    against = first.campaign.against
    return [
        f"covered {', '.join(names)}: {counted(len(results), 'combination')} of element types, "
        f"{counted(tiles, 'tile')} in {seconds:.1f} s",
        f"  {_rate(tiles, seconds, first.campaign)}every byte of dst compared",
        *_wrapped(
            "  ",
            [
                f"target {first.campaign.target}",
                f"numerics {rules.label} (nan={rules.nan}, tie={rules.tie}, zero={rules.zero})",
                f"backend {first.backend}" + (f" against {against}" if against != "numpy" else ""),
                *([] if first.campaign.exhaustive else [f"seed {first.campaign.seed}"]),
            ],
        ),
        *(_exhausted_lines(results) if first.campaign.exhaustive else _drawn_lines(results)),
    ]


def _rate(tiles: int, seconds: float, campaign: Campaign) -> str:
    """Tiles of an exhaustive campaign are of any size: its own line has pairs or rows."""
    return "" if campaign.exhaustive else f"{rate_text(tiles, seconds)}, "


def _drawn_lines(results: Sequence[Result]) -> list[str]:
    kinds = _counts(r.operand_kinds for r in results)
    return [
        *_wrapped("  value operands (tiles, or rows, drawn by each profile): ", kinds),
        *_wrapped("  valid regions (tiles): ", _counts(r.valid_kinds for r in results)),
    ]


def _exhausted_lines(results: Sequence[Result]) -> list[str]:
    """Says "every" of campaigns only that compared everything."""
    done = [r.campaign for r in results if r.tiles == r.campaign.tiles]
    return [f"  {c.label}: {c.space.everything}, {grouped(c.space.total)} {c.space.unit}s" for c in done if c.space]


def _part_lines(result: Result) -> list[str]:
    """How far an exhaustive campaign got that did not compare everything."""
    space = result.campaign.space
    if space is None:
        return []
    number, _ = result.campaign.counted(result.tiles)
    what = f"{grouped(number)} of {grouped(space.total)} {space.unit}s"
    return [f"{result.campaign.label}: NOT {space.everything}: {what} compared"]


def _counts(found: Iterable[Mapping[str, int]]) -> list[str]:
    total: Counter[str] = Counter()
    for counts in found:
        total.update(counts)
    return [f"{kind} {n}" for kind, n in total.items() if n]
