"""A server that shows the request's bytes and answers with any bytes, also wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Exchange:
    """One request, and the way to answer it."""

    head: bytes
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")

    def values(self, name: str) -> list[bytes]:
        pairs = (line.split(b": ", 1) for line in self.lines[1:])
        return [value for key, value in pairs if key.lower() == name.encode().lower()]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Answer = Callable[[Exchange], Awaitable[None]]


async def say_ok(exchange: Exchange) -> None:
    await exchange.send(OK)


@dataclass
class RawServer:
    """What it answers may be replaced at any time; what it was asked stays."""

    answer: Answer = say_ok
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Some connection has ended."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                exchange = Exchange(head, b"", writer)
                size = int(exchange.values("content-length")[0])
                exchange.body = await reader.readexactly(size)
                self.exchanges.append(exchange)
                await self.answer(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def raw_server() -> AsyncIterator[RawServer]:
    raw = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(raw.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
