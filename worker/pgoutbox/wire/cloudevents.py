"""CloudEvents 1.0.2: attributes beside the payload (binary) or around it (structured)."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from pgoutbox.wire.envelope import Envelope, WireFormat
from pgoutbox.wire.headers import header, user_headers
from pgoutbox.wire.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pgoutbox.message import ClaimedMessage

STRUCTURED_TYPE = "application/cloudevents+json; charset=utf-8"
SOURCE = "/"
"""What ``source`` begins with; the aggregate type follows."""

# What no attribute may hold: control characters, surrogates, and what Unicode calls noncharacters.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
_REPLACEMENT = "\ufffd"
# Everything printable in ASCII but the blank, the quotation mark and the percent sign.
_PLAIN_IN_HEADERS = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


def encode_binary(
    message: ClaimedMessage, /, *, prefix: str = "ce-", source: str = SOURCE
) -> Envelope:
    """The payload's bytes; attributes become headers whose names begin with ``prefix``.

    Their values are what they are: a broker whose headers hold less than any text encodes them as
    its binding of the protocol says, see `header_value`.
    """
    given = message.headers
    attributes = _attributes(message, given, source=source)
    headers = [(prefix + name, value) for name, value in attributes.items()]
    headers += user_headers(given, prefix=prefix.lower())
    return Envelope(
        _key(message), headers, _text(message.content_type), message.body, len(attributes)
    )


def encode_structured(
    message: ClaimedMessage, /, *, prefix: str = "ce-", source: str = SOURCE
) -> Envelope:
    """One JSON object that holds the attributes and the payload.

    A JSON payload stands under ``data`` exactly as the producer wrote it, any other payload in
    base64 under ``data_base64``.
    """
    given = message.headers
    attributes = _attributes(message, given, source=source)
    attributes["datacontenttype"] = _text(message.content_type)
    head = json.dumps(attributes).encode("ascii")[:-1]
    data = json_text(message)
    if data is None:
        body = b'%b, "data_base64": "%b"}' % (head, b64encode(message.body))
    else:
        body = b'%b, "data": %b}' % (head, data)
    headers = user_headers(given, prefix=prefix.lower())
    return Envelope(_key(message), headers, STRUCTURED_TYPE, body)


def header_value(text: str) -> str:
    """An attribute's value for headers of visible ASCII: percent-encoded UTF-8.

    The binding to HTTP spells it like this.
    """
    return quote(text, safe=_PLAIN_IN_HEADERS, errors="replace")


def _attributes(
    message: ClaimedMessage, headers: Mapping[str, str], *, source: str
) -> dict[str, str]:
    """All but ``datacontenttype``, which has a place of its own in a binary event."""
    attributes = {
        "specversion": "1.0",
        "id": str(message.message_id),
        "source": source + quote(message.aggregate_type, safe="", errors="replace"),
        "type": _text(message.event_type),
        "subject": _text(message.aggregate_id),
        "time": _timestamp(message.created_at),
        "aggregatetype": _text(message.aggregate_type),
        "partitionkey": _text(_key(message)),
    }
    # The extension for tracing has no state without a parent.
    if parent := header(headers, "traceparent"):
        attributes["traceparent"] = _text(parent)
        if state := header(headers, "tracestate"):
            attributes["tracestate"] = _text(state)
    return attributes


def _key(message: ClaimedMessage) -> str:
    return message.aggregate_id if message.ordering_key is None else message.ordering_key


def _text(text: str) -> str:
    """With a replacement character for each one that the specification forbids."""
    return text if text.isprintable() else _FORBIDDEN.sub(_REPLACEMENT, text)


def _timestamp(moment: datetime) -> str:
    """By RFC 3339, in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


ENCODERS = {"cloudevents_binary": encode_binary, "cloudevents_structured": encode_structured}
CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED = (
    WireFormat(name, encode) for name, encode in ENCODERS.items()
)


def events_of(source: str, wire: WireFormat) -> WireFormat:
    """One of these formats, for events whose ``source`` begins like this."""
    return WireFormat(wire.name, partial(ENCODERS[wire.name], source=source))
