"""A ``kafka://`` URL: brokers, credentials, topic, and librdkafka's properties by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

from pgoutbox.brokers.query import hosts_of, split_hosts
from pgoutbox.errors import InvalidDestination
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Collection

    from pgoutbox.publisher import PublisherOptions

Config: TypeAlias = dict[str, str | int | bool]

TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""
PORT = 9092
DEFAULT_TOPIC = "outbox.event.{aggregate_type}"
ANSWERING = 0.9
"""The part of the publish timeout after which what has no answer is answered for. Were we cancelled
instead, at the whole of it, what is known of the other records of the batch would be lost."""
LOOKING = 1000
"""Milliseconds between two looks of librdkafka's for records whose time is over."""
SHORTEST_DELIVERY = 100
"""Milliseconds."""
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
    config = _defaults(options.publish_timeout) | given
    if at:
        config |= _credentials(login, given, options.destination)
    config["bootstrap.servers"] = ",".join(brokers)
    topic = _topic(unquote(parts.path.removeprefix("/")), options)
    where = brokers[0] if len(brokers) == 1 else f"{brokers[0]} and {len(brokers) - 1} more"
    return KafkaUrl(where, topic, config, tuple(given))


def _defaults(publish_timeout: float) -> Config:
    """What we choose. librdkafka looks once a second for records whose time is over.

    So half of the publish timeout leaves time for its answer, and no record is sent after the
    worker has given it up. Of a short timeout it is less than half, but not less than a quarter.
    """
    whole = int(publish_timeout * 1000)
    in_time = int(whole * ANSWERING) - LOOKING
    delivery = max(SHORTEST_DELIVERY, whole // 4, min(whole // 2, in_time))
    return {
        "client.id": "pgoutbox",
        # Warnings; connections that were idle are closed and opened without a word.
        "log_level": 4,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": delivery,
        "topic.metadata.propagation.max.ms": max(SHORTEST_DELIVERY, delivery // 2),
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
        "statistics.interval.ms": 1000,
    }


def _properties(query: str, destination: str) -> Config:
    found: Config = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in found:
            raise InvalidDestination(destination, f"the property {name!r} is given twice")
        refusal = REFUSED.get(name)
        if refusal is None and (name.endswith("_cb") or name.startswith("test.")):
            refusal = _NOT_HERE
        if name == "partitioner" and value == "random":
            refusal = "must not be random, or the order of a key would be lost"
        if refusal is not None:
            raise InvalidDestination(destination, f"the property {name!r} {refusal}")
        found[name] = value
    return found


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
        topic = options.topic or Template(path or DEFAULT_TOPIC)
    except ValueError as error:
        raise InvalidDestination(options.destination, f"the URL's topic {error}") from None
    # What the message fills in may be fine or not; a name without it has to be fine itself.
    name = re.sub(r"\{[^{}]*\}", "x", topic.text)
    if TOPIC_NAME.fullmatch(name) is None:
        raise InvalidDestination(
            options.destination,
            f"the topic {topic.text!r} is no name that Kafka takes: ASCII letters, digits, dots,"
            " underscores and hyphens, at most 249",
        )
    return topic


def refused(error: Exception, given: Collection[str], destination: str) -> InvalidDestination:
    """What to say where librdkafka takes a configuration for none. Its own words hold values."""
    text = str(error)
    named = [name for name in given if name in text] or list(given)
    what = ", ".join(map(repr, named)) or "its configuration"
    return InvalidDestination(
        destination,
        f"librdkafka does not take {what}: it knows no property of that name, or does not allow"
        " the value, alone or beside the others",
    )
