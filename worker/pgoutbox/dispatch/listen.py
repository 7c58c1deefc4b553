"""The connection that notifications arrive on. Never trusted: tested first, then kept alive."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from psycopg import AsyncConnection

from pgoutbox.database.pool import DATABASE_ERRORS, bounded
from pgoutbox.database.probes import SELF_TEST_SECONDS, hears_notifications
from pgoutbox.events import WakeupModeChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pgoutbox.dispatch.wakeup import Wakeup
    from pgoutbox.events import Event

KEEPALIVE_SECONDS = 5.0
ANSWER_SECONDS = 2.0
RECONNECT_SECONDS = 1.0

# Finds a dead socket. It names no table: this connection may have another search_path than ours.
KEEPALIVE = b"SELECT 1"


class NotifyUnavailableError(Exception):
    """Notifications do not reach this connection."""


class Listener:
    """Rings the wakeup for every notification that concerns one of ``destinations``.

    ``conninfo`` is called for every connection; they need no session settings. ``insist``: that
    notifications do not arrive is an error, told at each test.
    """

    def __init__(
        self,
        conninfo: Callable[[], str],
        wakeup: Wakeup,
        destinations: Collection[str],
        emit: Callable[[Event], None],
        *,
        insist: bool = False,
    ) -> None:
        self._conninfo = conninfo
        self._insist = insist
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
                self._report("poll", str(error), again=self._insist)
                pause = KEEPALIVE_SECONDS * 12
            except DATABASE_ERRORS as error:
                self._report(
                    "poll", f"the listening connection failed: {' '.join(str(error).split())}"
                )
                pause = RECONNECT_SECONDS
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        conn = await self._connect()
        try:
            await self._test(conn)
            self._report("notify", "a notification to ourselves arrived")
            while True:
                await self._receive(conn)
                await bounded(conn.execute(KEEPALIVE), ANSWER_SECONDS)
        finally:
            self._wakeup.listening(active=False)
            with contextlib.suppress(*DATABASE_ERRORS):
                await bounded(conn.close(), ANSWER_SECONDS)

    async def _connect(self) -> AsyncConnection[Any]:
        connecting = asyncio.ensure_future(
            AsyncConnection.connect(self._conninfo(), autocommit=True, prepare_threshold=None)
        )
        try:
            return await bounded(connecting, ANSWER_SECONDS * 5)
        except BaseException:
            # It may come about all the same, with nobody left to close it.
            connecting.add_done_callback(_close_unused)
            raise

    async def _test(self, conn: AsyncConnection[Any]) -> None:
        test = hears_notifications(conn, self._conninfo(), seconds=SELF_TEST_SECONDS)
        if not await bounded(test, SELF_TEST_SECONDS + ANSWER_SECONDS * 5):
            raise NotifyUnavailableError(
                "a notification to ourselves did not arrive within "
                f"{SELF_TEST_SECONDS:g} s (a pooler in transaction mode?); set PGOUTBOX_LISTEN_DSN"
                " to a direct connection to be woken instead of polling"
            )

    async def _receive(self, conn: AsyncConnection[Any]) -> None:
        async with aclosing(conn.notifies(timeout=KEEPALIVE_SECONDS)) as notifications:
            async for notification in notifications:
                self._wakeup.heard()
                if notification.payload in self._destinations:
                    self._wakeup.notified()

    def _report(self, mode: Literal["notify", "poll"], reason: str, *, again: bool = False) -> None:
        if mode == "notify":
            self._wakeup.listening(active=True)
        if mode == self._mode and not again:
            return
        self._mode = mode
        self._emit(WakeupModeChanged(mode, reason, insisted=self._insist))


def _close_unused(connecting: asyncio.Future[AsyncConnection[Any]]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().pgconn.finish()
