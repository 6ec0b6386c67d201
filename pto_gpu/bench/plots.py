"""Pictures of a run, drawn by matplotlib (the extra ``plot``). Colours are those of Okabe and Ito."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pto_gpu.bench.goals import LEAST_TILES, speed_ups, wanted_speed_up
from pto_gpu.bench.providers import CPU, NUMPY, PROVIDERS
from pto_gpu.bench.results import Row, Run
from pto_gpu.bench.table import BATCH, RIVALS, SIZE, THREADS, TYPES
from pto_gpu.bench.tables import batch_slope
from pto_gpu.errors import BackendError, FileError

#: Told apart with every kind of colour vision, and by their markers in print.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: Final[Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "svg.hashsalt": "pto-gpu",
}
_DPI: Final = 110


def require_matplotlib() -> None:
    """Raise BackendError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BackendError('plots need matplotlib: pip install "pto-gpu[plot]"') from None


def draw_all(run: Run, directory: Path) -> list[Path]:
    """A PNG in ``directory`` (made if needed) for each plot that the run has rows for. Raises FileError."""
    require_matplotlib()
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, draw in PLOTS.items():
            path = directory / f"{name}.png"
            if draw(run, path):
                paths.append(path)
    except OSError as error:
        raise FileError(f"{directory}: cannot be written: {error.strerror or error}") from None
    return paths


def speed_up(run: Run, path: Path) -> bool:
    """Bars: times faster than vectorised NumPy, for every instruction and element type. False if there is nothing."""
    rows = [r for r in run.of_sweep(TYPES) if r.provider != NUMPY]
    faster = {p: speed_ups(run, TYPES, p) for p in PROVIDERS if any(r.provider == p for r in rows)}
    keys = [k for k in dict.fromkeys((r.instruction, r.elements) for r in rows) if any(k in f for f in faster.values())]
    if not keys:
        return False
    figure, axes = _figure(7.5, 1.6 + 0.3 * len(keys) * max(1, len(faster) * 0.7))
    _speed_up_bars(axes, keys, faster)
    if CPU in faster and all(r.batch >= LEAST_TILES for r in rows):
        wanted = [wanted_speed_up(*key) or float("nan") for key in keys]
        marks = {"marker": "|", "s": 150, "color": "black", "linewidths": 2, "zorder": 3}
        axes.scatter(wanted, range(len(keys)), label=f"target, {CPU}", **marks)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    if max(max(f.values(), default=0) for f in faster.values()) > 200:
        axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("times faster than vectorised NumPy")
    shape = f"{rows[0].batch} tiles of {rows[0].rows}x{rows[0].cols}, random valid regions"
    _save(figure, run, path, f"{' and '.join(faster)} against vectorised NumPy\n{shape}")
    return True


def _speed_up_bars(
    axes: Any, keys: Sequence[tuple[str, str]], faster: Mapping[str, Mapping[tuple[str, str], float]]
) -> None:
    """A colour for each instruction, a hatch for each provider after the first."""
    names = list(dict.fromkeys(name for name, _ in keys))
    colours = [_COLOURS[names.index(name) % len(_COLOURS)] for name, _ in keys]
    height = 0.74 / len(faster)
    for n, (provider, ratios) in enumerate(faster.items()):
        values = [ratios.get(key, 0.0) for key in keys]
        places = [i + n * height for i in range(len(keys))]
        look = {"color": colours, "edgecolor": "white", "hatch": "/" * 4 * n}
        axes.barh(places, values, height, label=provider if len(faster) > 1 else None, **look)
        for key, place, value in zip(keys, places, values, strict=True):
            target = wanted_speed_up(*key) or 0.0
            beside = max(value, target if target < 1.5 * value else 0.0)  # not across the mark of a target that is near
            text = f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"
            where = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate(text, (beside, place), **where)
    middle = [i + height * (len(faster) - 1) / 2 for i in range(len(keys))]
    axes.set_yticks(middle, [f"{name} {elements}" for name, elements in keys])
    axes.set_ylim(len(keys) - 0.4, -0.6)


def rivals(run: Run, path: Path) -> bool:
    """Bars: time a tile, for every way to compute an instruction."""
    rows = run.of_sweep(RIVALS)
    if not rows:
        return False
    keys = list(dict.fromkeys((r.instruction, r.elements) for r in rows))
    providers = [p for p in PROVIDERS if any(r.provider == p for r in rows)]
    figure, axes = _figure(8.5, 4.2)
    width = 0.84 / len(providers)
    for n, provider in enumerate(providers):
        times = {(r.instruction, r.elements): r.time.seconds / r.batch * 1e6 for r in rows if r.provider == provider}
        places = [i + (n - (len(providers) - 1) / 2) * width for i in range(len(keys))]
        values = [times.get(key, float("nan")) for key in keys]
        bars = axes.bar(places, values, width, color=_COLOURS[n % len(_COLOURS)], label=provider)
        axes.bar_label(
            bars, ["" if v != v else f"{v:.0f}" if v >= 10 else f"{v:.2g}" for v in values], padding=2, fontsize=7
        )
    axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.set_xticks(range(len(keys)), [f"{name}\n{elements}" for name, elements in keys])
    axes.set_ylabel("microseconds a tile (log)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    _save(
        figure, run, path, f"Time a tile: {rows[0].batch} tiles of {rows[0].rows}x{rows[0].cols}, random valid regions"
    )
    return True


def tile_size(run: Run, path: Path) -> bool:
    """Lines: fraction of the fastest copy against tile size."""
    series = _series(run.of_sweep(SIZE), lambda r: (r.rows * r.cols, r.of_copy(r.fastest_copy)))
    if not series:
        return False
    figure, axes = _figure(7.5, 4.4)
    for n, (label, points) in enumerate(series):
        axes.plot(*zip(*points, strict=True), label=label, **_line(n))
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.annotate("copy", (1, 1), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    axes.set_xscale("log", base=2)
    sizes = sorted({(r.rows * r.cols, f"{r.rows}x{r.cols}") for r in run.of_sweep(SIZE)})
    axes.set_xticks([n for n, _ in sizes], [text for _, text in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tile, rows x columns of elements")
    axes.set_ylabel("bytes a second, fraction of the copy")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    _save(figure, run, path, "How close to the memory limit: full tiles")
    return True


def batch(run: Run, path: Path) -> bool:
    """Lines, log-log: time of one call against tiles in the batch, a panel for each instruction."""
    rows = run.of_sweep(BATCH)
    if not rows:
        return False
    keys = list(dict.fromkeys((r.instruction, r.elements) for r in rows))
    figure, panels = _figure(
        3.6 * min(2, len(keys)) + 1.2, 3.1 * -(-len(keys) // 2) + 0.9, -(-len(keys) // 2), min(2, len(keys))
    )
    providers = [p for p in PROVIDERS if any(r.provider == p for r in rows)]
    for axes, key in zip(panels, keys, strict=False):
        for n, provider in enumerate(providers):
            mine = [r for r in rows if (r.instruction, r.elements) == key and r.provider == provider]
            exponent = batch_slope(mine)
            label = provider if exponent is None else f"{provider}, slope {exponent:.2f}"
            axes.plot([r.batch for r in mine], [r.time.seconds * 1e3 for r in mine], label=label, **_line(n))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(" ".join(key), loc="left")
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
        axes.set_xlabel("tiles in the batch")
        axes.set_ylabel("ms a call")
    for axes in panels[len(keys) :]:
        axes.set_axis_off()
    _save(figure, run, path, f"Time against batch: tiles of {rows[0].rows}x{rows[0].cols}, random valid regions")
    return True


def threads(run: Run, path: Path) -> bool:
    """Lines: how many times faster with more threads."""
    rows = run.of_sweep(THREADS)
    counts = sorted({r.threads or 1 for r in rows})
    if len(counts) < 2:
        return False
    one = {(r.instruction, r.elements): r.time.seconds for r in rows if r.threads == counts[0]}
    series = _series(rows, lambda r: (r.threads or 1, one[r.instruction, r.elements] / r.time.seconds))
    figure, axes = _figure(6.5, 4.4)
    axes.plot(counts, counts, color="black", linewidth=1, linestyle="--", label="as many times as threads")
    for n, (label, points) in enumerate(series):
        axes.plot(*zip(*points, strict=True), label=label, **_line(n))
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("threads")
    axes.set_ylabel("times faster than one thread")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    _save(figure, run, path, f"Threads of the cpu backend: {rows[0].batch} tiles of {rows[0].rows}x{rows[0].cols}")
    return True


#: By the name of the file.
PLOTS: Final[dict[str, Callable[[Run, Path], bool]]] = {
    "speed_up": speed_up,
    "providers": rivals,
    "tile_size": tile_size,
    "batch": batch,
    "threads": threads,
}


def _series(
    rows: Sequence[Row], point: Callable[[Row], tuple[float, float | None]]
) -> list[tuple[str, list[tuple[float, float]]]]:
    """Lines by instruction, element types and provider; points without a value are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    several = len({r.provider for r in rows}) > 1
    for row in rows:
        x, y = point(row)
        if y is not None:
            by = f" ({row.provider})" if several else ""
            found.setdefault(f"{row.instruction} {row.elements}{by}", []).append((x, y))
    return list(found.items())


def _line(n: int) -> dict[str, Any]:
    return {"color": _COLOURS[n % len(_COLOURS)], "marker": _MARKERS[n % len(_MARKERS)], "markersize": 5}


def _figure(width: float, height: float, rows: int = 0, cols: int = 1) -> Any:
    """A figure without a display, and its axes: one, or a list of them where ``rows`` is given."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):  # pyplot would choose a backend for the whole process
        figure = Figure((width, height), dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(max(rows, 1), cols, squeeze=False)
    return figure, list(axes.flat) if rows else axes[0, 0]


def _save(figure: Any, run: Run, path: Path, title: str) -> None:
    quick = ", quick run" if run.quick else ""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.supxlabel(f"{_machine(run)}{quick}", x=0.01, ha="left", fontsize=7, color="#555555")
    figure.savefig(path, metadata={"Software": None})


def _machine(run: Run) -> str:
    m = run.machine
    parts = [run.date[:10], str(m.get("processor")), f"{m.get('cores')} cores", *m.get("gpus", ())]
    return ", ".join([*parts, *(f"{k} {m[k]}" for k in ("pto-gpu", "numpy", "torch") if k in m)])
