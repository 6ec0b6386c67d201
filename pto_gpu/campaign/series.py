"""Several campaigns, one after the other: alone or shared by ranks, with or without a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pto_gpu.campaign.journal import Journal
from pto_gpu.campaign.ranks import CtrlC, Ranks, ranks
from pto_gpu.campaign.results import Result
from pto_gpu.campaign.run import Execute, Progress, label_of, run_campaign
from pto_gpu.campaign.settings import Campaign
from pto_gpu.errors import ConstraintError, PtoError


@dataclass
class Series:
    """The campaigns of a run, as this process does them.

    ``execute``: what is under test in place of their backend. ``status``: the exit status with which the run was
    already reported, before torchrun started this process again.
    """

    campaigns: Sequence[Campaign]
    execute: Execute | None = None
    ranks: Ranks | None = None
    journal: Journal | None = None
    ctrl_c: CtrlC | None = None
    status: int | None = None

    @property
    def leads(self) -> bool:
        """Whether this process is the one that reports."""
        return self.ranks is None or self.ranks.rank == 0

    def tiles(self, number: int) -> int:
        """How many tiles of campaign ``number`` this process does."""
        campaign = self.campaigns[number]
        if self.ranks is None:
            return campaign.tiles
        first, end = self.ranks.span(campaign)
        return end - first

    def run(self, number: int, progress: Progress | None = None) -> Result:
        """The result of campaign ``number``, of all ranks where there are any; each of them has to call this."""
        campaign = self.campaigns[number]
        journal = self.journal.of(number) if self.journal else None
        if self.ranks is None or self.ctrl_c is None:
            return run_campaign(campaign, self.execute, progress, journal=journal)
        mine = replace(campaign, workers=campaign.workers or self.ranks.workers)
        span = self.ranks.span(campaign)
        part = self.ctrl_c.during(
            lambda: run_campaign(mine, self.execute, progress, span=span, journal=journal),
            otherwise=Result(mine, label_of(self.execute) or campaign.backend, interrupted=True),
        )
        merged = self.ranks.together(part)
        merged.campaign = campaign
        return merged

    def finish(self, status: int) -> None:
        """Note in the journal that the run was reported with this exit status."""
        if self.journal:
            self.journal.finish(status)


@contextmanager
def series(
    campaigns: Sequence[Campaign], execute: Execute | None = None, journal: Path | None = None, *, resume: bool = False
) -> Iterator[Series]:
    """The campaigns to run, with the ranks of this process joined and the journal open.

    ``resume``: continue the journal if it is there. A process that torchrun started again does so by itself.
    Raises FileError for a journal that cannot be used.
    """
    if resume and journal is None:
        raise ConstraintError("--resume needs --journal FILE: the journal to continue")
    among = ranks()
    with ExitStack() as stack:
        if among is None:
            held = _opened(stack, campaigns, execute, journal, resume, None)
            yield Series(campaigns, execute, journal=held)
            return
        try:
            restarted = among.restarts > 0
            held = _opened(stack, campaigns, execute, journal, resume or restarted, among)
            if held and not restarted:
                held.finish(None)  # this is a run of its own, whatever the one before came to
            ctrl_c = stack.enter_context(CtrlC().heard())
            stack.enter_context(among.joined())
            _refuse_other_backends(among, campaigns)
            status, *_ = among.of_all(held.status if held and restarted else None)
            yield Series(campaigns, execute, among, held, ctrl_c, status)
        except PtoError as error:
            raise type(error)(f"rank {among.rank}: {error}") from None


def _refuse_other_backends(among: Ranks, campaigns: Sequence[Campaign]) -> None:
    """Raise on every rank unless they run the same backends: auto is another one where there is no GPU."""
    mine = "; ".join(dict.fromkeys(f"{c.backend} against {c.against}" for c in campaigns))
    first, *others = among.of_all(mine)
    for rank, theirs in enumerate(others, start=1):
        if theirs != first:
            raise ConstraintError(
                f"backend {first} on rank 0, {theirs} on rank {rank}: allowed the same on all: --backend names it"
            )


def _opened(
    stack: ExitStack,
    campaigns: Sequence[Campaign],
    execute: Execute | None,
    path: Path | None,
    resume: bool,
    among: Ranks | None,
) -> Journal | None:
    if path is None:
        return None
    share = (0, 1)
    if among is not None:
        path, share = among.journal(path), (among.rank, among.size)
    journal = Journal(path, campaigns, resume=resume, share=share, implementation=label_of(execute))
    stack.callback(journal.close)
    return journal
