"""Topics of a real server, with a queue that is subscribed to them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.sns import open_sns
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import (
    Arrivals,
    OpenAt,
    PublisherContract,
    make_message,
    publish_one,
)
from tests.support.brokers import aws
from tests.support.brokers.aws import (
    ACCOUNT,
    REGION,
    Queue,
    authenticating,
    client,
    unique,
)
from tests.support.brokers.ladder import address_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.brokers.aws.publisher import AwsPublisher
    from pgoutbox.message import ClaimedMessage

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("aws_credentials")]

OPTIONS = PublisherOptions(destination="topics", publish_timeout=6.0, concurrency=50)
PATIENT = replace(OPTIONS, publish_timeout=aws.PATIENT)


def subscribed(endpoint: str, suffix: str = "", *, raw: bool = True, name: str = "") -> Queue:
    """A queue and a topic of the same name; what is sent to the topic arrives there."""
    queue = Queue(endpoint, name or unique(suffix=suffix))
    topics = client("sns", endpoint)
    attributes = {"FifoTopic": "true"} if suffix else {}
    arn = topics.create_topic(Name=queue.name, Attributes=attributes)["TopicArn"]
    topics.subscribe(
        TopicArn=arn,
        Protocol="sqs",
        Endpoint=queue.arn,
        Attributes={"RawMessageDelivery": str(raw).lower()},
    )
    return queue


@pytest.fixture
def queue(sns_url: str) -> Queue:
    return subscribed(sns_url)


@pytest.fixture
async def publisher(sns_url: str, queue: Queue) -> AsyncIterator[AwsPublisher]:
    publisher = await opened(sns_url, queue.name)
    yield publisher
    await publisher.close()


async def opened(
    endpoint: str, topic: str, query: str = "", options: PublisherOptions = OPTIONS
) -> AwsPublisher:
    url = f"sns://{REGION}/{ACCOUNT}/{topic}?endpoint_url={endpoint}{query}"
    return await open_sns(url, options=options)


class TestSns(PublisherContract):
    @pytest.fixture
    async def publisher(self, sns_url: str, queue: Queue) -> AsyncIterator[AwsPublisher]:
        publisher = await opened(sns_url, queue.name, options=PATIENT)
        yield publisher
        await publisher.close()

    @pytest.fixture
    def arrivals(self, queue: Queue) -> Arrivals:
        return queue.bodies

    @pytest.fixture
    async def unreachable(self) -> AwsPublisher:
        return await opened("http://127.0.0.1:1", "t")

    @pytest.fixture
    async def another(self, sns_url: str, queue: Queue) -> AwsPublisher:
        return await opened(sns_url, queue.name)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * (256 * 1024 + 1))

    @pytest.fixture
    async def unauthorized(self, sns_url: str, queue: Queue) -> AsyncIterator[AwsPublisher]:
        with authenticating(sns_url):
            yield await opened(sns_url, queue.name)

    @pytest.fixture
    async def missing(self, sns_url: str) -> AwsPublisher:
        return await opened(sns_url, unique())

    @pytest.fixture
    def open_at(self, queue: Queue) -> OpenAt:
        options = replace(OPTIONS, publish_timeout=2.0)
        url = f"sns://{REGION}/{ACCOUNT}/{queue.name}?endpoint_url=http://"
        return lambda address: open_sns(url + address, options=options)

    @pytest.fixture
    def server(self, sns_url: str) -> str:
        return address_in(sns_url)


async def test_all_headers_arrive_at_a_queue_with_raw_delivery(
    publisher: AwsPublisher, queue: Queue
) -> None:
    headers = {"note": "Zürich\r\n🙂", "x": "", "odd!name": "1", "traceparent": "00-aa-bb-01"}
    message = make_message(ordering_key="ключ", headers_json=json.dumps(headers))
    assert await publish_one(publisher, message) is None
    (found,) = queue.headers()
    assert found == headers | {
        "content-type": "application/json",
        "outbox-message-id": str(message.message_id),
        "outbox-aggregate-type": "order",
        "outbox-aggregate-id": "order-1",
        "outbox-event-type": "order_placed",
        "outbox-attempt": "1",
        "outbox-ordering-key": "ключ",
    }


async def test_without_raw_delivery_body_and_attributes_are_in_the_notification(
    sns_url: str,
) -> None:
    queue = subscribed(sns_url, raw=False)
    publisher = await opened(sns_url, queue.name)
    assert await publish_one(publisher, make_message(body=b"\x00")) is None
    await publisher.close()
    (message,) = queue.receive()
    notification = json.loads(message["Body"])
    assert "Subject" not in notification
    assert notification["Message"] == "AA=="
    attributes = notification["MessageAttributes"]
    assert attributes["outbox-body-encoding"] == {"Type": "String", "Value": "base64"}


async def test_what_only_the_topic_finds_too_large_is_refused_for_good(
    sns_url: str, queue: Queue
) -> None:
    publisher = await opened(sns_url, queue.name, "&max_bytes=1048576")
    batch = [make_message(id=n, body=b"%d" % n) for n in range(3)]
    batch[1] = make_message(id=1, body=b"x" * 300_000)
    answers = await publisher.publish_batch(batch)
    await publisher.close()
    assert [answer and type(answer) for answer in answers] == [None, PermanentError, None]
    assert sorted(queue.bodies()) == [b"0", b"2"]


async def test_a_missing_topic_is_retried_and_served_once_it_exists(sns_url: str) -> None:
    name = unique()
    publisher = await opened(sns_url, name)
    error = await publish_one(publisher, make_message())
    assert type(error) is RetryableError
    assert str(error).startswith(f"topic {name} in {REGION}: it does not exist; create it")
    queue = subscribed(sns_url, name=name)
    assert await publish_one(publisher, make_message(body=b"{}")) is None
    assert queue.bodies() == [b"{}"]
    await publisher.close()


async def test_a_fifo_topic_gets_the_key_as_group_and_the_message_id_against_repeats(
    sns_url: str,
) -> None:
    queue = subscribed(sns_url, ".fifo")
    publisher = await opened(sns_url, queue.name)
    messages = [make_message(id=n, ordering_key="k", body=b"%d" % n) for n in range(3)]
    for message in messages:
        assert await publish_one(publisher, message) is None
    await publisher.close()
    assert queue.bodies() == [b"0", b"1", b"2"]
    system = [message["Attributes"] for message in queue.messages]
    assert {each["MessageGroupId"] for each in system} == {"k"}
    assert [each["MessageDeduplicationId"] for each in system] == [
        str(message.message_id) for message in messages
    ]


async def test_wrong_credentials_make_the_destination_unavailable_until_they_are_right(
    publisher: AwsPublisher, sns_url: str
) -> None:
    with authenticating(sns_url):
        error = await publish_one(publisher, make_message())
    assert type(error) is DestinationUnavailable
    assert "AWS refused us: it does not accept the credentials" in str(error)
    assert await publish_one(publisher, make_message()) is None
