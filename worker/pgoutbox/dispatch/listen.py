"""The connection that notifications arrive on. Never trusted: tested first, then kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from pgoutbox.database.pool import DATABASE_ERRORS, bounded
from pgoutbox.events import WakeupModeChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pgoutbox.dispatch.wakeup import Wakeup
    from pgoutbox.events import Event

SELF_TEST_SECONDS = 2.0
KEEPALIVE_SECONDS = 5.0
ANSWER_SECONDS = 2.0
RECONNECT_SECONDS = 1.0

# The payload cannot be the name of a destination.
NOTIFY_SELF = b"SELECT pg_notify('outbox', %(payload)s)"
LISTEN = b"LISTEN outbox"
# Finds a dead socket, and mends the flag where a worker that had switched it off is gone.
KEEPALIVE = b"""
UPDATE outbox_wakeup SET wanted = true, changed_at = now() WHERE NOT wanted AND %(asleep)s
"""


class NotifyUnavailableError(Exception):
    """Notifications do not reach this connection."""


class Listener:
    """Rings the wakeup for every notification that concerns one of ``destinations``."""

    def __init__(
        self,
        conninfo: Callable[[], str],
        wakeup: Wakeup,
        destinations: Collection[str],
        emit: Callable[[Event], None],
    ) -> None:
        self._conninfo = conninfo
        self._wakeup = wakeup
        self._destinations = frozenset(destinations)
        self._emit = emit
        self._mode: str | None = None

    async def run(self) -> None:
        """Listen until cancelled; whenever that is impossible, say so and try again."""
        while True:
            try:
                await self._listen()
            except NotifyUnavailableError as error:
                self._report("poll", str(error))
                pause = KEEPALIVE_SECONDS * 12
            except DATABASE_ERRORS as error:
                self._report(
                    "poll", f"the listening connection failed: {' '.join(str(error).split())}"
                )
                pause = RECONNECT_SECONDS
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        conn = await bounded(
            AsyncConnection.connect(self._conninfo(), autocommit=True, prepare_threshold=None),
            ANSWER_SECONDS * 5,
        )
        try:
            await bounded(self_test(conn, self._conninfo()), SELF_TEST_SECONDS + ANSWER_SECONDS * 5)
            self._report("notify", "a notification to ourselves arrived")
            while True:
                await self._receive(conn)
                asleep = {"asleep": self._wakeup.asleep}
                await bounded(conn.execute(KEEPALIVE, asleep), ANSWER_SECONDS)
        finally:
            self._wakeup.listening(active=False)
            with contextlib.suppress(*DATABASE_ERRORS):
                await bounded(conn.close(), ANSWER_SECONDS)

    async def _receive(self, conn: AsyncConnection[Any]) -> None:
        async with aclosing(conn.notifies(timeout=KEEPALIVE_SECONDS)) as notifications:
            async for notification in notifications:
                if notification.payload in self._destinations:
                    self._wakeup.notified()

    def _report(self, mode: str, reason: str) -> None:
        if mode == "notify":
            self._wakeup.listening(active=True)
        if mode == self._mode:
            return
        self._mode = mode
        self._emit(WakeupModeChanged("notify" if mode == "notify" else "poll", reason))


async def self_test(conn: AsyncConnection[Any], conninfo: str) -> None:
    """LISTEN, and see a notification arrive. Raises NotifyUnavailableError if none does.

    It is sent from a connection of its own: a pooler in transaction mode passes on what arrives
    during a client's own statement, and later gives it to nobody or to another client.
    """
    payload = f"self-test {uuid.uuid4()}"
    await conn.execute(LISTEN)
    async with await AsyncConnection.connect(
        conninfo, autocommit=True, prepare_threshold=None
    ) as other:
        await other.execute(NOTIFY_SELF, {"payload": payload})
    async with aclosing(conn.notifies(timeout=SELF_TEST_SECONDS)) as notifications:
        async for notification in notifications:
            if notification.payload == payload:
                return
    raise NotifyUnavailableError(
        "a notification to ourselves did not arrive within "
        f"{SELF_TEST_SECONDS:g} s (a pooler in transaction mode?); set PGOUTBOX_LISTEN_DSN to a "
        "direct connection to be woken instead of polling"
    )
