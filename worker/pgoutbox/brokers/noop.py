"""``noop://``: takes every message and does nothing, for benchmarks and trials."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgoutbox.brokers.query import milliseconds, nothing_else, options_of, switch
from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions


async def open_noop(
    url: str, /, *, options: PublisherOptions
) -> NoopPublisher | NoopBatchPublisher:
    """Open ``noop://``, with ``batch=1`` for batches and ``delay_ms=5`` for a slow destination."""
    nothing_else(url, options.destination)
    given = options_of(url, options.destination, known=("batch", "delay_ms"))
    delay = milliseconds(given, "delay_ms", options.destination)
    if switch(given, "batch", options.destination, default=False):
        return NoopBatchPublisher(delay)
    return NoopPublisher(delay)


class _Noop:
    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay
        self._closed = False

    async def _take(self) -> None:
        if self._closed:
            raise DestinationUnavailable("the publisher is closed")
        if self._delay:
            await asyncio.sleep(self._delay)

    async def close(self) -> None:
        """Take nothing any more."""
        self._closed = True


class NoopPublisher(_Noop):
    """Takes one message, after ``delay`` seconds."""

    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        """Take it."""
        await self._take()


class NoopBatchPublisher(_Noop):
    """Takes a batch of messages, after ``delay`` seconds for all of them."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Take them all."""
        await self._take()
        return [None] * len(messages)
