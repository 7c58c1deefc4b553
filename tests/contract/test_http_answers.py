"""Each request is judged by its own answer, and by nothing that comes before or after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import http_parser

from pgoutbox.brokers.http.protocol import Handler
from pgoutbox.brokers.http.publisher import open_http
from pgoutbox.errors import RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from tests.contract.raw_http import OK, raw_server

if TYPE_CHECKING:
    from tests.contract.raw_http import Exchange

OPTIONS = PublisherOptions(destination="hook")
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


class Heads:
    """Counts the answers that the client has parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.more = asyncio.Event()
        feed = Handler.feed_data

        def fed(handler: Handler, *args: Any) -> None:
            feed(handler, *args)
            self.count += 1
            self.more.set()

        monkeypatch.setattr(Handler, "feed_data", fed)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.count < count:
                self.more.clear()
                await self.more.wait()


@pytest.mark.parametrize("late", [OK, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_an_answer_that_comes_between_two_requests_is_taken_for_neither(
    late: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = Heads(monkeypatch)
    async with raw_server() as raw:
        publisher = await open_http(raw.url, options=OPTIONS)
        assert await publish_one(publisher, make_message()) is None

        async def fail(exchange: Exchange) -> None:
            await exchange.send(FAILED)

        raw.answer = fail
        await raw.exchanges[0].send(late)
        await heads.until(2)
        answer = await publish_one(publisher, make_message())
        await publisher.close()
    assert isinstance(answer, RetryableError)
    assert "500" in str(answer)
    assert raw.connections == 2


@pytest.mark.parametrize("rest", [b"no size\r\n", b"1\r\nab\r\n"])
async def test_a_body_that_is_broken_does_not_take_back_what_the_status_said(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the client's extension in C is not there, errors are others.
    monkeypatch.setattr("aiohttp.client_proto.HttpResponseParser", http_parser.HttpResponseParserPy)
    heads = Heads(monkeypatch)

    async def break_off(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await heads.until(1)
        await exchange.send(rest)

    async with raw_server() as raw:
        raw.answer = break_off
        publisher = await open_http(raw.url, options=OPTIONS)
        assert await publish_one(publisher, make_message()) is None
        await publisher.close()
