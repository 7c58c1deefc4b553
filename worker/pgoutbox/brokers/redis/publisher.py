"""``redis://`` and ``rediss://``: one entry in a stream for each message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from pgoutbox.brokers.redis.answers import refused, unconnected
from pgoutbox.brokers.redis.commands import command, xadd
from pgoutbox.brokers.redis.links import Link, Links, NoLink
from pgoutbox.brokers.redis.url import read_url
from pgoutbox.errors import (
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.redis.url import Limits
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

DEFAULT_TOPIC = Template("outbox.event.{aggregate_type}")
SEND_BYTES = 2**20
"""How much is packed before it is sent, so that the event loop turns in between."""
IN_TIME = 0.9
"""The share of the publish timeout after which we give up ourselves, and still can tell which
messages have their answer."""


async def open_redis(url: str, /, *, options: PublisherOptions) -> RedisPublisher:
    """Open ``redis://[user:password@]host[:port][/db]``, without connecting to it.

    ``rediss`` is the same over TLS. Options: ``maxlen``, ``wait`` and ``max_bytes``, and with TLS
    ``ca_file``, ``cert_file`` and ``key_file``.
    """
    target = read_url(url, options.destination)
    links = Links(target.arguments, tls=target.tls, limit=options.concurrency)
    try:
        links.check()
    except OSError:
        raise InvalidDestination(
            options.destination,
            "a file of certificates or keys in the URL cannot be read, or is none",
        ) from None
    return RedisPublisher(target.where, links, target.limits, options)


class RedisPublisher:
    """Sends a batch as one pipeline over a connection of its own, and reads one answer each."""

    def __init__(self, where: str, links: Links, limits: Limits, options: PublisherOptions) -> None:
        self._where = where
        self._links = links
        self._limits = limits
        self._encode = options.wire.encode
        self._topic = options.topic or DEFAULT_TOPIC
        self._timeout = options.publish_timeout
        # In vain for 0: Redis would wait for ever.
        self._wait_milliseconds = str(max(1, int(options.publish_timeout / 2 * 1000)))
        self._trim: tuple[str, ...] = ()
        if limits.maxlen is not None:
            self._trim = ("MAXLEN", "~", str(limits.maxlen))

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Add them all; each answer is the server's own to that message."""
        if not messages:
            return []
        pipeline = Pipeline(messages)
        try:
            async with (
                asyncio.timeout(self._timeout * IN_TIME),
                self._links.one(self._timeout / 2) as link,
            ):
                await self._send(link, pipeline)
                await self._read_answers(link, pipeline)
        except NoLink as error:
            raise unconnected(error.reason, self._where) from None
        except (RedisError, OSError) as error:
            pipeline.broke_off(refused(error, self._where))
        return [pipeline.answers[index] for index in range(len(messages))]

    async def close(self) -> None:
        """Close the connections."""
        await self._links.close()

    async def _send(self, link: Link, pipeline: Pipeline) -> None:
        pieces, size = [], 0
        for index, message in enumerate(pipeline.messages):
            try:
                packed = self._packed(message)
            except PermanentError as error:
                pipeline.answers[index] = error
                continue
            pipeline.sent.append(index)
            pieces.append(packed)
            size += len(packed)
            if size >= SEND_BYTES:
                await link.send_packed_command(pieces)
                pieces, size = [], 0
        if pipeline.sent and self._limits.wait:
            pieces.append(command("WAIT", str(self._limits.wait), self._wait_milliseconds))
        if pieces:
            await link.send_packed_command(pieces)

    def _packed(self, message: ClaimedMessage) -> bytes:
        envelope = self._encode(message)
        if len(envelope.body) > self._limits.max_bytes:
            raise PermanentError(
                f"the payload has {len(envelope.body)} bytes; {self._limits.max_bytes} are the most"
            )
        return xadd(self._topic.render(message), self._trim, envelope)

    async def _read_answers(self, link: Link, pipeline: Pipeline) -> None:
        taken = []
        demoted = False
        for index in pipeline.sent:
            try:
                await link.read_response(disable_decoding=True)
            except ResponseError as error:
                demoted = demoted or isinstance(error, ReadOnlyError)
                pipeline.answers[index] = refused(error, self._where)
            else:
                taken.append(index)
                if not self._limits.wait:
                    pipeline.answers[index] = None
        if pipeline.sent and self._limits.wait:
            answer = self._replicated(await link.read_response())
            pipeline.answers |= dict.fromkeys(taken, answer)
        if demoted:
            # The name may lead to the new primary by now; these connections do not.
            await self._links.drop_idle()
            await link.drop()

    def _replicated(self, confirmed: int) -> PublishError | None:
        if confirmed >= self._limits.wait:
            return None
        words = f"{confirmed} of {self._limits.wait} replicas confirmed it in time"
        return RetryableError(f"{self._where}: {words}")


class Pipeline:
    """A batch on its way, and what is known of each message by its place in the batch."""

    def __init__(self, messages: Sequence[ClaimedMessage]) -> None:
        self.messages = messages
        self.sent: list[int] = []
        self.answers: dict[int, PublishError | None] = {}

    def broke_off(self, error: PublishError) -> None:
        """Give this answer to all that have none."""
        for index in range(len(self.messages)):
            self.answers.setdefault(index, error)
