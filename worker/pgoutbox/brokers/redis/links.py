"""Connections to a Redis server: each carries one pipeline at a time, or is thrown away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from redis.asyncio.connection import Connection, SSLConnection

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

HANDSHAKE = 0.8
"""The share of the time for connecting after which a TLS handshake is given up, by itself: then
people can be told that it was this."""


class Closed(Exception):  # noqa: N818 - what they are
    """There will be no connection any more."""


class AllBusy(TimeoutError):  # noqa: N818 - as above
    """No connection was free in time."""


class NoLink(Exception):  # noqa: N818 - what there is not
    """No connection came about, so nothing was sent; ``reason`` is what the client says."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


class Link(Connection):
    """A connection that can be dropped together with what was not sent yet.

    The client's `disconnect` would go on sending it whenever the server reads again.
    """

    transport: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        """Connect, with TLS, user and database as they were given."""
        await cast("Callable[[], Awaitable[None]]", self.connect)()
        if self._writer is not None:
            self.transport = self._writer.transport

    async def drop(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()
        await self.disconnect(nowait=True)

    def usable(self) -> bool:
        """Whether it is open, and nothing has come in since its last answer."""
        reader, transport = self._reader, self.transport
        if reader is None or transport is None or transport.is_closing() or reader.at_eof():
            return False
        # An answer nobody waits for would be taken for that to the next command.
        return not getattr(reader, "_buffer", b"")


class TlsLink(Link, SSLConnection):
    """The same over TLS."""

    handshake_within: float | None = None

    def secure(self, context: ssl.SSLContext, patience: float) -> None:
        """Connect with this context, within so many seconds."""
        self.ssl_context.context = context
        self.handshake_within = patience * HANDSHAKE

    def _connection_arguments(self) -> Mapping[str, Any]:
        known: Mapping[str, Any] = super()._connection_arguments()
        return {**known, "ssl_handshake_timeout": self.handshake_within}


class Links:
    """At most ``limit`` connections, made when they are needed. The last used is used first."""

    def __init__(
        self, arguments: Mapping[str, Any], *, tls: ssl.SSLContext | None, limit: int
    ) -> None:
        self._arguments = arguments
        self._tls = tls
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[Link] = []
        self._busy: set[Link] = set()
        self._closed = False

    @asynccontextmanager
    async def one(self, patience: float) -> AsyncIterator[Link]:
        """A connection for one pipeline, dropped where that ends with an exception.

        Raises `NoLink`, after ``patience`` seconds at the latest.
        """
        deadline = asyncio.get_running_loop().time() + patience
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise NoLink(AllBusy()) from None
        try:
            link = await self._opened(deadline)
            try:
                yield link
            except BaseException:
                # Whatever it still has to say is no answer to anybody else's command.
                await link.drop()
                raise
            finally:
                self._busy.discard(link)
            if link.usable() and not self._closed:
                self._idle.append(link)
            else:
                await link.drop()
        finally:
            self._slots.release()

    async def drop_idle(self) -> None:
        """Forget the connections that wait: the server behind them is the wrong one by now."""
        while self._idle:
            await self._idle.pop().drop()

    async def close(self) -> None:
        """End them all, also those in use. There will be no others."""
        self._closed = True
        await self.drop_idle()
        for link in tuple(self._busy):
            await link.drop()

    async def _opened(self, deadline: float) -> Link:
        self._check_open()
        while self._idle:
            link = self._idle.pop()
            if link.usable():
                self._busy.add(link)
                return link
            await link.drop()
        link = self._new(deadline)
        self._busy.add(link)
        try:
            async with asyncio.timeout_at(deadline):
                await link.open()
            self._check_open()
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            await self._failed(link)
            self._check_open()
            # Not chained: the client's texts are not for people to read.
            raise NoLink(error) from None
        except BaseException:
            await self._failed(link)
            raise
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise NoLink(Closed())

    def _new(self, deadline: float) -> Link:
        if self._tls is None:
            return Link(**self._arguments)
        link = TlsLink(**self._arguments)
        link.secure(self._tls, deadline - asyncio.get_running_loop().time())
        return link

    async def _failed(self, link: Link) -> None:
        self._busy.discard(link)
        await link.drop()
