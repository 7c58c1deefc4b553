"""What stands on the wire, and servers that answer late, wrongly, or without end."""

from __future__ import annotations

import asyncio
import resource
import zlib
from typing import TYPE_CHECKING

import pytest
from yarl import URL

from pgoutbox._version import __version__
from pgoutbox.brokers.http import exchange
from pgoutbox.brokers.http.publisher import HttpPublisher, open_http
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from tests.contract.raw_http import OK, Exchange, RawServer, raw_server, say_ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

MINUTE = b"Wed, 21 Oct 2015 07:28"
OPTIONS = PublisherOptions(destination="hook", publish_timeout=4.0, concurrency=5)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        yield server


@pytest.fixture
async def publisher(server: RawServer) -> AsyncIterator[HttpPublisher]:
    publisher = await open_http(server.url, options=OPTIONS)
    yield publisher
    await publisher.close()


def saying(*parts: bytes) -> Callable[[Exchange], Awaitable[None]]:
    async def answer(exchange: Exchange) -> None:
        for part in parts:
            await exchange.send(part)

    return answer


def hanging_up_after(data: bytes) -> Callable[[Exchange], Awaitable[None]]:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.writer.close()

    return answer


async def test_a_request_is_these_bytes(server: RawServer, publisher: HttpPublisher) -> None:
    message = make_message(
        body=b'{"n": 12345678901234567890123}',
        attempts=2,
        aggregate_id="Zürich\r\nX: 1",
        headers_json='{"X-Tenant": "7", "host": "evil", "Content-Length": "1"}',
    )
    await publisher.publish(message)
    (exchange,) = server.exchanges
    assert exchange.body == message.body
    assert exchange.lines[0] == b"POST /hook HTTP/1.1"
    assert sorted(exchange.lines[1:]) == sorted(
        [
            b"Accept: */*",
            b"Accept-Encoding: identity",
            b"Content-Length: 30",
            b"content-type: application/json",
            b"Host: 127.0.0.1:%d" % server.port,
            b"outbox-aggregate-id: Z%C3%BCrich%0D%0AX: 1",
            b"outbox-aggregate-type: order",
            b"outbox-attempt: 2",
            b"outbox-event-type: order_placed",
            b"outbox-message-id: " + str(message.message_id).encode(),
            b"User-Agent: pgoutbox/" + __version__.encode(),
            b"webhook-id: " + str(message.message_id).encode(),
            b"X-Tenant: 7",
        ]
    )


async def test_what_a_message_accepts_replaces_that_we_accept_anything(
    server: RawServer, publisher: HttpPublisher
) -> None:
    await publisher.publish(make_message(headers_json='{"ACCEPT": "text/plain"}'))
    assert server.exchanges[0].values("accept") == [b"text/plain"]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\rb", "a\nb"])
async def test_a_header_that_would_begin_another_is_not_sent(
    server: RawServer, publisher: HttpPublisher, value: str
) -> None:
    with pytest.raises(ValueError, match="a header has a line break"):
        await publisher._exchanges.post(URL(server.url), [("note", value)], b"")
    assert server.connections == 0


@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 2**19])
async def test_a_payload_is_framed_by_its_length(
    server: RawServer, publisher: HttpPublisher, body: bytes
) -> None:
    await publisher.publish(make_message(body=body, content_type="application/octet-stream"))
    assert server.exchanges[0].body == body
    assert server.exchanges[0].values("transfer-encoding") == []


async def test_a_connection_is_used_again(server: RawServer, publisher: HttpPublisher) -> None:
    for _ in range(5):
        await publisher.publish(make_message())
    assert (len(server.exchanges), server.connections) == (5, 1)


async def test_a_connection_that_was_closed_while_idle_is_replaced(
    server: RawServer, publisher: HttpPublisher
) -> None:
    server.answer = hanging_up_after(OK)
    await publisher.publish(make_message())
    connector = publisher._exchanges._connector
    ((protocol, _),) = next(iter(connector._conns.values()))
    while protocol.is_connected():  # noqa: ASYNC110 - the client offers no event for it
        # Until the client has seen the end of the connection.
        await asyncio.sleep(0)
    await publisher.publish(make_message())
    assert server.connections == 2


async def test_an_answer_without_end_costs_its_connection_and_nothing_else(
    server: RawServer, publisher: HttpPublisher
) -> None:
    async def a_gigabyte(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**30)
        block = b"x" * 2**20
        for _ in range(2**10):
            await exchange.send(block)

    server.answer = a_gigabyte
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await publisher.publish(make_message())
    await server.closed.wait()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    server.answer = say_ok
    await publisher.publish(make_message())
    assert server.connections == 2


async def test_the_status_decides_although_the_body_drips(
    server: RawServer, publisher: HttpPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", 0.05)
    server.answer = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"x")
    await publisher.publish(make_message())
    await server.closed.wait()
    server.answer = saying(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n", b"x")
    with pytest.raises(RetryableError, match="answered 503 Service Unavailable"):
        await publisher.publish(make_message())


async def test_the_status_decides_although_the_body_breaks_off(
    server: RawServer, publisher: HttpPublisher
) -> None:
    server.answer = hanging_up_after(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
    await publisher.publish(make_message())


async def test_a_head_that_drips_is_ended_by_the_workers_timeout(
    server: RawServer, publisher: HttpPublisher
) -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await exchange.send(b"x")
            await asyncio.sleep(0.01)

    server.answer = drip
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await publisher.publish(make_message())
    await server.closed.wait()
    server.answer = say_ok
    await publisher.publish(make_message())


async def test_a_publisher_used_alone_waits_no_longer_than_the_publish_timeout(
    server: RawServer,
) -> None:
    async def drip(exchange: Exchange) -> None:
        for byte in OK * 1000:
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0.05)

    async def never(_: Exchange) -> None:
        await asyncio.Event().wait()

    publisher = await open_http(
        server.url, options=PublisherOptions(destination="hook", publish_timeout=0.2)
    )
    for answer in (drip, never):
        server.answer = answer
        async with asyncio.timeout(2.0):
            with pytest.raises(RetryableError, match="no answer in time"):
                await publisher.publish(make_message())
    await publisher.close()


async def test_the_rest_of_an_answer_is_not_waited_for_beyond_the_publish_timeout(
    server: RawServer,
) -> None:
    server.answer = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"x")
    options = PublisherOptions(destination="hook", publish_timeout=0.5)
    publisher = await open_http(server.url, options=options)
    # As the worker does, which would take the message for one that was not delivered.
    async with asyncio.timeout(options.publish_timeout):
        await publisher.publish(make_message())
    await publisher.close()


async def test_a_compressed_answer_is_not_unpacked(
    server: RawServer, publisher: HttpPublisher
) -> None:
    bomb = zlib.compress(bytes(2**24))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n"
    server.answer = saying(head % len(bomb) + bomb)
    await publisher.publish(make_message())
    await publisher.publish(make_message())
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
async def test_a_connection_that_ends_or_speaks_nonsense_after_the_request_is_retried(
    server: RawServer, publisher: HttpPublisher, answer: bytes
) -> None:
    server.answer = hanging_up_after(answer)
    with pytest.raises(RetryableError) as caught:
        await publisher.publish(make_message())
    assert len(server.exchanges) == 1
    assert len(str(caught.value)) < 120
    server.answer = say_ok
    await publisher.publish(make_message())


async def test_a_refusal_before_the_request_was_read_leaves_the_publisher_usable() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        big = b"Content-Length: 16777216" in head
        writer.write(OK.replace(b"200 OK", b"413 No") if big else OK)
        await writer.drain()
        left.append(writer)

    left: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher = await open_http(f"http://127.0.0.1:{port}/", options=OPTIONS)
    try:
        with pytest.raises(PermanentError, match="answered 413"):
            await publisher.publish(make_message(body=bytes(2**24)))
        await publisher.publish(make_message())
    finally:
        await publisher.close()
        for writer in left:
            writer.close()
        server.close()


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (b"429 Slow\r\nRetry-After: 7", 7.0),
        (b"503 Busy\r\nRetry-After: 1e9", None),
        (b"503 Busy\r\nRetry-After: 9999999999", 9_999_999_999.0),
        (b"503 Busy\r\nRetry-After: -5", None),
        (b"503 Busy", None),
        (b"503 Busy\r\nDate: %b:00 GMT\r\nRetry-After: %b:30 GMT" % (MINUTE, MINUTE), 30.0),
    ],
)
async def test_a_receiver_may_say_when_to_come_back(
    server: RawServer, publisher: HttpPublisher, answer: bytes, seconds: float | None
) -> None:
    server.answer = saying(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(RetryableError) as caught:
        await publisher.publish(make_message())
    assert caught.value.retry_after == seconds


async def test_interim_answers_are_passed_over(server: RawServer, publisher: HttpPublisher) -> None:
    server.answer = saying(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", OK)
    await publisher.publish(make_message())


async def test_a_receiver_that_goes_away_and_comes_back_is_found_again(
    unused_tcp_port: int,
) -> None:
    async def restarting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if mode == "dying":
            writer.transport.abort()
            return
        writer.write(OK)
        left.append(writer)

    left: list[asyncio.StreamWriter] = []
    mode = "working"
    first = await asyncio.start_server(restarting, "127.0.0.1", unused_tcp_port)
    publisher = await open_http(f"http://127.0.0.1:{unused_tcp_port}/", options=OPTIONS)
    await publisher.publish(make_message(body=b""))
    mode = "dying"
    first.close()
    left.pop().transport.abort()
    for _ in range(3):
        with pytest.raises((RetryableError, DestinationUnavailable)):
            await publisher.publish(make_message(body=b""))
    with pytest.raises(DestinationUnavailable):
        await publisher.publish(make_message(body=b""))
    mode = "working"
    second = await asyncio.start_server(restarting, "127.0.0.1", unused_tcp_port)
    await publisher.publish(make_message(body=b""))
    await publisher.close()
    left.pop().transport.abort()
    second.close()


async def test_close_waits_for_no_answer(server: RawServer, publisher: HttpPublisher) -> None:
    arrived = asyncio.Event()

    async def never(_: Exchange) -> None:
        arrived.set()
        await asyncio.Event().wait()

    server.answer = never
    publishing = asyncio.ensure_future(publisher.publish(make_message()))
    await arrived.wait()
    async with asyncio.timeout(1.0):
        await publisher.close()
        with pytest.raises(RetryableError):
            await publishing


async def test_after_close_nothing_is_opened_any_more(
    server: RawServer, publisher: HttpPublisher
) -> None:
    await publisher.close()
    with pytest.raises(DestinationUnavailable, match="the publisher is closed"):
        await publisher.publish(make_message())
    assert server.connections == 0
