"""A TCP proxy before the test server that can be cut, closed, frozen, and made to lose answers."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

CHUNK = 65_536
PATIENCE = 30.0
NO_TYPE_YET = frozenset({80_877_103, 80_877_104})
"""Codes of the requests for TLS and GSS: after them another message without a type follows."""
IDLE = b"Z\x00\x00\x00\x05I"
"""How an answer ends when the statement's transaction is over."""


class Requests:
    """Reads what a client sends: which statement each execution is of."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._typed = False
        self.prepared: dict[bytes, bytes] = {}
        self._bound = b""

    def executed(self, chunk: bytes) -> Iterator[bytes]:
        """The texts of the statements whose execution is asked for in this chunk."""
        self._bytes += chunk
        while message := self._next():
            kind, body = message
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self.prepared[name] = text
            elif kind == b"B":
                self._bound = self.prepared.get(body.split(b"\0", 2)[1], b"")
            elif kind == b"E":
                yield self._bound
            elif kind == b"Q":
                yield body

    def _next(self) -> tuple[bytes, bytes] | None:
        head = 1 if self._typed else 0
        if len(self._bytes) < head + 4:
            return None
        (length,) = struct.unpack_from("!I", self._bytes, head)
        if len(self._bytes) < head + length:
            return None
        kind, body = bytes(self._bytes[:head]), bytes(self._bytes[head + 4 : head + length])
        del self._bytes[: head + length]
        if not self._typed:
            self._typed = struct.unpack_from("!I", body)[0] not in NO_TYPE_YET
            return b"start", body
        return kind, body


class Link:
    """One client's connection, and ours to the server for it."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.losing = False
        self.writers: list[asyncio.StreamWriter] = []
        self.task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End both sides in an orderly way."""
        for writer in self.writers:
            writer.close()

    def cut(self) -> None:
        """Reset both sides, wherever they are."""
        self.flowing.set()
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Forwards to the server of ``dsn``, until told otherwise. Its own ``dsn`` leads through it."""

    def __init__(self, dsn: str) -> None:
        self.connections = 0
        """How often somebody connected, refused or not."""
        self.statements: Counter[bytes] = Counter()
        """Executions by the statement's text."""
        self.prepared: set[bytes] = set()
        """Statements that were prepared under a name."""
        self._changed = threading.Condition()
        self._given = conninfo_to_dict(dsn)
        self._links: set[Link] = set()
        self._accepting = True
        self._frozen = False
        self._lose: tuple[bytes, threading.Event] | None = None
        self._freeze_at: tuple[bytes, threading.Event] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def dsn(self) -> str:
        """The server's, through this proxy, unencrypted so that it can be read along."""
        through: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable"}
        return make_conninfo("", **self._given | through | {"gssencmode": "disable"})

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

    def freeze(self, *, newcomers: bool = True) -> None:
        """Let every connection hang: open, and silent. Without ``newcomers`` new ones work."""
        self._frozen = newcomers
        self._call(self._stop_flow)

    def thaw(self) -> None:
        """Let everything flow that was held back."""
        self._frozen = False
        self._call(self._resume_flow)

    def lose_answer(self, fragment: bytes) -> threading.Event:
        """Cut the connection between the next such statement's commit and its answer.

        ``fragment`` is part of the statement's text. The event is set once it has happened.
        """
        lost = threading.Event()
        self._lose = (fragment, lost)
        return lost

    def freeze_at(self, fragment: bytes) -> threading.Event:
        """Let the connection of the next such statement hang for good; the others work."""
        frozen = threading.Event()
        self._freeze_at = (fragment, frozen)
        return frozen

    def executions(self) -> int:
        """How many statements were sent so far."""
        return self.statements.total()

    def until(self, condition: Callable[[], bool], why: str, patience: float = PATIENCE) -> float:
        """Return once it is true, asked at each connection and execution; the seconds it took."""
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(condition, patience):
                raise AssertionError(f"not within {patience:g} s: {why}")
        return time.monotonic() - began

    def until_count(self, fragment: bytes, count: int) -> float:
        """Return once so many such statements were sent in all; the seconds that it took."""
        why = f"{count} statements with {fragment!r}"
        return self.until(lambda: self.count(fragment) >= count, why)

    def until_connected(self, times: int) -> float:
        """Return once there were so many more tries to connect; the seconds that it took."""
        wanted = self.connections + times
        return self.until(lambda: self.connections >= wanted, f"{times} connections")

    def count(self, fragment: bytes) -> int:
        """How many statements with this in their text were sent so far."""
        # A copy, in one step: the proxy's own thread adds to it meanwhile.
        return sum(times for text, times in self.statements.copy().items() if fragment in text)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _cut(self) -> None:
        for link in self._links:
            link.cut()

    def _stop_flow(self) -> None:
        for link in self._links:
            link.flowing.clear()

    def _resume_flow(self) -> None:
        for link in self._links:
            link.flowing.set()

    def _call(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._wait(act())

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
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
        host, port = str(self._given.get("host", "")), str(self._given.get("port", 5432))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    async def _forward_requests(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        requests = Requests()
        while chunk := await reader.read(CHUNK):
            await link.flowing.wait()
            for text in requests.executed(chunk):
                self.statements[text] += 1
                self._act_on(link, text)
                self._tell()
            self.prepared.update(text for name, text in requests.prepared.items() if name)
            await link.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        link.close()

    def _act_on(self, link: Link, statement: bytes) -> None:
        if self._lose is not None and self._lose[0] in statement:
            link.losing = True
        if self._freeze_at is not None and self._freeze_at[0] in statement:
            frozen, self._freeze_at = self._freeze_at[1], None
            link.flowing.clear()
            frozen.set()

    async def _forward_answers(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK):
            if link.losing:
                if chunk.endswith(IDLE):
                    break
                continue
            await link.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        if link.losing and self._lose is not None:
            lost, self._lose = self._lose[1], None
            link.cut()
            lost.set()
        link.close()
