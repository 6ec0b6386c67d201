"""What ``import pto_gpu`` gives, and what it does not load."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import pto_gpu as pto
from pto_gpu.isa import instructions

NAMES = [
    *("TileBufType", "TileBuf", "UnifiedBuffer", "TASSIGN", "Numerics", "options", "DYNAMIC"),
    *("TPARTMIN", "TPARTARGMIN", "TROWMIN", "TPRELU", "tpartmin", "tpartargmin", "trowmin", "tprelu"),
    *("PtoError", "ConstraintError", "TypeMismatch", "LayoutError", "AddressError", "AsmError"),
]


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


def test_names_of_the_contract() -> None:
    assert set(NAMES) <= set(dir(pto))
    for name in NAMES:
        assert getattr(pto, name) is not None


def test_an_instruction_needs_no_list_but_its_record() -> None:
    for name in instructions():
        assert {name, name.lower()} <= set(dir(pto))
        assert callable(getattr(pto, name))
        assert callable(getattr(pto, name.lower()))


@pytest.mark.parametrize("name", ["TPARTMAX", "tileBuf", "_private", "__wrapped__", "Tpartmin"])
def test_unknown_attribute(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'pto_gpu' has no attribute '{name}'"):
        getattr(pto, name)


def test_import_is_lazy() -> None:
    heavy = "{'numpy', 'torch', 'numba', 'triton', 'cupy', 'ml_dtypes', 'xdsl', 'typer', 'rich'}"
    _run(f"import sys, pto_gpu; loaded = {heavy} & set(sys.modules); assert not loaded, loaded")


def test_torch_and_numba_wait_for_their_use() -> None:
    _run(
        "import sys, pto_gpu as pto; tile = pto.TileBuf.full(pto.TileBufType('f32', 1, 8), 1.0)\n"
        "pto.TPARTMIN(tile, tile, tile, backend='numpy')\n"
        "loaded = {'torch', 'numba', 'triton', 'cupy'} & set(sys.modules); assert not loaded, loaded"
    )


def test_any_name_can_be_the_first() -> None:
    """Each name in a package that nothing was imported from yet: no import cycle, and no module in its place."""
    _run(
        f"""
import importlib, inspect, sys
for name in {NAMES!r}:
    for loaded in [m for m in sys.modules if m.partition(".")[0] == "pto_gpu"]:
        del sys.modules[loaded]
    package = importlib.import_module("pto_gpu")
    assert not inspect.ismodule(getattr(package, name)), name
    for other in {NAMES!r}:
        assert not inspect.ismodule(getattr(package, other)), (name, other)
"""
    )


def test_error_family() -> None:
    family = {
        pto.ConstraintError: ValueError,
        pto.TypeMismatch: TypeError,
        pto.LayoutError: ValueError,
        pto.AddressError: ValueError,
        pto.AsmError: ValueError,
    }
    for error, base in family.items():
        assert issubclass(error, pto.PtoError)
        assert issubclass(error, base)


@pytest.mark.parametrize("name", list(instructions()))
def test_callables_document_themselves(name: str) -> None:
    record = instructions()[name]
    for function in (getattr(pto, name), getattr(pto, name.lower())):
        assert record.page in inspect.getdoc(function)
        keywords = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
        assert keywords == {"target", "backend", "numerics", "undefined"}


def test_version() -> None:
    from importlib.metadata import version

    assert pto.__version__ == version("pto-gpu")
