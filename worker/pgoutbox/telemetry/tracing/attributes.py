"""What spans say about destinations and failures, in the words of OpenTelemetry's conventions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
    Finish,
    Interrupted,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Unavailable,
    Unstarted,
)
from pgoutbox.telemetry.tally import OUTCOMES

if TYPE_CHECKING:
    from pgoutbox.outcome import Outcome, Transition

Value = str | int | float
Attributes = dict[str, Value]

SCOPE = "outbox.dispatcher"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
OUTBOX = "outbox"
"""The ``messaging.system`` of claims and of what settles them."""

WEB = ("http", "https")
WEB_PORTS = {"http": 80, "https": 443}
SYSTEMS = {
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "pubsub": "gcp_pubsub",
    "rediss": "redis",
    "sns": "aws.sns",
    "sqs": "aws_sqs",
}
"""Where it is another word than the URL's scheme."""
WITH_SERVER = {*WEB, "amqp", "amqps", "kafka", "nats", "redis", "rediss"}
"""Schemes behind which a URL has the server's address."""

SETTLING: dict[type[Transition], str] = {
    Finish: "ack",
    Retry: "nack",
    DeferUntil: "nack",
    Release: "nack",
    Bury: "reject",
}

_STATUS = re.compile(r"\banswered (\d{3})\b")
_SQLSTATE = re.compile(r"\(SQLSTATE ([0-9A-Z]{5})\)")


def of_destination(name: str, url: str) -> Attributes:
    """What every publish to it has in common. Of the URL only scheme, host and port."""
    scheme = url.partition("://")[0].lower()
    attributes: Attributes = {"messaging.destination.name": name}
    if scheme in WEB:
        # No broker, so these are the attributes of an HTTP client.
        attributes |= {"http.request.method": "POST", "url.scheme": scheme}
    else:
        attributes["messaging.system"] = SYSTEMS.get(scheme, scheme)
    return attributes | (_server(url, scheme) if scheme in WITH_SERVER else {})


def _server(url: str, scheme: str) -> Attributes:
    """Where there is one; not of a list, and not of one that each message completes."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or WEB_PORTS.get(scheme)
    except ValueError:
        return {}
    if not host or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        return {}
    attributes: Attributes = {"server.address": host}
    return attributes if port is None else attributes | {"server.port": port}


def label_of(outcome: Outcome) -> str:
    """As in the metrics."""
    return "unstarted" if isinstance(outcome, Unstarted) else OUTCOMES[type(outcome)]


def status_of(outcome: Outcome) -> int | None:
    """The HTTP status that a webhook answered with, where it is known."""
    found = _STATUS.search(getattr(outcome, "error", ""))
    return None if found is None else int(found[1])


def error_of(outcome: Outcome) -> str:
    """One of few words; empty where it is none."""
    match outcome:
        case Published() | Deferred() | Unstarted():
            return ""
        case Interrupted():
            return "cancelled"
        case RetryableFailure(timed_out=True):
            return "timeout"
        case RetryableFailure(error=error) | PermanentFailure(error=error) | Unavailable(error):
            return _kind_of(error) or label_of(outcome)


def _kind_of(error: str) -> str:
    if found := _STATUS.search(error):
        return f"http_{found[1]}"
    if error.startswith("unclassified:"):
        return "unclassified"
    if error.startswith("cancelled:"):
        return "cancelled"
    if "connection refused" in error.lower():
        return "connection_refused"
    return "timeout" if "no answer" in error or "timed out" in error else ""


def sqlstate_of(error: str) -> str:
    """That of a row which the database refused."""
    found = _SQLSTATE.search(error)
    return found[1] if found else "refused"
