from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import nats
import pytest

from pgoutbox.brokers.nats.publisher import NatsPublisher, open_nats
from pgoutbox.errors import PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import SECRET, Arrivals, OpenAt, PublisherContract, make_message
from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY
from pgoutbox.wire.template import Template
from tests.support.brokers.ladder import address_in, free_port
from tests.support.brokers.nats import Place, own_nats, place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker


def options(stream: Place | None = None, rest: str = "{aggregate_type}") -> PublisherOptions:
    topic = None if stream is None else Template(stream.subject(rest))
    return PublisherOptions(destination="nats", publish_timeout=3.0, topic=topic)


@pytest.fixture
async def stream(nats_url: str) -> AsyncIterator[Place]:
    async with place(nats_url, max_msg_size=3 * 2**20) as found:
        yield found


@pytest.fixture
async def publisher(stream: Place) -> AsyncIterator[NatsPublisher]:
    publisher = await open_nats(stream.url, options=options(stream))
    yield publisher
    await publisher.close()


async def attempt(
    url: str, message: ClaimedMessage, chosen: PublisherOptions
) -> PublishError | None:
    publisher = await open_nats(url, options=chosen)
    try:
        (answer,) = await publisher.publish_batch([message])
    except PublishError as error:
        return error
    finally:
        await publisher.close()
    return answer


class TestNats(PublisherContract):
    @pytest.fixture
    def publisher(self, publisher: NatsPublisher) -> NatsPublisher:
        return publisher

    @pytest.fixture
    def arrivals(self, stream: Place) -> Arrivals:
        return lambda: [received.body for received in stream.received()]

    @pytest.fixture
    async def unreachable(self) -> NatsPublisher:
        return await open_nats(f"nats://127.0.0.1:{free_port()}", options=options())

    @pytest.fixture
    async def another(self, stream: Place) -> NatsPublisher:
        return await open_nats(stream.url, options=options(stream))

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * (3 * 2**20))

    @pytest.fixture
    async def unauthorized(self) -> AsyncIterator[NatsPublisher]:
        with own_nats('authorization { user: "me", password: "another" }') as server:
            url = server.url.replace("nats://", f"nats://me:{SECRET}@")
            yield await open_nats(url, options=options())

    @pytest.fixture
    async def missing(self, nats_url: str) -> NatsPublisher:
        chosen = replace(options(), topic=Template(f"missing-{uuid.uuid4().hex}"))
        return await open_nats(nats_url, options=chosen)

    @pytest.fixture
    def open_at(self, stream: Place) -> OpenAt:
        chosen = replace(options(stream), publish_timeout=2.0)
        return lambda address: open_nats(f"nats://{address}", options=chosen)

    @pytest.fixture
    def server(self, nats_url: str) -> str:
        return address_in(nats_url)


async def test_a_message_has_its_subject_and_headers(
    publisher: NatsPublisher, stream: Place
) -> None:
    identity = uuid.uuid4()
    user = {"note": "a note", "empty": "", "Trace-Id": "a: b%20"}
    message = make_message(
        message_id=identity,
        ordering_key="order-1",
        content_type="application/json; charset=utf-8",
        headers_json=json.dumps(user),
        attempts=3,
    )
    assert await publisher.publish_batch([message]) == [None]
    (received,) = stream.received()
    assert received.subject == stream.subject("order")
    assert received.headers == {
        "Nats-Msg-Id": str(identity),
        "content-type": "application/json; charset=utf-8",
        "outbox-message-id": str(identity),
        "outbox-aggregate-type": "order",
        "outbox-aggregate-id": "order-1",
        "outbox-event-type": "order_placed",
        "outbox-attempt": "3",
        "outbox-ordering-key": "order-1",
        **user,
    }


async def test_values_that_not_every_client_can_read_are_percent_encoded(
    publisher: NatsPublisher, stream: Place
) -> None:
    user = {"a": "1\r\nNats-Rollup: all", "b": " 5% ", "c": "Zürich 🙂", "d": "   ", "e": "5%"}
    message = make_message(aggregate_id="5% Zürich", headers_json=json.dumps(user))
    assert await publisher.publish_batch([message]) == [None]
    headers = stream.received()[0].headers
    assert [headers[name] for name in "abcde"] == [
        "1%0D%0ANats-Rollup: all",
        "%205%25%20",
        "Z%C3%BCrich %F0%9F%99%82",
        "%20%20%20",
        "5%",
    ]
    assert headers["outbox-aggregate-id"] == "5%25 Z%C3%BCrich"
    assert "Nats-Rollup" not in headers


async def test_headers_that_the_server_acts_on_are_not_the_messages_to_set(
    publisher: NatsPublisher, stream: Place
) -> None:
    forged = {"nats-msg-id": "1", "Nats-Rollup": "all", "Nats-Expected-Stream": "x", "kept": "1"}
    message = make_message(headers_json=json.dumps(forged))
    assert await publisher.publish_batch([message]) == [None]
    headers = stream.received()[0].headers
    assert headers["Nats-Msg-Id"] == str(message.message_id)
    assert headers["kept"] == "1"
    assert not {"nats-msg-id", "Nats-Rollup", "Nats-Expected-Stream"} & set(headers)


async def test_a_cloud_event_has_its_attributes_as_the_binding_for_nats_spells_them(
    stream: Place,
) -> None:
    chosen = PublisherOptions(
        destination="nats", topic=Template(stream.subject("x")), wire=CLOUDEVENTS_BINARY
    )
    message = make_message(event_type="Zürich 1")
    assert await attempt(stream.url, message, chosen) is None
    headers = stream.received()[0].headers
    assert headers["ce-type"] == "Z%C3%BCrich%201"
    assert headers["ce-id"] == str(message.message_id)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("order", "order"),
        ("a.b", "a%2Eb"),
        ("two words", "two%20words"),
        ("*", "%2A"),
        (">", "%3E"),
        ("100%", "100%25"),
        ("a\r\nPUB x 0\r\n", "a%0D%0APUB%20x%200%0D%0A"),
        ("Zürich", "Zürich"),
    ],
)
async def test_a_value_is_always_one_part_of_the_subject(
    publisher: NatsPublisher, stream: Place, value: str, part: str
) -> None:
    assert await publisher.publish_batch([make_message(aggregate_type=value)]) == [None]
    assert stream.received()[0].subject == stream.subject(part)


async def test_a_repeated_attempt_is_stored_once_and_taken_for_success(
    publisher: NatsPublisher, stream: Place
) -> None:
    message = make_message()
    for attempts in (1, 2, 3):
        again = message._replace(attempts=attempts)
        assert await publisher.publish_batch([again]) == [None]
    assert len(stream.received()) == 1


async def test_a_subject_that_no_stream_takes_is_retried_and_works_once_there_is_one(
    nats_url: str,
) -> None:
    name = f"late-{uuid.uuid4().hex}"
    chosen = replace(options(), topic=Template(f"{name}.x"))
    publisher = await open_nats(nats_url, options=chosen)
    for _ in range(2):
        (answer,) = await publisher.publish_batch([make_message()])
        assert type(answer) is RetryableError
        assert "no stream takes the subject" in str(answer)
    async with place(nats_url, subjects=[f"{name}.>"]) as stream:
        assert await publisher.publish_batch([make_message(body=b"late")]) == [None]
        assert [received.body for received in stream.received()] == [b"late"]
    await publisher.close()


async def test_somebody_else_who_answers_is_not_taken_for_a_stream(nats_url: str) -> None:
    subject = f"service.{uuid.uuid4().hex}"
    client = await nats.connect(nats_url)

    async def respond(message: Any) -> None:
        for answer in (b"+OK", b"{}", b'{"stream": "x"}', b"[]"):
            await message.respond(answer)

    await client.subscribe(subject, cb=respond)
    await client.flush()
    chosen = PublisherOptions(destination="nats", topic=Template(subject), publish_timeout=0.5)
    error = await attempt(nats_url, make_message(), chosen)
    assert type(error) is RetryableError
    assert "no acknowledgement in time" in str(error)
    await client.close()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"body": b"x" * (3 * 2**20)}, "larger than the stream's max_msg_size"),
        ({"body": b"x" * (9 * 2**20)}, "its max_payload"),
        ({"headers_json": json.dumps({"n": "v" * 70_000})}, "headers are larger"),
        ({"aggregate_type": ""}, "an empty part"),
        ({"aggregate_type": "." * 1400}, "the message's subject is too long"),
    ],
    ids=["stream", "server", "headers", "empty", "long"],
)
async def test_what_nats_cannot_hold_is_refused_for_good_and_its_neighbours_are_taken(
    publisher: NatsPublisher, stream: Place, fields: dict[str, Any], problem: str
) -> None:
    batch = [make_message(), make_message(**fields), make_message()]
    answers = await publisher.publish_batch(batch)
    assert answers[0] is answers[2] is None
    assert type(answers[1]) is PermanentError
    assert problem in str(answers[1])
    assert len(stream.received()) == 2


async def test_a_full_stream_is_retried(nats_url: str) -> None:
    async with place(nats_url, max_msgs=2, discard="new") as stream:
        publisher = await open_nats(stream.url, options=options(stream))
        answers = await publisher.publish_batch([make_message() for _ in range(4)])
        assert [type(answer) for answer in answers] == [type(None)] * 2 + [RetryableError] * 2
        assert "the stream is full" in str(answers[3])
        await publisher.close()


async def test_batches_share_one_connection_and_are_answered_each_for_itself(
    publisher: NatsPublisher, stream: Place
) -> None:
    batches = [[make_message(body=b"%d/%d" % (b, i)) for i in range(7)] for b in range(20)]
    answers = await asyncio.gather(*(publisher.publish_batch(batch) for batch in batches))
    assert [list(answer) for answer in answers] == [[None] * 7] * 20
    expected = sorted(message.body for batch in batches for message in batch)
    assert sorted(received.body for received in stream.received()) == expected


@pytest.mark.parametrize(("window", "warned"), [(20, True), (99, True), (100, False)])
async def test_a_stream_that_forgets_ids_before_a_retry_may_come_is_warned_of_once(
    nats_url: str, caplog: pytest.LogCaptureFixture, *, window: int, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING, logger="pgoutbox.brokers.nats.publisher"):
        async with place(nats_url, duplicate_window=window) as stream:
            publisher = await open_nats(
                stream.url, options=replace(options(stream), longest_retry=100.0)
            )
            for _ in range(3):
                assert await publisher.publish_batch([make_message()]) == [None]
            await asyncio.gather(*publisher._looking)
            await publisher.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (1 if warned else 0)
    assert all(f"for {window} s" in line and stream.stream in line for line in lines)


async def test_a_batch_of_many_mebibytes_holds_nothing_else_up(
    nats_url: str,
) -> None:
    async with place(nats_url, max_msg_size=3 * 2**20) as stream:
        publisher = await open_nats(
            stream.url, options=replace(options(stream), publish_timeout=20)
        )
        assert await publisher.publish_batch([make_message(body=b"first")]) == [None]
        batch = [make_message(body=b"x" * 2**20, id=i) for i in range(60)]
        task = asyncio.ensure_future(publisher.publish_batch(batch))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert await task == [None] * 60
        # At least one turn for each piece that was written.
        assert turns >= 60
        await publisher.close()
