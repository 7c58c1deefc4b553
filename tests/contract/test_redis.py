from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis

from pgoutbox.brokers.redis.publisher import RedisPublisher, open_redis
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
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
from tests.support.brokers.ladder import address_in, free_port
from tests.support.brokers.redis import entries, new_topic, own_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(
    destination="streams", publish_timeout=4.0, concurrency=20, topic=Template("{aggregate_type}")
)

LARGEST = 2**20
"""Bytes of a payload that the contract's publisher takes."""
LOGIN = ":s3%3Acr%40t@"
"""Of the default user of the server that has one, as it stands in a URL."""


@pytest.fixture
def stream() -> str:
    return new_topic()


class TestRedis(PublisherContract):
    @pytest.fixture
    async def publisher(self, redis_url: str, stream: str) -> AsyncIterator[RedisPublisher]:
        options = replace(OPTIONS, topic=Template(stream))
        publisher = await open_redis(f"{redis_url}?max_bytes={LARGEST}", options=options)
        yield publisher
        await publisher.close()

    @pytest.fixture
    async def another(self, redis_url: str, stream: str) -> RedisPublisher:
        return await open_redis(redis_url, options=replace(OPTIONS, topic=Template(stream)))

    @pytest.fixture
    def arrivals(self, redis_url: str, stream: str) -> Arrivals:
        return lambda: [entry.body for entry in entries(redis_url, stream)]

    @pytest.fixture
    async def unreachable(self) -> RedisPublisher:
        return await open_redis(f"redis://127.0.0.1:{free_port()}", options=OPTIONS)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * (LARGEST + 1))

    @pytest.fixture
    async def unauthorized(self, locked_redis: str) -> RedisPublisher:
        url = locked_redis.replace(LOGIN, f":{SECRET}@")
        return await open_redis(url, options=OPTIONS)

    @pytest.fixture
    async def missing(self, redis_url: str, stream: str) -> RedisPublisher:
        # Redis makes streams by itself; only what has its name can be in the way.
        with redis.Redis.from_url(redis_url) as client:
            client.set(stream, "no stream")
        return await open_redis(redis_url, options=replace(OPTIONS, topic=Template(stream)))

    @pytest.fixture
    def open_at(self) -> OpenAt:
        options = replace(OPTIONS, publish_timeout=2.0)
        return lambda address: open_redis(f"redis://{address}", options=options)

    @pytest.fixture
    def server(self, redis_url: str) -> str:
        return address_in(redis_url)


async def attempt(url: str, message: ClaimedMessage) -> PublishError | None:
    publisher = await open_redis(url, options=OPTIONS)
    try:
        return await publish_one(publisher, message)
    finally:
        await publisher.close()


async def test_an_entry_has_the_body_its_type_the_key_and_all_headers(
    redis_url: str, stream: str
) -> None:
    message = make_message(
        aggregate_type=stream,
        ordering_key="lane-7",
        body=b"\x00\xff",
        content_type="application/octet-stream",
        headers_json='{"traceparent": "00-1", "body": "a header", "key": "", "X!~": "\\u4e2d"}',
    )
    assert await attempt(redis_url, message) is None
    [entry] = entries(redis_url, stream)
    assert (entry.body, entry.content_type, entry.key) == (
        b"\x00\xff",
        "application/octet-stream",
        "lane-7",
    )
    assert entry.headers == {
        "outbox-message-id": str(message.message_id),
        "outbox-aggregate-type": stream,
        "outbox-aggregate-id": "order-1",
        "outbox-event-type": "order_placed",
        "outbox-attempt": "1",
        "outbox-ordering-key": "lane-7",
        "traceparent": "00-1",
        "body": "a header",
        "key": "",
        "X!~": "中",
    }


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_any_text_arrives_as_it_is(redis_url: str, stream: str, text: str) -> None:
    headers = json.dumps({"note": text})
    message = make_message(aggregate_type=stream, aggregate_id=text, headers_json=headers)
    assert await attempt(redis_url, message) is None
    [entry] = entries(redis_url, stream)
    assert entry.key == entry.headers["outbox-aggregate-id"] == entry.headers["note"] == text


async def test_without_a_topic_the_stream_is_named_after_the_aggregate(
    redis_url: str, stream: str
) -> None:
    publisher = await open_redis(redis_url, options=replace(OPTIONS, topic=None))
    assert await publish_one(publisher, make_message(aggregate_type=stream)) is None
    await publisher.close()
    assert len(entries(redis_url, f"outbox.event.{stream}")) == 1


async def test_the_url_chooses_the_database(redis_url: str, stream: str) -> None:
    second = redis_url.rpartition("/")[0] + "/2"
    assert await attempt(second, make_message(aggregate_type=stream)) is None
    assert len(entries(second, stream)) == 1
    assert entries(redis_url, stream) == []


async def test_one_failing_message_fails_alone(redis_url: str, stream: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{stream}-text", "no stream")
    topic = Template("{aggregate_type}{headers[suffix]}")
    url = f"{redis_url}?max_bytes=1000"
    publisher = await open_redis(url, options=replace(OPTIONS, topic=topic))

    def message(suffix: str, size: int = 1) -> ClaimedMessage:
        headers = json.dumps({"suffix": suffix})
        return make_message(aggregate_type=stream, body=b"x" * size, headers_json=headers)

    batch = [
        message("-a"),
        message("-text"),
        message("-a", 1001),
        make_message(aggregate_type=stream),
        message("-a", 1000),
    ]
    first, wrong_type, too_large, nameless, last = await publisher.publish_batch(batch)
    await publisher.close()
    assert (first, last) == (None, None)
    assert type(wrong_type) is RetryableError
    assert "holds something else" in str(wrong_type)
    assert type(too_large) is PermanentError
    assert "1001 bytes" in str(too_large)
    assert type(nameless) is PermanentError
    assert [len(entry.body) for entry in entries(redis_url, f"{stream}-a")] == [1, 1000]


async def test_a_batch_keeps_its_order_and_one_connection(redis_url: str, stream: str) -> None:
    publisher = await open_redis(redis_url, options=OPTIONS)
    batch = [make_message(aggregate_type=stream, body=b"%d" % i) for i in range(500)]
    assert list(await publisher.publish_batch(batch)) == [None] * 500
    assert [entry.body for entry in entries(redis_url, stream)] == [b"%d" % i for i in range(500)]
    [link] = publisher._links._idle
    # Private to the client, and what tells that an answer is left over.
    assert link._reader is not None
    assert hasattr(link._reader, "_buffer")
    await publisher.close()


async def test_a_batch_of_many_megabytes_arrives(redis_url: str, stream: str) -> None:
    publisher = await open_redis(redis_url, options=OPTIONS)
    batch = [make_message(aggregate_type=stream, body=bytes([i]) * 2**20) for i in range(20)]
    assert list(await publisher.publish_batch(batch)) == [None] * 20
    await publisher.close()
    assert [entry.body for entry in entries(redis_url, stream)] == [each.body for each in batch]
    with redis.Redis.from_url(redis_url) as client:
        client.delete(stream)


async def test_maxlen_trims_the_stream_to_about_that_many(redis_url: str, stream: str) -> None:
    publisher = await open_redis(f"{redis_url}?maxlen=100", options=OPTIONS)
    batch = [make_message(aggregate_type=stream) for _ in range(1000)]
    assert list(await publisher.publish_batch(batch)) == [None] * 1000
    await publisher.close()
    # Redis frees whole nodes, of a hundred entries unless it was told otherwise.
    assert 100 <= len(entries(redis_url, stream)) <= 300


async def test_concurrent_batches_use_no_more_connections_than_the_concurrency(
    redis_url: str, stream: str
) -> None:
    publisher = await open_redis(redis_url, options=replace(OPTIONS, concurrency=3))
    message = make_message(aggregate_type=stream)
    answers = await asyncio.gather(*(publisher.publish_batch([message]) for _ in range(50)))
    assert answers == [[None]] * 50
    assert len(publisher._links._idle) <= 3
    await publisher.close()


@pytest.fixture(scope="module")
def locked_redis() -> Iterator[str]:
    """A server with a password for the default user, and a user ``writer`` with few rights."""
    with own_redis("--requirepass", "s3:cr@t", "--maxmemory-policy", "noeviction") as (url, _):
        whole = url.replace("redis://", f"redis://{LOGIN}")
        with redis.Redis.from_url(whole) as client:
            client.execute_command(
                "ACL", "SETUSER", "writer", "on", ">p%w", "~mine*", "+xadd", "+select"
            )
        yield whole


async def test_user_and_password_come_percent_encoded_from_the_url(
    locked_redis: str, stream: str
) -> None:
    assert await attempt(locked_redis, make_message(aggregate_type=stream)) is None
    writer = locked_redis.replace(LOGIN, "writer:p%25w@")
    assert await attempt(writer, make_message(aggregate_type=f"mine-{stream}")) is None


@pytest.mark.parametrize("credentials", ["", "nobody:hunter2@"])
async def test_wrong_credentials_make_the_destination_unavailable_and_are_not_repeated(
    locked_redis: str, credentials: str
) -> None:
    error = await attempt(locked_redis.replace(LOGIN, credentials), make_message())
    assert type(error) is DestinationUnavailable
    assert "does not accept the user or the password" in str(error)
    assert "hunter2" not in repr(error)
    assert error.__cause__ is None


async def test_a_user_without_the_right_to_the_stream_is_told_which_right(
    locked_redis: str, stream: str
) -> None:
    writer = locked_redis.replace(LOGIN, "writer:p%25w@")
    error = await attempt(writer, make_message(aggregate_type=stream))
    assert type(error) is DestinationUnavailable
    assert "give it XADD" in str(error)


async def test_a_full_server_is_tried_again_and_takes_messages_once_it_has_room(
    locked_redis: str, stream: str
) -> None:
    publisher = await open_redis(locked_redis, options=OPTIONS)
    with redis.Redis.from_url(locked_redis) as client:
        client.config_set("maxmemory", "1")
        error = await publish_one(publisher, make_message(aggregate_type=stream))
        assert type(error) is RetryableError
        assert "maxmemory" in str(error)
        client.config_set("maxmemory", "0")
        assert await publish_one(publisher, make_message(aggregate_type=stream)) is None
    await publisher.close()


async def test_tls_to_a_port_without_it_is_named(redis_url: str) -> None:
    url = redis_url.replace("redis://", "rediss://")
    publisher = await open_redis(url, options=replace(OPTIONS, publish_timeout=1.0))
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert type(error) is DestinationUnavailable
    assert "does this port speak TLS?" in str(error)


async def test_a_database_that_does_not_exist_makes_the_destination_unavailable(
    redis_url: str,
) -> None:
    error = await attempt(redis_url.rpartition("/")[0] + "/999999", make_message())
    assert type(error) is DestinationUnavailable
    assert "no database of that number" in str(error)


async def test_wait_asks_for_replicas_and_a_message_without_them_is_tried_again(
    stream: str,
) -> None:
    with own_redis("--repl-diskless-sync-delay", "0") as (primary, _):
        publisher = await open_redis(
            f"{primary}?wait=1", options=replace(OPTIONS, publish_timeout=1.0)
        )
        error = await publish_one(publisher, make_message(aggregate_type=stream))
        assert type(error) is RetryableError
        assert "0 of 1 replicas" in str(error)
        await publisher.close()
        host, _, port = primary.removeprefix("redis://").removesuffix("/0").partition(":")
        with own_redis("--replicaof", host, port) as (replica, _):
            until_replicated(primary)
            assert await attempt(f"{primary}?wait=1", make_message(aggregate_type=stream)) is None
            assert len(entries(replica, stream)) == 2
            error = await attempt(replica, make_message(aggregate_type=stream))
            assert type(error) is DestinationUnavailable
            assert "is a replica and takes no writes" in str(error)


def until_replicated(primary: str) -> None:
    with redis.Redis.from_url(primary) as client:
        deadline = time.monotonic() + 20
        while client.execute_command("WAIT", 1, 100) != 1:
            assert time.monotonic() < deadline, "the replica does not follow"
