from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uvloop

from pgoutbox.brokers.pubsub.publisher import PubSubPublisher, open_pubsub
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import (
    SECRET,
    TEXTS,
    Arrivals,
    OpenAt,
    PublisherContract,
    make_message,
    publish_one,
)
from pgoutbox.wire.template import Template
from tests.contract.pubsub_service import serving
from tests.support.brokers.ladder import free_port, split_address
from tests.support.brokers.pubsub import PROJECT, Topic
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(destination="google", publish_timeout=4.0, concurrency=20)


@pytest.fixture
def topic(pubsub_url: str) -> Iterator[Topic]:
    topic = Topic(pubsub_url)
    yield topic
    topic.close()


@pytest.fixture
def proxy(pubsub_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(split_address(pubsub_url.partition("emulator=")[2])) as proxy:
        yield proxy


async def opened(url: str, topic: str, **options: object) -> PubSubPublisher:
    known = replace(OPTIONS, topic=Template(topic), **options)  # type: ignore[arg-type]
    return await open_pubsub(url, options=known)


def through(proxy: TcpProxy) -> str:
    return f"pubsub://{PROJECT}?emulator=127.0.0.1:{proxy.port}"


@pytest.fixture
async def publisher(pubsub_url: str, topic: Topic) -> AsyncIterator[PubSubPublisher]:
    publisher = await opened(pubsub_url, topic.name)
    yield publisher
    await publisher.close()


@pytest.fixture
async def proxied(proxy: TcpProxy, topic: Topic) -> AsyncIterator[PubSubPublisher]:
    publisher = await opened(through(proxy), topic.name, publish_timeout=2.0)
    yield publisher
    await publisher.close()


class TestPubSub(PublisherContract):
    @pytest.fixture
    async def publisher(self, publisher: PubSubPublisher) -> PubSubPublisher:
        return publisher

    @pytest.fixture
    def arrivals(self, topic: Topic) -> Arrivals:
        return lambda: [arrival.body for arrival in topic.arrivals()]

    @pytest.fixture
    async def unreachable(self) -> PubSubPublisher:
        return await opened(f"pubsub://{PROJECT}?emulator=127.0.0.1:{free_port()}", "topic")

    @pytest.fixture
    async def another(self, pubsub_url: str, topic: Topic) -> PubSubPublisher:
        return await opened(pubsub_url, topic.name)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=bytes(10_000_000))

    @pytest.fixture
    async def unauthorized(self) -> AsyncIterator[PubSubPublisher]:
        # The emulator takes anybody. And no URL holds a password, but the service may repeat one.
        async with serving() as service:
            service.refusal = ("UNAUTHENTICATED", f"{SECRET} is not accepted")
            yield await open_pubsub(service.url, options=OPTIONS)

    @pytest.fixture
    async def missing(self, pubsub_url: str) -> PubSubPublisher:
        return await opened(pubsub_url, f"missing-{time.time_ns()}")

    @pytest.fixture
    def open_at(self, topic: Topic) -> OpenAt:
        url = f"pubsub://{PROJECT}?emulator="
        return lambda address: opened(url + address, topic.name, publish_timeout=2.0)

    @pytest.fixture
    def server(self, pubsub_url: str) -> str:
        return pubsub_url.partition("emulator=")[2]


async def test_a_message_has_its_body_all_headers_as_attributes_and_the_ordering_key(
    publisher: PubSubPublisher, topic: Topic
) -> None:
    message = make_message(
        ordering_key="lane-7",
        body=b"\x00\xff",
        content_type="application/octet-stream",
        headers_json='{"traceparent": "00-1", "X!~": "\\u4e2d", "empty": ""}',
    )
    assert await publish_one(publisher, message) is None
    [arrival] = topic.arrivals()
    assert (arrival.body, arrival.ordering_key) == (b"\x00\xff", "lane-7")
    assert arrival.attributes == {
        "content-type": "application/octet-stream",
        "outbox-message-id": str(message.message_id),
        "outbox-aggregate-type": "order",
        "outbox-aggregate-id": "order-1",
        "outbox-event-type": "order_placed",
        "outbox-attempt": "1",
        "outbox-ordering-key": "lane-7",
        "traceparent": "00-1",
        "X!~": "中",
        "empty": "",
    }


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_any_text_arrives_as_it_is(
    publisher: PubSubPublisher, topic: Topic, text: str
) -> None:
    headers = json.dumps({"note": text})
    message = make_message(aggregate_id=text, ordering_key=text, headers_json=headers)
    assert await publish_one(publisher, message) is None
    [arrival] = topic.arrivals()
    assert arrival.ordering_key == arrival.attributes["note"] == text
    assert arrival.attributes["outbox-aggregate-id"] == text


async def test_without_an_ordering_key_there_is_none(
    publisher: PubSubPublisher, topic: Topic
) -> None:
    assert await publish_one(publisher, make_message()) is None
    assert [arrival.ordering_key for arrival in topic.arrivals()] == [""]


async def test_a_batch_goes_to_the_topics_that_its_messages_name(pubsub_url: str) -> None:
    topics = [Topic(pubsub_url), Topic(pubsub_url)]
    publisher = await opened(pubsub_url, "{aggregate_type}")
    batch = [
        make_message(aggregate_type=topics[i % 2].name, body=b"%d" % i, ordering_key=f"k{i}")
        for i in range(20)
    ]
    absent = make_message(aggregate_type="no-such-topic")
    *answers, error = await publisher.publish_batch([*batch, absent])
    await publisher.close()
    assert answers == [None] * 20
    assert type(error) is RetryableError
    assert "there is no such topic" in str(error)
    for i, topic in enumerate(topics):
        assert {a.body for a in topic.arrivals()} == {b"%d" % n for n in range(i, 20, 2)}
        topic.close()


async def test_what_a_topic_cannot_be_called_is_percent_encoded(pubsub_url: str) -> None:
    topic = Topic(pubsub_url, f"t{free_port()}-Z%C3%BCrich%2F%E4%B8%AD")
    publisher = await opened(pubsub_url, topic.name.partition("-")[0] + "-{aggregate_type}")
    assert await publish_one(publisher, make_message(aggregate_type="Zürich/中")) is None
    error = await publish_one(publisher, make_message(aggregate_type="x" * 300))
    assert type(error) is PermanentError
    await publisher.close()
    assert len(topic.arrivals()) == 1
    topic.close()


async def test_a_large_batch_is_sent_in_requests_that_the_service_takes(
    publisher: PubSubPublisher, topic: Topic
) -> None:
    batch = [make_message(body=b"%d" % i) for i in range(2_100)]
    assert list(await publisher.publish_batch(batch)) == [None] * 2_100
    assert len(topic.arrivals()) == 2_100


async def test_a_missing_topic_is_tried_again_and_found_once_it_is_there(pubsub_url: str) -> None:
    name = f"later-{free_port()}-{time.time_ns()}"
    publisher = await opened(pubsub_url, name)
    error = await publish_one(publisher, make_message())
    assert type(error) is RetryableError
    assert "create it" in str(error)
    topic = Topic(pubsub_url, name)
    assert await publish_one(publisher, make_message()) is None
    await publisher.close()
    topic.close()


async def test_after_a_failure_an_ordering_key_goes_on_in_order_without_a_restart(
    proxied: PubSubPublisher, proxy: TcpProxy, topic: Topic
) -> None:
    sent = []
    for number in range(9):
        message = make_message(ordering_key="k", body=b"%d" % number)
        if number in (3, 6):
            proxy.refuse()
            assert isinstance(
                await publish_one(proxied, message), RetryableError | DestinationUnavailable
            )
            proxy.accept()
        # As a worker does: the same message again, until it is taken, and only then the next.
        sent.append(await until_taken(proxied, message))
    assert [arrival.body for arrival in topic.arrivals()] == [b"%d" % n for n in range(9)]
    assert {arrival.ordering_key for arrival in topic.arrivals()} == {"k"}


def until_arrived(topic: Topic, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(topic.arrivals()) < count:
        assert time.monotonic() < deadline, "the messages do not arrive"


async def until_taken(publisher: PubSubPublisher, message: ClaimedMessage) -> PublishError | None:
    async with asyncio.timeout(20):
        while (answer := await publish_one(publisher, message)) is not None:
            assert isinstance(answer, RetryableError | DestinationUnavailable), answer
            await asyncio.sleep(0.05)  # until the next attempt
    return answer


async def test_a_server_that_is_away_costs_no_attempt_and_is_found_when_it_comes(
    proxied: PubSubPublisher, proxy: TcpProxy
) -> None:
    proxy.refuse()
    error = await publish_one(proxied, make_message())
    assert type(error) is DestinationUnavailable
    assert "no connection" in str(error)
    proxy.accept()
    await until_taken(proxied, make_message())


async def test_nothing_is_taken_for_delivered_when_the_connection_ends_before_the_answer(
    proxied: PubSubPublisher, proxy: TcpProxy, topic: Topic
) -> None:
    assert await publish_one(proxied, make_message()) is None
    proxy.hold_answers()
    publishing = asyncio.ensure_future(publish_one(proxied, make_message(body=b"unsure")))
    await asyncio.to_thread(until_arrived, topic, 2)
    proxy.cut()
    assert type(await publishing) is RetryableError
    proxy.thaw()
    await until_taken(proxied, make_message())
    # The client repeated nothing by itself.
    assert len(topic.arrivals()) == 3


async def test_a_server_that_hangs_is_given_up_within_the_publish_timeout(
    proxied: PubSubPublisher, proxy: TcpProxy
) -> None:
    assert await publish_one(proxied, make_message()) is None
    proxy.freeze()
    began = time.monotonic()
    error = await publish_one(proxied, make_message())
    assert type(error) is RetryableError
    assert "no answer in time" in str(error)
    assert time.monotonic() - began < 2.0
    proxy.thaw()
    await until_taken(proxied, make_message())


async def test_a_server_that_accepts_and_says_nothing_costs_no_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"pubsub://{PROJECT}?emulator=127.0.0.1:{silent.getsockname()[1]}"
        publisher = await opened(url, "topic", publish_timeout=0.6)
        async with asyncio.timeout(0.6):
            error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
        assert "connecting took too long" in str(error)
        began = time.monotonic()
        await publisher.close()
        await publisher.close()
        assert time.monotonic() - began < 2


async def test_a_cancelled_publish_is_not_sent_once_the_server_reads_again(
    proxied: PubSubPublisher, proxy: TcpProxy, topic: Topic
) -> None:
    assert await publish_one(proxied, make_message(body=b"first")) is None
    proxy.freeze()
    large = make_message(body=bytes(3_000_000))
    publishing = asyncio.gather(*(proxied.publish_batch([large]) for _ in range(12)))
    await asyncio.sleep(0.2)  # as much as goes into the sockets
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    proxy.thaw()
    await until_taken(proxied, make_message(body=b"next"))
    assert sorted(arrival.body for arrival in topic.arrivals()) == [b"first", b"next"]


def test_it_works_on_the_workers_event_loop(pubsub_url: str, topic: Topic) -> None:
    async def publish() -> list[PublishError | None]:
        publisher = await opened(pubsub_url, topic.name)
        batch = [make_message(body=b"%d" % i, ordering_key=f"k{i}") for i in range(300)]
        cancelled = asyncio.ensure_future(publisher.publish_batch(batch))
        await asyncio.sleep(0.001)  # until some of it is on its way
        cancelled.cancel()
        await asyncio.wait([cancelled])
        answers = list(await publisher.publish_batch(batch))
        await publisher.close()
        return answers

    assert uvloop.run(publish()) == [None] * 300


async def test_the_environment_names_an_emulator_as_it_does_for_googles_clients(
    pubsub_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _, host = pubsub_url.partition("?emulator=")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
    publisher = await open_pubsub(f"{url}/{topic.name}", options=OPTIONS)
    assert await publish_one(publisher, make_message()) is None
    await publisher.close()
