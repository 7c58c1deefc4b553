"""``pubsub://``: Google Pub/Sub, a request for each topic of a batch."""

from __future__ import annotations

import asyncio
import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pgoutbox.brokers.query import options_of, split_hosts
from pgoutbox.errors import (
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgoutbox.brokers.pubsub.client import Client
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

DEFAULT_TOPIC = Template("outbox.event.{aggregate_type}")
DEFAULT_HOST = "pubsub.googleapis.com"
EMULATOR = "PUBSUB_EMULATOR_HOST"
IN_TIME = 0.9
"""The share of the publish timeout after which we give up ourselves, and still can tell which
messages have their answer."""

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
    client = await _new_client(host, options, secure=not emulator)
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
    if topic.fixed and _TOPIC.fullmatch(topic.text) is None:
        raise InvalidDestination(
            options.destination,
            "the topic is not one that Pub/Sub can have: 3 to 255 letters, digits and -._~+%, "
            "the first of them a letter, and not goog",
        )
    return topic


async def _new_client(host: str, options: PublisherOptions, *, secure: bool) -> Client:
    if find_spec("google") is None or find_spec("google.pubsub_v1") is None:
        raise InvalidDestination(
            options.destination,
            "pubsub:// needs the package google-cloud-pubsub, which is not installed; "
            "run: pip install 'pgoutbox[pubsub]'",
        )
    # Half a second, in which the other destinations go on.
    await asyncio.to_thread(_import_client)
    from pgoutbox.brokers.pubsub.client import Client  # noqa: PLC0415 - just imported

    return Client(host, secure=secure)


def _import_client() -> None:
    import pgoutbox.brokers.pubsub.client  # noqa: F401, PLC0415 - slow, and not always needed


class Prepared(NamedTuple):
    """A message as it is sent, its place in the batch, and its share of a request in bytes."""

    place: int
    proto: Any
    size: int


class PubSubPublisher:
    """Sends each topic's messages in as few requests as its limits allow, all at once."""

    def __init__(
        self, prefix: str, topic: Template, client: Client, options: PublisherOptions
    ) -> None:
        self._prefix = prefix
        self._topic = topic
        self._client = client
        self._encode = options.wire.encode
        self._timeout = options.publish_timeout

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """One answer for all messages of a request, unless one of them is to blame."""
        answers: dict[int, PublishError | None] = {}
        topics: dict[str, list[Prepared]] = {}
        for index, message in enumerate(messages):
            try:
                topic, prepared = self._prepared(index, message)
            except PermanentError as error:
                answers[index] = error
            else:
                topics.setdefault(topic, []).append(prepared)
        try:
            if topics:
                async with asyncio.timeout(self._timeout * IN_TIME):
                    await self._client.connected(self._timeout / 2)
                    await self._send_all(topics, answers)
        except TimeoutError:
            for index in range(len(messages)):
                answers.setdefault(index, RetryableError("no answer in time"))
        return [answers[index] for index in range(len(messages))]

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def _prepared(self, index: int, message: ClaimedMessage) -> tuple[str, Prepared]:
        topic = self._topic.render(message, escape=_escaped)
        if not self._topic.fixed and _TOPIC.fullmatch(topic) is None:
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
        return self._prefix + topic, Prepared(index, proto, size)

    async def _send_all(
        self, topics: dict[str, list[Prepared]], answers: dict[int, PublishError | None]
    ) -> None:
        await asyncio.gather(
            *(
                self._send(topic, part, answers)
                for topic, prepared in topics.items()
                for part in _requests(prepared, MAX_REQUEST_BYTES - len(topic) - FRAMING)
            )
        )

    async def _send(
        self, topic: str, part: Sequence[Prepared], answers: dict[int, PublishError | None]
    ) -> None:
        protos = [each.proto for each in part]
        answer = await self._client.publish(topic, protos, within=self._timeout * IN_TIME)
        if isinstance(answer, PermanentError) and len(part) > 1:
            # One of them is not valid, and the service does not say which.
            half = len(part) // 2
            await asyncio.gather(
                self._send(topic, part[:half], answers), self._send(topic, part[half:], answers)
            )
        else:
            answers.update((each.place, answer) for each in part)


def _escaped(text: str) -> str:
    """Percent-encoded: a topic's name may hold the percent sign, and only ASCII."""
    return quote(text, safe="", errors="replace")


def _requests(prepared: Sequence[Prepared], most: int) -> Iterator[Sequence[Prepared]]:
    part: list[Prepared] = []
    size = 0
    for each in prepared:
        if part and (len(part) == MAX_REQUEST_MESSAGES or size + each.size > most):
            yield part
            part, size = [], 0
        part.append(each)
        size += each.size
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
