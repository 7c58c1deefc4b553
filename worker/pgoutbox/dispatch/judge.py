"""Whose fault a failure is, the message's or the destination's, and the news when that changes."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, assert_never

from pgoutbox.events import BreakerChanged
from pgoutbox.outcome import (
    Deferred,
    Interrupted,
    PermanentFailure,
    Published,
    RetryableFailure,
    Unavailable,
    Unstarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.tally import Attempts
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome


class Judge:
    """Asks the breaker of one destination, and tells when it opens and closes."""

    def __init__(
        self,
        destination: Destination,
        emit: Callable[[Event], None],
        publishing: Callable[[], int],
        attempts: Attempts,
    ) -> None:
        """``publishing`` tells how many messages are on their way there; ``attempts`` counts."""
        self._destination = destination
        self._emit = emit
        self._publishing = publishing
        self._attempts = attempts
        self._told_open = False

    def judge(self, message: ClaimedMessage, outcome: Outcome) -> Outcome:
        """The outcome, with what it means for others filled in."""
        probing = self._destination.breaker.is_open
        judged = self._judged(message, outcome)
        self._attempts.count(judged, probing=probing)
        return judged

    def bug(self, number: int) -> None:
        """So many ended by a bug in the publisher, which says nothing about the destination."""
        self._attempts.bug(number, probing=self._destination.breaker.is_open)

    def _judged(self, message: ClaimedMessage, outcome: Outcome) -> Outcome:
        match outcome:
            case Published() | Deferred():
                self._reached()
                return outcome
            case Unavailable(error):
                return self._unreached(message, error)
            case RetryableFailure(throttled=True):
                self._slowed(message, outcome)
                return outcome
            case RetryableFailure():
                return self._failed(message, outcome)
            case PermanentFailure(error, gone=True):
                return outcome if self._gone(error) else Unavailable(error, works_for_others=False)
            case PermanentFailure() | Interrupted() | Unstarted():
                # Neither good news nor bad: it may not even have been sent.
                return outcome
            case _:
                assert_never(outcome)

    def _reached(self) -> None:
        breaker = self._destination.breaker
        breaker.reached(time.monotonic())
        self._destination.throttle.took(self._destination.concurrency)
        if self._told_open and not breaker.is_open:
            self._told_open = False
            self._emit(BreakerChanged(self._destination.name, "closed", ""))

    def _unreached(self, message: ClaimedMessage, error: str) -> Unavailable:
        works = self._destination.breaker.unreached(message.id, time.monotonic())
        self._opened(error)
        return Unavailable(error, works_for_others=works)

    def _failed(self, message: ClaimedMessage, failure: RetryableFailure) -> RetryableFailure:
        works = self._destination.breaker.failed(
            message.id, time.monotonic(), retry_after=failure.retry_after or 0.0
        )
        self._opened(failure.error)
        return dataclasses.replace(failure, works_for_others=works)

    def _slowed(self, message: ClaimedMessage, failure: RetryableFailure) -> None:
        if self._destination.breaker.differs(message.id):
            # It may be a quota of its own, which the others need not wait for.
            return
        throttle = self._destination.throttle
        throttle.slowed(self._publishing(), failure.retry_after or 0.0, time.monotonic())

    def _gone(self, error: str) -> bool:
        """Whether it is news. One message is enough to know: those beside it need not die too."""
        first = self._destination.breaker.gone(time.monotonic())
        self._opened(error)
        return first

    def _opened(self, error: str) -> None:
        if not self._told_open and self._destination.breaker.is_open:
            self._told_open = True
            self._emit(BreakerChanged(self._destination.name, "open", error))
