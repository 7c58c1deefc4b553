"""What a package with a publisher of its own tests it with. Needs pytest and an asyncio plugin.

::

    class TestFax(PublisherContract):
        @pytest.fixture
        async def publisher(self) -> AsyncIterator[FaxPublisher]:
            publisher = await open_fax("fax://...", options=OPTIONS)
            yield publisher
            await publisher.close()

The tests are coroutines: run them with ``asyncio_mode = auto`` of pytest-asyncio, or mark the
class. `PublisherContract.arrivals` and `PublisherContract.unreachable` may be overridden to have
more of the contract checked.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from pgoutbox.errors import (
    Defer,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.message import ClaimedMessage
from pgoutbox.publisher import BatchPublisher, Publisher

AnyPublisher: TypeAlias = Publisher | BatchPublisher
Arrivals: TypeAlias = Callable[[], Sequence[bytes]]

THE_FOUR = (RetryableError, PermanentError, Defer, DestinationUnavailable)
PATIENCE = 10.0
"""Seconds that anything of the suite may take."""

PAYLOADS = {
    "json": b'{"n": 12345678901234567890123, "d": 0.1234567890123456789}',
    "empty": b"",
    "null": b"null",
    "binary": bytes(range(256)),
    "one mebibyte": b"x" * 2**20,
}
TEXTS = {
    "plain": "order-1",
    "unicode": "Zürich/中文/🙂",
    "control characters": "a\r\nInjected: 1\x00b\x7f",
    "blanks": "  two words  ",
    "percent": "100%25",
    "long": "k" * 512,
}


def make_message(**fields: Any) -> ClaimedMessage:  # noqa: ANN401 - any field of the message
    """A claimed message like any other, except for the fields given."""
    whole: dict[str, Any] = {
        "id": 1,
        "lease_version": 1,
        "attempts": 1,
        "reclaims": 0,
        "message_id": uuid.uuid4(),
        "destination": "default",
        "ordering_key": None,
        "aggregate_type": "order",
        "aggregate_id": "order-1",
        "event_type": "order_placed",
        "content_type": "application/json",
        "body": b'{"total": 42}',
        "headers_json": "{}",
        "created_at": datetime.now(UTC),
        "age": 0.0,
    }
    return ClaimedMessage(**(whole | fields))


async def publish_one(publisher: AnyPublisher, message: ClaimedMessage) -> PublishError | None:
    """What became of one message: None for taken, else one of the four. Anything else is raised."""
    try:
        async with asyncio.timeout(PATIENCE):
            if not isinstance(publisher, BatchPublisher):
                await publisher.publish(message)
                return None
            answers = await publisher.publish_batch([message])
    except THE_FOUR as error:
        return error
    assert len(answers) == 1, f"one message, {len(answers)} answers"
    assert answers[0] is None or isinstance(answers[0], THE_FOUR), f"not one of the four: {answers}"
    return answers[0]


class PublisherContract:
    """What a worker relies on. Subclass it and provide the fixture ``publisher``."""

    @pytest.fixture
    def publisher(self) -> AnyPublisher:
        """An open publisher whose destination works. To be overridden."""
        pytest.fail("a PublisherContract needs a fixture named `publisher`")

    @pytest.fixture
    def arrivals(self) -> Arrivals | None:
        """Returns the payloads at the destination, in any order, where they can be seen."""
        return None

    @pytest.fixture
    def unreachable(self) -> AnyPublisher | None:
        """An open publisher whose destination does not work, where that can be arranged."""
        return None

    async def test_a_message_is_taken(
        self, publisher: AnyPublisher, arrivals: Arrivals | None
    ) -> None:
        """The least of it."""
        message = make_message()
        assert await publish_one(publisher, message) is None
        assert arrivals is None or list(arrivals()) == [message.body]

    @pytest.mark.parametrize("body", PAYLOADS.values(), ids=PAYLOADS.keys())
    async def test_a_payload_arrives_byte_by_byte_or_is_refused_for_good(
        self, publisher: AnyPublisher, arrivals: Arrivals | None, body: bytes
    ) -> None:
        """A destination may have limits, but what it takes it takes unchanged."""
        kind = "application/json" if body[:1] in (b"{", b"n") else "application/octet-stream"
        answer = await publish_one(publisher, make_message(body=body, content_type=kind))
        assert answer is None or isinstance(answer, PermanentError), repr(answer)
        assert answer is not None or arrivals is None or list(arrivals()) == [body]

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_odd_names_keys_and_headers_are_taken_or_refused_for_good(
        self, publisher: AnyPublisher, text: str
    ) -> None:
        """Plain SQL may insert any text, and a refusal that is not permanent would never end."""
        message = make_message(
            aggregate_type=text,
            aggregate_id=text,
            event_type=text,
            ordering_key=text,
            headers_json='{"note": ' + json.dumps(text) + ', "x": ""}',
        )
        answer = await publish_one(publisher, message)
        assert answer is None or isinstance(answer, PermanentError), repr(answer)

    @pytest.mark.parametrize(
        "name", ["", "two words", "Zürich", "a\r\nb", "content-length", "host"]
    )
    async def test_an_odd_header_name_is_taken_dropped_or_refused_for_good(
        self, publisher: AnyPublisher, name: str
    ) -> None:
        """As above, and nobody gets to frame the request."""
        message = make_message(headers_json="{" + json.dumps(name) + ': "1"}')
        answer = await publish_one(publisher, message)
        assert answer is None or isinstance(answer, PermanentError), repr(answer)

    async def test_a_hundred_publishes_at_once_are_all_taken(
        self, publisher: AnyPublisher, arrivals: Arrivals | None
    ) -> None:
        """A worker runs as many at once as the destination's concurrency allows."""
        messages = [make_message(id=i, body=b"%d" % i) for i in range(100)]
        answers = await asyncio.gather(*(publish_one(publisher, each) for each in messages))
        assert answers == [None] * 100
        if arrivals is not None:
            assert sorted(arrivals()) == sorted(each.body for each in messages)

    async def test_a_batch_has_one_answer_for_each_message_in_order(
        self, publisher: AnyPublisher
    ) -> None:
        """Also for a batch of one, and for none at all."""
        if not isinstance(publisher, BatchPublisher):
            pytest.skip("takes one message at a time")
        for size in (0, 1, 10):
            batch = [make_message(id=i) for i in range(size)]
            assert list(await publisher.publish_batch(batch)) == [None] * size

    @pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 10])
    async def test_a_cancelled_publish_ends_and_leaves_the_publisher_usable(
        self, publisher: AnyPublisher, steps: int
    ) -> None:
        """Cancelled after some steps of the event loop; a cancellation is never swallowed."""
        task = asyncio.ensure_future(publish_one(publisher, make_message()))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.done(), "the cancelled publish goes on"
            assert task.cancelled(), "the cancellation was swallowed"
        else:
            assert task.result() is None
        assert await publish_one(publisher, make_message()) is None

    async def test_close_ends_and_may_be_repeated(self, publisher: AnyPublisher) -> None:
        """A drain has little time, and whoever opened it may close it again."""
        assert await publish_one(publisher, make_message()) is None
        async with asyncio.timeout(PATIENCE):
            await publisher.close()
            await publisher.close()

    async def test_an_unreachable_destination_is_answered_with_an_error_worth_a_retry(
        self, unreachable: AnyPublisher | None
    ) -> None:
        """Anything else would bury messages, or stop the destination as if by a bug."""
        if unreachable is None:
            pytest.skip("no unreachable destination was provided")
        answer = await publish_one(unreachable, make_message())
        await unreachable.close()
        assert isinstance(answer, RetryableError | DestinationUnavailable), repr(answer)
        assert str(answer), "an error without words helps nobody"
