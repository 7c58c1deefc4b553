"""``pubsub://``: Google Pub/Sub, a request for each topic of a batch."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pgoutbox.brokers.answers import Answers, Refused, prepared
from pgoutbox.brokers.pubsub.answers import NOT_VALID
from pgoutbox.brokers.pubsub.client import Client
from pgoutbox.brokers.query import options_of, split_hosts
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.wire.template import DEFAULT_TOPIC, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

DEFAULT_HOST = "pubsub.googleapis.com"
EMULATOR = "PUBSUB_EMULATOR_HOST"

# What Pub/Sub takes, see https://cloud.google.com/pubsub/quotas#resource_limits.
MAX_REQUEST_BYTES = 10_000_000
MAX_REQUEST_MESSAGES = 1_000
MAX_ATTRIBUTES = 100
MAX_NAME_BYTES = 256
MAX_VALUE_BYTES = 1024
MAX_KEY_BYTES = 1024
FRAMING = 8
"""Bytes of a request that go into having a message in it, at most."""
RESERVED = "goog"

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
_TOPIC = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


async def open_pubsub(url: str, /, *, options: PublisherOptions) -> PubSubPublisher:
    """Open ``pubsub://PROJECT[/TOPIC]``, without connecting to Google.

    ``endpoint`` names a regional endpoint, ``emulator`` a server without TLS and credentials.
    """
    parts = split_hosts(url, options.destination)
    given = options_of(url, options.destination, known=("endpoint", "emulator"))
    if parts.fragment or _PROJECT.fullmatch(parts.netloc) is None:
        raise InvalidDestination(
            options.destination, "a pubsub URL names a project: pubsub://PROJECT/TOPIC"
        )
    topic = _topic_of(parts.path.removeprefix("/"), options)
    for name, host in given.items():
        if _HOST.fullmatch(host) is None:
            raise InvalidDestination(options.destination, f"{name} is not a host, or host:port")
    if len(given) > 1:
        raise InvalidDestination(
            options.destination, "endpoint and emulator exclude each other; give one of them"
        )
    emulator = given.get("emulator") or ("" if given else os.environ.get(EMULATOR, ""))
    host = emulator or given.get("endpoint", DEFAULT_HOST)
    client = Client(host, secure=not emulator)
    return PubSubPublisher(f"projects/{parts.netloc}/topics/", topic, client, options)


def _topic_of(path: str, options: PublisherOptions) -> Template:
    if not path:
        topic = options.topic or DEFAULT_TOPIC
    elif options.topic is not None:
        raise InvalidDestination(
            options.destination, "the topic stands in the URL and in the settings; remove one"
        )
    else:
        try:
            topic = Template(path)
        except ValueError as error:
            raise InvalidDestination(options.destination, f"the topic {error}") from None
    if _TOPIC.fullmatch(topic.filled("xxx")) is None:
        raise InvalidDestination(
            options.destination,
            "the topic is not one that Pub/Sub can have: 3 to 255 letters, digits and -._~+%, "
            "the first of them a letter, and not goog",
        )
    return topic


class Prepared(NamedTuple):
    """A message as it is sent, its topic, and its share of a request in bytes."""

    topic: str
    proto: Any
    size: int


class PubSubPublisher:
    """Sends each topic's messages in as few requests as its limits allow, all at once."""

    def __init__(
        self, prefix: str, topic: Template, client: Client, options: PublisherOptions
    ) -> None:
        self._prefix = prefix
        self.topic = topic
        self._client = client
        self._encode = options.wire.encode
        self._connect_within = options.connect_within
        self._answer_within = options.answer_within

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """One answer for all messages of a request, unless one of them is to blame."""
        answers = Answers(len(messages))
        topics: dict[str, dict[int, Prepared]] = {}
        for place, each in prepared(messages, self._prepared, answers).items():
            topics.setdefault(each.topic, {})[place] = each
        try:
            if topics:
                async with asyncio.timeout(self._answer_within):
                    await self._client.connected(self._connect_within)
                    await asyncio.gather(
                        *(self._send_to(topic, ready, answers) for topic, ready in topics.items())
                    )
        except DestinationUnavailable as error:
            answers.rest(error)
        except TimeoutError:
            answers.rest(RetryableError("no answer in time"))
        return answers.whole()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def _prepared(self, message: ClaimedMessage) -> Prepared:
        topic = self.topic.render(message, escape=_escaped)
        if not self.topic.fixed and _TOPIC.fullmatch(topic) is None:
            raise PermanentError("the topic for this message is not one that Pub/Sub can have")
        envelope = self._encode(message)
        attributes = {"content-type": envelope.content_type, **dict(envelope.headers)}
        key = message.ordering_key or ""
        check_limits(attributes, key)
        try:
            proto = self._client.message(envelope.body, attributes, key)
        except ValueError:
            raise PermanentError("the message has text that is not Unicode") from None
        size = proto.ByteSize() + FRAMING
        if size > MAX_REQUEST_BYTES - len(self._prefix + topic) - FRAMING:
            raise PermanentError(
                f"the message has {size} bytes; {MAX_REQUEST_BYTES} are the most in a request"
            )
        return Prepared(self._prefix + topic, proto, size)

    async def _send_to(self, topic: str, ready: dict[int, Prepared], answers: Answers) -> None:
        sizes = {place: each.size for place, each in ready.items()}
        protos = {place: each.proto for place, each in ready.items()}
        parts = _requests(sizes, MAX_REQUEST_BYTES - len(topic) - FRAMING)
        await asyncio.gather(*(self._send(topic, part, protos, answers) for part in parts))
        answers.settle(ready, NOT_VALID)

    async def _send(
        self, topic: str, part: Sequence[int], protos: Mapping[int, Any], answers: Answers
    ) -> None:
        refusal = await self._client.publish(
            topic, [protos[place] for place in part], within=self._answer_within
        )
        if isinstance(refusal, Refused) and len(part) > 1:
            # One of them may be to blame, and the service does not say which.
            half = len(part) // 2
            await asyncio.gather(
                self._send(topic, part[:half], protos, answers),
                self._send(topic, part[half:], protos, answers),
            )
            return
        for place in part:
            if refusal is None:
                answers.taken(place)
            else:
                answers.failed(place, refusal)


def _escaped(text: str) -> str:
    """Percent-encoded: a topic's name may hold the percent sign, and only ASCII."""
    return quote(text, safe="", errors="replace")


def _requests(sizes: Mapping[int, int], most: int) -> Iterator[Sequence[int]]:
    """Which messages go together, by their sizes in bytes."""
    part: list[int] = []
    total = 0
    for place, size in sizes.items():
        if part and (len(part) == MAX_REQUEST_MESSAGES or total + size > most):
            yield part
            part, total = [], 0
        part.append(place)
        total += size
    yield part


def check_limits(attributes: dict[str, str], ordering_key: str) -> None:
    """Raise `PermanentError` for what Pub/Sub would refuse, with words for people."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise PermanentError(
            f"the message has {len(attributes)} attributes; {MAX_ATTRIBUTES} are the most"
        )
    for name, value in attributes.items():
        if not name or _longer(name, MAX_NAME_BYTES) or name.startswith(RESERVED):
            raise PermanentError(
                f"the message has a header whose name is empty, begins with {RESERVED}, or has "
                f"more than {MAX_NAME_BYTES} bytes"
            )
        if _longer(value, MAX_VALUE_BYTES):
            raise PermanentError(f"the header {name!r} has more than {MAX_VALUE_BYTES} bytes")
    if _longer(ordering_key, MAX_KEY_BYTES):
        raise PermanentError(f"the ordering key has more than {MAX_KEY_BYTES} bytes")


def _longer(text: str, most: int) -> bool:
    # Hardly any needs to be encoded to be sure.
    return len(text) * 4 > most and len(text.encode(errors="replace")) > most
