from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.rabbitmq.publisher import RabbitmqPublisher, open_rabbitmq
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import SECRET, Arrivals, OpenAt, PublisherContract, make_message
from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY
from pgoutbox.wire.template import Template
from tests.support.brokers.ladder import address_in, free_port
from tests.support.brokers.rabbitmq import Place, place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(destination="rabbit", publish_timeout=5.0)


@pytest.fixture
async def queue(rabbitmq_url: str) -> AsyncIterator[Place]:
    async with place(rabbitmq_url) as found:
        yield found


@pytest.fixture
async def publisher(queue: Place) -> AsyncIterator[RabbitmqPublisher]:
    publisher = await open_rabbitmq(queue.destination_url, options=OPTIONS)
    yield publisher
    await publisher.close()


async def attempt(
    url: str, message: ClaimedMessage, options: PublisherOptions = OPTIONS
) -> PublishError | None:
    publisher = await open_rabbitmq(url, options=options)
    try:
        (answer,) = await publisher.publish_batch([message])
    except PublishError as error:
        return error
    finally:
        await publisher.close()
    return answer


class TestRabbitmq(PublisherContract):
    @pytest.fixture
    def publisher(self, publisher: RabbitmqPublisher) -> RabbitmqPublisher:
        return publisher

    @pytest.fixture
    def arrivals(self, queue: Place) -> Arrivals:
        return lambda: [received.body for received in queue.received()]

    @pytest.fixture
    async def unreachable(self) -> RabbitmqPublisher:
        return await open_rabbitmq(f"amqp://127.0.0.1:{free_port()}/", options=OPTIONS)

    @pytest.fixture
    async def another(self, queue: Place) -> RabbitmqPublisher:
        return await open_rabbitmq(queue.destination_url, options=OPTIONS)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        # The limit for payloads is tested with a server that has a low one.
        return make_message(headers_json=json.dumps({"n": "v" * 131_072}))

    @pytest.fixture
    async def unauthorized(self, rabbitmq_url: str) -> RabbitmqPublisher:
        url = rabbitmq_url.replace("guest:guest@", f"guest:{SECRET}@")
        return await open_rabbitmq(url, options=OPTIONS)

    @pytest.fixture
    async def missing(self, rabbitmq_url: str) -> RabbitmqPublisher:
        url = f"{rabbitmq_url}?exchange=missing-{uuid.uuid4().hex}"
        return await open_rabbitmq(url, options=OPTIONS)

    @pytest.fixture
    def open_at(self, queue: Place) -> OpenAt:
        options = replace(OPTIONS, publish_timeout=2.0)
        query = f"?exchange={queue.exchange}"
        return lambda address: open_rabbitmq(f"amqp://{address}/{query}", options=options)

    @pytest.fixture
    def server(self, rabbitmq_url: str) -> str:
        return address_in(rabbitmq_url)


async def test_a_message_has_its_properties_headers_and_routing_key(
    publisher: RabbitmqPublisher, queue: Place
) -> None:
    created = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    identity = uuid.uuid4()
    user = {"note": "Zürich/中文/🙂\r\n", "empty": "", "blanks": " x ", "trace-id": "1"}
    message = make_message(
        message_id=identity,
        aggregate_type="order",
        event_type="order_placed",
        ordering_key="order-1",
        content_type="application/json; charset=utf-8",
        headers_json=json.dumps(user),
        created_at=created,
        attempts=3,
    )
    assert await publisher.publish_batch([message]) == [None]
    (received,) = queue.received()
    assert received.routing_key == "outbox.event.order"
    properties = received.properties
    assert properties.delivery_mode == 2
    assert properties.message_id == str(identity)
    assert properties.timestamp == created
    assert properties.content_type == "application/json; charset=utf-8"
    assert properties.message_type == "order_placed"
    assert properties.app_id == "pgoutbox"
    assert properties.headers == {
        "outbox-message-id": str(identity),
        "outbox-aggregate-type": "order",
        "outbox-aggregate-id": "order-1",
        "outbox-event-type": "order_placed",
        "outbox-attempt": "3",
        "outbox-ordering-key": "order-1",
        **user,
    }


async def test_a_cloud_event_has_its_attributes_as_the_binding_for_amqp_names_them(
    queue: Place,
) -> None:
    options = PublisherOptions(destination="rabbit", wire=CLOUDEVENTS_BINARY)
    assert await attempt(queue.destination_url, make_message(), options) is None
    (received,) = queue.received()
    headers = received.properties.headers or {}
    assert headers["cloudEvents_type"] == "order_placed"
    assert headers["cloudEvents_specversion"] == "1.0"


async def test_the_topic_makes_the_routing_key(queue: Place) -> None:
    topic = Template("shop.{event_type}.{headers[region]}")
    options = PublisherOptions(destination="rabbit", topic=topic)
    message = make_message(headers_json='{"region": "eu.west"}')
    assert await attempt(queue.destination_url, message, options) is None
    assert queue.received()[0].routing_key == "shop.order_placed.eu.west"


async def test_without_an_exchange_the_routing_key_is_a_queue(
    rabbitmq_url: str, queue: Place
) -> None:
    options = PublisherOptions(destination="rabbit", topic=Template(queue.queue))
    assert await attempt(rabbitmq_url, make_message(body=b"direct"), options) is None
    assert [received.body for received in queue.received()] == [b"direct"]


async def test_a_message_that_no_queue_takes_is_retried_and_the_others_are_taken(
    rabbitmq_url: str, queue: Place
) -> None:
    options = PublisherOptions(destination="rabbit", topic=Template("{event_type}"))
    publisher = await open_rabbitmq(rabbitmq_url, options=options)
    nowhere = make_message(event_type=f"nowhere-{uuid.uuid4().hex}")
    there = [make_message(event_type=queue.queue, body=b"%d" % i) for i in range(4)]
    answers = await publisher.publish_batch([*there[:2], nowhere, *there[2:]])
    assert [type(answer) for answer in answers] == [type(None)] * 2 + [RetryableError] + [
        type(None)
    ] * 2
    assert "no queue is bound" in str(answers[2])
    assert [received.body for received in queue.received()] == [b"0", b"1", b"2", b"3"]
    await publisher.close()


async def test_a_missing_exchange_is_retried_and_works_once_it_is_declared(
    rabbitmq_url: str, queue: Place, publisher: RabbitmqPublisher
) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    late = await open_rabbitmq(f"{rabbitmq_url}?exchange={missing}", options=OPTIONS)
    for _ in range(3):
        answers = await late.publish_batch([make_message(), make_message()])
        assert [type(answer) for answer in answers] == [RetryableError] * 2
        assert "no such exchange" in str(answers[0])
        assert await publisher.publish_batch([make_message()]) == [None]
    await queue.declare_exchange(missing)
    assert await late.publish_batch([make_message(body=b"late")]) == [None]
    assert queue.received()[-1].body == b"late"
    await late.close()


async def test_a_full_queue_that_rejects_is_retried(rabbitmq_url: str, queue: Place) -> None:
    full = await queue.declare_full_queue()
    options = PublisherOptions(destination="rabbit", topic=Template(full))
    error = await attempt(rabbitmq_url, make_message(), options)
    assert type(error) is RetryableError
    assert "refused the message" in str(error)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"aggregate_type": "ü" * 128}, "the routing key has 269 bytes; AMQP allows 255"),
        ({"event_type": "e" * 256}, "the event type has 256 bytes; AMQP allows 255"),
        ({"content_type": "c" * 256}, "the content type has 256 bytes"),
        ({"headers_json": json.dumps({"n" * 256: "1"})}, "the name of a header has 256 bytes"),
        ({"headers_json": json.dumps({"n": "v" * 131_072})}, "the broker takes 131064"),
    ],
)
async def test_what_amqp_cannot_hold_is_refused_for_good_and_its_neighbours_are_taken(
    publisher: RabbitmqPublisher, queue: Place, fields: dict[str, str], problem: str
) -> None:
    batch = [make_message(), make_message(**fields), make_message()]
    answers = await publisher.publish_batch(batch)
    assert answers[0] is answers[2] is None
    assert type(answers[1]) is PermanentError
    assert problem in str(answers[1])
    assert len(queue.received()) == 2


async def test_headers_that_rabbitmq_would_route_by_are_left_out(
    publisher: RabbitmqPublisher, queue: Place
) -> None:
    message = make_message(headers_json='{"CC": "elsewhere", "BCC": "elsewhere", "cc": "kept"}')
    assert await publisher.publish_batch([message]) == [None]
    headers = queue.received()[0].properties.headers or {}
    assert "CC" not in headers
    assert "BCC" not in headers
    assert headers["cc"] == "kept"


async def test_large_payloads_arrive_whole(publisher: RabbitmqPublisher, queue: Place) -> None:
    frame = 131_072 - 8
    bodies = [b"x" * size for size in (frame - 1, frame, frame + 1, 3 * frame, 3 * 2**20 + 1)]
    answers = await publisher.publish_batch([make_message(body=body) for body in bodies])
    assert answers == [None] * len(bodies)
    assert [received.body for received in queue.received()] == bodies


async def test_wrong_credentials_make_the_destination_unavailable(rabbitmq_url: str) -> None:
    url = rabbitmq_url.replace("guest:guest@", "nobody:wr0ng@")
    error = await attempt(url, make_message())
    assert type(error) is DestinationUnavailable
    assert "the user or the password was refused" in str(error)
    assert "wr0ng" not in repr(error)
    assert error.__cause__ is None


async def test_a_missing_virtual_host_makes_the_destination_unavailable(rabbitmq_url: str) -> None:
    url = rabbitmq_url.rstrip("/").removesuffix("%2F") + "/no-such-vhost"
    error = await attempt(url, make_message())
    assert type(error) is DestinationUnavailable
    assert "the virtual host was refused" in str(error)


async def test_batches_share_one_connection_and_are_answered_each_for_itself(
    publisher: RabbitmqPublisher, queue: Place
) -> None:
    batches = [[make_message(body=b"%d/%d" % (b, i)) for i in range(7)] for b in range(20)]
    answers = await asyncio.gather(*(publisher.publish_batch(batch) for batch in batches))
    assert [list(answer) for answer in answers] == [[None] * 7] * 20
    expected = sorted(message.body for batch in batches for message in batch)
    assert sorted(received.body for received in queue.received()) == expected
