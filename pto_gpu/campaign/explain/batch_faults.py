"""Faults in which tile of a batch is worked on: a neighbour's valid region, elements or result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pto_gpu.campaign.explain.evidence import Evidence, Results
from pto_gpu.campaign.explain.fault import Effect, Fault, listed, scopes
from pto_gpu.interop import NumPyArray
from pto_gpu.isa.record import Instruction
from pto_gpu.tilebuf import TileBuf

#: The tile of the batch that is taken for each one.
_OTHERS: Mapping[str, Callable[[NumPyArray], NumPyArray]] = {
    "first tile of the batch": np.zeros_like,
    "previous tile": lambda places: places - 1,
    "next tile": lambda places: places + 1,
}


def batch_faults(instruction: Instruction) -> Iterator[Fault]:
    """What belongs to one tile taken from another; batches of one show none of it."""
    for text, other in _OTHERS.items():
        for names in scopes(instruction):
            of = f"{names[0]}'s valid region" if len(names) == 1 else f"the valid regions of {listed(names)}"
            change = f"taken from the {text}"
            yield Fault(f"{of} {change}", _elsewhere(other, _regions(names)), change, frozenset(names))
        for source in instruction.sources:
            yield Fault(f"{source.name} of the {text} read", _elsewhere(other, _elements((source.name,))))
        sources = tuple(o.name for o in instruction.sources)
        yield Fault(f"every source of the {text} read", _elsewhere(other, _elements(sources)))
        yield Fault(f"the result of the {text}", _elsewhere(other, _everything))


_Taken = Callable[[Evidence, Evidence], Mapping[str, TileBuf]]


def _elsewhere(other: Callable[[NumPyArray], NumPyArray], taken: _Taken) -> Effect:
    """``taken`` from the other tiles of the batch; of a tile that has no such neighbour nothing can be said."""

    def effect(e: Evidence) -> Results | None:
        batch = e.batch_of_all
        wanted = other(e.places)
        there = (wanted >= 0) & (wanted < batch.batch)
        if not there.any() or batch.batch == 1:
            return None
        neighbours = batch.part(np.where(there, wanted, e.places))
        results = e.reference(taken(e, neighbours))
        return {name: np.where(there[:, None, None], x, e.seen[name]) for name, x in results.items()}

    return effect


def _regions(names: tuple[str, ...]) -> _Taken:
    return lambda e, others: {name: e.before[name].with_valid(*others.before[name].region) for name in names}


def _elements(names: tuple[str, ...]) -> _Taken:
    return lambda e, others: {name: others.before[name].with_valid(*e.before[name].region) for name in names}


def _everything(e: Evidence, others: Evidence) -> Mapping[str, TileBuf]:
    del e
    return others.before
