"""Whose fault a failure is, the message's or the destination's, and the news when that changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome


class Judge:
    """Asks the breaker of one destination, and tells when it opens and closes."""

    def __init__(self, destination: Destination, emit: Callable[[Event], None]) -> None:
        self._destination = destination
        self._emit = emit
        self._told_open = False

    def judge(self, message: ClaimedMessage, outcome: Outcome) -> Outcome:
        """The outcome, with what it means for others filled in."""
        breaker = self._destination.breaker
        now = time.monotonic()
        match outcome:
            case Published():
                breaker.reached()
                self._closed()
            case PermanentFailure(error, gone=True):
                breaker.gone(now)
                self._opened(error)
            case Deferred():
                breaker.reached()
                self._closed()
            case PermanentFailure():
                # It may not even have been sent: neither good news nor bad.
                pass
            case Unavailable(error):
                works = breaker.unreached(message.id, now)
                self._opened(error)
                return Unavailable(error, works_for_others=works)
            case RetryableFailure(error, retry_after, timed_out=timed_out):
                works = breaker.failed(message.id, now, retry_after=retry_after or 0.0)
                self._opened(error)
                return RetryableFailure(
                    error, retry_after, works_for_others=works, timed_out=timed_out
                )
            case Interrupted() | Unstarted():
                pass
        return outcome

    def _opened(self, error: str) -> None:
        if not self._told_open and self._destination.breaker.is_open:
            self._told_open = True
            self._emit(BreakerChanged(self._destination.name, "open", error))

    def _closed(self) -> None:
        if self._told_open:
            self._told_open = False
            self._emit(BreakerChanged(self._destination.name, "closed", ""))
