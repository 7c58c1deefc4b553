"""``noop://``: takes every message and does nothing, for benchmarks and trials."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgoutbox.brokers.query import milliseconds, nothing_else, options_of, switch

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


class NoopPublisher:
    """Takes one message, after ``delay`` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay

    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        """Take it."""
        if self._delay:
            await asyncio.sleep(self._delay)

    async def close(self) -> None:
        """Nothing to release."""


class NoopBatchPublisher:
    """Takes a batch of messages, after ``delay`` seconds for all of them."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Take them all."""
        if self._delay:
            await asyncio.sleep(self._delay)
        return [None] * len(messages)

    async def close(self) -> None:
        """Nothing to release."""
