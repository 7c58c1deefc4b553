"""``amqp://`` and ``amqps://``: RabbitMQ with publisher confirms."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pgoutbox.brokers.rabbitmq.errors import size_limit, unconfirmed
from pgoutbox.brokers.rabbitmq.link import Outgoing, RabbitmqLink, connect
from pgoutbox.brokers.rabbitmq.url import target_of
from pgoutbox.brokers.reconnect import Reconnecting
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.brokers.rabbitmq.frames import Framing
    from pgoutbox.brokers.rabbitmq.url import Target
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

DEFAULT_TOPIC = Template("outbox.event.{aggregate_type}")
# As the protocol's binding for AMQP has it; its other form has a colon, which JMS cannot read.
HEADER_PREFIX = "cloudEvents_"
PATIENCE = 0.9
"""The part of the publish timeout after which what is not confirmed is answered for. What is left
lets a batch be answered message by message before the worker cancels it as a whole."""


async def open_rabbitmq(url: str, /, *, options: PublisherOptions) -> RabbitmqPublisher:
    """Open an ``amqp://`` or ``amqps://`` URL, without connecting to it."""
    target = target_of(url, options.destination)
    # It repeats the broker's words, and at every try to connect the same ones. What matters of
    # them is in the errors that we raise.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    return RabbitmqPublisher(target, options)


class RabbitmqPublisher:
    """Sends batches over one channel, and answers with what the broker confirmed."""

    def __init__(self, target: Target, options: PublisherOptions) -> None:
        self._target = target
        self.topic = options.topic or DEFAULT_TOPIC
        self._encode = options.wire.encode
        self._patience = options.publish_timeout * PATIENCE
        self._connecting = options.publish_timeout / 2
        self._links = Reconnecting(self._connect, where=target.where, patience=self._connecting)
        self._size_limit: int | None = None
        """The largest payload that the broker takes, once it has refused a larger one."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Send them all and wait for the confirmations."""
        if not messages:
            return []
        until = asyncio.get_running_loop().time() + self._patience
        left = dict(enumerate(messages))
        answers = await self._round(await self._link(), left, until)
        if len(answers) < len(messages):
            left = {place: left[place] for place in left if place not in answers}
            answers |= await self._once_more(left, until)
        return [answers[place] for place in range(len(messages))]

    async def close(self) -> None:
        """Close the connection."""
        await self._links.close()

    async def _connect(self, before: RabbitmqLink | None) -> RabbitmqLink:
        if before is not None and before.connected:
            await before.replace_channel(seconds=self._connecting)
            return before
        if before is not None:
            self._links.drop(before)
        return await connect(self._target, seconds=self._connecting)

    async def _link(self) -> RabbitmqLink:
        link = await self._links.get()
        if link.blocked:
            raise DestinationUnavailable(
                f"{self._target.where}: the broker takes no messages for now, "
                "because it is short of memory or disk"
            )
        return link

    async def _round(
        self, link: RabbitmqLink, left: Mapping[int, ClaimedMessage], until: float
    ) -> dict[int, PublishError | None]:
        """Send these. Those that should be sent once more are not among the answers."""
        answers: dict[int, PublishError | None] = {}
        ready: dict[int, Outgoing] = {}
        known = self._size_limit
        for place, message in left.items():
            try:
                ready[place] = self._outgoing(message, link.framing)
            except PermanentError as error:
                answers[place] = error
        errors = dict(zip(ready, await self._confirmed(link, ready, until), strict=True))
        limit = next(filter(None, map(size_limit, errors.values())), known)
        if limit != known:
            # A message that is too large closed the channel under all of them. Now it is known
            # which those are; what the others lack is only another channel.
            self._size_limit = limit
            errors = {place: error for place, error in errors.items() if error is None}
        where = self._target.where
        answers |= {
            place: None if error is None else unconfirmed(error, where)
            for place, error in errors.items()
        }
        return answers

    async def _once_more(
        self, left: Mapping[int, ClaimedMessage], until: float
    ) -> dict[int, PublishError | None]:
        closed: dict[int, PublishError | None] = dict.fromkeys(
            left, RetryableError(f"{self._target.where}: the channel was closed under the message")
        )
        try:
            return closed | await self._round(await self._link(), left, until)
        except DestinationUnavailable:
            return closed

    async def _confirmed(
        self, link: RabbitmqLink, ready: Mapping[int, Outgoing], until: float
    ) -> Sequence[BaseException | None]:
        if not ready:
            return []
        outgoing = list(ready.values())
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = link.send(outgoing)
        try:
            await asyncio.wait(sent.confirms, timeout=max(until - began, 0.0))
        except asyncio.CancelledError:
            if not sent.written.done():
                # What nobody waits for must not go out later.
                self._links.drop(link)
            raise
        finally:
            link.forget(outgoing)
        errors = sent.errors()
        if None in errors:
            link.last_confirm = loop.time()
        elif link.last_confirm < began and not link.blocked and not sent.answered:
            # It may hang for longer than a heartbeat takes to notice.
            self._links.drop(link)
        return errors

    def _outgoing(self, message: ClaimedMessage, framing: Framing) -> Outgoing:
        envelope = self._encode(message, prefix=HEADER_PREFIX)
        if self._size_limit is not None and len(envelope.body) > self._size_limit:
            raise PermanentError(
                f"{self._target.where}: the message has {len(envelope.body)} bytes; "
                f"the broker takes {self._size_limit} (its max_message_size)"
            )
        routing_key = self.topic.render(message)
        return Outgoing(str(message.message_id), framing.frames(message, envelope, routing_key))
