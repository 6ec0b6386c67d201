"""What ``pto-gpu bench`` measures follows from the records."""

import dataclasses

import pytest

from pto_gpu.bench import table
from pto_gpu.bench.providers import CPU, NUMPY, PROVIDERS, TRITON
from pto_gpu.isa import instructions

EVERY = {(name, s) for name, record in instructions().items() for s in record.element_types["a5"]}


def sweep(name: str) -> table.Sweep:
    return next(s for s in table.SWEEPS if s.name == name)


@pytest.mark.parametrize("name", [table.TYPES, table.FULL])
def test_every_instruction_and_element_type_is_measured_once(name: str) -> None:
    found = [(g.instruction, g.signature) for g in table.groups([sweep(name)])]
    assert set(found) == EVERY
    assert len(found) == len(EVERY)
    assert {(g.rows, g.cols, g.batch) for g in table.groups([sweep(name)])} == {(32, 32, 100_000)}


def test_a_new_record_is_measured_without_a_line_here(monkeypatch: pytest.MonkeyPatch) -> None:
    record = instructions()["TROWMIN"]
    other = dataclasses.replace(record, name="TROWMOST", element_types={"a5": (("bf16",), ("i32",))})
    monkeypatch.setattr(table, "instructions", lambda: {"TROWMOST": other})
    groups = list(table.groups(table.SWEEPS))
    assert {g.instruction for g in groups} == {"TROWMOST"}
    assert [g.signature for g in groups if g.sweep == table.TYPES] == [("bf16",), ("i32",)]
    assert {g.signature for g in groups if g.sweep == table.SIZE} == {("bf16",)}  # it has no f32


def test_the_sweeps_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "available_cores", lambda: 3)
    chosen = [("TPARTMIN", ("f16",)), ("TPARTMIN", ("f32",)), ("TROWMIN", ("i8",))]
    groups = list(table.groups(table.SWEEPS, chosen))
    assert {(g.instruction, g.signature) for g in groups if g.sweep == table.TYPES} == set(chosen)
    one_type = {(g.instruction, g.signature) for g in groups if g.sweep == table.BATCH}
    assert one_type == {("TPARTMIN", ("f32",)), ("TROWMIN", ("i8",))}
    batches = [g.batch for g in groups if g.sweep == table.BATCH and g.instruction == "TPARTMIN"]
    assert batches == [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]
    assert [g.threads for g in groups if g.sweep == table.THREADS] == [1, 2, 3] * 2
    assert len({g.rows * g.cols * g.batch for g in groups if g.sweep == table.SIZE}) == 1  # operands of one size
    assert {g.regions for g in groups} == {"full", "random", "tiny"}


def test_triton_is_measured_where_there_is_a_gpu() -> None:
    without, with_gpu = ({p for g in table.groups(table.SWEEPS, gpu=gpu) for p in g.providers} for gpu in (False, True))
    assert with_gpu == set(PROVIDERS)
    assert with_gpu - without == {TRITON}


def test_a_quick_run_is_smaller() -> None:
    for whole, small in zip(table.SWEEPS, map(table.quick, table.SWEEPS), strict=True):
        largest = max(whole.batches, default=1)
        assert max(small.batches, default=0) <= max(1, largest // 10)
        assert small.elements <= whole.elements / 2
        assert bool(small.batches) == bool(whole.batches)
        assert {CPU} <= set(small.providers) <= set(whole.providers)
    assert NUMPY in table.quick(sweep(table.TYPES)).providers
