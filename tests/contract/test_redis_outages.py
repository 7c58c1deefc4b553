"""A Redis server that is away, dies, hangs, or answers a publish that nobody waits for any more."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis
import uvloop

from pgoutbox.brokers.redis.publisher import RedisPublisher, open_redis
from pgoutbox.errors import DestinationUnavailable, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from pgoutbox.wire.template import Template
from tests.support.brokers.ladder import free_port, split_address
from tests.support.brokers.redis import entries, new_topic, own_redis
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from pgoutbox.errors import PublishError

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(
    destination="streams", publish_timeout=2.0, concurrency=4, topic=Template("{aggregate_type}")
)
BIG = 48 * 2**20
"""Bytes that do not fit into the buffers of the sockets in between."""


@pytest.fixture
def stream() -> str:
    return new_topic()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[TcpProxy]:
    address = redis_url.removeprefix("redis://").partition("/")[0]
    with TcpProxy(split_address(address)) as proxy:
        yield proxy


@pytest.fixture
async def publisher(proxy: TcpProxy) -> AsyncIterator[RedisPublisher]:
    publisher = await open_redis(f"redis://127.0.0.1:{proxy.port}", options=OPTIONS)
    yield publisher
    await publisher.close()


async def add(publisher: RedisPublisher, stream: str, body: bytes = b"x") -> PublishError | None:
    return await publish_one(publisher, make_message(aggregate_type=stream, body=body))


def until_length(url: str, stream: str, length: int) -> None:
    with redis.Redis.from_url(url) as client:
        deadline = time.monotonic() + 20
        while client.xlen(stream) < length:
            assert time.monotonic() < deadline, "the entries do not arrive"


async def test_a_server_that_comes_later_is_found_without_a_restart(stream: str) -> None:
    port = free_port()
    publisher = await open_redis(f"redis://127.0.0.1:{port}", options=OPTIONS)
    error = await add(publisher, stream)
    assert type(error) is DestinationUnavailable
    assert "no connection could be established" in str(error)
    with own_redis(port=port):
        assert await add(publisher, stream) is None
    await publisher.close()


async def test_nothing_is_taken_for_delivered_while_a_server_dies_and_comes_back(
    stream: str, tmp_path: Path
) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(tmp_path))
    port = free_port()
    publisher = await open_redis(f"redis://127.0.0.1:{port}", options=OPTIONS)
    taken: list[bytes] = []
    lost: list[PublishError] = []

    async def publish_until(count: int) -> None:
        for number in range(count):
            batch = [
                make_message(aggregate_type=stream, body=b"%d-%d-%d" % (count, number, i))
                for i in range(50)
            ]
            answers = await publisher.publish_batch(batch)
            taken.extend(m.body for m, a in zip(batch, answers, strict=True) if a is None)
            lost.extend(answer for answer in answers if answer is not None)
            if lost and type(lost[-1]) is DestinationUnavailable:
                return

    with own_redis(*durable, port=port) as (url, server):
        flood = asyncio.gather(*(publish_until(10_000 + i) for i in range(3)))
        await asyncio.to_thread(until_length, url, stream, 2000)
        server.process.kill()
        await flood
    assert lost
    assert {type(error) for error in lost} <= {RetryableError, DestinationUnavailable}
    with own_redis(*durable, port=port) as (url, _):
        assert await add(publisher, stream, b"afterwards") is None
        arrived = {entry.body for entry in entries(url, stream)}
    await publisher.close()
    assert {*taken, b"afterwards"} <= arrived


async def test_an_idle_connection_that_was_closed_costs_no_attempt(
    publisher: RedisPublisher, proxy: TcpProxy, redis_url: str, stream: str
) -> None:
    assert await add(publisher, stream) is None
    link = publisher._links._idle[0]
    proxy.cut()
    async with asyncio.timeout(10):
        while link.usable():  # noqa: ASYNC110 - nothing to wait on
            # Until the loop has seen the end of the connection, which nobody announces.
            await asyncio.sleep(0)
    assert await add(publisher, stream) is None
    assert len(entries(redis_url, stream)) == 2


async def test_a_lost_answer_is_tried_again_and_the_client_itself_repeats_nothing(
    publisher: RedisPublisher, proxy: TcpProxy, redis_url: str, stream: str
) -> None:
    assert await add(publisher, stream) is None
    proxy.hold_answers()
    publishing = asyncio.ensure_future(add(publisher, stream))
    await asyncio.to_thread(until_length, redis_url, stream, 2)
    proxy.cut()
    error = await publishing
    assert type(error) is RetryableError
    assert "ended before the answer" in str(error)
    proxy.thaw()
    assert await add(publisher, stream, b"last") is None
    assert len(entries(redis_url, stream)) == 3


async def test_a_server_that_hangs_is_given_up_within_the_publish_timeout(
    publisher: RedisPublisher, proxy: TcpProxy, stream: str
) -> None:
    assert await add(publisher, stream) is None
    proxy.freeze()
    began = time.monotonic()
    error = await add(publisher, stream)
    assert type(error) is RetryableError
    assert "no answer in time" in str(error)
    assert time.monotonic() - began < OPTIONS.publish_timeout
    proxy.thaw()
    assert await add(publisher, stream) is None


async def test_a_server_that_accepts_and_says_nothing_costs_no_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        publisher = await open_redis(url, options=replace(OPTIONS, publish_timeout=0.6))
        async with asyncio.timeout(0.6):
            error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
        assert "connecting took too long" in str(error)
        await publisher.close()


async def test_when_all_connections_are_busy_the_next_publish_does_not_wait_for_ever(
    proxy: TcpProxy, stream: str
) -> None:
    options = replace(OPTIONS, concurrency=1, publish_timeout=1.0)
    publisher = await open_redis(f"redis://127.0.0.1:{proxy.port}", options=options)
    assert await add(publisher, stream) is None
    proxy.freeze()
    first = asyncio.ensure_future(add(publisher, stream))
    await asyncio.sleep(0)  # until it has begun
    second = await add(publisher, stream)
    assert type(second) is DestinationUnavailable
    assert "all connections are busy" in str(second)
    assert type(await first) is RetryableError
    await publisher.close()


async def test_a_cancelled_publish_leaves_its_answer_to_nobody(
    publisher: RedisPublisher, proxy: TcpProxy, redis_url: str, stream: str
) -> None:
    wrong = f"{stream}-text"
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.set(wrong, "no stream")
    for held in (1, 3, 20):
        assert await add(publisher, stream) is None
        before = len(entries(redis_url, stream))
        proxy.hold_answers()
        # The answers to these are errors; whoever reads them instead of its own takes harm.
        batch = [make_message(aggregate_type=wrong)] * held + [make_message(aggregate_type=stream)]
        publishing = asyncio.ensure_future(publisher.publish_batch(batch))
        await asyncio.to_thread(until_length, redis_url, stream, before + 1)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        proxy.thaw()
        good = [make_message(aggregate_type=stream)] * 5
        answers = await asyncio.gather(*(publisher.publish_batch(good) for _ in range(8)))
        assert answers == [[None] * 5] * 8


async def test_what_was_cancelled_is_not_sent_once_the_server_reads_again(
    publisher: RedisPublisher, proxy: TcpProxy, redis_url: str, stream: str
) -> None:
    assert await add(publisher, stream) is None
    proxy.freeze()
    publishing = asyncio.ensure_future(add(publisher, stream, bytes(BIG)))
    await asyncio.sleep(0.1)  # as much as goes into the sockets
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    proxy.thaw()
    assert await add(publisher, stream, b"next") is None
    assert [len(entry.body) for entry in entries(redis_url, stream)] == [1, 4]


async def test_close_does_not_wait_for_a_server_that_hangs(
    publisher: RedisPublisher, proxy: TcpProxy, stream: str
) -> None:
    assert await add(publisher, stream) is None
    proxy.freeze()
    publishing = asyncio.ensure_future(add(publisher, stream, bytes(BIG)))
    await asyncio.sleep(0)  # until it has begun
    began = time.monotonic()
    await publisher.close()
    await publisher.close()
    assert time.monotonic() - began < 1
    assert type(await publishing) in (RetryableError, DestinationUnavailable)


def test_it_works_on_the_workers_event_loop(redis_url: str, stream: str) -> None:
    async def publish() -> list[PublishError | None]:
        publisher = await open_redis(redis_url, options=OPTIONS)
        batch = [make_message(aggregate_type=stream, body=b"%d" % i) for i in range(300)]
        cancelled = asyncio.ensure_future(publisher.publish_batch(batch))
        await asyncio.sleep(0)  # until it has begun
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        answers = list(await publisher.publish_batch(batch))
        await publisher.close()
        return answers

    assert uvloop.run(publish()) == [None] * 300
