"""The servers of these tests, and the brokers that messages go to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.brokers import kafka, nats
from tests.support.brokers.jaeger import jaeger
from tests.support.brokers.kafka import kafka_url
from tests.support.brokers.nats import nats_url
from tests.support.tracing import Consumer, FarEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.brokers.jaeger import Jaeger

__all__ = ["jaeger", "kafka_url", "nats_url"]


@pytest.fixture
def consumer(jaeger: Jaeger) -> Iterator[Consumer]:
    with Consumer(jaeger) as consuming:
        yield consuming


@pytest.fixture
def kafka_end(kafka_url: str) -> FarEnd:
    topic = kafka.create_topic(kafka_url, kafka.new_topic())

    def received() -> list[dict[str, str]]:
        return [
            {name: value.decode() for name, value in record.headers}
            for record in kafka.records(kafka_url, topic)
        ]

    return FarEnd({"URL": kafka_url, "TOPIC": topic}, received)


@pytest.fixture
def nats_end(nats_url: str) -> Iterator[FarEnd]:
    with asyncio.Runner() as runner:
        stream = nats.place(nats_url)
        place = runner.run(stream.__aenter__())
        yield FarEnd(
            {"URL": nats_url, "TOPIC": place.subject("orders")},
            lambda: [message.headers for message in place.received()],
        )
        runner.run(stream.__aexit__(None, None, None))
