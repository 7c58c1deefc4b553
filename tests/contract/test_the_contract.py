"""The contract suite finds the publishers that break it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.noop import NoopBatchPublisher, NoopPublisher
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError
from pgoutbox.testing import PublisherContract, contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage

CONTRACT = PublisherContract()


class Unclassified(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:
        raise KeyError(message.id)


class OnlyTheBase(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        raise PublishError("which of the four?")


class Picky(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:
        if not message.aggregate_id.isascii() or message.headers_json != "{}":
            raise RetryableError("this never ends")


class Uncancellable(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return


class Alone(NoopPublisher):
    """Breaks when it is called while it works."""

    busy = False

    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        if self.busy:
            raise DestinationUnavailable("one at a time, please")
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False


class ClosesOnce(NoopPublisher):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class NeverCloses(NoopPublisher):
    async def close(self) -> None:
        await asyncio.Event().wait()


class Miscounts(NoopBatchPublisher):
    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        return [None] * (len(messages) - 1)


async def test_an_unclassified_exception_is_found() -> None:
    with pytest.raises(KeyError):
        await CONTRACT.test_a_message_is_taken(Unclassified(), None)
    with pytest.raises(PublishError, match="which of the four"):
        await CONTRACT.test_a_message_is_taken(OnlyTheBase(), None)


@pytest.mark.parametrize("arrived", [[], [b"other"]], ids=["lost", "changed"])
async def test_a_payload_that_is_lost_or_changed_is_found(arrived: list[bytes]) -> None:
    def arrivals() -> list[bytes]:
        return arrived

    noop = NoopPublisher()
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_message_is_taken(noop, arrivals)
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_hundred_publishes_at_once_are_all_taken(noop, arrivals)
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_payload_arrives_byte_by_byte_or_is_refused_for_good(
            noop, arrivals, b"{}"
        )


async def test_a_message_that_would_be_retried_for_ever_is_found() -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_odd_names_keys_and_headers_are_taken_or_refused_for_good(
            Picky(), "Zürich"
        )
    with pytest.raises(AssertionError):
        await CONTRACT.test_an_odd_header_name_is_taken_dropped_or_refused_for_good(Picky(), "host")


async def test_a_publisher_that_can_do_one_thing_at_a_time_is_found() -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_hundred_publishes_at_once_are_all_taken(Alone(), None)


async def test_a_swallowed_cancellation_is_found() -> None:
    with pytest.raises(AssertionError, match="swallowed"):
        await CONTRACT.test_a_cancelled_publish_ends_and_leaves_the_publisher_usable(
            Uncancellable(), steps=1
        )


async def test_a_publisher_that_a_cancellation_breaks_is_found() -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_cancelled_publish_ends_and_leaves_the_publisher_usable(
            Alone(), steps=1
        )


async def test_a_close_that_fails_or_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="closed already"):
        await CONTRACT.test_close_ends_and_may_be_repeated(ClosesOnce())
    monkeypatch.setattr(contract, "PATIENCE", 0.01)
    with pytest.raises(TimeoutError):
        await CONTRACT.test_close_ends_and_may_be_repeated(NeverCloses())


async def test_a_wrong_number_of_answers_is_found() -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_a_batch_has_one_answer_for_each_message_in_order(Miscounts())
    with pytest.raises(AssertionError, match="one message, 0 answers"):
        await CONTRACT.test_a_message_is_taken(Miscounts(), None)


async def test_an_unreachable_destination_that_takes_messages_is_found() -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_an_unreachable_destination_is_answered_with_an_error_worth_a_retry(
            NoopPublisher()
        )
