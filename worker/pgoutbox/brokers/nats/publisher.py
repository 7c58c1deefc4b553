"""``nats://``: NATS JetStream, with an acknowledgement for every message."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pgoutbox.brokers.nats.errors import answered, unacknowledged
from pgoutbox.brokers.nats.frames import (
    EVENT_PREFIX,
    fits_subject,
    headers_of,
    publication,
    subject_of,
)
from pgoutbox.brokers.nats.link import Command, NatsLink
from pgoutbox.brokers.nats.url import target_of
from pgoutbox.brokers.reconnect import Reconnecting
from pgoutbox.errors import InvalidDestination, PermanentError, PublishError
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.nats.link import Answer
    from pgoutbox.brokers.nats.url import Target
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

log = logging.getLogger(__name__)

DEFAULT_TOPIC = Template("outbox.event.{aggregate_type}")
PATIENCE = 0.9
"""The part of the publish timeout after which what is not acknowledged is answered for. What is
left lets a batch be answered message by message before the worker cancels it as a whole."""
LONGEST_PAUSE = 300.0
"""Seconds between two attempts at a message, at most, unless the settings say otherwise."""


async def open_nats(url: str, /, *, options: PublisherOptions) -> NatsPublisher:
    """Open a ``nats://`` URL, without connecting to it."""
    target = target_of(url, options.destination)
    topic = options.topic or DEFAULT_TOPIC
    if topic.fixed and not fits_subject(topic.text):
        raise InvalidDestination(
            options.destination,
            "the topic is no subject to publish to: it has a blank, a wildcard or an empty part",
        )
    return NatsPublisher(target, topic, options)


class NatsPublisher:
    """Sends batches over one connection, and answers with what the streams acknowledged."""

    def __init__(self, target: Target, topic: Template, options: PublisherOptions) -> None:
        self._target = target
        self.topic = topic
        self._destination = options.destination
        self._encode = options.wire.encode
        self._patience = options.publish_timeout * PATIENCE
        self._connecting = options.publish_timeout / 2
        self._links = Reconnecting(self._connect, where=target.where, patience=self._connecting)
        self._streams: set[str] = set()
        """Those whose duplicate window was looked at."""
        self._looking: set[asyncio.Task[None]] = set()

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Send them all and wait for the acknowledgements."""
        if not messages:
            return []
        until = asyncio.get_running_loop().time() + self._patience
        link = await self._links.get()
        answers: dict[int, PublishError | None] = {}
        commands: dict[int, Command] = {}
        for place, message in enumerate(messages):
            try:
                commands[place] = self._command(message, link)
            except PermanentError as error:
                answers[place] = error
        if commands:
            found = await self._acknowledged(link, list(commands.values()), until)
            answers |= dict(zip(commands, found, strict=True))
        return [answers[place] for place in range(len(messages))]

    async def close(self) -> None:
        """Close the connection."""
        for task in self._looking:
            task.cancel()
        await self._links.close()

    async def _connect(self, before: NatsLink | None) -> NatsLink:
        if before is not None:
            self._links.drop(before)
        link = NatsLink(self._target)
        try:
            await link.connect(self._connecting)
        except BaseException:
            self._links.drop(link)
            raise
        return link

    def _command(self, message: ClaimedMessage, link: NatsLink) -> Command:
        envelope = self._encode(message, prefix=EVENT_PREFIX)
        subject = subject_of(message, self.topic)
        headers = headers_of(message, envelope)
        size = len(headers) + len(envelope.body)
        if size > link.max_payload:
            raise PermanentError(
                f"{self._target.where}: the message has {size} bytes with its headers; "
                f"the server takes {link.max_payload} (its max_payload)"
            )
        reply = link.reply()
        return Command(reply, subject, publication(subject, reply, headers, envelope.body))

    async def _acknowledged(
        self, link: NatsLink, commands: Sequence[Command], until: float
    ) -> list[PublishError | None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = await link.send(commands)
        try:
            await asyncio.wait(waiting, timeout=max(until - began, 0.0))
            answers = [self._answer(link, each) for each in waiting]
        except asyncio.CancelledError:
            if link.unsent:
                # What nobody waits for must not go out later.
                self._links.drop(link)
            raise
        finally:
            link.forget(commands)
        if link.last_answer < began and not all(each.done() for each in waiting):
            # It may hang for longer than the pings take to notice.
            self._links.drop(link)
        return answers

    def _answer(self, link: NatsLink, waiting: asyncio.Future[Answer]) -> PublishError | None:
        where = self._target.where
        if not waiting.done():
            return unacknowledged(TimeoutError(), where)
        if error := waiting.exception():
            return unacknowledged(error, where)
        answer = waiting.result()
        if "error" in answer:
            return answered(answer["error"], where)
        # Also where it is a duplicate: then the stream has it from an earlier attempt.
        if answer["stream"] not in self._streams:
            self._look_at(link, answer["stream"])
        return None

    def _look_at(self, link: NatsLink, stream: str) -> None:
        self._streams.add(stream)
        task = asyncio.ensure_future(self._check_window(link, stream))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _check_window(self, link: NatsLink, stream: str) -> None:
        window = await link.duplicate_window(stream, self._connecting)
        if window is not None and window < LONGEST_PAUSE:
            log.warning(
                "destination %s: the NATS stream %s knows a message's id for %g s, but up to %g s "
                "may pass before another attempt, and that one would be stored once more; "
                "set the stream's duplicate window (--dupe-window) to as much or more",
                self._destination,
                stream,
                window,
                LONGEST_PAUSE,
            )
