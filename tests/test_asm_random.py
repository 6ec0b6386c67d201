"""Random programs of loads, instructions, stores and loops, against a simulation that copies everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asm_calls import CONSTANTS, VIEW, T, least, load, parse, part, same, store

from pto_gpu.asm import run as asm_run
from pto_gpu.asm.convert import FORMS
from pto_gpu.errors import AsmError

ARRAYS = ("a", "b", "o", "q")
TILES = ("t0", "t1", "t2", "t3")
ROWS = {"%c0": 0, "%c8": 8, "%c16": 16}
#: A step of a program: a kind, then names of tiles, of an array, of a row.
Step = tuple[Any, ...]


def draw_steps(rng: np.random.Generator, count: int, written: set[str], depth: int = 0) -> list[Step]:
    """Steps that read no tile before one of them wrote it."""
    steps: list[Step] = []
    for _ in range(count):
        kind = rng.choice(["load", "least", "least", "store", "loop"])
        tile, array, row = rng.choice(TILES), rng.choice(ARRAYS), rng.choice(list(ROWS))
        if kind == "load" or not written:
            steps.append(("load", tile, array, row))
            written.add(tile)
        elif kind == "store":
            steps.append(("store", rng.choice(sorted(written)), array, row))
        elif kind == "loop" and depth < 2:
            steps.append(("loop", draw_steps(rng, int(rng.integers(1, 5)), written, depth + 1)))
        else:
            steps.append(("least", *rng.choice(sorted(written), 2), tile))
            written.add(tile)
    return steps


def text_of(steps: list[Step], views: str = "") -> str:
    """The steps as assembly; ``views`` counts, so that every view has a name of its own."""
    lines = []
    for place, step in enumerate(steps):
        name = f"p{views}_{place}"
        if step[0] == "loop":
            body = text_of(step[1], f"{views}_{place}")
            lines.append(f"scf.for %i{name} = %c0 to %c16 step %c8 {{\n{body}}}\n")
        elif step[0] == "least":
            lines.append(least(*step[1:]))
        else:
            _, tile, array, row = step
            lines.append(part(name, array, row) + (load(name, tile) if step[0] == "load" else store(tile, name)))
    return "".join(lines)


def simulate(steps: list[Step], arrays: dict[str, np.ndarray], tiles: dict[str, np.ndarray]) -> None:
    """What the steps do, one after the other."""
    for step in steps:
        if step[0] == "loop":
            for _ in range(2):
                simulate(step[1], arrays, tiles)
        elif step[0] == "least":
            tiles[step[3]] = np.minimum(tiles[step[1]], tiles[step[2]])
        else:
            _, tile, array, row = step
            rows = slice(ROWS[row], ROWS[row] + 16)
            if step[0] == "load":
                tiles[tile] = arrays[array][:, rows].copy()
            else:
                arrays[array][:, rows] = tiles[tile]


def stored(steps: list[Step]) -> set[str]:
    found = set()
    for step in steps:
        found |= stored(step[1]) if step[0] == "loop" else {step[2]} if step[0] == "store" else set()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    steps = draw_steps(rng, int(rng.integers(2, 12)), set())
    arguments = ", ".join(f"%{n}: {VIEW}" for n in ARRAYS)
    tiles = "".join(f"%{n} = pto.alloc_tile : {T}\n" for n in TILES)
    program = parse(f"func.func @f({arguments}) {{{CONSTANTS}{tiles}{text_of(steps)}return\n}}")
    inputs = {n: rng.standard_normal((5, 32, 16), dtype=np.float32) for n in ARRAYS}
    wanted = {n: x.copy() for n, x in inputs.items()}
    before = {n: x.tobytes() for n, x in inputs.items()}
    simulate(steps, wanted, {})
    results = {n: wanted[n] for n in ARRAYS if n in stored(steps)}
    same(program.run(inputs), results)
    assert {n: x.tobytes() for n, x in inputs.items()} == before
    monkeypatch.setattr(asm_run, "WAVE_BYTES", 2 * 4 * 1024)
    same(program.run(inputs), results)
    for form in FORMS:
        try:
            emitted = program.emit(form)
        except AsmError:  # tiles that are written twice
            continue
        same(parse(emitted).run(inputs), results)
