"""``amqp://`` and ``amqps://``: RabbitMQ with publisher confirms."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pamqp.commands import Basic

from pgoutbox.brokers.answers import Answers, prepared
from pgoutbox.brokers.rabbitmq.errors import NoConfirmation, size_limit, unconfirmed
from pgoutbox.brokers.rabbitmq.link import RabbitmqLink, connect
from pgoutbox.brokers.rabbitmq.log import quiet
from pgoutbox.brokers.rabbitmq.url import target_of
from pgoutbox.brokers.reconnect import Reconnecting
from pgoutbox.brokers.sending import Command, answers_to
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.wire.template import DEFAULT_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.rabbitmq.frames import Framing
    from pgoutbox.brokers.rabbitmq.link import Confirm
    from pgoutbox.brokers.rabbitmq.url import Target
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

# As the protocol's binding for AMQP has it; its other form has a colon, which JMS cannot read.
HEADER_PREFIX = "cloudEvents_"


class ClosedUnder(RetryableError):  # noqa: N818 - what happened
    """Another message was too large, and the channel went with it."""


async def open_rabbitmq(url: str, /, *, options: PublisherOptions) -> RabbitmqPublisher:
    """Open an ``amqp://`` or ``amqps://`` URL, without connecting to it."""
    target = target_of(url, options.destination)
    quiet()
    return RabbitmqPublisher(target, options)


class RabbitmqPublisher:
    """Sends batches over one channel, and answers with what the broker confirmed."""

    def __init__(self, target: Target, options: PublisherOptions) -> None:
        self._where = target.where
        self._target = target
        self.topic = options.topic or DEFAULT_TOPIC
        self._encode = options.wire.encode
        self._answer_within = options.answer_within
        self._connect_within = options.connect_within
        self._links = Reconnecting(self._connect, where=self._where, patience=self._connect_within)
        self._size_limit: int | None = None
        """The largest payload that the broker takes, once it has refused a larger one."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Send them all and wait for the confirmations."""
        if not messages:
            return []
        until = asyncio.get_running_loop().time() + self._answer_within
        found = await self._round(await self._link(), messages, until)
        again = [i for i, answer in enumerate(found) if isinstance(answer, ClosedUnder)]
        if again:
            try:
                link = await self._link()
            except DestinationUnavailable:
                return found
            second = await self._round(link, [messages[i] for i in again], until)
            for i, answer in zip(again, second, strict=True):
                found[i] = answer
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._links.close()

    async def _connect(self, before: RabbitmqLink | None) -> RabbitmqLink:
        if before is not None and before.connected:
            return await before.another(seconds=self._connect_within)
        if before is not None:
            self._links.drop(before)
        return await connect(self._target, seconds=self._connect_within)

    async def _link(self) -> RabbitmqLink:
        link = await self._links.get()
        if link.blocked:
            raise DestinationUnavailable(
                f"{self._where}: the broker takes no messages for now, "
                "because it is short of memory or disk"
            )
        return link

    async def _round(
        self, link: RabbitmqLink, messages: Sequence[ClaimedMessage], until: float
    ) -> list[PublishError | None]:
        """Send these. `ClosedUnder` is the answer of those that may be sent once more."""
        unsent = DestinationUnavailable(f"{self._where}: the connection ended before it was sent")
        answers = Answers(len(messages), unsent)
        known = self._size_limit
        make = partial(self._command, framing=link.framing)
        ready = prepared(messages, make, answers)
        drop = partial(self._links.drop, link)
        confirms = await answers_to(list(ready.values()), link=link, drop=drop, until=until)
        errors = dict(zip(ready, map(_error, confirms), strict=False))
        if None in errors.values():
            link.last_confirm = asyncio.get_running_loop().time()
        limit = next(filter(None, map(size_limit, errors.values())), known)
        # A message that is too large closed the channel under all of them. Now it is known which
        # those are; what the others lack is only another channel.
        closed = limit != known
        if closed:
            self._size_limit = limit
        for place, error in errors.items():
            if error is None:
                answers.taken(place)
            elif not closed:
                answers.failed(place, unconfirmed(error, self._where))
        if closed:
            answers.rest(ClosedUnder(f"{self._where}: the channel was closed under the message"))
        return answers.whole()

    def _command(self, message: ClaimedMessage, *, framing: Framing) -> Command:
        envelope = self._encode(message, prefix=HEADER_PREFIX)
        if self._size_limit is not None and len(envelope.body) > self._size_limit:
            raise PermanentError(
                f"{self._where}: the message has {len(envelope.body)} bytes; "
                f"the broker takes {self._size_limit} (its max_message_size)"
            )
        topic = self.topic.render(message)
        return Command(str(message.message_id), topic, framing.frames(message, envelope, topic))


def _error(confirm: Confirm) -> BaseException | None:
    """What came instead of the one thing that counts: the broker's own acknowledgement."""
    if not confirm.done():
        return TimeoutError()
    if confirm.cancelled():
        return asyncio.CancelledError()
    return confirm.exception() or (
        None if isinstance(confirm.result(), Basic.Ack) else NoConfirmation()
    )
