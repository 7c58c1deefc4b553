"""Every error of the client is one of the four. A stand-in says them; no broker is asked."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException

from pgoutbox.brokers.kafka import renewal as kafka_renewal
from pgoutbox.brokers.kafka.errors import (
    CLIENT_ERRORS,
    HINTS,
    NO_TROUBLE,
    SILENCE,
    TOGETHER,
    TROUBLES,
)
from pgoutbox.brokers.kafka.publisher import open_kafka
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from tests.contract.kafka_stand_in import StandIn, instead_of_producers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pgoutbox.brokers.kafka.publisher import KafkaPublisher

OPTIONS = PublisherOptions(destination="events", publish_timeout=4.0)
THEIR_WORDS = "the broker's own words about hunter2"
ONE_BY_ONE = [row for row in CLIENT_ERRORS if row[0] not in TOGETHER]
FENCED = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, THEIR_WORDS, fatal=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    return instead_of_producers(monkeypatch)


@pytest.fixture
async def publisher(made: list[StandIn]) -> AsyncIterator[KafkaPublisher]:
    publisher = await open_kafka("kafka://one/orders", options=OPTIONS)
    assert len(made) == 1
    yield publisher
    await publisher.close()


async def answer_of(publisher: KafkaPublisher) -> PublishError | None:
    try:
        (answer,) = await publisher.publish_batch([make_message()])
    except PublishError as error:
        return error
    return answer


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("code", "kind", "words"), ONE_BY_ONE, ids=[str(row[0]) for row in ONE_BY_ONE]
)
async def test_each_report_becomes_what_the_table_says(
    publisher: KafkaPublisher,
    made: list[StandIn],
    code: int,
    kind: type[PublishError],
    words: str,
) -> None:
    made[0].answer = KafkaError(code, THEIR_WORDS)
    answer = await answer_of(publisher)
    assert type(answer) is kind
    assert str(answer) == f"topic 'orders': {words}"
    made[0].answer = None
    assert await answer_of(publisher) is None


@pytest.mark.parametrize(("code", "kind", "words"), CLIENT_ERRORS)
async def test_so_does_what_the_client_says_at_once(
    publisher: KafkaPublisher,
    made: list[StandIn],
    code: int,
    kind: type[PublishError],
    words: str,
) -> None:
    made[0].raises = KafkaException(KafkaError(code, THEIR_WORDS))
    answer = await answer_of(publisher)
    assert type(answer) is kind
    assert str(answer) == f"topic 'orders': {words}"


async def test_an_error_that_nobody_thought_of_is_retried_by_its_name(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].answer = KafkaError(KafkaError.POLICY_VIOLATION, THEIR_WORDS)
    answer = await answer_of(publisher)
    assert type(answer) is RetryableError
    assert str(answer) == "topic 'orders': it was not taken: POLICY_VIOLATION"


@pytest.mark.parametrize(("code", "kind", "words"), [r for r in CLIENT_ERRORS if r[0] in TOGETHER])
async def test_what_was_refused_with_others_is_asked_again_alone(
    publisher: KafkaPublisher,
    made: list[StandIn],
    code: int,
    kind: type[PublishError],
    words: str,
) -> None:
    made[0].answer = KafkaError(code, THEIR_WORDS)
    assert await answer_of(publisher) is None
    assert made[1].config["batch.num.messages"] == 1
    made[1].answer = KafkaError(code, THEIR_WORDS)
    answer = await answer_of(publisher)
    assert type(answer) is kind
    assert str(answer) == f"topic 'orders': {words}"
    made[1].answer = FENCED
    assert isinstance(await answer_of(publisher), RetryableError)


@pytest.mark.parametrize("code", SILENCE)
async def test_silence_means_that_nothing_was_sent_only_where_no_request_left(
    publisher: KafkaPublisher, made: list[StandIn], code: int
) -> None:
    made[0].answer = KafkaError(code, THEIR_WORDS)
    assert type(await answer_of(publisher)) is RetryableError
    made[0].sends = False
    answer = await answer_of(publisher)
    assert type(answer) is DestinationUnavailable
    assert str(answer) == f"one:9092: {NO_TROUBLE}; nothing was sent"


async def test_that_nothing_was_sent_is_said_by_a_count_that_is_younger_than_the_records_end(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].counts = False
    made[0].answer = KafkaError(KafkaError._MSG_TIMED_OUT, THEIR_WORDS)
    answers = []
    for sends in (True, False):
        made[0].sends = False
        task = asyncio.ensure_future(answer_of(publisher))
        await until(lambda: publisher._client.get()._doubtful)
        assert not task.done()
        made[0].sends, made[0].counts = sends, True
        answers.append(type(await task))
        made[0].counts = False
    assert answers == [RetryableError, DestinationUnavailable]


async def test_a_name_that_the_message_made_is_its_own_doing_and_that_of_the_settings_is_not(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    refusal = KafkaException(KafkaError(KafkaError.TOPIC_EXCEPTION, THEIR_WORDS))
    made[0].raises = refusal
    assert type(await answer_of(publisher)) is RetryableError
    by_message = await open_kafka("kafka://one/{event_type}", options=OPTIONS)
    made[1].raises = refusal
    assert type(await answer_of(by_message)) is PermanentError
    await by_message.close()


def test_permanent_is_only_a_records_size() -> None:
    permanent = {code for code, kind, _ in CLIENT_ERRORS if kind is PermanentError}
    assert permanent == {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


async def test_a_quota_is_told_as_such(publisher: KafkaPublisher, made: list[StandIn]) -> None:
    made[0].answer = KafkaError(KafkaError.THROTTLING_QUOTA_EXCEEDED, THEIR_WORDS)
    answer = await answer_of(publisher)
    assert isinstance(answer, RetryableError)
    assert answer.throttled


async def test_a_record_that_nothing_is_said_about_is_not_taken(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].silent = True
    task = asyncio.ensure_future(publisher.publish_batch([make_message(), make_message()]))
    await until(lambda: len(made[0].produced) == 2)
    publisher._client.get()._open.copy().pop().end()
    assert [type(answer) for answer in await task] == [RetryableError] * 2


async def test_after_close_nothing_is_opened(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].raises = KafkaException(FENCED)
    assert type(await answer_of(publisher)) is RetryableError
    await publisher.close()
    answer = await answer_of(publisher)
    assert type(answer) is DestinationUnavailable
    assert "the publisher is closed" in str(answer)
    assert len(made) == 1


async def test_an_error_of_our_own_is_retried_and_logged(
    publisher: KafkaPublisher, made: list[StandIn], caplog: pytest.LogCaptureFixture
) -> None:
    made[0].raises = TypeError("hunter2")
    answer = await answer_of(publisher)
    assert type(answer) is RetryableError
    assert "hunter2" not in str(answer)
    assert "unexpected TypeError" in caplog.text


def connection_refused(client: StandIn) -> None:
    words = "[thrd:one:9092/1]: one:9092/1: Connect to ipv4#10.0.0.1:9092 failed (after 3ms)"
    client.log(logging.ERROR, "%s [%s] %s", "FAIL", "pgoutbox#producer-1", words)


async def test_what_an_answer_tells_is_not_logged_as_well_but_what_nobody_asked_for_is(
    publisher: KafkaPublisher, made: list[StandIn], caplog: pytest.LogCaptureFixture
) -> None:
    made[0].silent = True
    task = asyncio.ensure_future(answer_of(publisher))
    await asyncio.sleep(0)  # until it has begun
    connection_refused(made[0])
    made[0].silent, made[0].sends = False, False
    made[0].answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert type(await task) is DestinationUnavailable
    connection_refused(made[0])
    assert not caplog.records
    made[0].answer = None
    assert await answer_of(publisher) is None
    connection_refused(made[0])
    connection_refused(made[0])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("sign", HINTS)
async def test_the_clients_words_are_searched_for_the_cause(
    publisher: KafkaPublisher, made: list[StandIn], sign: str
) -> None:
    made[0].sends = False
    made[0].answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    made[0].config["error_cb"](KafkaError(KafkaError._TRANSPORT, f"hunter2: {sign}, hunter2"))
    answer = await answer_of(publisher)
    assert str(answer) == f"one:9092: {HINTS[sign]}; nothing was sent"


@pytest.mark.parametrize("code", TROUBLES)
async def test_the_reason_for_having_no_connection_is_told_until_there_is_one(
    publisher: KafkaPublisher, made: list[StandIn], code: int
) -> None:
    made[0].sends = False
    made[0].answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    made[0].config["error_cb"](KafkaError(code, THEIR_WORDS))
    made[0].config["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, THEIR_WORDS))
    answer = await answer_of(publisher)
    assert type(answer) is DestinationUnavailable
    assert str(answer) == f"one:9092: {TROUBLES[code]}; nothing was sent"
    made[0].answer = None
    assert await answer_of(publisher) is None
    made[0].answer = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert NO_TROUBLE in str(await answer_of(publisher))


async def test_a_full_buffer_is_waited_for_a_while(made: list[StandIn]) -> None:
    options = replace(OPTIONS, publish_timeout=2.0)
    publisher = await open_kafka("kafka://one/orders", options=options)
    made[0].raises = BufferError("Local: Queue full")
    answer = await answer_of(publisher)
    assert type(answer) is DestinationUnavailable
    assert "buffer stayed full" in str(answer)
    task = asyncio.ensure_future(answer_of(publisher))
    await asyncio.sleep(0)  # until it has begun
    made[0].raises = None
    assert await task is None
    await publisher.close()


async def test_a_batch_that_is_cancelled_before_a_full_buffer_leaves_nothing_behind(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].raises = BufferError("Local: Queue full")
    task = asyncio.ensure_future(publisher.publish_batch([make_message(), make_message()]))
    await asyncio.sleep(0)  # until it has begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    made[0].raises = None
    assert await answer_of(publisher) is None
    assert len(made[0].produced) == 1
    assert not publisher._client.get()._open


async def test_text_that_has_no_encoding_is_permanent(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    made[0].raises = UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    assert type(await answer_of(publisher)) is PermanentError


@pytest.mark.parametrize("way", ["callback", "poll", "report", "produce"])
async def test_after_a_fatal_error_what_is_open_is_retried_and_the_rest_goes_by_a_new_client(
    publisher: KafkaPublisher, made: list[StandIn], way: str
) -> None:
    first = made[0]
    first.silent = True
    open_one = asyncio.ensure_future(answer_of(publisher))
    await asyncio.sleep(0)  # until it has begun
    first.answer = KafkaError(KafkaError._PURGE_QUEUE)
    if way == "callback":
        first.config["error_cb"](FENCED)
    elif way == "poll":
        first.fatal = FENCED
    elif way == "report":
        first.silent, first.answer = False, FENCED
    else:
        first.raises = KafkaException(FENCED)
        assert type(await answer_of(publisher)) is RetryableError
    answer = await open_one
    assert type(answer) is RetryableError
    assert "hunter2" not in str(answer)
    assert await answer_of(publisher) is None
    assert len(made) == 2
    assert len(made[1].produced) == 1


async def test_clients_that_end_at_once_each_time_are_made_later_and_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doomed(client: StandIn) -> None:
        client.raises = KafkaException(FENCED)

    made = instead_of_producers(monkeypatch, doomed)
    publisher = await open_kafka("kafka://one/orders", options=OPTIONS)
    answers = [await answer_of(publisher) for _ in range(100)]
    assert len(made) == 2
    assert [type(answer) for answer in answers[:2]] == [RetryableError] * 2
    assert {type(answer) for answer in answers[2:]} == {DestinationUnavailable}
    assert "INVALID_PRODUCER_EPOCH each time" in str(answers[2])
    await publisher.close()


async def test_a_client_that_delivered_is_replaced_at_once_again(
    publisher: KafkaPublisher, made: list[StandIn]
) -> None:
    for number in range(4):
        assert await answer_of(publisher) is None
        made[number].raises = KafkaException(FENCED)
        assert type(await answer_of(publisher)) is RetryableError
    assert await answer_of(publisher) is None
    assert len(made) == 5


async def test_a_new_client_that_cannot_be_made_is_tried_again_later(
    publisher: KafkaPublisher, made: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_renewal, "LONGEST_WAIT", 0.05)

    def gone(_: StandIn) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, THEIR_WORDS))

    made[0].raises = KafkaException(FENCED)
    await answer_of(publisher)
    instead_of_producers(monkeypatch, gone)
    answer = await answer_of(publisher)
    assert type(answer) is DestinationUnavailable
    assert str(answer) == "no new client could be made; nothing was sent"
    made = instead_of_producers(monkeypatch)
    async with asyncio.timeout(10):
        while answer is not None:
            await asyncio.sleep(0.01)  # until the next attempt
            answer = await answer_of(publisher)
    assert len(made) == 1


async def test_a_client_that_never_answers_does_not_hold_up_the_close(
    made: list[StandIn],
) -> None:
    publisher = await open_kafka("kafka://one/orders", options=OPTIONS)
    made[0].silent = True
    made[0].answers_purges = False
    task = asyncio.ensure_future(answer_of(publisher))
    await asyncio.sleep(0)  # until it has begun
    async with asyncio.timeout(2):
        await publisher.close()
        await publisher.close()
    assert type(await task) is RetryableError
