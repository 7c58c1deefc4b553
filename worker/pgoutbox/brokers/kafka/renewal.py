"""A Kafka client that is made anew after an error that it cannot go on from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.brokers.kafka.client import Client

LONGEST_WAIT = 60.0
"""Seconds between two new clients, at most."""


class RenewedClient:
    """At once after the first fatal error; later and later where new ones end like that too."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client = make()
        self._deaths = 0
        """How many in a row have delivered nothing since the last one that did."""
        self._not_before: float | None = None
        """When the next one may be made, once the present one is known to have ended."""
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    def get(self) -> Client:
        """One that works as far as is known. Raises `DestinationUnavailable`."""
        if self._closed:
            raise DestinationUnavailable("the publisher is closed")
        if self._client.fatal is None:
            return self._client
        now = asyncio.get_running_loop().time()
        if self._not_before is None:
            self._deaths = 1 if self._client.delivered else self._deaths + 1
            self._not_before = now + self._wait()
        if now < self._not_before:
            raise DestinationUnavailable(
                f"the client ends with {self._client.fatal} each time; nothing was sent"
            )
        self._renew(now)
        return self._client

    async def close(self) -> None:
        """Close the present one, and wait for those before it. No other is made from now on."""
        self._closed = True
        await asyncio.gather(self._client.close(), *self._retiring)

    def _renew(self, now: float) -> None:
        try:
            new = self._make()
        except (KafkaException, TypeError, ValueError):
            # A file of certificates may have gone since the start.
            self._deaths += 1
            self._not_before = now + self._wait()
            raise DestinationUnavailable("no new client could be made; nothing was sent") from None
        task = asyncio.create_task(self._client.close(), name="pgoutbox-kafka-retire")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        self._client, self._not_before = new, None

    def _wait(self) -> float:
        """Seconds until the next try."""
        return 0.0 if self._deaths <= 1 else min(2.0**self._deaths, LONGEST_WAIT)
