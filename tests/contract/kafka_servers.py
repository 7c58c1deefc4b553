"""What stands where a broker should: silence, a refusal of every password, a gate to a broker."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.brokers.ladder import Address, locked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.brokers.kafka import Listeners

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 35, 58
THEIR_WORDS = "no such user as hunter2"
ANYWHERE = Address("127.0.0.1", 0)


@asynccontextmanager
async def server(serve: Serve, where: Address = ANYWHERE) -> AsyncIterator[str]:
    """The address at which ``serve`` answers each connection meanwhile."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_served(serve, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, *where)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _served(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await serve(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass


async def refuse_passwords(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Kafka's protocol as far as to the answer to SaslAuthenticate."""
    while True:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        api, version, correlation = struct.unpack_from("!hhi", await reader.readexactly(size))
        answer = struct.pack("!i", correlation) + _answers(api, version)
        writer.write(struct.pack("!i", len(answer)) + answer)
        await writer.drain()


def _answers(api: int, version: int) -> bytes:
    if api == API_VERSIONS:
        error = 0 if version == 0 else UNSUPPORTED_VERSION
        apis = [(API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 0)]
        entries = b"".join(struct.pack("!hhh", *one) for one in apis)
        return struct.pack("!hi", error, len(apis)) + entries
    if api == SASL_HANDSHAKE:
        return struct.pack("!hi", 0, 1) + _string("PLAIN")
    assert api == SASL_AUTHENTICATE
    return struct.pack("!h", SASL_AUTHENTICATION_FAILED) + _string(THEIR_WORDS) + b"\0\0\0\0"


def _string(text: str) -> bytes:
    return struct.pack("!h", len(text)) + text.encode()


class Gate:
    """Before a broker: open, shut, or frozen with all connections held."""

    def __init__(self, behind: Address) -> None:
        self._behind = behind
        self._shut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.through = asyncio.Event()
        """Something was forwarded to the broker; to be cleared by whoever waits."""

    def open(self) -> None:
        """As in the beginning."""
        self._shut = False
        self._flowing.set()

    def shut(self) -> None:
        """End all connections, and new ones at once."""
        self._shut = True
        self._flowing.set()
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Nothing gets through in either direction any more, and nobody is told."""
        self._flowing.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shut:
            return
        await self._flowing.wait()
        theirs, ours = await asyncio.open_connection(*self._behind)
        self._writers |= {writer, ours}
        try:
            await asyncio.gather(self._copy(reader, ours), self._copy(theirs, writer))
        finally:
            self._writers -= {writer, ours}
            ours.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._flowing.wait()
            target.write(data)
            self.through.set()
            await target.drain()
        target.close()


@asynccontextmanager
async def gate(listeners: Listeners) -> AsyncIterator[Gate]:
    """One before the broker that tells its clients to come through here."""
    one = Gate(listeners.behind)
    with locked("kafka-proxy"):
        async with server(one.serve, listeners.front):
            yield one
