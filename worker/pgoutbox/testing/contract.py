"""The contract between a worker and its publishers, as tests."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

from pgoutbox.errors import PermanentError
from pgoutbox.message import ClaimedMessage  # noqa: TC001 - signatures that users read
from pgoutbox.publisher import BatchPublisher
from pgoutbox.testing.calling import (
    PATIENCE,
    AnyPublisher,
    publish_after_close,
    publish_all,
    publish_one,
    worth_a_retry,
)
from pgoutbox.testing.faults import FaultContract
from pgoutbox.testing.messages import PAYLOADS, TEXTS, make_message

Arrivals: TypeAlias = Callable[[], Sequence[bytes]]

SECRET = "hunter2"  # noqa: S105 - nobody's
"""The password that is wrong everywhere."""


class PublisherContract(FaultContract):
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
    def another(self) -> AnyPublisher | None:
        """A second publisher that was opened like ``publisher``, and works."""
        return None

    @pytest.fixture
    def too_large(self) -> ClaimedMessage | None:
        """A message that is larger than the destination takes, where it has a limit."""
        return None

    @pytest.fixture
    def unreachable(self) -> AnyPublisher | None:
        """An open publisher whose destination does not work, where that can be arranged."""
        return None

    @pytest.fixture
    def unauthorized(self) -> AnyPublisher | None:
        """An open publisher with the password `SECRET`, which its destination does not accept."""
        return None

    @pytest.fixture
    def missing(self) -> AnyPublisher | None:
        """An open publisher whose topic, queue, exchange or stream does not exist."""
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

    async def test_after_close_the_destination_is_unavailable(
        self, publisher: AnyPublisher
    ) -> None:
        """A publish may be late; its message is safe only if it is said that nothing was sent."""
        assert await publish_one(publisher, make_message()) is None
        async with asyncio.timeout(PATIENCE):
            await publisher.close()
            await publish_after_close(publisher)
            await publisher.close()

    async def test_a_publisher_goes_on_while_another_of_its_kind_is_closed(
        self, publisher: AnyPublisher, another: AnyPublisher | None
    ) -> None:
        """A worker has several destinations of a kind, and closes one that was taken out."""
        if another is None:
            pytest.skip("no second publisher was provided")
        both = (publisher, another)
        answers = await asyncio.gather(*(publish_one(each, make_message()) for each in both))
        assert answers == [None, None]
        under_way = asyncio.gather(*(publish_one(publisher, make_message()) for _ in range(10)))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await another.close()
        assert await under_way == [None] * 10
        assert await publish_one(publisher, make_message()) is None

    async def test_what_is_too_large_is_refused_for_good_and_its_neighbours_are_taken(
        self,
        publisher: AnyPublisher,
        arrivals: Arrivals | None,
        too_large: ClaimedMessage | None,
    ) -> None:
        """It would be retried for ever otherwise, or take others with it."""
        if too_large is None:
            pytest.skip("nothing is too large, or it was not provided")
        before, after = make_message(id=1, body=b"1"), make_message(id=3, body=b"3")
        answers = await publish_all(publisher, [before, too_large, after])
        assert isinstance(answers[1], PermanentError), repr(answers[1])
        assert answers[0] is answers[2] is None
        assert arrivals is None or sorted(arrivals()) == [b"1", b"3"]

    async def test_an_unreachable_destination_is_answered_with_an_error_worth_a_retry(
        self, unreachable: AnyPublisher | None
    ) -> None:
        """Anything else would bury messages, or stop the destination as if by a bug."""
        if unreachable is None:
            pytest.skip("no unreachable destination was provided")
        await worth_a_retry(unreachable)

    async def test_wrong_credentials_are_answered_with_an_error_worth_a_retry(
        self, unauthorized: AnyPublisher | None
    ) -> None:
        """They are put right without the messages, which must not be buried meanwhile."""
        if unauthorized is None:
            pytest.skip("no destination that refuses us was provided")
        assert SECRET not in await worth_a_retry(unauthorized)

    async def test_a_missing_topic_is_answered_with_an_error_worth_a_retry(
        self, missing: AnyPublisher | None
    ) -> None:
        """It may be created later, or be away with the broker that had it."""
        if missing is None:
            pytest.skip("no destination without its topic was provided")
        await worth_a_retry(missing)
