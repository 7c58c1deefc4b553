"""The part of the contract that needs a server which misbehaves: it brings the servers itself."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import pytest

from pgoutbox.testing.calling import (
    PATIENCE,
    AnyPublisher,
    publish_after_close,
    publish_in_vain,
    publish_one,
    publish_until_taken,
    worth_a_retry,
)
from pgoutbox.testing.messages import make_message

OpenAt: TypeAlias = Callable[[str], Awaitable[AnyPublisher]]

BABBLE = {
    "a mail server": b"220 mail.example ESMTP\r\n",
    "zeros": b"\0" * 64,
    "noise": b"\xff" * 64,
}
"""What is no answer to anything, in any protocol."""
TIMEOUT = 2.0
"""The publish timeout of a publisher that is opened at a server which misbehaves."""
PROMPTLY = 3.0
"""Seconds that a cancelled publish or a close may take, whatever the destination does."""


class FaultContract:
    """What a publisher makes of servers that are none."""

    @pytest.fixture
    def open_at(self) -> OpenAt | None:
        """Opens a publisher for ``127.0.0.1:port``, with a publish timeout of `TIMEOUT` seconds."""
        return None

    @pytest.fixture
    def server(self) -> str | None:
        """``host:port`` of a server that takes what a publisher of ``open_at`` sends there."""
        return None

    async def test_a_server_that_hangs_up_is_answered_with_an_error_worth_a_retry(
        self, open_at: OpenAt | None
    ) -> None:
        """As a load balancer does that has nobody behind it."""
        async with _server(_hang_up) as address:
            await worth_a_retry(await _opened(open_at, address), within=TIMEOUT)

    @pytest.mark.parametrize("words", BABBLE.values(), ids=BABBLE.keys())
    async def test_a_server_that_speaks_something_else_is_answered_with_an_error_worth_a_retry(
        self, open_at: OpenAt | None, words: bytes
    ) -> None:
        """As on a port that another service has taken over."""
        async with _server(_babble(words)) as address:
            await worth_a_retry(await _opened(open_at, address), within=TIMEOUT)

    async def test_a_server_that_never_answers_is_answered_with_an_error_worth_a_retry(
        self, open_at: OpenAt | None
    ) -> None:
        """By the publisher itself, in time; the worker's own timeout is only a net."""
        async with _server(_say_nothing) as address:
            await worth_a_retry(await _opened(open_at, address), within=TIMEOUT)

    async def test_a_publish_to_a_server_that_never_answers_is_cancelled_promptly(
        self, open_at: OpenAt | None
    ) -> None:
        """A drain cancels what does not end, and closes the publisher."""
        async with _server(_say_nothing) as address:
            publisher = await _opened(open_at, address)
            task = asyncio.ensure_future(publish_one(publisher, make_message()))
            done, _ = await asyncio.wait([task], timeout=0.2)
            assert not done, "nobody answered, and yet the publish ended at once"
            task.cancel()
            await asyncio.wait([task], timeout=PROMPTLY)
            assert task.cancelled(), "the cancellation was swallowed, or took too long"
            async with asyncio.timeout(PROMPTLY):
                await publisher.close()

    async def test_a_server_that_comes_late_is_found(
        self, open_at: OpenAt | None, server: str | None
    ) -> None:
        """A publisher whose destination was away once is not broken by that."""
        if server is None:
            pytest.skip("no address of a server that works was provided")
        async with _server(_hang_up) as address:
            publisher = await _opened(open_at, address)
            await publish_in_vain(publisher)
        # Nobody listens there any more.
        await publish_in_vain(publisher)
        async with _server(_forward(server), address):
            await publish_until_taken(publisher)
            async with asyncio.timeout(PATIENCE):
                await publisher.close()

    async def test_a_publisher_that_was_closed_does_not_connect(
        self, open_at: OpenAt | None
    ) -> None:
        """Nobody would ever close what it opens then."""
        callers: list[str] = []

        async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            callers.append(writer.get_extra_info("peername"))
            await _say_nothing(reader, writer)

        async with _server(note) as address:
            publisher = await _opened(open_at, address)
            async with asyncio.timeout(PATIENCE):
                await publisher.close()
                before = await _callers_until_now(address, callers)
                await publish_after_close(publisher)
                after = await _callers_until_now(address, callers)
            assert after == before + 1, "it connected after it was closed"


async def _opened(open_at: OpenAt | None, address: str) -> AnyPublisher:
    if open_at is None:
        pytest.skip("no way to open a publisher at an address was provided")
    async with asyncio.timeout(PATIENCE):
        return await open_at(address)


async def _callers_until_now(address: str, callers: list[str]) -> int:
    """How many have connected: a caller of our own is the last of them."""
    _, writer = await asyncio.open_connection(*_split(address))
    ours = writer.get_extra_info("sockname")
    while ours not in callers:  # noqa: ASYNC110 - it is next in line
        await asyncio.sleep(0)
    writer.close()
    await writer.wait_closed()
    return len(callers)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


Behave: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _server(behave: Behave, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Listens while the context lasts, and does with each connection as told."""
    writers: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            await behave(reader, writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.add(asyncio.ensure_future(connected(reader, writer)))

    server = await asyncio.start_server(accept, *_split(address))
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=PROMPTLY)


async def _hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _babble(words: bytes) -> Behave:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Some servers speak first, and others when they are spoken to.
        writer.write(words)
        while await reader.read(65536):
            writer.write(words)
            await writer.drain()
        writer.close()

    return babble


async def _say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass


def _forward(target: str) -> Behave:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*_split(target))
        try:
            await asyncio.gather(_pass_on(reader, requests), _pass_on(answers, writer))
        finally:
            requests.transport.abort()
            await requests.wait_closed()

    return forward


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
