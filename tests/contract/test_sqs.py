"""Queues of a real server, read by a consumer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.sqs import open_sqs
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import (
    Arrivals,
    OpenAt,
    PublisherContract,
    make_message,
    publish_one,
)
from pgoutbox.wire.template import Template
from tests.support.brokers import aws
from tests.support.brokers.aws import (
    ACCOUNT,
    REGION,
    Queue,
    authenticating,
    unique,
)
from tests.support.brokers.ladder import address_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pgoutbox.brokers.aws.publisher import AwsPublisher
    from pgoutbox.message import ClaimedMessage

    Open = Callable[..., Awaitable[AwsPublisher]]

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("aws_credentials")]

OPTIONS = PublisherOptions(destination="queues", publish_timeout=6.0, concurrency=50)
PATIENT = replace(OPTIONS, publish_timeout=aws.PATIENT)
SEED = json.dumps({"note": "Zürich\r\n🙂", "x": "", "odd!name": "1", "Traceparent": "00-aa-bb-01"})


@pytest.fixture
def queue(sqs_url: str) -> Queue:
    return Queue(sqs_url)


@pytest.fixture
def fifo(sqs_url: str) -> Queue:
    return Queue(sqs_url, unique(suffix=".fifo"))


@pytest.fixture
async def opened(sqs_url: str) -> AsyncIterator[Open]:
    publishers: list[AwsPublisher] = []

    async def open_it(
        path: str, options: PublisherOptions = OPTIONS, query: str = ""
    ) -> AwsPublisher:
        url = f"sqs://{REGION}/{path}?endpoint_url={sqs_url}{query}"
        publishers.append(await open_sqs(url, options=options))
        return publishers[-1]

    yield open_it
    for publisher in publishers:
        await publisher.close()


class TestSqs(PublisherContract):
    @pytest.fixture
    async def publisher(self, opened: Open, queue: Queue) -> AwsPublisher:
        return await opened(queue.name, PATIENT)

    @pytest.fixture
    def arrivals(self, queue: Queue) -> Arrivals:
        return queue.bodies

    @pytest.fixture
    async def unreachable(self) -> AwsPublisher:
        url = f"sqs://{REGION}/q?endpoint_url=http://127.0.0.1:1"
        return await open_sqs(url, options=OPTIONS)

    @pytest.fixture
    async def another(self, opened: Open, queue: Queue) -> AwsPublisher:
        return await opened(queue.name)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * (1024 * 1024 + 1))

    @pytest.fixture
    async def unauthorized(
        self, opened: Open, queue: Queue, sqs_url: str
    ) -> AsyncIterator[AwsPublisher]:
        with authenticating(sqs_url):
            yield await opened(queue.name)

    @pytest.fixture
    async def missing(self, opened: Open) -> AwsPublisher:
        return await opened(unique())

    @pytest.fixture
    def open_at(self, queue: Queue) -> OpenAt:
        options = replace(OPTIONS, publish_timeout=2.0)
        url = f"sqs://{REGION}/{queue.name}?endpoint_url=http://"
        return lambda address: open_sqs(url + address, options=options)

    @pytest.fixture
    def server(self, sqs_url: str) -> str:
        return address_in(sqs_url)


async def test_all_headers_arrive_as_they_were(opened: Open, queue: Queue) -> None:
    message = make_message(ordering_key="ключ", aggregate_id="", headers_json=SEED, attempts=3)
    assert await publish_one(await opened(queue.name), message) is None
    assert queue.headers() == [
        {
            "content-type": "application/json",
            "outbox-message-id": str(message.message_id),
            "outbox-aggregate-type": "order",
            "outbox-aggregate-id": "",
            "outbox-event-type": "order_placed",
            "outbox-attempt": "3",
            "outbox-ordering-key": "ключ",
        }
        | json.loads(SEED)
    ]


async def test_the_headers_of_the_format_and_the_trace_are_attributes_of_their_own(
    opened: Open, queue: Queue
) -> None:
    await publish_one(await opened(queue.name), make_message(headers_json=SEED, ordering_key="k"))
    (message,) = queue.receive()
    assert sorted(message["MessageAttributes"]) == [
        "Traceparent",
        "content-type",
        "outbox-aggregate-id",
        "outbox-aggregate-type",
        "outbox-attempt",
        "outbox-event-type",
        "outbox-headers",
        "outbox-message-id",
        "outbox-ordering-key",
    ]


async def test_the_largest_message_is_taken_and_one_byte_more_is_refused_for_good(
    opened: Open, queue: Queue
) -> None:
    publisher = await opened(queue.name, query="&max_bytes=4096")
    refusal = await publish_one(publisher, make_message(body=b"x" * 4097))
    assert isinstance(refusal, PermanentError)
    attributes = int(str(refusal).split()[3]) - 4097
    batch = [
        make_message(id=1, body=b"first"),
        make_message(id=2, body=b"x" * (4096 - attributes + 1)),
        make_message(id=3, body=b"x" * (4096 - attributes)),
        make_message(id=4, body=b"last"),
    ]
    answers = await publisher.publish_batch(batch)
    assert [type(answer) for answer in answers] == [type(None), PermanentError] + [type(None)] * 2
    assert str(answers[1]).startswith("the message has 4097 bytes with its attributes")
    assert sorted(queue.bodies()) == sorted(batch[place].body for place in (0, 2, 3))


async def test_a_message_that_only_the_queue_finds_too_large_costs_its_neighbours_nothing(
    opened: Open, sqs_url: str
) -> None:
    queue = Queue(sqs_url, MaximumMessageSize="1024")
    batch = [make_message(id=place, body=b"%d" % place) for place in range(6)]
    batch[2] = make_message(id=2, body=b"x" * 2000)
    answers = await (await opened(queue.name)).publish_batch(batch)
    assert isinstance(answers[2], PermanentError)
    assert "may be too large" in str(answers[2])
    assert [answer is None for answer in answers] == [place != 2 for place in range(6)]
    assert sorted(queue.bodies()) == [b"0", b"1", b"3", b"4", b"5"]


async def test_a_batch_that_no_request_can_hold_is_split_by_bytes_and_by_count(
    opened: Open, queue: Queue
) -> None:
    bodies = [bytes([65 + place]) * 300_000 for place in range(7)] + [b"%d" % n for n in range(25)]
    batch = [make_message(id=place, body=body) for place, body in enumerate(bodies)]
    answers = await (await opened(queue.name)).publish_batch(batch)
    assert list(answers) == [None] * len(batch)
    assert sorted(queue.bodies()) == sorted(bodies)


async def test_a_missing_queue_is_retried_and_served_once_it_exists(
    opened: Open, sqs_url: str
) -> None:
    name = unique()
    publisher = await opened(name)
    error = await publish_one(publisher, make_message())
    assert type(error) is RetryableError
    assert str(error) == (
        f"queue {name} in {REGION}: it does not exist; "
        "create it, or correct its name, account or region"
    )
    queue = Queue(sqs_url, name)
    assert await publish_one(publisher, make_message()) is None
    queue.delete()
    assert type(await publish_one(publisher, make_message())) is RetryableError
    again = Queue(sqs_url, name)
    assert await publish_one(publisher, make_message(body=b"{}")) is None
    assert again.bodies() == [b"{}"]


async def test_each_message_goes_to_the_queue_that_the_template_makes_of_it(
    opened: Open, sqs_url: str
) -> None:
    prefix = unique()
    queues = {kind: Queue(sqs_url, f"{prefix}-{kind}") for kind in ("order", "invoice")}
    options = PublisherOptions(
        destination="queues",
        publish_timeout=6.0,
        topic=Template(prefix + "-{aggregate_type}"),
    )
    publisher = await opened("", options)
    kinds = ["order", "invoice", "no such", "order", "missing"]
    batch = [
        make_message(id=place, aggregate_type=kind, body=b"%d" % place)
        for place, kind in enumerate(kinds)
    ]
    answers = await publisher.publish_batch(batch)
    kinds_of_answers = [None, None, PermanentError, None, RetryableError]
    assert [answer and type(answer) for answer in answers] == kinds_of_answers
    assert sorted(queues["order"].bodies()) == [b"0", b"3"]
    assert queues["invoice"].bodies() == [b"1"]


async def test_a_fifo_queue_keeps_the_order_of_a_key_and_drops_repeats(
    opened: Open, fifo: Queue
) -> None:
    publisher = await opened(fifo.name)
    messages = [make_message(id=n, ordering_key="k", body=b"%d" % n) for n in range(4)]
    for message in (*messages, messages[1]):
        assert await publish_one(publisher, message) is None
    assert fifo.bodies() == [b"0", b"1", b"2", b"3"]
    system = [message["Attributes"] for message in fifo.messages]
    assert {each["MessageGroupId"] for each in system} == {"k"}
    assert [each["MessageDeduplicationId"] for each in system] == [
        str(message.message_id) for message in messages
    ]


async def test_a_key_that_no_group_can_have_is_hashed_and_none_is_a_group_of_its_own(
    opened: Open, fifo: Queue
) -> None:
    keyless = uuid.uuid4()
    batch = [
        make_message(id=1, ordering_key="Zürich 1"),
        make_message(id=2, ordering_key="k" * 129),
        make_message(id=3, ordering_key=None, message_id=keyless),
    ]
    assert list(await (await opened(f"{ACCOUNT}/{fifo.name}")).publish_batch(batch)) == [None] * 3
    groups = {message["Attributes"]["MessageGroupId"] for message in fifo.receive()}
    digests = {hashlib.sha256(key.encode()).hexdigest() for key in ("Zürich 1", "k" * 129)}
    assert groups == {f"sha256:{digest}" for digest in digests} | {str(keyless)}


async def test_wrong_credentials_make_the_destination_unavailable_until_they_are_right(
    opened: Open, queue: Queue, sqs_url: str
) -> None:
    publisher = await opened(queue.name)
    assert await publish_one(publisher, make_message()) is None
    with authenticating(sqs_url):
        error = await publish_one(publisher, make_message())
    assert type(error) is DestinationUnavailable
    assert "AWS refused us; check the credentials, and what they allow" in str(error)
    assert "hunter2" not in str(error)
    assert await publish_one(publisher, make_message()) is None


async def test_missing_credentials_make_the_destination_unavailable_until_there_are_some(
    opened: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await opened(queue.name)
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        error = await publish_one(publisher, make_message())
    assert type(error) is DestinationUnavailable
    assert "there are no credentials; give the worker a role" in str(error)
    assert await publish_one(publisher, make_message()) is None


async def test_a_publisher_that_was_closed_says_so_and_opens_nothing(
    opened: Open, queue: Queue
) -> None:
    publisher = await opened(queue.name)
    first = asyncio.ensure_future(publish_one(publisher, make_message()))
    await asyncio.sleep(0)  # until it has begun
    await publisher.close()
    never_used = await opened(queue.name)
    await never_used.close()
    for each in (publisher, never_used):
        error = await publish_one(each, make_message())
        assert type(error) is DestinationUnavailable
        assert str(error) == f"queue {queue.name} in {REGION}: the publisher is closed"
        assert each._client._current is None
    assert type(await first) is DestinationUnavailable
