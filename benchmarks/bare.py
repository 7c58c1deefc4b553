"""A broker's client alone: as many messages as it can publish, with the publisher's guarantees.

Started by `benchmarks.brokers` as ``python -m benchmarks.bare BROKER URL TOPIC COUNT IN_FLIGHT``;
prints the messages per second. No outbox, no templates, no headers but the content type.
"""

# ruff: noqa: INP001, PLC0415 - a script; only the client that is asked for is imported

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvloop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SIZE = 500
BODY = b"x" * SIZE
WARM_UP = 1000
PATIENCE = 120.0


class Job:
    """How many messages, and how many of them on their way at once."""

    def __init__(self, url: str, topic: str, count: int, in_flight: int) -> None:
        self.url = url
        self.topic = topic
        self.count = count
        self.in_flight = in_flight

    async def singly(self, publish: Callable[[], Awaitable[object]]) -> float:
        """Messages per second of a client that publishes one at a time, from many tasks."""
        await self._many(publish, WARM_UP)
        began = time.perf_counter()
        await self._many(publish, self.count)
        return self.count / (time.perf_counter() - began)

    async def _many(self, publish: Callable[[], Awaitable[object]], count: int) -> None:
        left = count

        async def one() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await publish()

        async with asyncio.TaskGroup() as group:
            for _ in range(self.in_flight):
                group.create_task(one())

    async def in_batches(self, publish: Callable[[int], Awaitable[object]]) -> float:
        """Messages per second of a client that takes several; two batches are on their way."""
        size = self.in_flight // 2
        await publish(size)
        began = time.perf_counter()
        left = self.count

        async def one() -> None:
            nonlocal left
            while left > 0:
                take = min(size, left)
                left -= take
                await publish(take)

        await asyncio.gather(one(), one())
        return self.count / (time.perf_counter() - began)


async def http(job: Job) -> float:
    """aiohttp, one POST each."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=job.in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def publish() -> None:
            async with session.post(
                job.url, data=BODY, headers={"content-type": "text/plain"}
            ) as answer:
                await answer.read()
                answer.raise_for_status()

        return await job.singly(publish)


async def rabbitmq(job: Job) -> float:
    """aiormq: confirms, mandatory, persistent, one channel."""
    import aiormq

    connection = await aiormq.connect(job.url)
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    properties = aiormq.spec.Basic.Properties(delivery_mode=2, content_type="text/plain")

    async def publish() -> None:
        await channel.basic_publish(
            BODY, routing_key=job.topic, properties=properties, mandatory=True
        )

    try:
        return await job.singly(publish)
    finally:
        await connection.close()


async def nats(job: Job) -> float:
    """nats-py: JetStream, each acknowledged."""
    from nats import connect

    client = await connect(job.url)
    stream = client.jetstream()
    headers = {"content-type": "text/plain"}
    number = 0

    async def publish() -> None:
        nonlocal number
        number += 1
        own = {**headers, "Nats-Msg-Id": f"bare-{number}"}
        await stream.publish(job.topic, BODY, headers=own, timeout=PATIENCE)

    try:
        return await job.singly(publish)
    finally:
        await client.close()


async def redis(job: Job) -> float:
    """redis-py: XADD in pipelines."""
    from redis.asyncio import Redis

    client = Redis.from_url(job.url)

    async def publish(count: int) -> None:
        pipeline = client.pipeline(transaction=False)
        for _ in range(count):
            pipeline.xadd(job.topic, {"body": BODY, "content-type": "text/plain"})
        await pipeline.execute()

    try:
        return await job.in_batches(publish)
    finally:
        await client.aclose()


async def kafka(job: Job) -> float:
    """confluent-kafka: idempotent, acks=all, a delivery report for each."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": urlsplit(job.url).netloc,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
        }
    )
    reported = 0

    def report(error: object, _message: object) -> None:
        nonlocal reported
        if error is not None:
            raise RuntimeError(str(error))
        reported += 1

    def publish(count: int) -> None:
        goal = reported + count
        begun = 0
        while reported < goal:
            while begun < count and begun - (reported - goal + count) < job.in_flight:
                producer.produce(
                    job.topic,
                    BODY,
                    b"key",
                    on_delivery=report,
                    headers=[("content-type", "text/plain")],
                )
                begun += 1
            producer.poll(0.001)

    publish(WARM_UP)
    began = time.perf_counter()
    publish(job.count)
    return job.count / (time.perf_counter() - began)


BROKERS = {"http": http, "rabbitmq": rabbitmq, "nats": nats, "redis": redis, "kafka": kafka}


def main() -> int:
    """Run one of them."""
    broker, url, topic, count, in_flight = sys.argv[1:]
    job = Job(url, topic, int(count), int(in_flight))
    print(uvloop.run(BROKERS[broker](job)))  # noqa: T201 - the answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
