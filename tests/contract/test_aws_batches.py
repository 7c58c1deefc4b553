"""How a batch becomes requests, and the answers to requests become one for each message."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from botocore import exceptions as aws

from pgoutbox.brokers.answers import Refused
from pgoutbox.brokers.aws.publisher import MOST_REQUESTS
from pgoutbox.brokers.sqs import open_sqs
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.template import Template
from tests.support.brokers.aws import standing_in

if TYPE_CHECKING:
    from pgoutbox.brokers.aws.publisher import AwsPublisher
    from pgoutbox.message import ClaimedMessage

OPTIONS = PublisherOptions(destination="queues", publish_timeout=20.0, concurrency=50)
IMPATIENT = PublisherOptions(destination="queues", publish_timeout=1.0, concurrency=1)
BROKEN = aws.ConnectionClosedError(endpoint_url="http://host")


def bodies(request: dict[str, Any]) -> list[str]:
    return [entry["MessageBody"] for entry in request["Entries"]]


def taken(request: dict[str, Any]) -> dict[str, Any]:
    return {"Successful": [{"Id": each["Id"], "MessageId": "m"} for each in request["Entries"]]}


def numbered(count: int, **fields: Any) -> list[ClaimedMessage]:
    return [make_message(id=n, body=b"%d" % n, **fields) for n in range(count)]


async def opened(options: PublisherOptions = OPTIONS, query: str = "") -> AwsPublisher:
    return await open_sqs(f"sqs://eu-west-1/q{query}", options=options)


def kinds(answers: Any) -> list[type[PublishError] | None]:
    return [answer and type(answer) for answer in answers]


async def test_a_queue_is_asked_for_once_however_many_wait_for_its_url() -> None:
    asked: Counter[str] = Counter()
    answering = asyncio.Event()

    async def answer(operation: str, request: dict[str, Any]) -> object:
        asked[operation] += 1
        if operation == "get_queue_url":
            await answering.wait()
            return {"QueueUrl": "u"}
        return taken(request)

    with standing_in(answer):
        publisher = await opened()
        waiting = [asyncio.ensure_future(publisher.publish_batch(numbered(1))) for _ in range(20)]
        while not asked:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)
        # Whoever asked first may leave, and the others still have an answer.
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        answering.set()
        assert await asyncio.gather(*waiting[1:]) == [[None]] * 19
    assert asked == {"get_queue_url": 1, "send_message_batch": 19}


async def test_a_queue_that_was_not_found_is_asked_for_again() -> None:
    asked: Counter[str] = Counter()

    async def answer(operation: str, request: dict[str, Any]) -> object:
        asked[operation] += 1
        if asked["get_queue_url"] == 1:
            raise BROKEN
        return {"QueueUrl": "u"} if operation == "get_queue_url" else taken(request)

    with standing_in(answer):
        publisher = await opened()
        found = await asyncio.gather(*(publisher.publish_batch(numbered(1)) for _ in range(3)))
        assert [kinds(one) for one in found] == [[DestinationUnavailable]] * 3
        assert list(await publisher.publish_batch(numbered(1))) == [None]
    assert asked["get_queue_url"] == 2


async def test_what_was_taken_stays_taken_whatever_becomes_of_the_others() -> None:
    sends: Counter[str] = Counter()

    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        sends.update(bodies(request))
        if "10" in bodies(request):
            raise BROKEN
        whole = taken(request)
        if "3" in bodies(request):
            whole["Successful"] = whole["Successful"][:3] + whole["Successful"][5:]
            whole["Failed"] = [
                {"Id": "3", "SenderFault": False, "Code": "InternalError"},
                {"Id": "4", "SenderFault": True, "Code": "InvalidMessageContents"},
            ]
        return whole

    with standing_in(answer):
        answers = kinds(await (await opened()).publish_batch(numbered(25)))
    expected: list[type[PublishError] | None] = [None] * 25
    expected[3], expected[4] = RetryableError, PermanentError
    expected[10:20] = [RetryableError] * 10
    assert answers == expected
    assert set(sends.values()) == {1}


async def test_an_answer_for_nobody_is_logged_and_none_at_all_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(operation: str, _: object) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        successful = [{"Id": "0", "MessageId": "m"}, {"Id": "7", "MessageId": "m"}, {"Id": "2"}]
        return {"Successful": successful, "Failed": [{"Id": "x"}, {}]}

    with standing_in(answer), caplog.at_level(logging.WARNING, "pgoutbox"):
        answers = await (await opened()).publish_batch(numbered(3))
    assert kinds(answers) == [None, RetryableError, RetryableError]
    assert str(answers[1]).endswith("the answer says nothing about this message")
    assert "ignored 3 answers for messages that were not sent" in caplog.text


async def test_a_request_that_is_refused_as_a_whole_is_repeated_message_by_message() -> None:
    requests: list[list[str]] = []

    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        requests.append(bodies(request))
        if "2" in bodies(request):
            raise aws.ClientError({"Error": {"Code": "BatchRequestTooLong"}}, "Send")
        return taken(request)

    with standing_in(answer):
        answers = await (await opened()).publish_batch(numbered(4))
    assert kinds(answers) == [None, None, PermanentError, None]
    assert requests == [["0", "1", "2", "3"], ["0"], ["1"], ["2"], ["3"]]


@pytest.mark.parametrize(
    "rubbish",
    [{}, None, "", {"Successful": [{}]}, {"Successful": [None]}, {"Failed": None}, {"Failed": 1}],
)
async def test_an_answer_that_is_none_delivers_nothing(rubbish: object) -> None:
    async def answer(operation: str, _: object) -> object:
        return {"QueueUrl": "u"} if operation == "get_queue_url" else rubbish

    with standing_in(answer):
        answers = await (await opened()).publish_batch(numbered(2))
    assert kinds(answers) == [RetryableError] * 2


async def refusing(bad: str, words: str = "") -> list[type[PublishError] | None]:
    """What becomes of four messages, where requests with those in ``bad`` are refused."""

    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        if any(body in bad for body in bodies(request)):
            error = {"Code": "InvalidParameterValue", "Message": words}
            raise aws.ClientError({"Error": error}, "Send")
        return taken(request)

    with standing_in(answer):
        return kinds(await (await opened()).publish_batch(numbered(4)))


async def test_only_what_is_refused_beside_others_that_are_taken_is_dead() -> None:
    assert await refusing("2") == [None, None, PermanentError, None]
    # Here it may be the queue's doing.
    assert await refusing("0123") == [Refused] * 4
    assert await refusing("0123", "Message must be shorter than 9 bytes.") == [PermanentError] * 4


async def test_no_request_has_more_than_ten_messages_or_more_bytes_than_allowed() -> None:
    requests: list[int] = []

    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        size = 0
        for entry in request["Entries"]:
            size += len(entry["MessageBody"])
            for name, value in entry["MessageAttributes"].items():
                size += len(name) + len(value["DataType"]) + len(value["StringValue"])
        assert size <= 4096
        requests.append(len(request["Entries"]))
        return taken(request)

    sizes = [10] * 21 + [1500, 1500, 1500, 3500, 10]
    batch = [make_message(id=n, body=b"x" * size) for n, size in enumerate(sizes)]
    with standing_in(answer):
        answers = await (await opened(query="?max_bytes=4096")).publish_batch(batch)
    assert kinds(answers) == [None] * len(batch)
    assert max(requests) <= 10
    assert sum(requests) == len(batch)


@pytest.mark.parametrize(("concurrency", "most"), [(3, 3), (200, MOST_REQUESTS)])
async def test_no_more_requests_run_at_once_than_the_concurrency_and_ten(
    concurrency: int, most: int
) -> None:
    running = 0
    seen = 0

    async def answer(operation: str, request: dict[str, Any]) -> object:
        nonlocal running, seen
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        running += 1
        seen = max(seen, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return taken(request)

    options = PublisherOptions(destination="queues", concurrency=concurrency)
    with standing_in(answer):
        answers = await (await opened(options)).publish_batch(numbered(600))
    assert kinds(answers) == [None] * 600
    assert seen == most


async def hanging(at: str) -> list[PublishError | None]:
    """What becomes of 25 messages, one request at a time, where that with ``at`` hangs."""

    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        if at in bodies(request):
            await asyncio.Event().wait()
        return taken(request)

    with standing_in(answer):
        publisher = await opened(IMPATIENT)
        async with asyncio.timeout(IMPATIENT.publish_timeout):
            return list(await publisher.publish_batch(numbered(25)))


async def test_what_was_not_answered_in_time_is_retried_and_what_was_not_sent_is_refunded() -> None:
    answers = await hanging("0")
    assert kinds(answers) == [RetryableError] * 10 + [DestinationUnavailable] * 15
    assert str(answers[0]) == "queue q in eu-west-1: no answer in time"


async def test_an_endpoint_that_answers_but_not_in_time_for_all_is_sent_less_and_is_not_down() -> (
    None
):
    answers = await hanging("10")
    assert kinds(answers) == [None] * 10 + [RetryableError] * 15
    throttled = [isinstance(each, RetryableError) and each.throttled for each in answers]
    assert throttled == [False] * 20 + [True] * 5
    assert "slower than it is sent messages" in str(answers[-1])


async def test_a_queue_that_is_not_found_in_half_of_the_time_makes_it_unavailable() -> None:
    async def answer(_: str, __: object) -> object:
        return await asyncio.Event().wait()

    with standing_in(answer):
        publisher = await opened(IMPATIENT)
        async with asyncio.timeout(IMPATIENT.publish_timeout * 0.9):
            answers = await publisher.publish_batch(numbered(2))
    assert kinds(answers) == [DestinationUnavailable] * 2


async def test_a_cancellation_ends_every_request_of_the_batch() -> None:
    begun, ended = 0, 0
    all_begun = asyncio.Event()

    async def answer(operation: str, _: object) -> object:
        nonlocal begun, ended
        if operation == "get_queue_url":
            return {"QueueUrl": "u"}
        begun += 1
        if begun == 3:
            all_begun.set()
        try:
            return await asyncio.Event().wait()
        finally:
            ended += 1

    with standing_in(answer):
        publisher = await opened()
        task = asyncio.ensure_future(publisher.publish_batch(numbered(25)))
        await all_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (begun, ended) == (3, 3)


async def test_a_queues_url_is_asked_for_once_per_name() -> None:
    async def answer(operation: str, request: dict[str, Any]) -> object:
        if operation == "get_queue_url":
            return {"QueueUrl": f"url of {request['QueueName']}"}
        return taken(request)

    options = PublisherOptions(destination="queues", topic=Template("q-{aggregate_type}"))
    with standing_in(answer) as client:
        publisher = await open_sqs("sqs://eu-west-1/123456789012/", options=options)
        for _ in range(2):
            batch = [*numbered(2, aggregate_type="a"), *numbered(1, aggregate_type="b")]
            assert kinds(await publisher.publish_batch(batch)) == [None] * 3
    asked = [request for operation, request in client.requests if operation == "get_queue_url"]
    owner = {"QueueOwnerAWSAccountId": "123456789012"}
    assert asked == [{"QueueName": "q-a"} | owner, {"QueueName": "q-b"} | owner]
    sent = [request for operation, request in client.requests if operation != "get_queue_url"]
    assert {request["QueueUrl"] for request in sent} == {"url of q-a", "url of q-b"}
