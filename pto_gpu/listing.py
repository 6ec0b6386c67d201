"""What ``pto-gpu list`` and ``pto-gpu info`` say."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any, Final

from pto_gpu import __version__
from pto_gpu.cores import available_cores
from pto_gpu.isa.record import Instruction, RegionRule, TypeRule

_PACKAGES: Final = ("numpy", "numba", "ml_dtypes", "torch", "triton", "cupy-cuda12x", "cupy-cuda13x")


def instruction_data(record: Instruction) -> dict[str, Any]:
    """A record as JSON-ready data."""
    return {
        "name": record.name,
        "summary": record.summary,
        "page": record.page,
        "operands": [{"name": o.name, "role": str(o.role), "kind": str(o.kind)} for o in record.operands],
        "element_types": {t: ["/".join(s) for s in allowed] for t, allowed in record.element_types.items()},
        "constraints": [*map(_rule_text, record.type_rules), *map(_rule_text, record.region_rules)],
        "numerics": list(record.rules_used),
    }


def instruction_lines(record: Instruction) -> list[str]:
    """A record as text."""
    data = instruction_data(record)
    lines = [
        f"{record.name}({', '.join(o['name'] for o in data['operands'])})",
        f"  {record.summary} (page {record.page})",
        *(f"  {target}: {' '.join(types)}" for target, types in data["element_types"].items()),
    ]
    return lines + [f"  - {text}" for text in data["constraints"]]


def _rule_text(rule: TypeRule | RegionRule) -> str:
    where = f" ({', '.join(rule.targets)})" if rule.targets else ""
    waived = " (undefined=zero waives it)" if isinstance(rule, RegionRule) and rule.undefined else ""
    return rule.text + where + waived


def info_data() -> dict[str, Any]:
    """Versions, machine and devices."""
    return {
        "pto-gpu": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": available_cores(),
        **{name: version for name in _PACKAGES if (version := _version(name))},
        "gpus": _gpus(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
