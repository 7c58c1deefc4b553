"""A ``kafka://`` URL: brokers, credentials, topic, and librdkafka's properties by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

from pgoutbox.brokers.query import hosts_of, split_hosts
from pgoutbox.errors import InvalidDestination
from pgoutbox.wire.template import DEFAULT_TOPIC, Template

if TYPE_CHECKING:
    from collections.abc import Collection

    from pgoutbox.publisher import PublisherOptions

Config: TypeAlias = dict[str, str | int | bool]

PROPERTY = re.compile(r"[a-z][a-z0-9._]*")
TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""
PORT = 9092
LOOKING = 1.0
"""Seconds between two looks of librdkafka's for records whose time is over."""
READING = 0.05
"""Seconds that a report may wait for us to read it."""
SHORTEST_TIMEOUT = 2.0
"""Seconds of publish timeout. That leaves half a second for a record to be sent and answered; then
comes a look at what is late, and after it a count of the requests that have left."""
ALONE: Config = {"batch.num.messages": 1, "linger.ms": 0}
"""What makes a producer send each record in a request of its own."""


_OUR_PROMISE = "is not to be chosen: delivery and order rest on it"
_OUR_TIMING = "follows from the destination's publish_timeout"
_IN_FRONT = "stands before the @ of the URL"
_BY_THE_URL = "stands in the URL's place for the host"
_NOT_HERE = "has no meaning in a URL"
# What has a place elsewhere, or would take away what the publisher promises.
REFUSED = {
    "acks": _OUR_PROMISE,
    "request.required.acks": _OUR_PROMISE,
    "enable.idempotence": _OUR_PROMISE,
    "enable.gapless.guarantee": _OUR_PROMISE,
    "retries": _OUR_PROMISE,
    "message.send.max.retries": _OUR_PROMISE,
    "delivery.report.only.error": _OUR_PROMISE,
    "transactional.id": _OUR_PROMISE,
    "transaction.timeout.ms": _OUR_PROMISE,
    "delivery.timeout.ms": _OUR_TIMING,
    "message.timeout.ms": _OUR_TIMING,
    "topic.metadata.propagation.max.ms": _OUR_TIMING,
    "bootstrap.servers": _BY_THE_URL,
    "metadata.broker.list": _BY_THE_URL,
    "sasl.username": _IN_FRONT,
    "sasl.password": _IN_FRONT,
    "statistics.interval.ms": _NOT_HERE,
    "logger": _NOT_HERE,
    "on_delivery": _NOT_HERE,
    "default.topic.config": _NOT_HERE,
    "plugin.library.paths": _NOT_HERE,
    "opaque": _NOT_HERE,
    "builtin.features": _NOT_HERE,
}


class KafkaUrl(NamedTuple):
    """What is known once a URL was understood."""

    where: str
    """For messages to people."""
    topic: Template
    config: Config
    given: tuple[str, ...]
    """The names of the properties that the URL holds."""


def read_url(url: str, options: PublisherOptions) -> KafkaUrl:
    """Everything of the URL, checked as far as it can be without librdkafka.

    Raises `InvalidDestination`; its words never repeat the URL.
    """
    parts = split_hosts(url, options.destination)
    if parts.fragment:
        raise InvalidDestination(options.destination, "the URL has a fragment; write # as %23")
    login, at, hosts = parts.netloc.rpartition("@")
    brokers = hosts_of(hosts, options.destination, default=PORT)
    given = _properties(parts.query, options.destination)
    config = _defaults(options) | given
    if at:
        config |= _credentials(login, given, options.destination)
    config["bootstrap.servers"] = ",".join(brokers)
    topic = _topic(unquote(parts.path.removeprefix("/")), options)
    where = brokers[0] if len(brokers) == 1 else f"{brokers[0]} and {len(brokers) - 1} more"
    return KafkaUrl(where, topic, config, tuple(given))


def patience_of(options: PublisherOptions) -> float:
    """Seconds after which a record that has no answer is given up, so that none is sent later.

    Half of the publish timeout; of a short one less, so that what became of it is known in time.
    """
    rest = options.answer_within - LOOKING - _counting(options) - READING
    return min(options.publish_timeout / 2, rest)


def _counting(options: PublisherOptions) -> float:
    """Seconds between two counts of the requests that have left."""
    return min(max(options.publish_timeout / 10, 0.25), 1.0)


def _defaults(options: PublisherOptions) -> Config:
    if options.publish_timeout < SHORTEST_TIMEOUT:
        raise InvalidDestination(
            options.destination,
            f"kafka:// needs a publish_timeout of {SHORTEST_TIMEOUT:g} seconds or more: in less"
            " time it cannot tell what became of a message",
        )
    delivery = int(patience_of(options) * 1000)
    return {
        "client.id": "pgoutbox",
        # Notices: what some say is the only hint at a port for TLS.
        "log_level": 6,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": delivery,
        "topic.metadata.propagation.max.ms": delivery // 2,
        # So that a broker that accepts and says nothing is known to be away before that.
        "socket.connection.setup.timeout.ms": max(1000, delivery // 2),
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
        # Enough to fill a request where there is much, and nothing that a person would notice.
        "linger.ms": 1,
        "queue.buffering.max.messages": 1_000_000,
        # As Java's clients do, so that a key is in the same partition whoever wrote it.
        "partitioner": "murmur2_random",
        # How often it is noted whether requests leave.
        "statistics.interval.ms": int(_counting(options) * 1000),
    }


def _properties(query: str, destination: str) -> Config:
    found: Config = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if PROPERTY.fullmatch(name) is None:
            # It may be anything, a secret included.
            raise InvalidDestination(
                destination, "the URL's query holds what is spelled like no property of librdkafka"
            )
        if name in found:
            raise InvalidDestination(destination, f"the property {name!r} is given twice")
        refusal = REFUSED.get(name)
        if refusal is None and (name.endswith("_cb") or name.startswith("test.")):
            refusal = _NOT_HERE
        if name == "partitioner" and value == "random":
            refusal = "must not be random, or the order of a key would be lost"
        if refusal is not None:
            raise InvalidDestination(destination, f"the property {name!r} {refusal}")
        if name.endswith((".location", ".keytab")):
            _check_file(name, value, destination)
        found[name] = value
    return found


def _check_file(name: str, value: str, destination: str) -> None:
    # librdkafka's own words of it would be OpenSSL's, and on standard error.
    path = Path(value)
    if value == "probe" or path.is_dir():
        return
    try:
        path.open("rb").close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it has no such name"
        raise InvalidDestination(
            destination, f"the file that {name!r} names cannot be read: {why}"
        ) from None


def _credentials(text: str, given: Config, destination: str) -> Config:
    """User and password; TLS unless the URL says otherwise, so that no password goes in clear."""
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise InvalidDestination(
            destination, "the URL needs user and password before the @, as in user:password@host"
        )
    protocol = str(given.get("security.protocol", "sasl_ssl"))
    if not protocol.lower().startswith("sasl"):
        raise InvalidDestination(
            destination,
            "the URL holds a user and a password, which only the security.protocol sasl_ssl (the"
            " default then) or sasl_plaintext would use",
        )
    chosen: Config = {"security.protocol": protocol}
    if not {"sasl.mechanism", "sasl.mechanisms"} & given.keys():
        chosen["sasl.mechanism"] = "PLAIN"
    return chosen | {"sasl.username": unquote(user), "sasl.password": unquote(password)}


def _topic(path: str, options: PublisherOptions) -> Template:
    if path and options.topic is not None:
        raise InvalidDestination(
            options.destination, "the URL holds a topic, and the settings another; keep one"
        )
    try:
        topic = options.topic or (Template(path) if path else DEFAULT_TOPIC)
    except ValueError as error:
        raise InvalidDestination(options.destination, f"the URL's topic {error}") from None
    # What the message fills in may be fine or not; a name without it has to be fine itself.
    if TOPIC_NAME.fullmatch(topic.filled("x")) is None:
        raise InvalidDestination(
            options.destination,
            "the topic is no name that Kafka takes: ASCII letters, digits, dots, underscores and"
            " hyphens, at most 249",
        )
    return topic


def refused(error: Exception, given: Collection[str], destination: str) -> InvalidDestination:
    """What to say where librdkafka takes a configuration for none. Its own words hold values."""
    text = str(error)
    named = [name for name in given if name in text] or list(given)
    what = ", ".join(map(repr, named)) or "our configuration"
    if "No such configuration property" in text:
        return InvalidDestination(destination, f"librdkafka has no property {what}")
    return InvalidDestination(
        destination,
        f"librdkafka does not take the value of {what}, alone or beside the others",
    )
