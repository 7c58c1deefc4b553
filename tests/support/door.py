"""A TCP port before a server, in the loop of whoever uses it: open, shut, or open and silent."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"


class Side(asyncio.Protocol):
    """One end of a connection that is passed through."""

    def __init__(
        self,
        made: Callable[[Side], None],
        lost: Callable[[Side], None],
        said: Callable[[], None],
        *,
        is_client: bool,
    ) -> None:
        self.is_client = is_client
        self._said = said
        self.other: Side | None = None
        self.transport: asyncio.Transport | None = None
        self._early = b""
        self._made = made
        self._lost = lost

    @property
    def peer(self) -> object:
        """The address of whoever is at this end."""
        return self.transport and self.transport.get_extra_info("peername")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._made(self)

    def data_received(self, data: bytes) -> None:
        self._said()
        if self.other is None or self.other.transport is None:
            self._early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lost(self)

    def join(self, other: Side) -> None:
        self.other, other.other = other, self
        if self._early and other.transport is not None:
            other.transport.write(self._early)
            self._early = b""

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def flow(self, *, on: bool) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


class Door:
    """Leads to the server at ``target``, as libpq names it; ``port`` is where the door is."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.port = 0
        self.connections = 0
        """How often somebody came in."""
        self.sent = 0
        """How often a client said something: mostly, how many round trips there were."""
        self.answered_at = 0.0
        """When the server last said something, by the loop's clock."""
        self._target = target
        self._silent = False
        self._server: asyncio.Server | None = None
        self._sides: set[Side] = set()
        self._lost: set[Side] = set()
        """Of whom nobody will hear again."""
        self._waiting: list[Side] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    @property
    def open_connections(self) -> int:
        """Clients that are connected now."""
        return len(self._sides) // 2

    def is_silent(self, fd: int) -> bool:
        """Whether a client need not wait for what comes over ``fd``."""
        if not (self._silent or self._lost):
            return False
        try:
            with socket.socket(fileno=os.dup(fd)) as copy:
                near, far = copy.getsockname(), copy.getpeername()
        except OSError:
            return False
        lost = {each.peer for each in self._lost}
        return far[:2] == (HOST, self.port) and (self._silent or near in lost)

    async def open(self) -> None:
        """Let everybody in, and everything flow that was held back."""
        self._silent = False
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._greet, HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        for side in self._sides - self._lost:
            side.flow(on=True)
        waiting, self._waiting = self._waiting, []
        for side in waiting:
            if side in self._sides - self._lost:
                self._lead(side)

    async def shut(self) -> None:
        """Reset everybody, and refuse those who come."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        # The sockets are closed in the next round.
        await asyncio.sleep(0)

    def silence(self) -> None:
        """Let everybody in, and keep everything that they say to yourself."""
        self._silent = True
        for side in self._sides:
            side.flow(on=False)

    def lose(self) -> None:
        """As `open` after `silence`, but those who are in will never hear of it."""
        self._lost |= self._sides

    def expire(self) -> None:
        """Let the server give up those who are lost, as it does some day.

        Of clients we hear again only that they have left, which nobody was told either.
        """
        for side in list(self._lost):
            side.other = None
            if side.is_client:
                side.flow(on=True)
            else:
                side.cut()

    def cut(self) -> None:
        """Reset everybody; they may come again."""
        for side in list(self._sides):
            side.cut()

    def _greet(self) -> Side:
        return Side(self._came, self._left, self._asked, is_client=True)

    def _asked(self) -> None:
        self.sent += 1

    def _answered(self) -> None:
        self.answered_at = asyncio.get_running_loop().time()

    def _came(self, side: Side) -> None:
        self.connections += 1
        self._sides.add(side)
        if self._silent:
            side.flow(on=False)
            self._waiting.append(side)
        else:
            self._lead(side)

    def _lead(self, side: Side) -> None:
        task = asyncio.create_task(self._connect(side), name="door")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, side: Side) -> None:
        try:
            other = await self._reach()
        except OSError:
            side.cut()
            return
        side.join(other)
        side.flow(on=True)

    async def _reach(self) -> Side:
        loop, (host, port) = asyncio.get_running_loop(), self._target
        side = Side(self._sides.add, self._left, self._answered, is_client=False)
        if host.startswith("/"):
            await loop.create_unix_connection(lambda: side, f"{host}/.s.PGSQL.{port}")
        else:
            await loop.create_connection(lambda: side, host, port)
        return side

    def _left(self, side: Side) -> None:
        self._sides.discard(side)
        self._lost.discard(side)
        if side.other is not None and side.other not in self._lost:
            side.other.cut()
