"""RabbitMQ that dies, hangs, has no memory left, or refuses what is too large; and over TLS."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.rabbitmq.publisher import RabbitmqPublisher, open_rabbitmq
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from tests.support.brokers import publishing
from tests.support.brokers.publishing import Traffic, closes_quickly, until
from tests.support.brokers.rabbitmq import (
    MAX_MESSAGE_SIZE,
    OwnServer,
    Place,
    own_rabbitmq,
    place,
)
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


__all__ = ["own_rabbitmq"]

pytestmark = pytest.mark.broker

SECONDS = 1.5
OPTIONS = PublisherOptions(destination="rabbit", publish_timeout=SECONDS)
answer = partial(publishing.answer, within=SECONDS)
until_taken = partial(publishing.until_taken, within=SECONDS)


@pytest.fixture
async def queue(own_rabbitmq: OwnServer) -> AsyncIterator[Place]:
    async with place(own_rabbitmq.url) as found:
        yield found


@pytest.fixture
def proxy(own_rabbitmq: OwnServer) -> Iterator[TcpProxy]:
    with TcpProxy(("127.0.0.1", own_rabbitmq.port)) as proxy:
        yield proxy


@pytest.fixture
async def proxied(proxy: TcpProxy, queue: Place) -> AsyncIterator[RabbitmqPublisher]:
    url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/?exchange={queue.exchange}"
    publisher = await open_rabbitmq(url, options=OPTIONS)
    yield publisher
    await publisher.close()


async def handed_over(publisher: RabbitmqPublisher) -> None:
    links = publisher._links
    await until(
        lambda: links._link is not None and bool(links._link._channel.confirmations), every=0
    )


async def test_nothing_that_was_confirmed_is_lost_when_the_server_is_killed(
    own_rabbitmq: OwnServer, queue: Place
) -> None:
    publisher = await open_rabbitmq(queue.destination_url, options=OPTIONS)
    async with Traffic(publisher, within=SECONDS) as traffic:
        await traffic.more(200)
        await asyncio.to_thread(own_rabbitmq.kill)
        await traffic.fails()
        await asyncio.to_thread(own_rabbitmq.start)
        await traffic.more(200)
    await publisher.close()
    assert {type(error) for error in traffic.failures} <= {RetryableError, DestinationUnavailable}
    assert set(traffic.taken) <= {received.body for received in queue.received()}


async def test_a_broker_that_is_down_at_the_start_is_used_once_it_is_there(
    proxy: TcpProxy, proxied: RabbitmqPublisher, queue: Place
) -> None:
    proxy.down()
    for _ in range(3):
        error = await answer(proxied, make_message())
        assert type(error) is DestinationUnavailable
        assert "no connection could be established" in str(error)
    proxy.up()
    await until_taken(proxied, make_message(body=b"up"))
    assert [received.body for received in queue.received()] == [b"up"]


async def test_a_lost_connection_is_made_again(
    proxy: TcpProxy, proxied: RabbitmqPublisher, queue: Place
) -> None:
    assert await answer(proxied, make_message(body=b"before")) is None
    proxy.cut()
    await until_taken(proxied, make_message(body=b"after"))
    assert [received.body for received in queue.received()] == [b"before", b"after"]


async def test_while_a_connection_hangs_a_publish_ends_in_time_and_the_next_ones_spend_no_attempt(
    proxy: TcpProxy, proxied: RabbitmqPublisher, queue: Place
) -> None:
    assert await answer(proxied, make_message(body=b"before")) is None
    proxy.freeze()
    error = await answer(proxied, make_message(body=b"hangs"))
    assert type(error) is RetryableError
    assert "no confirmation in time" in str(error)
    error = await answer(proxied, make_message(body=b"later"))
    assert type(error) is DestinationUnavailable
    assert "connecting took too long" in str(error)
    proxy.thaw()
    await until_taken(proxied, make_message(body=b"after"))
    assert [received.body for received in queue.received() if received.body != b"hangs"] == [
        b"before",
        b"after",
    ]


async def test_messages_whose_confirmation_is_lost_are_retried_in_time(
    proxy: TcpProxy, proxied: RabbitmqPublisher
) -> None:
    assert await answer(proxied, make_message()) is None
    proxy.hold_answers()
    async with asyncio.timeout(SECONDS):
        answers = await proxied.publish_batch([make_message() for _ in range(5)])
    assert [type(error) for error in answers] == [RetryableError] * 5
    proxy.thaw()
    await until_taken(proxied, make_message())


async def test_a_publish_is_cancelled_at_once_while_the_broker_is_silent(
    proxy: TcpProxy, proxied: RabbitmqPublisher
) -> None:
    assert await answer(proxied, make_message()) is None
    proxy.hold_answers()
    task = asyncio.ensure_future(proxied.publish_batch([make_message()]))
    await handed_over(proxied)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.5)
    assert done
    assert task.cancelled()
    proxy.thaw()
    await until_taken(proxied, make_message())


async def test_closing_is_quick_while_the_broker_is_silent(
    proxy: TcpProxy, proxied: RabbitmqPublisher
) -> None:
    assert await answer(proxied, make_message()) is None
    proxy.freeze()
    task = asyncio.ensure_future(proxied.publish_batch([make_message(body=b"x" * 2**20)]))
    await handed_over(proxied)
    await closes_quickly(proxied)
    assert type((await task)[0]) is RetryableError


async def test_a_server_that_says_nothing_makes_the_destination_unavailable_in_half_the_time() -> (
    None
):
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher = await open_rabbitmq(f"amqp://127.0.0.1:{port}/", options=OPTIONS)
    began = time.monotonic()
    found = await asyncio.gather(*(answer(publisher, make_message()) for _ in range(20)))
    assert SECONDS / 2 <= time.monotonic() - began < SECONDS
    assert {type(error) for error in found} == {DestinationUnavailable}
    assert {str(error) for error in found} == {f"127.0.0.1:{port}: connecting took too long"}
    await closes_quickly(publisher)
    server.close()
    await server.wait_closed()


async def test_under_a_memory_alarm_a_publish_ends_in_time_and_the_next_ones_spend_no_attempt(
    own_rabbitmq: OwnServer, queue: Place
) -> None:
    publisher = await open_rabbitmq(queue.destination_url, options=OPTIONS)
    hanging = await open_rabbitmq(queue.destination_url, options=OPTIONS)
    assert await answer(publisher, make_message(body=b"before")) is None
    with own_rabbitmq.out_of_memory():
        assert type(await answer(publisher, make_message(body=b"meanwhile"))) is RetryableError
        for _ in range(3):
            began = time.monotonic()
            error = await answer(publisher, make_message(body=b"refused"))
            assert time.monotonic() - began < SECONDS / 3
            assert type(error) is DestinationUnavailable
            assert "short of memory or disk" in str(error)
        large = make_message(body=b"x" * 2**20)
        assert type(await answer(hanging, large)) is RetryableError
        await closes_quickly(hanging)
    await until_taken(publisher, make_message(body=b"after"))
    # What was sent before the broker said that it reads nothing may arrive after all.
    arrived = [received.body for received in queue.received()]
    assert [body for body in arrived if body not in (b"meanwhile", large.body)] == [
        b"before",
        b"after",
    ]
    await publisher.close()


async def test_a_message_that_is_too_large_is_refused_for_good_and_its_neighbours_are_taken(
    queue: Place,
) -> None:
    publisher = await open_rabbitmq(queue.destination_url, options=OPTIONS)
    large = make_message(body=b"x" * (MAX_MESSAGE_SIZE + 1))
    fits = make_message(body=b"x" * MAX_MESSAGE_SIZE)
    batches = [[make_message(), large, fits], [make_message() for _ in range(20)], [large]]
    async with asyncio.timeout(SECONDS):
        found = await asyncio.gather(*(publisher.publish_batch(batch) for batch in batches))
    assert [type(error) for error in found[0]] == [type(None), PermanentError, type(None)]
    assert list(found[1]) == [None] * 20
    assert [type(error) for error in found[2]] == [PermanentError]
    assert f"the broker takes {MAX_MESSAGE_SIZE}" in str(found[0][1])
    assert all(len(received.body) <= MAX_MESSAGE_SIZE for received in queue.received())
    await publisher.close()


async def test_over_tls_the_broker_has_to_be_who_it_says(
    own_rabbitmq: OwnServer, queue: Place
) -> None:
    url = f"amqps://guest:guest@localhost:{own_rabbitmq.tls_port}/?exchange={queue.exchange}"
    stranger = await open_rabbitmq(url, options=OPTIONS)
    error = await answer(stranger, make_message())
    assert type(error) is DestinationUnavailable
    assert "its TLS certificate was not accepted" in str(error)
    await stranger.close()
    known = await open_rabbitmq(f"{url}&ca_file={own_rabbitmq.certificate}", options=OPTIONS)
    assert await answer(known, make_message(body=b"safe")) is None
    assert [received.body for received in queue.received()] == [b"safe"]
    await closes_quickly(known)
