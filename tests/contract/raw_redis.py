"""A server that reads Redis commands and answers with any bytes, also wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

HANDSHAKE = {b"AUTH", b"CLIENT", b"SELECT", b"HELLO"}
ADDED = b"$3\r\n1-1\r\n"

Command = list[bytes]
Answer = Callable[[Command], Awaitable[bytes | None]]


async def added(_: Command) -> bytes | None:
    return ADDED


@dataclass
class RawRedis:
    """What it answers may be replaced at any time; what it was asked stays."""

    answer: Answer = added
    """To everything but the handshake; None ends the connection."""
    greeting: bytes = b"+OK\r\n"
    """To each command of the handshake."""
    commands: list[Command] = field(default_factory=list)
    handshakes: list[Command] = field(default_factory=list)
    connections: int = 0
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving[task] = writer
        try:
            while True:
                command = await _read_command(reader)
                if command[0] in HANDSHAKE:
                    self.handshakes.append(command)
                    reply: bytes | None = self.greeting
                else:
                    self.commands.append(command)
                    reply = await self.answer(command)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
        except ValueError:
            writer.write(b"-ERR Protocol error\r\n")
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read_command(reader: asyncio.StreamReader) -> Command:
    count = int((await reader.readexactly(1) + await reader.readuntil(b"\r\n"))[1:])
    command = []
    for _ in range(count):
        length = int((await reader.readuntil(b"\r\n"))[1:])
        command.append((await reader.readexactly(length + 2))[:-2])
    return command


@asynccontextmanager
async def raw_redis(tls: ssl.SSLContext | None = None) -> AsyncIterator[RawRedis]:
    raw = RawRedis()
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for writer in raw.serving.values():
            writer.transport.abort()
        if raw.serving:
            await asyncio.wait(raw.serving)
