"""The contract about servers that misbehave finds the publishers that break it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.noop import NoopBatchPublisher, NoopPublisher
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.testing import PublisherContract, calling, faults, make_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.testing import AnyPublisher, OpenAt

    FaultTest = Callable[[OpenAt], Awaitable[None]]

CONTRACT = PublisherContract()


class Buries(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        raise PermanentError("refused")


class Mute(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        raise RetryableError("")


class Uncancellable(NoopPublisher):
    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        while True:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                return


class TakesOthersWithIt(NoopBatchPublisher):
    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        return [PermanentError("too large")] * len(messages)


def opens(publisher: AnyPublisher) -> OpenAt:
    async def open_at(_address: str) -> AnyPublisher:
        return publisher

    return open_at


@pytest.mark.parametrize("kind", [NoopPublisher, Buries, Mute])
@pytest.mark.parametrize(
    "test",
    [
        CONTRACT.test_a_server_that_hangs_up_is_answered_with_an_error_worth_a_retry,
        partial(
            CONTRACT.test_a_server_that_speaks_something_else_is_answered_with_an_error_worth_a_retry,
            words=b"220 mail.example ESMTP\r\n",
        ),
        CONTRACT.test_a_server_that_never_answers_is_answered_with_an_error_worth_a_retry,
    ],
)
async def test_a_wrong_answer_about_a_server_that_misbehaves_is_found(
    kind: type[NoopPublisher], test: FaultTest
) -> None:
    with pytest.raises(AssertionError):
        await test(opens(kind()))


async def test_a_publisher_that_waits_for_its_cancellation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(NoopPublisher):
        async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
            await asyncio.sleep(0.1)
            raise RetryableError("no answer in time")

    monkeypatch.setattr(faults, "TIMEOUT", 0.05)
    with pytest.raises(AssertionError, match="did not end by itself"):
        await CONTRACT.test_a_server_that_never_answers_is_answered_with_an_error_worth_a_retry(
            opens(Late())
        )


async def test_a_publisher_that_ignores_its_cancellation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faults, "PROMPTLY", 0.2)
    with pytest.raises(AssertionError, match="swallowed"):
        await CONTRACT.test_a_publish_to_a_server_that_never_answers_is_cancelled_promptly(
            opens(Uncancellable())
        )


async def test_a_publisher_that_succeeds_without_an_answer_is_found() -> None:
    with pytest.raises(AssertionError, match="nobody answered"):
        await CONTRACT.test_a_publish_to_a_server_that_never_answers_is_cancelled_promptly(
            opens(NoopPublisher())
        )


class AfterItsFirst(NoopPublisher):
    """Answers the first publish, and from then on differently."""

    def __init__(self, first: PublishError, then: PublishError) -> None:
        super().__init__()
        self.answers = [then, first]

    async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
        raise self.answers[0] if len(self.answers) == 1 else self.answers.pop()


AWAY = DestinationUnavailable("nobody listens there")


async def test_a_publisher_that_never_finds_a_server_that_comes_late_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calling, "PATIENCE", 0.2)
    with pytest.raises(pytest.fail.Exception, match=r"the last answer: .*nobody listens"):
        await CONTRACT.test_a_server_that_comes_late_is_found(
            opens(AfterItsFirst(AWAY, AWAY)), "127.0.0.1:1"
        )


async def test_a_publisher_that_buries_a_message_once_its_server_is_away_is_found() -> None:
    publisher = AfterItsFirst(AWAY, PermanentError("it was away"))
    with pytest.raises(AssertionError, match="it was away"):
        await CONTRACT.test_a_server_that_comes_late_is_found(opens(publisher), "127.0.0.1:1")


@pytest.mark.parametrize("answer", [None, RetryableError("broken"), PermanentError("closed")])
async def test_a_publisher_that_does_not_know_that_it_is_closed_is_found(
    answer: PublishError | None,
) -> None:
    class Forgets(NoopPublisher):
        closed = False

        async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
            if self.closed and answer is not None:
                raise answer

        async def close(self) -> None:
            self.closed = True

    with pytest.raises(AssertionError, match="after close"):
        await CONTRACT.test_after_close_the_destination_is_unavailable(Forgets())
    with pytest.raises(AssertionError, match="after close"):
        await CONTRACT.test_a_publisher_that_was_closed_does_not_connect(opens(Forgets()))


async def test_a_publisher_that_connects_after_it_was_closed_is_found() -> None:
    class Restless(NoopPublisher):
        address = ""

        async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
            _, writer = await asyncio.open_connection(*self.address.split(":"))
            writer.close()
            raise DestinationUnavailable("the publisher is closed")

    async def open_at(address: str) -> AnyPublisher:
        publisher = Restless()
        publisher.address = address
        return publisher

    with pytest.raises(AssertionError, match="connected after it was closed"):
        await CONTRACT.test_a_publisher_that_was_closed_does_not_connect(open_at)


@pytest.mark.parametrize("publisher", [NoopPublisher(), TakesOthersWithIt()])
async def test_a_message_that_is_too_large_and_taken_or_takes_others_with_it_is_found(
    publisher: AnyPublisher,
) -> None:
    with pytest.raises(AssertionError):
        await CONTRACT.test_what_is_too_large_is_refused_for_good_and_its_neighbours_are_taken(
            publisher, None, make_message(body=b"x")
        )


async def test_an_error_that_repeats_the_password_is_found() -> None:
    class Tells(NoopPublisher):
        async def publish(self, message: ClaimedMessage) -> None:  # noqa: ARG002
            raise RetryableError("hunter2 is wrong")

    with pytest.raises(AssertionError):
        await CONTRACT.test_wrong_credentials_are_answered_with_an_error_worth_a_retry(Tells())
