"""Bring the figures of a run into the documentation: ``python bench/report.py RUN.json``.

RUN.json is what ``pto-gpu bench --json`` wrote. Replaces what stands between the two markers of README.md (a summary
and one plot, ``bench/speed_up.png``) and of bench/RESULTS.md (every table), dated, with the machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_gpu.bench import plots, results
from pto_gpu.bench.results import Run
from pto_gpu.bench.tables import goal_lines, machine_lines, markdown, summary_table, tables
from pto_gpu.errors import PtoError

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- begin: bench/report.py -->", "<!-- end: bench/report.py -->"
PICTURE = "bench/speed_up.png"


def summary(run: Run) -> str:
    """The part of the README."""
    table = summary_table(run)
    picture = f"![times faster than vectorised NumPy, by instruction and element type]({PICTURE})"
    return "\n\n".join((machine_lines(run)[0], table.note, markdown(table), picture))


def everything(run: Run) -> str:
    """The part of RESULTS.md."""
    lines = [*machine_lines(run), *run.notes, *goal_lines(run)]
    parts = [f"### {run.date[:10]}", "\n".join(f"- {line.strip()}" for line in lines)]
    for table in tables(run):
        parts += [f"**{table.title}.** {table.note}", markdown(table)]
    return "\n\n".join(parts)


def replaced(text: str, part: str, name: str) -> str:
    """``text`` with ``part`` between its markers; raises ValueError where they are not."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{name}: the markers {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN.json")
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and bench/ are")
    options = parser.parse_args(argv)
    try:
        run = results.read(options.run)
        if run.quick or run.interrupted or run.problems():
            raise ValueError(f"{options.run}: a quick, interrupted or faulty run is not to be quoted")
        plots.require_matplotlib()
        files = {options.root / "README.md": summary(run), options.root / "bench/RESULTS.md": everything(run)}
        texts = {path: replaced(path.read_text(), part, path.name) for path, part in files.items()}
        plots.speed_up(run, options.root / PICTURE)
        for path, text in texts.items():
            path.write_text(text)
    except (PtoError, ValueError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
