"""``redis://`` and ``rediss://``: one entry in a stream for each message."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeAlias, cast

import hiredis
from redis.exceptions import InvalidResponse, ReadOnlyError, ResponseError

from pgoutbox.brokers.answers import Answers, prepared
from pgoutbox.brokers.redis.answers import refused, unconnected
from pgoutbox.brokers.redis.links import Link, Links, NoLink
from pgoutbox.brokers.redis.url import read_url
from pgoutbox.errors import PermanentError, RetryableError
from pgoutbox.wire.template import DEFAULT_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pgoutbox.brokers.redis.url import RedisUrl
    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

Words: TypeAlias = tuple[str | bytes, ...]
"""A command."""

MOST_CONNECTIONS = 16
"""More of them make one server no faster, and it has a limit for all its clients."""
SEND_BYTES = 2**20
"""How much is packed before it is sent, so that the event loop turns in between."""
_ENTRY_ID = re.compile(rb"[0-9]+-[0-9]+")
# The client's own pipeline takes many times as long for a message.
_pack = cast("Callable[[Words], bytes]", hiredis.pack_command)


async def open_redis(url: str, /, *, options: PublisherOptions) -> RedisPublisher:
    """Open ``redis://[user:password@]host[:port][/db]``, without connecting to it.

    ``rediss`` is the same over TLS. Options: ``maxlen``, ``wait`` and ``max_bytes``, and with TLS
    ``ca_file``, ``cert_file`` and ``key_file``.
    """
    return RedisPublisher(read_url(url, options.destination), options)


class RedisPublisher:
    """Sends a batch as one pipeline over a connection of its own, and reads one answer each."""

    def __init__(self, target: RedisUrl, options: PublisherOptions) -> None:
        self._target = target
        self._limits = target.limits
        limit = min(options.concurrency, MOST_CONNECTIONS)
        self._links = Links(target.arguments, tls=target.tls, limit=limit)
        self._encode = options.wire.encode
        self.topic = options.topic or DEFAULT_TOPIC
        self._connect_within = options.connect_within
        self._answer_within = options.answer_within
        # In vain for 0: Redis would wait for ever.
        self._wait_milliseconds = str(max(1, int(options.publish_timeout / 2 * 1000)))
        self._trim: tuple[str, ...] = ()
        if target.limits.maxlen is not None:
            self._trim = ("MAXLEN", "~", str(target.limits.maxlen))

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Add them all; each answer is the server's own to that message."""
        answers = Answers(len(messages))
        ready = prepared(messages, self._command, answers)
        if not ready:
            return answers.whole()
        where = self._target.where
        try:
            async with (
                asyncio.timeout(self._answer_within),
                self._links.one(self._connect_within) as link,
            ):
                await self._send(link, ready)
                await self._read_answers(link, ready, answers)
        except NoLink as error:
            answers.rest(unconnected(error.reason, where, tls=self._target.tls is not None))
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            answers.rest(refused(error, where))
        return answers.whole()

    async def close(self) -> None:
        """Close the connections."""
        await self._links.close()

    def _command(self, message: ClaimedMessage) -> Words:
        """``XADD stream [trim] * content-type ... key ... h:NAME ... body ...``."""
        key, headers, content_type, body, _ = self._encode(message)
        if len(body) > self._limits.max_bytes:
            raise PermanentError(
                f"the payload has {len(body)} bytes; {self._limits.max_bytes} are the most"
            )
        words: list[str | bytes] = ["XADD", self.topic.render(message), *self._trim, "*"]
        words += "content-type", content_type, "key", key
        for name, value in headers:
            words += "h:" + name, value
        words += "body", body
        return tuple(words)

    async def _send(self, link: Link, ready: Mapping[int, Words]) -> None:
        pieces, size = [], 0
        for words in ready.values():
            pieces.append(packed(words))
            size += len(pieces[-1])
            if size >= SEND_BYTES:
                await link.send_packed_command(pieces)
                pieces, size = [], 0
        if self._limits.wait:
            pieces.append(packed(("WAIT", str(self._limits.wait), self._wait_milliseconds)))
        if pieces:
            await link.send_packed_command(pieces)

    async def _read_answers(self, link: Link, ready: Collection[int], answers: Answers) -> None:
        added = []
        demoted = False
        for place in ready:
            try:
                answer = await link.read_response(disable_decoding=True)
            except ResponseError as error:
                demoted = demoted or isinstance(error, ReadOnlyError)
                answers.failed(place, refused(error, self._target.where))
                continue
            if not isinstance(answer, bytes) or _ENTRY_ID.fullmatch(answer) is None:
                # An answer to something else: those behind it are no better.
                raise InvalidResponse
            added.append(place)
            if not self._limits.wait:
                answers.taken(place)
        if self._limits.wait:
            self._replicated(await link.read_response(), added, answers)
        if demoted:
            # The name may lead to the new primary by now; these connections do not.
            await self._links.drop_idle()
            await link.drop()

    def _replicated(self, confirmed: object, added: Sequence[int], answers: Answers) -> None:
        if not isinstance(confirmed, int):
            raise InvalidResponse
        words = f"{confirmed} of {self._limits.wait} replicas confirmed it in time"
        for place in added:
            if confirmed >= self._limits.wait:
                answers.taken(place)
            else:
                answers.failed(place, RetryableError(f"{self._target.where}: {words}"))


def packed(words: Words) -> bytes:
    """A command as the server reads it."""
    try:
        return _pack(words)
    except UnicodeEncodeError:
        return _pack(tuple(w.encode(errors="replace") if isinstance(w, str) else w for w in words))
