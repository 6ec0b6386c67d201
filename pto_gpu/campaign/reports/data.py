"""What a run tells programs, ready for JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pto_gpu.campaign.check import Checked
from pto_gpu.campaign.compare import Mismatch
from pto_gpu.campaign.explain.diagnose import Diagnosis
from pto_gpu.campaign.explain.shrink import Shrunk
from pto_gpu.campaign.files.saved import SavedTile
from pto_gpu.campaign.reports.text import element_text
from pto_gpu.campaign.results import Crash, Result


def mismatch_data(m: Mismatch) -> dict[str, Any]:
    """A mismatch; bits are hexadecimal, values text (JSON has no NaN)."""
    data = asdict(m)
    data["seen"], data["expected"] = element_text(m.seen, m.dtype), element_text(m.expected, m.dtype)
    data["inputs"] = [
        {"name": i.name, "valid": i.valid, "elements": [element_text(b, i.dtype) for b in i.bits]} for i in m.inputs
    ]
    return data


def result_data(result: Result, failing: SavedTile | None, saved: Path | None) -> dict[str, Any]:
    """A campaign; its ``failing`` tile was ``saved``."""
    campaign = result.campaign
    return {
        "instruction": campaign.record.name,
        "types": list(campaign.dtypes),
        "shape": list(campaign.grid),
        "target": campaign.target,
        "numerics": campaign.options.numerics.label,
        "undefined": campaign.undefined,
        "backend": result.backend,
        "against": campaign.against,
        "seed": campaign.seed,
        "tiles_asked": campaign.tiles,
        "tiles": result.tiles,
        "equal": result.equal,
        "interrupted": result.interrupted,
        "mismatched_elements": result.mismatched_elements,
        "mismatched_tiles": result.mismatched_tiles,
        "mismatch_categories_sampled": dict(result.categories),
        "mismatches": [mismatch_data(m) for m in result.mismatches],
        "crash": _crash_data(result.crash, failing) if result.crash else None,
        "saved": str(saved) if saved else None,
        "valid_regions": dict(result.valid_kinds),
        "operand_profiles": dict(result.operand_kinds),
        "seconds": round(result.seconds, 3),
        "exhaustive": _space_data(result),
        "tiles_per_second": round(result.tiles / result.seconds) if result.seconds else 0,
    }


def _crash_data(crash: Crash, failing: SavedTile | None) -> dict[str, Any]:
    """A crash, with the fewest tiles that were found to raise together and what they raised; one raises alone."""
    fewest = None
    if failing is not None and failing.error is not None:
        fewest = {"first": failing.tile, "last": failing.tile + failing.together - 1, "error": failing.error}
    return {**asdict(crash), "fewest": fewest}


def _space_data(result: Result) -> dict[str, Any] | None:
    space = result.campaign.space
    if space is None:
        return None
    number, unit = result.campaign.counted(result.tiles)
    complete = result.tiles == result.campaign.tiles
    return {"of": space.everything, "unit": unit, "total": space.total, "compared": number, "complete": complete}


def checked_data(checked: Checked) -> dict[str, Any]:
    """A checked dump."""
    return {
        "file": str(checked.path),
        "instruction": checked.instruction.name,
        "types": list(checked.dtypes),
        "tiles": checked.batch,
        "equal": checked.equal,
        "mismatched_elements": checked.comparison.elements,
        "mismatched_tiles": len(checked.comparison.tiles),
        "mismatch_categories_sampled": dict(checked.comparison.categories),
        "only_outside_valid_region": checked.only_outside,
        "numerics": checked.numerics.label,
        "tolerance": asdict(checked.tolerance),
        "tolerated_elements": checked.comparison.tolerated,
        "farthest_ulp": checked.comparison.farthest if checked.tolerance.ulp else None,
        "mismatches": [mismatch_data(m) for m in checked.comparison.mismatches],
        "error": None,
    }


def diagnosis_data(diagnosis: Diagnosis | None, saved: Path | None = None) -> dict[str, Any]:
    """A diagnosis; ``saved``: where the shrunk tile is."""
    found = diagnosis.explanation if diagnosis else None
    shrunk = diagnosis.shrunk if diagnosis else None
    return {
        "agrees_with": list(found.agrees_with) if found else [],
        "causes": list(found.causes) if found else [],
        "explained_tiles": found.tiles if found else 0,
        "notes": list(diagnosis.notes) if diagnosis else [],
        "shrunk": _shrunk_data(shrunk, saved) if shrunk else None,
    }


def _shrunk_data(shrunk: Shrunk, saved: Path | None) -> dict[str, Any]:
    tile, comparison = shrunk.tile, shrunk.comparison
    return {
        "why_not": shrunk.why_not,
        "flaky": shrunk.flaky,
        "calls": shrunk.calls,
        "valid_regions": {name: list(region) for name, region in tile.valid.items()} if tile else None,
        "shapes": {name: [ty.rows, ty.cols] for name, ty in tile.types.items()} if tile else None,
        "mismatch": mismatch_data(comparison.mismatches[0]) if comparison and tile else None,
        "saved": str(saved) if saved else None,
    }
