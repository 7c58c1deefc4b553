"""The far end of each publisher, for tests that treat them all alike: a place, and what is there.

Every message's payload is ``{"id": "<its message_id>"}``, so that its arrival can be told.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aio_pika
import nats
import redis

from tests.support.brokers import aws, kafka, pubsub
from tests.support.brokers.ladder import Address, split_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.receiver import Receiver


class End(ABC):
    """One destination: its server, its topic there, and everything that has arrived."""

    name: str
    server: Address
    """What a proxy has to lead to."""
    listen_on = 0
    """Where that proxy has to listen; 0: anywhere."""

    @abstractmethod
    def settings(self, through: Address) -> Mapping[str, str]:
        """The destination's settings, when it is reached ``through`` a proxy."""

    @abstractmethod
    def arrived(self) -> set[str]:
        """The ids of all messages that a consumer has found there so far."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what is open."""


def address_of(url: str) -> Address:
    """Host and port of a URL."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Address(parts.hostname, parts.port)


def new_name() -> str:
    """A topic, queue or stream of the test's own."""
    return f"outage-{uuid.uuid4().hex[:12]}"


def id_in(body: bytes) -> str:
    """Which message a consumer has before it."""
    found: str = json.loads(body)["id"]
    return found


class HttpEnd(End):
    """A receiver in the test's own process."""

    name = "http"

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.server = address_of(receiver.url)

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"http://{through}/"}

    def arrived(self) -> set[str]:
        return set(self._receiver.arrivals)


class KafkaEnd(End):
    """A topic of one partition; reached at the address that its other listener advertises."""

    name = "kafka"

    def __init__(self, url: str, behind: str, proxy: str) -> None:
        self.server = split_address(behind)
        self.listen_on = split_address(proxy).port
        self._url = url
        self._topic = kafka.create_topic(url, new_name())

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"kafka://{through}", "TOPIC": self._topic}

    def arrived(self) -> set[str]:
        return {id_in(record.value or b"") for record in kafka.records(self._url, self._topic)}


class RedisEnd(End):
    """A stream."""

    name = "redis"

    def __init__(self, url: str) -> None:
        self.server = address_of(url)
        self._url = url
        self._stream = new_name()

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"redis://{through}/0", "TOPIC": self._stream}

    def arrived(self) -> set[str]:
        with redis.Redis.from_url(self._url) as client:
            return {id_in(fields[b"body"]) for _, fields in client.xrange(self._stream)}


class SqsEnd(End):
    """A queue."""

    name = "sqs"

    def __init__(self, endpoint: str) -> None:
        self.server = address_of(endpoint)
        self._queue = aws.Queue(endpoint, new_name())

    def settings(self, through: Address) -> Mapping[str, str]:
        url = f"sqs://{aws.REGION}/{self._queue.name}?endpoint_url=http://{through}"
        return {"URL": url}

    def arrived(self) -> set[str]:
        return set(map(id_in, self._queue.bodies()))


class SnsEnd(End):
    """A topic, with a queue that it delivers to."""

    name = "sns"

    def __init__(self, endpoint: str) -> None:
        self.server = address_of(endpoint)
        self._queue = aws.Queue(endpoint, new_name())
        self._topic = new_name()
        client = aws.client("sns", endpoint)
        arn = client.create_topic(Name=self._topic)["TopicArn"]
        raw = {"RawMessageDelivery": "true"}
        client.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=self._queue.arn, Attributes=raw)

    def settings(self, through: Address) -> Mapping[str, str]:
        place = f"{aws.REGION}/{aws.ACCOUNT}/{self._topic}"
        return {"URL": f"sns://{place}?endpoint_url=http://{through}"}

    def arrived(self) -> set[str]:
        return set(map(id_in, self._queue.bodies()))


class RabbitmqEnd(End):
    """A durable queue behind the default exchange."""

    name = "rabbitmq"

    def __init__(self, url: str) -> None:
        self.server = address_of(url)
        self._url = url
        self._queue = new_name()
        self._found: set[str] = set()
        asyncio.run(self._receive())

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"amqp://guest:guest@{through}/", "TOPIC": self._queue}

    def arrived(self) -> set[str]:
        asyncio.run(self._receive())
        return set(self._found)

    async def _receive(self) -> None:
        async with await aio_pika.connect(self._url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(self._queue, durable=True)
            while (message := await queue.get(fail=False)) is not None:
                self._found.add(id_in(message.body))
                await message.ack()


class NatsEnd(End):
    """A subject that a stream of its own holds."""

    name = "nats"

    def __init__(self, url: str) -> None:
        self.server = address_of(url)
        self._url = url
        self._subject = new_name()
        asyncio.run(self._add_stream())

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"nats://{through}", "TOPIC": self._subject}

    def arrived(self) -> set[str]:
        return asyncio.run(self._read())

    async def _add_stream(self) -> None:
        async with await nats.connect(self._url) as client:
            stream = client.jetstream()
            await stream.add_stream(name=self._subject, subjects=[self._subject])

    async def _read(self) -> set[str]:
        async with await nats.connect(self._url) as client:
            stream = client.jetstream()
            state = (await stream.stream_info(self._subject)).state
            numbers = range(state.first_seq, state.last_seq + 1)
            found = [await stream.get_msg(self._subject, seq=number) for number in numbers]
            return {id_in(message.data or b"") for message in found}


class PubsubEnd(End):
    """A topic with a subscription."""

    name = "pubsub"

    def __init__(self, url: str) -> None:
        self._project, _, host = url.partition("?emulator=")
        self.server = split_address(host)
        self._topic = pubsub.Topic(url)

    def settings(self, through: Address) -> Mapping[str, str]:
        return {"URL": f"{self._project}/{self._topic.name}?emulator={through}"}

    def arrived(self) -> set[str]:
        return {id_in(arrival.body) for arrival in self._topic.arrivals()}

    def close(self) -> None:
        self._topic.close()
