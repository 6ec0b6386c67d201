"""Bulk validation: generate, execute, compare, explain, report.

For a test-suite: ``run_campaign(Campaign("TPARTMIN", ("f32",), tiles=20_000), Implementation(mine))`` gives a result
with ``equal``, and ``failure_text`` says what is wrong. Names are imported at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pto_gpu.campaign.against import Implementation, TileCall
    from pto_gpu.campaign.reports.diagnosis import failure_text
    from pto_gpu.campaign.results import Result
    from pto_gpu.campaign.run import run_campaign
    from pto_gpu.campaign.settings import Campaign

__all__ = ["Campaign", "Implementation", "Result", "TileCall", "failure_text", "run_campaign"]

#: How the names of a campaign's threads begin. One may be left after Ctrl-C, where what is under test hangs.
THREADS: Final = "campaign"
_HOME: Final = {
    "Campaign": "settings",
    "Implementation": "against",
    "Result": "results",
    "TileCall": "against",
    "failure_text": "reports.diagnosis",
    "run_campaign": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:  # a submodule too: the import system looks for an attribute first
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
