from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.kafka.publisher import KafkaPublisher, open_kafka
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import (
    SECRET,
    Arrivals,
    OpenAt,
    PublisherContract,
    make_message,
    publish_one,
)
from pgoutbox.wire.formats import FORMATS
from pgoutbox.wire.template import Template
from tests.contract.kafka_servers import refuse_passwords, server
from tests.support.brokers.kafka import Record, create_topic, new_topic, records
from tests.support.brokers.ladder import address_in, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(destination="events", publish_timeout=4.0, concurrency=200)
IMPATIENT = replace(OPTIONS, publish_timeout=2.0)


@pytest.fixture
def topic(kafka_url: str) -> str:
    return create_topic(kafka_url, new_topic())


@pytest.fixture
async def publisher(kafka_url: str, topic: str) -> AsyncIterator[KafkaPublisher]:
    publisher = await open_kafka(f"{kafka_url}/{topic}", options=OPTIONS)
    yield publisher
    await publisher.close()


class TestKafka(PublisherContract):
    @pytest.fixture
    async def publisher(self, publisher: KafkaPublisher) -> KafkaPublisher:
        return publisher

    @pytest.fixture
    def arrivals(self, kafka_url: str, topic: str) -> Arrivals:
        return lambda: [record.value or b"" for record in records(kafka_url, topic)]

    @pytest.fixture
    async def unreachable(self) -> KafkaPublisher:
        return await open_kafka(f"kafka://127.0.0.1:{free_port()}", options=IMPATIENT)

    @pytest.fixture
    async def another(self, kafka_url: str, topic: str) -> KafkaPublisher:
        return await open_kafka(f"{kafka_url}/{topic}", options=OPTIONS)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * 2**21)

    @pytest.fixture
    async def unauthorized(self) -> AsyncIterator[KafkaPublisher]:
        async with server(refuse_passwords) as address:
            url = f"kafka://user:{SECRET}@{address}?security.protocol=sasl_plaintext"
            yield await open_kafka(url, options=IMPATIENT)

    @pytest.fixture
    async def missing(self, kafka_url: str) -> KafkaPublisher:
        url = f"{kafka_url}/{new_topic()}?allow.auto.create.topics=false"
        return await open_kafka(url, options=OPTIONS)

    @pytest.fixture
    def open_at(self, topic: str) -> OpenAt:
        return lambda address: open_kafka(f"kafka://{address}/{topic}", options=IMPATIENT)

    @pytest.fixture
    def server(self, kafka_url: str) -> str:
        return address_in(kafka_url)


async def test_a_record_has_the_key_the_headers_and_the_time_of_the_message(
    publisher: KafkaPublisher, kafka_url: str, topic: str
) -> None:
    headers = {
        "traceparent": "00-1-2-01",
        "note": "Zürich\r\n🙂 ",
        "x!#$%&'*+.^_`|~-9": "",
        "Content-Type": "forged",
    }
    message = make_message(
        headers_json=json.dumps(headers),
        ordering_key="order:Zürich",
        content_type="text/plain; charset=utf-8",
        created_at=datetime(2026, 5, 17, 12, 30, 0, 123_999, tzinfo=UTC),
    )
    assert await publish_one(publisher, message) is None
    (record,) = records(kafka_url, topic)
    assert record.key == "order:Zürich".encode()
    assert record.timestamp == 1779021000123
    assert record.headers == [
        ("outbox-message-id", str(message.message_id).encode()),
        ("outbox-aggregate-type", b"order"),
        ("outbox-aggregate-id", b"order-1"),
        ("outbox-event-type", b"order_placed"),
        ("outbox-attempt", b"1"),
        ("outbox-ordering-key", "order:Zürich".encode()),
        ("traceparent", b"00-1-2-01"),
        ("note", "Zürich\r\n🙂 ".encode()),
        ("x!#$%&'*+.^_`|~-9", b""),
        ("content-type", b"text/plain; charset=utf-8"),
    ]


async def test_an_empty_payload_is_an_empty_value_and_no_tombstone(
    publisher: KafkaPublisher, kafka_url: str, topic: str
) -> None:
    for body in (b"", b"null"):
        assert await publish_one(publisher, make_message(body=body)) is None
    assert [record.value for record in records(kafka_url, topic)] == [b"", b"null"]


async def test_a_consumer_of_debeziums_router_reads_the_records_as_it_is_used_to(
    kafka_url: str,
) -> None:
    kind = f"order{uuid.uuid4().hex}"
    create_topic(kafka_url, f"outbox.event.{kind}", partitions=3)
    options = replace(OPTIONS, wire=FORMATS["debezium"])
    publisher = await open_kafka(kafka_url, options=options)
    first, second = (
        make_message(
            aggregate_type=kind, aggregate_id=f"o-{i}", ordering_key="lane", body=b"%d" % i
        )
        for i in (1, 2)
    )
    # The second attempt of what was delivered already: at least once.
    for message in (first, second, first._replace(attempts=2)):
        assert await publish_one(publisher, message) is None
    await publisher.close()
    seen: dict[bytes | None, Record] = {}
    for record in records(kafka_url, f"outbox.event.{kind}"):
        seen.setdefault(record.header("id"), record)
    consumed = {(r.header("id"), r.header("eventType"), r.key, r.value) for r in seen.values()}
    assert consumed == {
        (str(m.message_id).encode(), b"order_placed", m.aggregate_id.encode(), m.body)
        for m in (first, second)
    }


async def test_attributes_of_cloudevents_have_the_prefix_of_their_binding(
    kafka_url: str, topic: str
) -> None:
    options = replace(OPTIONS, wire=FORMATS["cloudevents_binary"])
    publisher = await open_kafka(f"{kafka_url}/{topic}", options=options)
    message = make_message()
    assert await publish_one(publisher, message) is None
    await publisher.close()
    (record,) = records(kafka_url, topic)
    assert record.header("ce_specversion") == b"1.0"
    assert record.header("ce_id") == str(message.message_id).encode()
    assert record.header("content-type") == b"application/json"


# As computed by the tests of Kafka's own Java client.
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


async def test_a_key_is_in_the_partition_that_javas_producer_chooses(kafka_url: str) -> None:
    topic = create_topic(kafka_url, new_topic(), partitions=7)
    publisher = await open_kafka(f"{kafka_url}/{topic}", options=OPTIONS)
    messages = [make_message(ordering_key=key) for key in MURMUR2]
    assert not any(await publisher.publish_batch(messages))
    await publisher.close()
    found = {record.key: record.partition for record in records(kafka_url, topic)}
    assert found == {key.encode(): (murmur2 & 0x7FFFFFFF) % 7 for key, murmur2 in MURMUR2.items()}


async def test_a_topic_may_depend_on_the_message(kafka_url: str) -> None:
    prefix = new_topic()
    create_topic(kafka_url, f"{prefix}.paid.eu")
    options = replace(OPTIONS, topic=Template(prefix + ".{event_type}.{headers[region]}"))
    publisher = await open_kafka(kafka_url, options=options)
    fine = make_message(event_type="paid", headers_json='{"Region": "eu"}')
    odd = make_message(event_type="two words", headers_json='{"region": "eu"}')
    answers = await publisher.publish_batch([odd, fine, make_message()])
    await publisher.close()
    assert answers[1] is None
    assert isinstance(answers[0], PermanentError)
    assert "two words" in str(answers[0])
    assert isinstance(answers[2], PermanentError)
    assert "no header 'region'" in str(answers[2])
    assert len(records(kafka_url, f"{prefix}.paid.eu")) == 1


async def test_what_only_the_broker_finds_too_large_takes_none_of_its_request_with_it(
    kafka_url: str,
) -> None:
    topic = create_topic(kafka_url, new_topic(), max_message_bytes="2000")
    options = replace(OPTIONS, publish_timeout=10.0)
    publisher = await open_kafka(f"{kafka_url}/{topic}?linger.ms=50", options=options)
    # Together they are a request of more than the limit, so the broker refuses it as a whole.
    bodies = [b"%d" % i * 300 for i in range(8)]
    batch = [make_message(body=body) for body in bodies] + [make_message(body=b"x" * 3000)]
    answers = await publisher.publish_batch(batch)
    await publisher.close()
    assert [type(answer) for answer in answers] == [type(None)] * 8 + [PermanentError]
    assert sorted(record.value or b"" for record in records(kafka_url, topic)) == bodies


async def test_a_mebibyte_arrives_where_all_agree_to_it(kafka_url: str) -> None:
    topic = create_topic(kafka_url, new_topic(), max_message_bytes="2097152")
    url = f"{kafka_url}/{topic}?message.max.bytes=2097152"
    publisher = await open_kafka(url, options=OPTIONS)
    body = bytes(range(256)) * 4096
    assert await publish_one(publisher, make_message(body=body)) is None
    await publisher.close()
    assert [record.value for record in records(kafka_url, topic)] == [body]


async def test_a_missing_topic_costs_attempts_until_somebody_creates_it(kafka_url: str) -> None:
    topic = new_topic()
    url = f"{kafka_url}/{topic}?allow.auto.create.topics=false"
    publisher = await open_kafka(url, options=IMPATIENT)
    for _ in range(2):
        async with asyncio.timeout(IMPATIENT.publish_timeout):
            answer = await publish_one(publisher, make_message())
        assert type(answer) is RetryableError
        assert str(answer) == (
            f"topic {topic!r}: the topic does not exist; create it, or let the brokers create"
            " topics"
        )
    create_topic(kafka_url, topic)
    async with asyncio.timeout(10):
        while answer is not None:
            await asyncio.sleep(0.1)  # as the worker's backoff does
            answer = await publish_one(publisher, make_message(body=b"at last"))
    await publisher.close()
    assert [record.value for record in records(kafka_url, topic)] == [b"at last"]


async def test_batches_at_the_same_time_get_each_its_own_answers(
    publisher: KafkaPublisher, kafka_url: str, topic: str
) -> None:
    batches = [
        [make_message(body=b"%d-%d" % (batch, i), aggregate_id=f"{i}") for i in range(200)]
        for batch in range(5)
    ]
    batches[3][77] = make_message(body=b"x" * 2**21)
    answers = await asyncio.gather(*map(publisher.publish_batch, batches))
    wrong = [(b, i) for b, one in enumerate(answers) for i, a in enumerate(one) if a is not None]
    assert wrong == [(3, 77)]
    assert len(records(kafka_url, topic)) == 999


async def test_a_cancelled_batch_is_sent_at_once_or_never(
    publisher: KafkaPublisher, kafka_url: str, topic: str
) -> None:
    batch = [make_message(body=b"%d" % i) for i in range(100)]
    task = asyncio.ensure_future(publisher.publish_batch(batch))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await publish_one(publisher, make_message(body=b"next")) is None
    # librdkafka keeps the order of a partition: whatever was to come has come before.
    assert [record.value for record in records(kafka_url, topic)][-1] == b"next"
    assert len(records(kafka_url, topic)) in (1, 101)


async def test_after_close_nothing_is_sent(publisher: KafkaPublisher) -> None:
    await publisher.close()
    answer = await publish_one(publisher, make_message())
    assert type(answer) is DestinationUnavailable
