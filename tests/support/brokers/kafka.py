"""Kafka for tests, and what a consumer finds there."""

from __future__ import annotations

import contextlib
import gc
import os
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers.ladder import Address, from_environment, nothing, split_address

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "confluentinc/cp-kafka:7.9.0"
PATIENCE = 15.0


@pytest.fixture(scope="session")
def kafka_url() -> Iterator[str]:
    """``kafka://host:port``, shared: every test uses topics with names of its own."""
    given = from_environment("KAFKA")
    if given is not None:
        yield given
        return
    with _in_docker() as bootstrap:
        if bootstrap is None:
            nothing("KAFKA")
        yield f"kafka://{bootstrap}"


class Listeners(NamedTuple):
    """Where to listen so that a client goes nowhere else, and where to forward to."""

    front: Address
    behind: Address


def proxied_listeners() -> Listeners:
    """Of a broker that tells its clients to come through a proxy."""
    front = os.environ.get("PGOUTBOX_TEST_KAFKA_PROXY")
    behind = os.environ.get("PGOUTBOX_TEST_KAFKA_BEHIND")
    if not (front and behind):
        nothing(
            "KAFKA",
            "PGOUTBOX_TEST_KAFKA_BEHIND to the address of a second listener of it, and"
            " PGOUTBOX_TEST_KAFKA_PROXY to the one that this listener advertises",
        )
    return Listeners(split_address(front), split_address(behind))


@contextlib.contextmanager
def _in_docker() -> Iterator[str | None]:
    if not (Path("/var/run/docker.sock").exists() or "DOCKER_HOST" in os.environ):
        yield None
        return
    from docker.errors import DockerException  # noqa: PLC0415 - slow, and mostly not needed
    from testcontainers.community.kafka import KafkaContainer  # noqa: PLC0415

    container = KafkaContainer(IMAGE).with_kraft()
    try:
        container.start()
    except (DockerException, OSError):
        # Its client leaves the socket of an engine that said no to the garbage collector.
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
        yield None
        return
    try:
        yield str(container.get_bootstrap_server())
    finally:
        container.stop()


def bootstrap(url: str) -> str:
    """The brokers of a ``kafka://`` URL, as clients want them."""
    return url.removeprefix("kafka://").partition("/")[0]


def new_topic() -> str:
    """The name of a topic that no other test uses."""
    return f"pgoutbox-test-{uuid.uuid4().hex}"


def create_topic(url: str, name: str, *, partitions: int = 1, **config: str) -> str:
    """Create a topic; underscores in the names of settings stand for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap(url), "log_level": 4})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([topic])[name].result(PATIENCE)
    return name


class Record(NamedTuple):
    """What a consumer gets: one record of a topic."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int
    timestamp: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name, as Java's ``lastHeader``."""
        return dict(self.headers).get(name)


def records(url: str, topic: str) -> list[Record]:
    """What the topic holds, read by a plain consumer from beginning to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(url),
            "group.id": f"pgoutbox-test-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        metadata = consumer.list_topics(topic, PATIENCE).topics[topic]
        parts = [TopicPartition(topic, number, 0) for number in metadata.partitions]
        ends = [consumer.get_watermark_offsets(part, PATIENCE)[1] for part in parts]
        consumer.assign(parts)
        found: list[Record] = []
        while len(found) < sum(ends):
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{sum(ends)} records in {topic}, {len(found)} were read"
            assert message.error() is None, str(message.error())
            found.append(_record(message))
        return found
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    given = message.headers() or []
    pairs = given.items() if isinstance(given, dict) else given
    headers = [(name, value) for name, value in pairs if isinstance(value, bytes)]
    partition = message.partition()
    assert partition is not None
    return Record(message.value(), message.key(), headers, partition, message.timestamp()[1])
