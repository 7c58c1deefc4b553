"""The settings of one destination, and the defaults that depend on what kind of one it is."""

from __future__ import annotations

import re
import time
from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from pgoutbox.destinations.breaker import BreakerLimits
from pgoutbox.destinations.registry import scheme_of
from pgoutbox.publisher import PublisherOptions, no_secrets
from pgoutbox.settings.section import Count, Number, Seconds, Section, read_secret
from pgoutbox.wire.cloudevents import SOURCE, events_of
from pgoutbox.wire.formats import FORMATS
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.wire.envelope import WireFormat

BREAKER = BreakerLimits()

# One message more at once is cheap for these: they are local, or go in batches.
UNLIMITED_SCHEMES = frozenset(
    {
        *("stdout", "jsonl", "noop"),
        *("kafka", "amqp", "amqps", "nats", "redis", "rediss", "sqs", "sns", "pubsub"),
    }
)
WEBHOOK_SCHEMES = frozenset({"http", "https"})
# Three days on average, as the Standard Webhooks specification suggests: whoever receives
# webhooks may be away over a weekend. Half of each step is the mean of its jitter.
WEBHOOK_BASE = 5.0
WEBHOOK_CAP = 86_400.0
WEBHOOK_ATTEMPTS = 18
REREAD_SECONDS = 1.0
"""How old a secret from a file may be."""


def words(text: str) -> list[str]:
    """What stands between blanks, commas and line breaks."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def _split(value: object) -> object:
    """``"a, b"`` as well as ``["a", "b"]``."""
    return words(value) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Retry(Section):
    """The backoff after a failure: a random time up to ``min(cap, base * 2 ** attempts)``."""

    base: Seconds = Field(
        default=1.0,
        description="Seconds that the backoff begins with; it doubles with each attempt.",
    )
    cap: Seconds = Field(default=300.0, description="Seconds that the backoff never exceeds.")


class Breaker(Section):
    """When a destination that fails for all is left alone."""

    failures: Count = Field(
        default=BREAKER.failures,
        description="Different messages that fail, with no success between them, before the"
        " destination is left alone: nothing is claimed for it, and no attempts are spent.",
    )
    pause: Seconds = Field(
        default=BREAKER.pause,
        description="Seconds until one message may try again; they double with each that fails.",
    )
    max_pause: Seconds = Field(
        default=BREAKER.max_pause, description="Seconds that this pause never exceeds."
    )


class Destination(Section):
    """One named target."""

    url: SecretStr = Field(
        description="Where messages go; the scheme names the publisher (`https://...`,"
        " `kafka://...`, `amqp://...`). See docs/publishers.md."
    )
    url_file: Path | None = Field(
        default=None, description="A file that holds the URL instead, read once, at the start."
    )
    topic: str | None = Field(
        default=None,
        min_length=1,
        description="The topic, subject, routing key, stream or queue, where the broker has one."
        " May hold `{aggregate_type}`, `{aggregate_id}`, `{event_type}` and `{headers[name]}`."
        " Unless the URL says it: `outbox.event.{aggregate_type}`.",
    )
    format: Literal["plain", "debezium", "cloudevents_binary", "cloudevents_structured"] = Field(
        default="plain", description="What messages look like there. See docs/formats.md."
    )
    source: str = Field(
        default=SOURCE,
        pattern=r"^[!#-$&-;=?-Z\[\]_a-z~%]+$",
        max_length=512,
        description="What `source` of a CloudEvent begins with; the aggregate type follows. A URI,"
        " or the beginning of one. Only for the formats `cloudevents_*`.",
    )
    concurrency: Count = Field(
        default=50, description="Publishes that run at the same time, at most, in one worker."
    )
    rate: Number | None = Field(
        default=None,
        description="Messages per second, at most, in one worker; unlimited where it is not set.",
    )
    publish_timeout: Seconds = Field(
        default=10.0, description="Seconds that one publish may take in all."
    )
    max_attempts: Count = Field(
        default=12, description="Attempts before a message that keeps failing is dead."
    )
    retry: Retry = Retry()
    breaker: Breaker = Breaker()
    defer_max_age: Seconds = Field(
        default=86400.0,
        description="Seconds after which a message that is deferred again and again is dead, and"
        " one that fails with all others spends its attempts after all.",
    )
    dead_head: Literal["block", "skip"] = Field(
        default="block",
        description="What a dead message does to its lane, the messages of its ordering key:"
        " `block` holds them back until a person decides (`pgoutbox dead`); `skip` goes on.",
    )
    signing_secrets: SecretStr | None = Field(
        default=None,
        description="What webhooks are signed with (`whsec_...` or `whsk_...`); several, the newest"
        " first, while one replaces the other. See docs/http.md.",
    )
    signing_secrets_file: Path | None = Field(
        default=None,
        description="A file that holds them instead; a change is taken up within a second.",
    )
    allowed_hosts: Words = Field(
        default=(),
        description="Hosts that a URL whose host depends on the message may lead to. Others are"
        " refused, and without this every address that is not public. See docs/http.md.",
    )

    @property
    def scheme(self) -> str:
        """The URL's scheme, in lower case; empty where there is none."""
        return scheme_of(self.url.get_secret_value())

    def publisher_options(self, name: str) -> PublisherOptions:
        """What its publisher is told when it is opened."""
        return PublisherOptions(
            destination=name,
            publish_timeout=self.publish_timeout,
            concurrency=self.concurrency,
            longest_retry=self.retry.cap,
            topic=None if self.topic is None else Template(self.topic),
            wire=self._wire(),
            signing_secrets=self._signing_secrets(),
            allowed_hosts=self.allowed_hosts,
        )

    def _wire(self) -> WireFormat:
        chosen = FORMATS[self.format]
        return chosen if self.source == SOURCE else events_of(self.source, chosen)

    def _signing_secrets(self) -> Callable[[], Sequence[str]]:
        if self.signing_secrets_file is not None:
            return _SecretsFile(self.signing_secrets_file)
        if self.signing_secrets is None:
            return no_secrets
        secrets = words(self.signing_secrets.get_secret_value())
        return lambda: secrets


class _SecretsFile:
    """The words of a file as they are now, or were a second ago."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: tuple[str, ...] = ()
        self._error: OSError | ValueError | None = None
        self._read_at: float | None = None

    def __call__(self) -> Sequence[str]:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= REREAD_SECONDS:
            self._read_at = now
            self._read()
        if self._error is not None:
            raise self._error
        return self._words

    def _read(self) -> None:
        try:
            self._words = tuple(words(read_secret(self._path)))
        except (OSError, ValueError) as error:
            self._error = error
        else:
            self._error = None


def with_defaults(destination: Destination, max_in_flight: int) -> Destination:
    """With what nobody chose, and which depends on the kind of destination.

    A concurrency that nobody chose never exceeds what the worker holds.
    """
    chosen = destination.model_fields_set
    update: dict[str, object] = {}
    if "concurrency" not in chosen:
        unlimited = destination.scheme in UNLIMITED_SCHEMES
        update["concurrency"] = (
            max_in_flight if unlimited else min(destination.concurrency, max_in_flight)
        )
    if destination.scheme in WEBHOOK_SCHEMES:
        if "max_attempts" not in chosen:
            update["max_attempts"] = WEBHOOK_ATTEMPTS
        update["retry"] = _webhook_retry(destination.retry)
    return destination.model_copy(update=update)


def _webhook_retry(retry: Retry) -> Retry:
    """With the defaults for webhooks, as far as what somebody chose leaves room for them."""
    match "base" in retry.model_fields_set, "cap" in retry.model_fields_set:
        case True, True:
            return retry
        case True, False:
            return Retry(base=retry.base, cap=max(WEBHOOK_CAP, retry.base))
        case False, True:
            return Retry(base=min(WEBHOOK_BASE, retry.cap), cap=retry.cap)
        case _:
            return Retry(base=WEBHOOK_BASE, cap=WEBHOOK_CAP)
