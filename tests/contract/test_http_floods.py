"""Servers that do not stop answering."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from pgoutbox.brokers.http.protocol import MOST_HEADS, Handler, limited
from pgoutbox.brokers.http.publisher import open_http
from pgoutbox.errors import RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPTIONS = PublisherOptions(destination="hook", publish_timeout=10.0)


@pytest.fixture
async def flood(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A server that answers each connection with the same, for ever."""
    head: bytes = request.param

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            while True:
                writer.write(head * 2000)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


@pytest.mark.parametrize(
    "flood",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"],
    indirect=True,
    ids=["100", "103"],
)
async def test_answers_that_never_end_are_hung_up_on_at_once(flood: str) -> None:
    publisher = await open_http(flood, options=OPTIONS)
    async with asyncio.timeout(2.0):
        answer = await publish_one(publisher, make_message())
    await publisher.close()
    assert isinstance(answer, RetryableError), repr(answer)


@pytest.mark.parametrize("flood", [b"HTTP/1.1 204 No Content\r\n\r\n"], indirect=True, ids=["204"])
async def test_more_answers_than_requests_cost_the_connection_and_not_the_message(
    flood: str,
) -> None:
    publisher = await open_http(flood, options=OPTIONS)
    async with asyncio.timeout(2.0):
        assert [await publish_one(publisher, make_message()) for _ in range(3)] == [None] * 3
    await publisher.close()


async def test_a_few_early_hints_are_no_flood() -> None:
    async def hint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MOST_HEADS // 2))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hint, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher = await open_http(f"http://127.0.0.1:{port}/", options=OPTIONS)
    assert await publish_one(publisher, make_message()) is None
    await publisher.close()
    server.close()


async def test_the_client_still_makes_its_connections_in_the_way_that_the_limit_builds_on() -> None:
    connector = aiohttp.TCPConnector()
    before = connector._factory
    assert callable(before)
    assert isinstance(limited(connector)._factory(), Handler)
    await connector.close()
