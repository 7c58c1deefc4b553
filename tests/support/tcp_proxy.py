"""A TCP proxy before any server, that can be cut, closed, frozen, and made to hold back answers."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CHUNK = 65_536
PATIENCE = 30.0


class Link:
    """One client's connection, and ours to the server for it."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.answering = asyncio.Event()
        self.answering.set()
        self.losing = False
        self.writers: list[asyncio.StreamWriter] = []
        self.task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End both sides in an orderly way."""
        for writer in self.writers:
            writer.close()

    def cut(self) -> None:
        """Reset both sides, wherever they are."""
        # Nothing that was held back gets out: forwarding finds its writers closed.
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self.flowing.set()
        self.answering.set()


class TcpProxy:
    """Forwards to the server at ``target``, until told otherwise; ``port`` leads through it.

    It listens from the moment the context is entered, on ``listen_on`` where clients expect it at
    a port that was agreed on, else on a port of the system's choice.
    """

    def __init__(self, target: tuple[str, int], *, listen_on: int = 0) -> None:
        self.connections = 0
        """How often somebody connected, refused or not."""
        self.port = listen_on
        self._target = target
        self._changed = threading.Condition()
        self._links: set[Link] = set()
        self._accepting = True
        self._frozen = False
        self._silent = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._seat: socket.socket | None = None
        """Keeps the port for us while nobody listens."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections; new ones are welcome."""
        self._call(self._cut)

    def refuse(self) -> None:
        """Reset all connections, and each new one at once."""
        self._accepting = False
        self._call(self._cut)

    def accept(self) -> None:
        """Take new connections again."""
        self._accepting = True

    def down(self) -> None:
        """Be as if the server had died: all connections are reset, and nobody listens."""
        self._wait(self._leave())

    def up(self) -> None:
        """Listen again, where it did before."""
        self._wait(self._return())

    def freeze(self, *, newcomers: bool = True) -> None:
        """Let every connection hang: open, and silent. Without ``newcomers`` new ones work."""
        self._frozen = newcomers
        self._call(self._stop_flow)

    def thaw(self) -> None:
        """Let everything flow that was held back."""
        self._frozen = self._silent = False
        self._call(self._resume_flow)

    def hold_answers(self) -> None:
        """Let what clients send pass, and hold back every answer from now on."""
        self._silent = True
        self._call(self._stop_answers)

    def until(self, condition: Callable[[], bool], why: str, patience: float = PATIENCE) -> float:
        """Return once it is true, asked whenever something happens here; the seconds it took."""
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(condition, patience):
                raise AssertionError(f"not within {patience:g} s: {why}")
        return time.monotonic() - began

    def until_connected(self, times: int) -> float:
        """Return once there were so many more tries to connect; the seconds that it took."""
        wanted = self.connections + times
        return self.until(lambda: self.connections >= wanted, f"{times} connections")

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _cut(self) -> None:
        for link in self._links:
            link.cut()

    def _stop_flow(self) -> None:
        for link in self._links:
            link.flowing.clear()

    def _stop_answers(self) -> None:
        for link in self._links:
            link.answering.clear()

    def _resume_flow(self) -> None:
        for link in self._links:
            link.flowing.set()
            link.answering.set()

    def _call(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._wait(act())

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _leave(self) -> None:
        assert self._server is not None
        if self._seat is None:
            self._server.close()
            self._seat = socket.socket()
            self._seat.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._seat.bind(("127.0.0.1", self.port))
        self._cut()

    async def _return(self) -> None:
        if self._seat is not None:
            self._seat.close()
            self._seat = None
            await self._listen()

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        if self._seat is not None:
            self._seat.close()
        await asyncio.sleep(0.05)  # whoever was just let in
        links = list(self._links)
        self._cut()
        tasks = [link.task for link in links if link.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = (writer.wait_closed() for link in links for writer in link.writers)
        await asyncio.gather(*closed, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At once, so that no connection goes unnoticed when we stop.
        self.connections += 1
        self._tell()
        link = Link()
        link.writers.append(writer)
        if not self._accepting:
            link.cut()
            return
        if self._frozen:
            link.flowing.clear()
        if self._silent:
            link.answering.clear()
        self._links.add(link)
        link.task = self._loop.create_task(self._serve(link, reader, writer))

    async def _serve(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await link.flowing.wait()
            with suppress(OSError):
                server_reader, server_writer = await self._connect()
                link.writers.append(server_writer)
                await asyncio.gather(
                    self._forward_requests(link, reader, server_writer),
                    self._forward_answers(link, server_reader, writer),
                )
        finally:
            link.close()
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._target
        return await asyncio.open_connection(host, port)

    async def _forward_requests(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK):
            await link.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        link.close()

    async def _forward_answers(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK):
            await link.flowing.wait()
            await link.answering.wait()
            writer.write(chunk)
            await writer.drain()
        link.close()
