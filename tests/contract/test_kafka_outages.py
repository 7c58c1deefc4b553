"""Brokers that are away, silent, or refuse; and clients that end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
from dataclasses import replace
from importlib.metadata import files
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.brokers.kafka.log import Words
from pgoutbox.brokers.kafka.publisher import KafkaPublisher, open_kafka
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from tests.contract.kafka_servers import (
    THEIR_WORDS,
    Gate,
    gate,
    refuse_passwords,
    say_nothing,
    server,
)
from tests.contract.tls_http import tls_contexts
from tests.support.brokers.kafka import create_topic, new_topic, proxied_listeners, records
from tests.support.brokers.ladder import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.broker

OPTIONS = PublisherOptions(destination="events", publish_timeout=4.0, concurrency=200)


def batched(bodies: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (bodies[at : at + size] for at in range(0, len(bodies), size))


async def answer_in_time(publisher: KafkaPublisher) -> PublishError | None:
    async with asyncio.timeout(OPTIONS.publish_timeout):
        return await publish_one(publisher, make_message())


async def close_in_time(publisher: KafkaPublisher) -> None:
    async with asyncio.timeout(2):
        await publisher.close()


async def test_nobody_listens() -> None:
    port = free_port()
    publisher = await open_kafka(f"kafka://127.0.0.1:{port}", options=OPTIONS)
    answer = await answer_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert str(answer) == (
        f"127.0.0.1:{port}: no connection could be established; check the address and"
        " security.protocol; nothing was sent"
    )
    await close_in_time(publisher)


async def test_a_name_without_an_address() -> None:
    publisher = await open_kafka("kafka://name.invalid:9092", options=OPTIONS)
    answer = await answer_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "the host name has no address" in str(answer)
    await close_in_time(publisher)


@pytest.mark.parametrize("seconds", [2.0, 4.0])
async def test_a_server_that_accepts_and_never_answers(seconds: float) -> None:
    options = replace(OPTIONS, publish_timeout=seconds)
    async with server(say_nothing) as address:
        publisher = await open_kafka(f"kafka://{address}", options=options)
        for _ in range(2):
            async with asyncio.timeout(seconds):
                answer = await publish_one(publisher, make_message())
        await close_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "nothing was sent" in str(answer)


async def test_a_refused_password_is_told_as_such_and_without_the_brokers_words() -> None:
    async with server(refuse_passwords) as address:
        url = f"kafka://user:hunter2@{address}?security.protocol=sasl_plaintext"
        publisher = await open_kafka(url, options=OPTIONS)
        answer = await answer_in_time(publisher)
        await close_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "refused the credentials; check user, password and sasl.mechanism" in str(answer)
    assert THEIR_WORDS not in str(answer)
    assert "hunter2" not in str(answer)


async def test_a_broker_without_tls(kafka_url: str) -> None:
    url = f"{kafka_url}?security.protocol=ssl"
    publisher = await open_kafka(url, options=OPTIONS)
    answer = await answer_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "is that a port for plain text?" in str(answer)
    await close_in_time(publisher)


async def test_a_broker_that_wants_tls(tmp_path: Path) -> None:
    context, _ = tls_contexts(tmp_path, "localhost")
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        publisher = await open_kafka(f"kafka://127.0.0.1:{port}", options=OPTIONS)
        answer = await answer_in_time(publisher)
        await close_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "is that a port for TLS?" in str(answer)


async def test_a_stranger_with_a_certificate(tmp_path: Path) -> None:
    context, _ = tls_contexts(tmp_path, "localhost")
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        url = f"kafka://localhost:{port}?security.protocol=ssl"
        publisher = await open_kafka(url, options=OPTIONS)
        answer = await answer_in_time(publisher)
        await close_in_time(publisher)
    assert type(answer) is DestinationUnavailable
    assert "TLS certificate was not accepted" in str(answer)


async def test_a_probe_of_a_dead_broker_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    publisher = await open_kafka(f"kafka://127.0.0.1:{free_port()}", options=OPTIONS)
    assert type(await answer_in_time(publisher)) is DestinationUnavailable
    await close_in_time(publisher)
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


async def test_an_idle_client_of_a_dead_broker_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[object] = []
    log = Words.log

    def listen(self: Words, level: int, *said: Any) -> None:
        words.append(said)
        log(self, level, *said)

    monkeypatch.setattr(Words, "log", listen)
    publisher = await open_kafka(f"kafka://127.0.0.1:{free_port()}", options=OPTIONS)
    async with asyncio.timeout(20):
        while len(words) < 4:
            publisher._client.get()._hurry()
            await asyncio.sleep(0.05)  # until the client has tried again
    await close_in_time(publisher)
    assert [r.levelname for r in caplog.records if r.name == "pgoutbox.kafka"] == ["ERROR"]


async def test_close_ends_while_messages_wait_and_they_are_never_sent() -> None:
    publisher = await open_kafka(f"kafka://127.0.0.1:{free_port()}", options=OPTIONS)
    task = asyncio.ensure_future(publisher.publish_batch([make_message()] * 100))
    await asyncio.sleep(0)  # until it has begun
    await close_in_time(publisher)
    answers = await task
    assert {type(answer) for answer in answers} <= {RetryableError, DestinationUnavailable}


@pytest.fixture
async def behind_a_gate(kafka_url: str) -> AsyncIterator[tuple[Gate, KafkaPublisher, str]]:
    """A gate, a publisher that goes through it, and its topic."""
    topic = create_topic(kafka_url, new_topic(), partitions=3)
    listeners = proxied_listeners()
    async with gate(listeners) as one:
        publisher = await open_kafka(f"kafka://{listeners.front}/{topic}", options=OPTIONS)
        yield one, publisher, topic
        await close_in_time(publisher)


async def test_a_broker_that_goes_in_mid_run_and_comes_back_loses_nothing(
    kafka_url: str, behind_a_gate: tuple[Gate, KafkaPublisher, str]
) -> None:
    one, publisher, topic = behind_a_gate
    assert await answer_in_time(publisher) is None
    owed = {b"%d" % i for i in range(1000)}

    async def publish(some: Sequence[bytes]) -> list[PublishError]:
        async with asyncio.timeout(OPTIONS.publish_timeout):
            batch = [make_message(body=body, aggregate_id=body.decode()) for body in some]
            answers = await publisher.publish_batch(batch)
        owed.difference_update(
            body for body, answer in zip(some, answers, strict=True) if answer is None
        )
        return [answer for answer in answers if answer is not None]

    one.through.clear()
    batches = batched(sorted(owed), 100)
    under_way = [asyncio.ensure_future(publish(batch)) for batch in batches]
    await one.through.wait()
    one.shut()
    for errors in await asyncio.gather(*under_way):
        assert {type(error) for error in errors} <= {RetryableError, DestinationUnavailable}
    assert {type(error) for error in await publish([b"later"])} == {DestinationUnavailable}
    taken = {b"%d" % i for i in range(1000)} - owed
    assert taken <= {record.value for record in records(kafka_url, topic)}
    one.open()
    async with asyncio.timeout(20):
        while owed:
            await asyncio.gather(*map(publish, batched(sorted(owed), 100)))
    there = {record.value for record in records(kafka_url, topic)}
    assert there >= {b"%d" % i for i in range(1000)}
    # It was given up before there was a connection, so it is not sent by the next one.
    assert b"later" not in there


async def test_a_broker_that_falls_silent_in_mid_run_holds_nobody_up(
    behind_a_gate: tuple[Gate, KafkaPublisher, str],
) -> None:
    one, publisher, _ = behind_a_gate
    assert await answer_in_time(publisher) is None
    one.freeze()
    answer = await answer_in_time(publisher)
    assert type(answer) is RetryableError
    assert "no answer in time" in str(answer)
    task = asyncio.ensure_future(answer_in_time(publisher))
    await asyncio.sleep(0)  # until it has begun
    one.open()
    await task
    async with asyncio.timeout(20):
        while await answer_in_time(publisher) is not None:
            continue


async def test_a_silent_broker_does_not_hold_up_the_close(
    behind_a_gate: tuple[Gate, KafkaPublisher, str],
) -> None:
    one, publisher, _ = behind_a_gate
    assert await answer_in_time(publisher) is None
    one.freeze()
    task = asyncio.ensure_future(publisher.publish_batch([make_message()] * 10))
    await asyncio.sleep(0)  # until it has begun
    await close_in_time(publisher)
    assert {type(answer) for answer in await task} == {RetryableError}


async def test_a_client_that_ends_for_good_is_replaced_and_the_flow_goes_on(
    kafka_url: str,
) -> None:
    topic = create_topic(kafka_url, new_topic())
    publisher = await open_kafka(f"{kafka_url}/{topic}?linger.ms=500", options=OPTIONS)
    assert await answer_in_time(publisher) is None
    ended = publisher._client.get()
    task = asyncio.ensure_future(publisher.publish_batch([make_message()] * 10))
    await asyncio.sleep(0)  # until it has begun
    end_for_good(ended._producer)
    answers = await task
    assert {type(answer) for answer in answers} == {RetryableError}
    assert await answer_in_time(publisher) is None
    assert ended.fatal == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert publisher._client.get() is not ended
    await close_in_time(publisher)
    assert len(records(kafka_url, topic)) == 2


def end_for_good(producer: object) -> None:
    """Let librdkafka itself raise a fatal error, by a function that it has for tests."""
    name = next(
        str(one.locate()) for one in files("confluent-kafka") or [] if "librdkafka" in one.name
    )
    library = ctypes.CDLL(name)
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    # The first field of the object, after those that every object has.
    handle = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)
    library.rd_kafka_test_fatal_error(handle, 45, b"a sequence number that was not expected")
