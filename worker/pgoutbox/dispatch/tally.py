"""Counters for the heartbeat row and for the drain."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, assert_never

from pgoutbox.events import Claimed, Finalized, LeaseLost
from pgoutbox.outcome import (
    Bury,
    Deferred,
    Finish,
    Interrupted,
    PermanentFailure,
    Published,
    RetryableFailure,
    Unavailable,
    Unstarted,
)

if TYPE_CHECKING:
    from pgoutbox.events import Event
    from pgoutbox.outcome import Outcome


class Tally:
    """An observer that only counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(
            claimed=0, reclaimed=0, published=0, buried=0, returned=0, lease_lost=0
        )

    def on_event(self, event: Event) -> None:
        """Count what concerns messages."""
        match event:
            case Claimed(messages, reclaimed):
                self.counts["claimed"] += len(messages)
                self.counts["reclaimed"] += reclaimed
            case Finalized():
                self._count_finalized(event)
            case LeaseLost(messages):
                self.counts["lease_lost"] += len(messages)
            case _:
                pass

    def _count_finalized(self, event: Finalized) -> None:
        self.counts["lease_lost"] += len(event.lost)
        for batch in (event.written, event.already_written):
            finished = sum(1 for settled in batch if isinstance(settled.transition, Finish))
            buried = sum(1 for settled in batch if isinstance(settled.transition, Bury))
            self.counts["published"] += finished
            self.counts["buried"] += buried
            self.counts["returned"] += len(batch) - finished - buried


class Attempts:
    """Publishes that ended, and those of them that may work later: whether downstream takes more.

    A failure while the breaker is open or half open is in neither: it is a probe, and no news.
    """

    def __init__(self) -> None:
        self.ended = self.failed = 0

    def count(self, outcome: Outcome, *, probing: bool) -> None:
        """One that ended. ``probing``: the breaker was not closed before."""
        match outcome:
            case Published() | Deferred() | PermanentFailure(gone=False):
                self.ended += 1
            case RetryableFailure() | Unavailable() | PermanentFailure():
                self._failed(1, probing=probing)
            case Interrupted() | Unstarted():
                pass
            case _:
                assert_never(outcome)

    def bug(self, number: int, *, probing: bool) -> None:
        """So many that a bug in the publisher ended."""
        self._failed(number, probing=probing)

    def _failed(self, number: int, *, probing: bool) -> None:
        if not probing:
            self.ended += number
            self.failed += number


class DrainCount:
    """An observer: what became of the work in flight."""

    def __init__(self) -> None:
        self.finished = self.handed_back = self.interrupted = 0

    def on_event(self, event: Event) -> None:
        """Count the written outcomes."""
        if not isinstance(event, Finalized):
            return
        for settled in (*event.written, *event.already_written):
            match settled.outcome:
                case Unstarted():
                    self.handed_back += 1
                case Interrupted():
                    self.interrupted += 1
                case _:
                    self.finished += 1
