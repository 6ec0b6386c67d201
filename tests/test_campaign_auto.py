"""``backend="auto"`` in a campaign: triton where there is a GPU, else cpu; here the GPU is the interpreter's."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import Inside
from conftest import GPU

import pto_gpu as pto
from pto_gpu import backends
from pto_gpu.campaign import device, series, settings
from pto_gpu.campaign.device import run_on_device
from pto_gpu.campaign.ranks import Ranks
from pto_gpu.campaign.settings import Campaign

DEVICE = "cuda:0" if GPU else "cpu"


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with a GPU; gets the device of each campaign that runs there."""
    went: list[str] = []

    def recorded(*arguments: Any, **how: Any) -> Any:
        went.append(how["device"])
        return run_on_device(*arguments, **how)

    for module in (backends, settings):
        monkeypatch.setattr(module, "gpu", lambda: DEVICE)
    monkeypatch.setattr(device, "run_on_device", recorded)
    return went


def machine(monkeypatch: pytest.MonkeyPatch, version: str, devices: int, triton: Any) -> None:
    """``triton``: its module, or the error of importing it."""

    def load(name: str) -> Any:
        if isinstance(triton, Exception):
            raise triton
        return triton

    monkeypatch.setattr(backends.importlib.metadata, "version", lambda package: version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(backends, "load", load)


COMPILED, INTERPRETED = SimpleNamespace(INTERPRETED=False), SimpleNamespace(INTERPRETED=True)


@pytest.mark.parametrize(
    ("version", "devices", "triton", "found"),
    [
        ("2.13.0+cu130", 1, COMPILED, "cuda:0"),
        ("2.9.0", 4, COMPILED, "cuda:3"),
        ("2.13.0+cu130", 0, COMPILED, None),
        ("2.13.0+cu130", 1, INTERPRETED, None),
        ("2.13.0+cu130", 1, pto.BackendError("no triton here"), None),
    ],
)
def test_a_gpu_counts_where_torch_sees_it_and_triton_compiles_for_it(
    monkeypatch: pytest.MonkeyPatch, version: str, devices: int, triton: Any, found: str | None
) -> None:
    machine(monkeypatch, version, devices, triton)
    monkeypatch.setenv("LOCAL_RANK", "7")
    assert backends.gpu() == found


def test_a_torch_without_gpus_is_not_imported_to_find_none(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "2.13.0+cpu", 1, COMPILED)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("torch was asked"))
    assert backends.gpu() is None


def test_auto_becomes_a_backend_once_and_for_all(on_gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def sides(**chosen: str) -> tuple[str, str]:
        campaign = Campaign("TPARTMIN", ("i8",), **chosen)  # type: ignore[arg-type]
        return campaign.backend, campaign.against

    assert sides() == ("triton", "numpy")
    assert sides(backend="cpu") == ("cpu", "numpy")
    assert sides(backend="numpy", against="auto") == ("numpy", "triton")
    assert sides(against="cpu") == ("triton", "cpu")
    with pytest.raises(pto.ConstraintError, match=r"'triton' would be compared with itself: allowed numpy, cpu$"):
        sides(against="triton")
    monkeypatch.setattr(settings, "gpu", lambda: None)
    assert sides() == ("cpu", "numpy")


@pytest.mark.parametrize(("chosen", "backend"), [((), "triton"), (("--backend", "cpu"), "cpu")])
def test_every_report_names_the_backend_that_ran(
    inside: Inside, on_gpu: list[str], chosen: tuple[str, ...], backend: str
) -> None:
    arguments = ("validate", "trowmin", "--dtype", "i8", "--tiles", 20, *chosen)
    status, out, err = inside(*arguments, "--html", "report.html", "--junit", "report.xml")
    assert (status, err) == (0, "")
    assert f", backend {backend}, seed " in out
    assert f">backend</th><td>{backend}</td>" in Path("report.html").read_text()
    assert f'<property name="backend" value="{backend}" />' in Path("report.xml").read_text()
    _, out, _ = inside(*arguments, "--json")
    assert json.loads(out)["campaigns"][0]["backend"] == backend
    assert on_gpu == ([DEVICE] * 2 if backend == "triton" else [])


def test_exhaustive_campaigns_run_on_it_too(inside: Inside, on_gpu: list[str]) -> None:
    status, out, _ = inside("validate", "tpartmin", "--dtype", "i8", "--exhaustive")
    assert (status, ", backend triton\n" in out) == (0, True)


def test_a_journal_holds_what_auto_was(inside: Inside, on_gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = ("validate", "tpartmin", "--dtype", "i8", "--tiles", 20, "--journal", "run.db", "--resume")
    assert inside(*resumed)[0] == 0
    assert inside(*resumed, "--backend", "triton")[0] == 0
    monkeypatch.setattr(settings, "gpu", lambda: None)
    message = "run.db: cannot be continued: it was made with backend=triton, this run has backend=cpu"
    assert inside(*resumed) == (2, "", f"error: {message}\n")


def test_a_journal_of_a_function_goes_on_on_any_machine(
    inside: Inside, on_gpu: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "auto_mine.py").write_text("def f(call): call.arrays['dst'][:1, :1, :1] = 0\n")
    resumed = ("validate", "tpartmin", "--dtype", "i8", "--tiles", 20, "--journal", "run.db", "--resume")
    first = inside(*resumed, "--against", "auto_mine:f")
    monkeypatch.setattr(settings, "gpu", lambda: None)
    again = inside(*resumed, "--against", "auto_mine:f")
    assert (first[0], again[0], on_gpu) == (1, 1, [])
    assert "backend auto_mine:f" in again[1]


def test_a_saved_failure_runs_on_the_backend_that_auto_is(inside: Inside, on_gpu: list[str]) -> None:
    Path("mine_auto.py").write_text("def f(call): pass\n")
    assert inside("validate", "tpartmin", "--dtype", "i8", "--tiles", 20, "--against", "mine_auto:f")[0] == 1
    path = next(Path("failures").iterdir())
    status, out, _ = inside("replay", path, "--backend", "auto")
    assert (status, ", backend triton: equal now" in out) == (0, True)


def test_ranks_that_differ_in_what_auto_is_refuse_to_run() -> None:
    class Elsewhere(Ranks):
        def of_all(self, value: Any) -> list[Any]:
            return [value, value, "triton against numpy"]

    campaigns = [Campaign(op, ("f32",), backend="cpu") for op in ("TPARTMIN", "TPRELU")]
    message = "^backend cpu against numpy on rank 0, triton against numpy on rank 2: allowed the same on all: "
    with pytest.raises(pto.ConstraintError, match=message):
        series._refuse_other_backends(Elsewhere(1, 3, 3, 0), campaigns)
    same = [Campaign("TPRELU", ("f32",), backend="triton")]
    Elsewhere.of_all = lambda self, value: [value, "triton against numpy"]  # type: ignore[method-assign]
    series._refuse_other_backends(Elsewhere(0, 2, 2, 0), same)
