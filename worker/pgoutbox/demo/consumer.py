"""The consumer: an HTTP endpoint with moods, and with the inbox in front of its effect."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from aiohttp import web
from psycopg_pool import AsyncConnectionPool

from pgoutbox.demo.plan import QUICKEST, SLOW_ANSWER, SLOWEST
from pgoutbox.inbox import first_time

if TYPE_CHECKING:
    from pgoutbox.demo.place import Place

NAME = "shipping"
BUSY_EVERY = 20
"""Every so many new messages are answered with 503 at first."""
CONNECTIONS = 4

BOOK = b"INSERT INTO shipments (message_id, order_id) VALUES (%s, %s)"


class Consumer:
    """Books one shipment per order, however often it is told. Counts what it is asked."""

    def __init__(self, place: Place) -> None:
        self.requested: set[UUID] = set()
        self.accepted: set[UUID] = set()
        self.retries = 0
        """Requests for a message that had come before and was not accepted then."""
        self.duplicates_seen = 0
        """Requests for a message that had been accepted before."""
        self.duplicates_absorbed = 0
        """Those of them that the inbox skipped."""
        self.slow: UUID | None = None
        """The message that gets the slow answer, from the moment it has arrived."""
        self._slowness_due = False
        # Opened in start(): a pool belongs to the event loop that runs then.
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            place.conninfo,
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            kwargs={"autocommit": True},
            open=False,
        )
        app = web.Application()
        app.router.add_post("/orders", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen on a free port of this machine; returns the URL."""
        await self._pool.open(wait=True, timeout=10.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        return f"http://127.0.0.1:{port}/orders"

    async def stop(self) -> None:
        """Stop listening and close the connections. Safe to call when it never started."""
        await self._runner.cleanup()
        await self._pool.close(timeout=2.0)

    def be_slow_once(self) -> None:
        """Take `SLOW_ANSWER` seconds for the next new message."""
        self._slowness_due = True

    async def _receive(self, request: web.Request) -> web.Response:
        message_id = UUID(request.headers["webhook-id"])
        order = await request.json()
        new = message_id not in self.requested
        accepted_before = message_id in self.accepted
        self.requested.add(message_id)
        self.retries += not new and not accepted_before
        await self._work(message_id, new=new)
        if order["address"] is None:
            return web.Response(status=400)
        if new and len(self.requested) % BUSY_EVERY == 0 and message_id != self.slow:
            return web.Response(status=503)
        try:
            booked = await self._book(message_id, order["order"])
        except psycopg.Error:
            return web.Response(status=503)
        self.duplicates_seen += accepted_before or not booked
        self.duplicates_absorbed += not booked
        self.accepted.add(message_id)
        return web.Response(status=204)

    async def _work(self, message_id: UUID, *, new: bool) -> None:
        if self._slowness_due and new:
            self._slowness_due = False
            self.slow = message_id
            await asyncio.sleep(SLOW_ANSWER)
            return
        await asyncio.sleep(random.uniform(QUICKEST, SLOWEST))  # noqa: S311 - no secret

    async def _book(self, message_id: UUID, order: int) -> bool:
        """One transaction with the receipt; False when the receipt was there already."""
        async with (
            self._pool.connection() as conn,
            first_time(conn, NAME, message_id) as fresh,
        ):
            if fresh:
                await conn.execute(BOOK, [message_id, order])
        return fresh
