"""One connection for all publishes, made at the first of them and again after it was lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 3.0
"""Seconds between two tries to connect, some of them random."""


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
        """End it in an orderly way within a second or two, else like `abort`."""
        ...


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
        self._leaving: set[asyncio.Future[None]] = set()
        self._problem = ""
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._closed = False

    async def get(self) -> LinkT:
        """The connection. Raises `DestinationUnavailable` where there is none in time."""
        if (link := self._usable()) is not None:
            return link
        if self._closed:
            raise DestinationUnavailable(f"{self._where}: the publisher is closed")
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
        task = asyncio.ensure_future(link.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """End the connection, and any attempt at one."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening], timeout=1.0)
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=1.0)

    def _usable(self) -> LinkT | None:
        return self._link if self._link is not None and self._link.usable else None

    async def _open(self) -> None:
        try:
            old, self._link = self._link, None
            self._link = await self._connect(old)
        except DestinationUnavailable as error:
            self._problem = str(error)
            now = asyncio.get_running_loop().time()
            self._not_before = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._problem, self._pause = "", FIRST_PAUSE
        finally:
            self._opening = None
