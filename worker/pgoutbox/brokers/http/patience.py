"""One timer for many that are waited for, each as long as the others.

A timer of its own would cost each request as much as reading its answer.
"""

from __future__ import annotations

import asyncio


class Patience:
    """Ends each after the same time, so that the oldest is always the next whose time is up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit: asyncio.Timeout) -> float:
        """Let ``limit``, which has no end so far, end in time; when, by the event loop's clock."""
        loop = asyncio.get_running_loop()
        until = self._waiting[limit] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(until, self._on_time)
        return until

    def end(self, limit: asyncio.Timeout) -> None:
        """It is not waited for any more."""
        self._waiting.pop(limit, None)

    def close(self) -> None:
        """Leave no timer behind. What still waits is not ended any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_time(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting:
            limit, until = next(iter(self._waiting.items()))
            if until > loop.time():
                self._timer = loop.call_at(until, self._on_time)
                break
            del self._waiting[limit]
            limit.reschedule(until)
