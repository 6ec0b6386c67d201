"""Pictures of a run, and what a run brings into the documentation."""

import builtins
import dataclasses
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from bench_runs import made_up, time

import pto_gpu as pto
from pto_gpu.bench import results

ROOT = Path(__file__).parent.parent
pytest.importorskip("matplotlib", reason="plots need the extra plot")

from pto_gpu.bench import plots  # noqa: E402


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a PNG whose chunks are whole."""
    data, kinds = path.read_bytes(), []
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place = 8
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + body),)
        kinds.append(kind)
        place += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_every_plot_is_a_picture(tmp_path: Path) -> None:
    paths = plots.draw_all(made_up(), tmp_path / "new" / "plots")
    assert [p.stem for p in paths] == list(plots.PLOTS)
    for path in paths:
        width, height = size_of(path)
        assert width > 500
        assert height > 200
        assert path.stat().st_size < 120_000


def test_a_plot_without_rows_is_not_drawn(tmp_path: Path) -> None:
    run = made_up()
    run.rows = run.of_sweep("types")
    assert [p.name for p in plots.draw_all(run, tmp_path)] == ["speed_up.png"]
    assert [p.name for p in tmp_path.iterdir()] == ["speed_up.png"]
    run.rows = []
    assert plots.draw_all(run, tmp_path) == []


def test_what_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(plots, "_save", lambda figure, run, path, title: drawn.setdefault(path.stem, figure))
    plots.draw_all(made_up(), tmp_path)
    (bars,) = drawn["speed_up"].axes
    assert [round(bar.get_width(), 3) for bar in bars.patches] == [25, 14, 12]
    assert [text.get_text() for text in bars.get_yticklabels()] == ["TPARTMIN f32", "TPARTMIN i8", "TROWMIN f16"]
    targets = next(c for c in bars.collections if c.get_label() == "target, cpu")
    assert [x for x, _ in targets.get_offsets()] == [20, 15, 10]
    (batch,) = drawn["batch"].axes
    assert (batch.get_xscale(), batch.get_yscale()) == ("log", "log")
    assert [line.get_label() for line in batch.lines] == ["numpy, slope 1.00", "cpu, slope 1.00"]
    (size,) = drawn["tile_size"].axes
    assert list(size.lines[0].get_xdata()) == [64, 256, 1024]
    for name, figure in drawn.items():
        for axes in figure.axes:
            assert axes.get_xlabel() or name == "providers"
            assert axes.get_ylabel() or name == "speed_up"
            texts = axes.get_legend_handles_labels()[1]
            assert len(texts) < 2 or axes.get_legend() is not None


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "matplotlib":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(pto.BackendError, match=r'pip install "pto-gpu\[plot\]"'):
        plots.draw_all(made_up(), tmp_path / "plots")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pto.FileError, match="file/plots: cannot be written"):
        plots.draw_all(made_up(), tmp_path / "file" / "plots")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A README and a RESULTS.md with the markers of the real ones."""
    (tmp_path / "bench").mkdir()
    for name in ("README.md", "bench/RESULTS.md"):
        text = (ROOT / name).read_text()
        begin = text.index("<!-- begin: bench/report.py -->")
        end = text.index("<!-- end: bench/report.py -->")
        (tmp_path / name).write_text(f"before\n{text[begin:end]}<!-- end: bench/report.py -->\nafter\n")
    return tmp_path


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench/report.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_figures_come_into_the_documentation(documents: Path) -> None:
    results.write(made_up(), documents / "run.json")
    for _ in range(2):  # a second run replaces the first
        done = report(documents / "run.json", "--root", documents)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    readme = (documents / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")
    assert readme.count("| TPARTMIN | 14 (i8) to 25 (f32) | 0.80 | 20 us | 1.00 |") == 1
    assert "(bench/speed_up.png)" in readme
    assert size_of(documents / "bench/speed_up.png")[0] > 500
    found = (documents / "bench/RESULTS.md").read_text()
    assert "| TPARTMIN f32 | cpu | 2000 ± 20 | 80.0 ± 0.8 | 25.0 | 20 met | 0.80 | 0.64 |" in found
    assert "- targets: 5 of 6 met\n- missed: TPARTMIN i8: " in found


@pytest.mark.parametrize("change", [{"quick": True}, {"interrupted": True}])
def test_a_run_that_is_not_to_be_quoted(documents: Path, change: dict[str, bool]) -> None:
    run = made_up()
    for name, value in change.items():
        setattr(run, name, value)
    results.write(run, documents / "run.json")
    before = (documents / "README.md").read_text()
    done = report(documents / "run.json", "--root", documents)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not to be quoted" in done.stderr
    assert (documents / "README.md").read_text() == before


def test_two_providers_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(plots, "_save", lambda figure, run, path, title: drawn.setdefault(path.stem, figure))
    run = made_up()
    cpu = [r for r in run.of_sweep("types") if r.provider == "cpu"]
    run.rows += [dataclasses.replace(r, provider="triton", time=time(r.time.seconds / 100)) for r in cpu]
    plots.draw_all(run, tmp_path)
    (bars,) = drawn["speed_up"].axes
    assert [t.get_text() for t in bars.get_legend().get_texts()] == ["target, cpu", "cpu", "triton"]
    assert bars.get_xscale() == "log"
    assert round(bars.patches[-1].get_width(), 3) == 1200
