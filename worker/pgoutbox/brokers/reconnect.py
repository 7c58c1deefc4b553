"""One connection for all publishes, made at the first of them and again after it was lost."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pgoutbox.brokers.answers import translated
from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pgoutbox.brokers.answers import Row

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 3.0
"""Seconds between two tries to connect, some of them random."""
CLOSING = 1.5
"""Seconds that the end of all connections may take."""
UNCONNECTED: Sequence[Row] = (
    (asyncio.CancelledError, DestinationUnavailable, "connecting was broken off"),
    (Exception, DestinationUnavailable, "connecting failed as nobody expected; see the log"),
)


class Link(Protocol):
    """What is connected."""

    @property
    def usable(self) -> bool:
        """Whether the next publish may use it."""
        ...

    def abort(self) -> None:
        """End it at once, with whatever it has not sent yet."""
        ...

    async def close(self) -> None:
        """End it in an orderly way within a second, else like `abort`."""
        ...


def cut(writer: asyncio.StreamWriter | None) -> None:
    """Drop a connection, and what is still to be sent. May be called again."""
    if writer is not None:
        # What asyncio raises where the connection was lost before.
        with suppress(AttributeError):
            writer.transport.abort()


LinkT = TypeVar("LinkT", bound=Link)


class Reconnecting(Generic[LinkT]):
    """Gives whoever publishes the open connection, or says why there is none.

    ``connect`` is given what there was before, to mend it or to drop it. It raises
    `DestinationUnavailable`, and ends within ``patience`` seconds or a little later. While it fails
    it is not called again at once: those who ask meanwhile hear the same.
    """

    def __init__(
        self, connect: Callable[[LinkT | None], Awaitable[LinkT]], *, where: str, patience: float
    ) -> None:
        self._connect = connect
        self._where = where
        self._patience = patience
        self._link: LinkT | None = None
        self._opening: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._problem = ""
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._closed = False

    async def get(self) -> LinkT:
        """The connection. Raises `DestinationUnavailable` where there is none in time."""
        if (link := self._usable()) is not None:
            return link
        loop = asyncio.get_running_loop()
        if self._opening is None:
            if loop.time() < self._not_before:
                raise DestinationUnavailable(self._problem)
            # A task of its own: whoever asked first may be cancelled while others wait.
            self._opening = loop.create_task(self._open())
        await asyncio.wait([self._opening], timeout=self._patience)
        if (link := self._usable()) is not None:
            return link
        raise DestinationUnavailable(self._problem or f"{self._where}: connecting took too long")

    def drop(self, link: LinkT) -> None:
        """It is of no use any more: the next publish gets another."""
        if link is self._link:
            self._link = None
        link.abort()
        # Nobody waits for what its client has to put away.
        self._leave(link)

    async def close(self) -> None:
        """End the connection, and any attempt at one. None comes after this."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            self._leave(link)
        ending = set(self._leaving)
        if self._opening is not None:
            self._opening.cancel()
            ending.add(self._opening)
        if ending:
            _, late = await asyncio.wait(ending, timeout=CLOSING)
            if late and link is not None:
                link.abort()

    def _leave(self, link: LinkT) -> None:
        task = asyncio.ensure_future(self._end(link))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _end(self, link: LinkT) -> None:
        try:
            await link.close()
        except Exception:
            log.exception("%s: closing the connection failed", self._where)
            link.abort()

    def _usable(self) -> LinkT | None:
        if self._closed:
            raise DestinationUnavailable(f"{self._where}: the publisher is closed")
        return self._link if self._link is not None and self._link.usable else None

    async def _open(self) -> None:
        try:
            old, self._link = self._link, None
            link = await self._connect(old)
        except BaseException as error:
            self._failed(error)
            if not isinstance(error, Exception):
                raise
        else:
            if self._closed:
                # A client may come about although it was told not to.
                self.drop(link)
            else:
                self._link, self._problem, self._pause = link, "", FIRST_PAUSE
        finally:
            self._opening = None

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, DestinationUnavailable):
            error = translated(error, UNCONNECTED, self._where)
        self._problem = str(error)
        now = asyncio.get_running_loop().time()
        self._not_before = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
