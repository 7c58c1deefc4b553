"""Every row of the tables of errors, and URLs that are refused."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis import exceptions as client

from pgoutbox.brokers.redis.answers import (
    CLIENT_ERRORS,
    CONNECT_ERRORS,
    ERROR_CODES,
    refused,
)
from pgoutbox.brokers.redis.links import Link
from pgoutbox.brokers.redis.publisher import MOST_CONNECTIONS, open_redis, packed
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import SECRET, make_message, publish_one
from tests.contract.raw_redis import ADDED, Command, RawRedis, raw_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPTIONS = PublisherOptions(destination="streams", publish_timeout=4.0)

# What servers say, in their own words, and what becomes of the message.
SAID: list[tuple[bytes, type[PublishError], str]] = [
    (b"WRONGTYPE Operation against a key", RetryableError, "holds something else"),
    (b"OOM command not allowed when used memory > 'maxmemory'.", RetryableError, "memory is full"),
    (b"READONLY You can't write against a read only replica.", DestinationUnavailable, "replica"),
    (b"LOADING Redis is loading the dataset in memory", DestinationUnavailable, "still loading"),
    (b"BUSY Redis is busy running a script.", DestinationUnavailable, "busy with a script"),
    (b"MASTERDOWN Link with MASTER is down", DestinationUnavailable, "lost its primary"),
    (b"MISCONF Redis is configured to save RDB", DestinationUnavailable, "save to its disk"),
    (b"NOREPLICAS Not enough good replicas", DestinationUnavailable, "min-replicas-to-write"),
    (b"NOAUTH Authentication required.", DestinationUnavailable, "user or the password"),
    (b"NOPERM this user has no permissions", DestinationUnavailable, "give it XADD"),
    (b"MOVED 3999 127.0.0.1:6381", DestinationUnavailable, "part of a cluster"),
    (b"ASK 3999 127.0.0.1:6381", DestinationUnavailable, "part of a cluster"),
    (b"TRYAGAIN Multiple keys request", DestinationUnavailable, "is moving the stream"),
    (b"CROSSSLOT Keys in request", DestinationUnavailable, "part of a cluster"),
    (b"CLUSTERDOWN The cluster is down", DestinationUnavailable, "the cluster is down"),
    (b"ERR unknown command 'XADD'", DestinationUnavailable, "came with Redis 5"),
    (b"ERR Protocol error: invalid bulk length", PermanentError, "proto-max-bulk-len"),
    (
        b"ERR Protocol error: unauthenticated multibulk length",
        DestinationUnavailable,
        "user or the password",
    ),
    (b"ERR Protocol error: expected '$', got 'x'", RetryableError, "make sense"),
    (b"ERR something else", RetryableError, "refused the message"),
    (b"NEWCODE something else", RetryableError, "refused the message"),
]


@pytest.fixture
async def server() -> AsyncIterator[RawRedis]:
    async with raw_redis() as server:
        yield server


@pytest.mark.parametrize(("said", "meaning", "words"), SAID, ids=lambda said: str(said)[:14])
async def test_an_error_in_place_of_an_answer_is_one_of_the_four(
    server: RawRedis, said: bytes, meaning: type[PublishError], words: str
) -> None:
    async def answer(_: Command) -> bytes:
        return b"-" + said + b"\r\n"

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    batch = [make_message(), make_message()]
    answers = list(await publisher.publish_batch(batch))
    await publisher.close()
    assert [type(answer) for answer in answers] == [meaning, meaning]
    assert all(words in str(answer) for answer in answers)
    assert str(answers[0]).startswith(f"127.0.0.1:{server.port}: ")


async def test_an_error_concerns_only_its_own_message(server: RawRedis) -> None:
    replies = iter([ADDED, b"-OOM too much\r\n", ADDED])

    async def answer(_: Command) -> bytes:
        return next(replies)

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    first, second, third = await publisher.publish_batch([make_message() for _ in range(3)])
    await publisher.close()
    assert first is third is None
    assert type(second) is RetryableError


async def test_what_was_answered_before_the_connection_ended_keeps_its_answer(
    server: RawRedis,
) -> None:
    replies = iter([ADDED, b"-OOM too much\r\n"])

    async def answer(_: Command) -> bytes | None:
        return next(replies, None)

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    answers = list(await publisher.publish_batch([make_message() for _ in range(4)]))
    await publisher.close()
    assert [type(answer) for answer in answers] == [type(None), *[RetryableError] * 3]
    assert "ended before the answer" in str(answers[3])
    assert server.connections == 1
    assert len(server.commands) <= 4


async def test_after_a_failover_a_new_connection_is_made(server: RawRedis) -> None:
    async def answer(_: Command) -> bytes:
        return b"-READONLY a replica\r\n" if server.connections == 1 else ADDED

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    [error] = await publisher.publish_batch([make_message()])
    assert type(error) is DestinationUnavailable
    assert list(await publisher.publish_batch([make_message()])) == [None]
    await publisher.close()
    assert server.connections == 2


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"-NOAUTH Authentication required.\r\n", "user or the password"),
        (b"-WRONGPASS invalid username-password pair\r\n", "user or the password"),
        (b"-LOADING the dataset\r\n", "still loading"),
        (b"-ERR max number of clients reached\r\n", "no connection could be established"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Redis server"),
    ],
)
async def test_a_refused_handshake_costs_no_attempt(
    server: RawRedis, greeting: bytes, words: str
) -> None:
    server.greeting = greeting
    publisher = await open_redis(server.url.replace("//", "//me:pw@"), options=OPTIONS)
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert type(error) is DestinationUnavailable
    assert words in str(error)
    assert server.commands == []


def example(kind: type[Exception]) -> Exception:
    if issubclass(kind, client.AskError):
        return kind("3999 127.0.0.1:6381")
    return kind("words of the client")


@pytest.mark.parametrize("row", CLIENT_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_of_the_client_has_its_row(
    server: RawRedis,
    row: tuple[type[Exception], type[PublishError], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, meaning, words = row

    async def fail(*_: object, **__: object) -> None:
        raise example(kind)

    publisher = await open_redis(server.url, options=OPTIONS)
    monkeypatch.setattr(Link, "read_response", fail)
    monkeypatch.setattr(Link, "open", no_handshake)
    answers = await publisher.publish_batch([make_message(), make_message()])
    await publisher.close()
    assert [(type(each), str(each)) for each in answers] == [
        (meaning, f"127.0.0.1:{server.port}: {words}")
    ] * 2


async def no_handshake(link: Link) -> None:
    link._reader, link._writer = await asyncio.open_connection(link.host, link.port)


@pytest.mark.parametrize("row", CONNECT_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_in_connecting_has_its_row(
    row: tuple[type[Exception], type[PublishError], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, meaning, words = row

    async def fail(_: Link) -> None:
        raise example(kind)

    monkeypatch.setattr(Link, "open", fail)
    publisher = await open_redis("redis://me:hunter2@host", options=OPTIONS)
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert error is not None
    assert (type(error), str(error)) == (meaning, f"host:6379: {words}")
    assert error.__cause__ is None


def test_every_code_has_its_row() -> None:
    for code, meaning, words in ERROR_CODES:
        error = refused(client.ResponseError(f"{code} and more"), "host:1")
        assert (type(error), str(error)) == (meaning, f"host:1: {words}")


async def test_a_bug_is_logged_and_its_message_is_tried_again(
    server: RawRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SECRET)

    publisher = await open_redis(server.url, options=OPTIONS)
    assert await publish_one(publisher, make_message()) is None
    for seam, meaning in (("read_response", RetryableError), ("open", DestinationUnavailable)):
        with monkeypatch.context() as patched:
            patched.setattr(Link, seam, fail)
            error = await publish_one(publisher, make_message())
        assert type(error) is meaning
        assert SECRET not in str(error)
    await publisher.close()
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert f"127.0.0.1:{server.port}: unexpected ZeroDivisionError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("said", [b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"$1\r\n1\r\n"])
async def test_what_is_no_id_of_an_entry_delivers_nothing_and_ends_the_connection(
    server: RawRedis, said: bytes
) -> None:
    replies = iter([ADDED, said, ADDED])

    async def answer(_: Command) -> bytes:
        return next(replies, ADDED)

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    answers = list(await publisher.publish_batch([make_message() for _ in range(3)]))
    assert [type(each) for each in answers] == [type(None), RetryableError, RetryableError]
    assert "not Redis's" in str(answers[1])
    assert await publish_one(publisher, make_message()) is None
    await publisher.close()
    assert server.connections == 2


async def test_what_is_no_number_of_replicas_delivers_nothing(server: RawRedis) -> None:
    replies = iter([ADDED, b"+many\r\n"])

    async def answer(_: Command) -> bytes:
        return next(replies)

    server.answer = answer
    publisher = await open_redis(f"{server.url}?wait=1", options=OPTIONS)
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert type(error) is RetryableError


async def test_many_batches_at_once_share_few_connections(server: RawRedis) -> None:
    publisher = await open_redis(server.url, options=replace(OPTIONS, concurrency=200))
    answers = await asyncio.gather(*(publisher.publish_batch([make_message()]) for _ in range(100)))
    await publisher.close()
    assert answers == [[None]] * 100
    assert server.connections <= MOST_CONNECTIONS


async def test_after_close_a_publish_is_refused_and_opens_nothing(server: RawRedis) -> None:
    used, unused = [await open_redis(server.url, options=OPTIONS) for _ in range(2)]
    assert await publish_one(used, make_message()) is None
    for publisher in (used, unused):
        await publisher.close()
        error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
        assert "the publisher is closed" in str(error)
    assert server.connections == 1


async def test_a_connection_that_opens_while_the_publisher_is_closed_is_not_used(
    server: RawRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    links = []

    async def slow(link: Link) -> None:
        links.append(link)
        await no_handshake(link)
        opened.set()
        await asyncio.sleep(0.05)  # whatever still runs on when the publisher is closed

    monkeypatch.setattr(Link, "open", slow)
    publisher = await open_redis(server.url, options=OPTIONS)
    publishing = asyncio.ensure_future(publish_one(publisher, make_message()))
    await opened.wait()
    await publisher.close()
    assert type(await publishing) is DestinationUnavailable
    assert [link.is_connected for link in links] == [False]
    assert server.commands == []


async def test_without_word_of_the_replicas_nothing_is_delivered(server: RawRedis) -> None:
    said = iter([ADDED, b"-ERR not now\r\n", ADDED])

    async def answer(_: Command) -> bytes | None:
        return next(said, None)

    server.answer = answer
    publisher = await open_redis(f"{server.url}?wait=1", options=OPTIONS)
    for words in ("refused the message", "ended before the answer"):
        [error] = await publisher.publish_batch([make_message()])
        assert type(error) is RetryableError
        assert words in str(error)
    await publisher.close()
    assert [command[0] for command in server.commands] == [b"XADD", b"WAIT"] * 2


async def test_a_command_is_written_with_lengths_in_bytes(server: RawRedis) -> None:
    publisher = await open_redis(f"{server.url}?maxlen=9", options=OPTIONS)
    message = make_message(
        aggregate_type="é" * 300,
        aggregate_id="\ud800",
        body=b"\r\n",
        headers_json='{"n": "\\u00e9"}',
    )
    assert await publish_one(publisher, message) is None
    await publisher.close()
    [words] = server.commands
    stream = f"outbox.event.{'é' * 300}".encode()
    assert words[:6] == [b"XADD", stream, b"MAXLEN", b"~", b"9", b"*"]
    fields = dict(zip(words[6::2], words[7::2], strict=True))
    assert (fields[b"key"], fields[b"h:n"], fields[b"body"]) == (b"?", "é".encode(), b"\r\n")
    assert packed(("WAIT", "1", b"")) == b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$0\r\n\r\n"
