"""``nats://``: NATS JetStream, with an acknowledgement for every message."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from pgoutbox.brokers.answers import Answers, prepared
from pgoutbox.brokers.nats.errors import answered, unacknowledged
from pgoutbox.brokers.nats.frames import (
    EVENT_PREFIX,
    fits_subject,
    headers_of,
    publication,
    subject_of,
)
from pgoutbox.brokers.nats.link import NatsLink
from pgoutbox.brokers.nats.url import target_of
from pgoutbox.brokers.reconnect import Reconnecting
from pgoutbox.brokers.sending import Command, answers_to
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
)
from pgoutbox.wire.template import DEFAULT_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.nats.link import Answer
    from pgoutbox.brokers.nats.url import Target
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions
    from pgoutbox.wire.template import Template

log = logging.getLogger(__name__)


async def open_nats(url: str, /, *, options: PublisherOptions) -> NatsPublisher:
    """Open a ``nats://`` URL, without connecting to it."""
    target = target_of(url, options.destination)
    topic = options.topic or DEFAULT_TOPIC
    if not fits_subject(topic.filled("x")):
        raise InvalidDestination(
            options.destination,
            "the topic is no subject to publish to: it has a blank, a wildcard or an empty part",
        )
    return NatsPublisher(target, topic, options)


class NatsPublisher:
    """Sends batches over one connection, and answers with what the streams acknowledged."""

    def __init__(self, target: Target, topic: Template, options: PublisherOptions) -> None:
        self._where = target.where
        self._target = target
        self.topic = topic
        self._destination = options.destination
        self._encode = options.wire.encode
        self._answer_within = options.answer_within
        self._connect_within = options.connect_within
        self._longest_retry = options.longest_retry
        self._links = Reconnecting(self._connect, where=self._where, patience=self._connect_within)
        self._streams: set[str] = set()
        """Those whose duplicate window was looked at."""
        self._looking: set[asyncio.Task[None]] = set()

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Send them all and wait for the acknowledgements."""
        if not messages:
            return []
        until = asyncio.get_running_loop().time() + self._answer_within
        link = await self._links.get()
        unsent = DestinationUnavailable(f"{self._where}: the connection ended before it was sent")
        answers = Answers(len(messages), unsent)
        ready = prepared(messages, partial(self._command, link=link), answers)
        drop = partial(self._links.drop, link)
        found = await answers_to(list(ready.values()), link=link, drop=drop, until=until)
        for place, answer in zip(ready, found, strict=False):
            try:
                stream = stream_of(answer, self._where)
            except PublishError as error:
                answers.failed(place, error)
            else:
                # Also where it is a duplicate: then the stream has it from an earlier attempt.
                answers.taken(place)
                self._look_at(link, stream)
        return answers.whole()

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
            await link.connect(self._connect_within)
        except BaseException:
            self._links.drop(link)
            raise
        return link

    def _command(self, message: ClaimedMessage, *, link: NatsLink) -> Command:
        envelope = self._encode(message, prefix=EVENT_PREFIX)
        subject = subject_of(message, self.topic)
        headers = headers_of(message, envelope)
        size = len(headers) + len(envelope.body)
        if size > link.max_payload:
            raise PermanentError(
                f"{self._where}: the message has {size} bytes with its headers; "
                f"the server takes {link.max_payload} (its max_payload)"
            )
        reply = link.reply()
        return Command(reply, subject, publication(subject, reply, headers, envelope.body))

    def _look_at(self, link: NatsLink, stream: str) -> None:
        if stream in self._streams:
            return
        self._streams.add(stream)
        task = asyncio.ensure_future(self._check_window(link, stream))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _check_window(self, link: NatsLink, stream: str) -> None:
        window = await link.duplicate_window(stream, self._connect_within)
        if window is not None and window < self._longest_retry:
            log.warning(
                "destination %s: the NATS stream %s knows a message's id for %g s, but up to %g s "
                "may pass before another attempt, and that one would be stored once more; "
                "set the stream's duplicate window (--dupe-window) to as much or more",
                self._destination,
                stream,
                window,
                self._longest_retry,
            )


def stream_of(answer: asyncio.Future[Answer], where: str) -> str:
    """Which stream has the message. Raises what its answer means, where it has none."""
    if not answer.done():
        raise unacknowledged(TimeoutError(), where)
    if error := answer.exception():
        raise unacknowledged(error, where)
    found = answer.result()
    if "error" in found:
        raise answered(found["error"], where)
    stream: str = found["stream"]
    return stream
