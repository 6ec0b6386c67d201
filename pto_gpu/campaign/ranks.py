"""Processes that share a run, as torchrun starts them: each does a range of the tiles of every campaign.

They are told apart by the environment variables of ``torch.distributed``; the range of a rank is a fixed function of
its number. What they found is host memory of a few kB, so gloo carries it, also between machines with GPUs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pto_gpu.campaign.encoded import decode, encode
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.settings import Campaign
from pto_gpu.campaign.tiles.storage import block_tiles
from pto_gpu.cores import available_cores, count_from_environment
from pto_gpu.errors import BackendError

_VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: How long ranks wait for each other to start.
_TO_START: Final = timedelta(minutes=5)
#: How long a rank waits for the slowest: a long campaign. A rank that died closes its connections, which ends the wait.
_TO_FINISH: Final = timedelta(days=30)


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run: ``rank`` of ``size``, ``local_size`` of them on this machine.

    ``restarts``: how often torchrun has started the ranks again after one died.
    """

    rank: int
    size: int
    local_size: int
    restarts: int
    _groups: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def workers(self) -> int:
        """Threads of each rank where nobody chose: the cores of this machine, shared."""
        return max(1, available_cores() // self.local_size)

    def span(self, campaign: Campaign) -> tuple[int, int]:
        """The tiles of ``campaign`` that this rank does: first and end, at blocks of tiles."""
        step = block_tiles(campaign.grid)
        blocks = -(-campaign.tiles // step)
        first, end = (number * blocks // self.size * step for number in (self.rank, self.rank + 1))
        return min(first, campaign.tiles), min(end, campaign.tiles)

    def journal(self, path: Path) -> Path:
        """The journal of this rank where the run's is called ``path``: ``run.rank0.db``."""
        return path.with_suffix(f".rank{self.rank}{path.suffix}")

    @contextmanager
    def joined(self) -> Iterator[None]:
        """The block in which :meth:`of_all` and :meth:`together` can be called."""
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        with _lost():
            store, _, _ = next(rendezvous("env://", self.rank, self.size, timeout=_TO_START))
            # torchrun keeps its store when it starts ranks again: without a prefix they may find dead ranks' addresses.
            again = PrefixStore(f"pto-gpu/{self.restarts}", store)
            dist.init_process_group("gloo", store=again, rank=self.rank, world_size=self.size, timeout=_TO_START)
        try:
            with _lost():
                self._groups.append(dist.new_group(timeout=_TO_FINISH))
            yield
        finally:
            dist.destroy_process_group()

    def of_all(self, value: Any) -> list[Any]:
        """What each rank gives for ``value``, on every rank; all of them have to call this."""
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with _lost():
            dist.all_gather_object(values, value, group=self._groups[0])
        return values

    def together(self, part: Result) -> Result:
        """The result of all ranks, on each of them. Every rank has to call this for every campaign."""
        merged = Result(part.campaign, part.backend)
        for seconds, interrupted, packed in self.of_all((part.seconds, part.interrupted, _packed(part))):
            merged.add(decode(Path("another rank"), *packed))
            merged.seconds = max(merged.seconds, seconds)
            merged.interrupted |= interrupted
        return merged


def ranks() -> Ranks | None:
    """This process among the ranks of a run, or None where it is alone; raises ConstraintError for odd variables."""
    if not all(os.environ.get(name) for name in _VARIABLES):
        return None
    size = count_from_environment("WORLD_SIZE", 1)
    rank = count_from_environment("RANK", 0, size - 1)
    local_size = count_from_environment("LOCAL_WORLD_SIZE", 1, default=size)
    return Ranks(rank, size, local_size, count_from_environment("TORCHELASTIC_RESTART_COUNT", 0, default=0))


def leads() -> bool:
    """Whether this process is the one that reports: the only one, or rank 0."""
    among = ranks()
    return among is None or among.rank == 0


def _packed(part: Result) -> tuple[int, int, str, bytes | None]:
    """What a rank found, as one wave; a rank does a range of tiles, so there is one span at most."""
    wave = part.as_wave(part.spans[0][0] if part.spans else 0)
    return (wave.first, wave.tiles, *encode(wave))


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise BackendError(f"lost the other ranks: {str(error).splitlines()[0]}") from None


class CtrlC:
    """Ctrl-C where ranks share a run: it ends a campaign, never an exchange, which would keep the others waiting.

    One press may come twice, from the terminal and from torchrun. ``asked``: it was pressed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._ends = False

    def __call__(self, *_: Any) -> None:
        """Handle the signal."""
        first, self.asked = not self.asked, True
        if first and self._ends:
            raise KeyboardInterrupt

    def during(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """``work()``, which Ctrl-C ends; ``otherwise`` where it did before the work began."""
        try:
            self._ends = True
            return otherwise if self.asked else work()
        except KeyboardInterrupt:
            return otherwise
        finally:
            self._ends = False

    @contextmanager
    def heard(self) -> Iterator[CtrlC]:
        """The block in which Ctrl-C means this."""
        before = signal.signal(signal.SIGINT, self)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)
