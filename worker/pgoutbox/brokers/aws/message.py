"""A message as SQS and SNS carry it: text, and at most ten attributes."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.brokers.aws.url import FIFO

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.wire.envelope import Envelope

# Names of our own.
HEADERS = "outbox-headers"
BODY_ENCODING = "outbox-body-encoding"
CONTENT_TYPE = "content-type"
TRACE = "traceparent"
EMPTY_BODY = "-"
"""Stands for an empty payload, because AWS takes no empty text."""

MOST_ATTRIBUTES = 10
# Three are kept free for those above, whether or not this message needs them: so a header stands
# in the same place for all messages of a format.
_FIRST = MOST_ATTRIBUTES - 3

# What XML 1.0 cannot hold, and AWS refuses.
_UNSENDABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_NAME = re.compile(
    r"(?!(?:aws|amazon)\.)(?!\.)(?!.*\.\.)[a-z0-9_.-]{1,256}(?<!\.)", re.IGNORECASE | re.ASCII
)
_GROUP = re.compile(r"[!-~]{1,128}")


class Entry(NamedTuple):
    """One message of a request."""

    position: int
    """Its place in the batch that the worker handed over."""
    size: int
    """Bytes that count towards AWS's limit: the text, and each attribute's name, type and value."""
    body: str
    fields: dict[str, Any]
    """All but the id and the text, whose names differ."""


def entry_for(position: int, message: ClaimedMessage, envelope: Envelope, name: str) -> Entry:
    """The entry for a queue or topic of this name. Raises nothing: any row has one."""
    body, size, encoding = _text_of(envelope.body)
    attributes = _attributes(envelope, encoding)
    size += sum(len(key) + len("String") + len(value.encode()) for key, value in attributes.items())
    fields: dict[str, Any] = {
        "MessageAttributes": {
            key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()
        }
    }
    if name.endswith(FIFO):
        fields["MessageGroupId"] = group_of(message)
        fields["MessageDeduplicationId"] = str(message.message_id)
    return Entry(position, size, body, fields)


def group_of(message: ClaimedMessage) -> str:
    """The ordering key, or its digest where AWS cannot carry it; the message's own id without one.

    Without a key the message waits for no other one.
    """
    key = message.ordering_key
    if key is None:
        return str(message.message_id)
    if _GROUP.fullmatch(key):
        return key
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _text_of(body: bytes) -> tuple[str, int, str | None]:
    """The text to send, its bytes in UTF-8, and how it is encoded, if it is."""
    if not body:
        return EMPTY_BODY, len(EMPTY_BODY), "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and _sendable(text):
        return text, len(body), None
    encoded = b64encode(body).decode("ascii")
    return encoded, len(encoded), "base64"


def _attributes(envelope: Envelope, encoding: str | None) -> dict[str, str]:
    """The format's own headers and the trace, and one with all others as a JSON object.

    In that object is also what AWS does not allow as an attribute: an empty value, a control
    character, an odd name.
    """
    attributes: dict[str, str] = {}
    others: dict[str, str] = {}
    candidates = 0
    for place, (name, value) in enumerate(envelope.headers):
        candidate = place < envelope.own or name.lower() == TRACE
        candidates += candidate
        first = candidate and candidates <= _FIRST
        (attributes if first and _allowed(name, value) else others)[name] = value
    kind = envelope.content_type
    (attributes if _allowed(CONTENT_TYPE, kind) else others)[CONTENT_TYPE] = kind
    if encoding is not None:
        attributes[BODY_ENCODING] = encoding
    if others:
        attributes[HEADERS] = json.dumps(others, separators=(",", ":"))
    return attributes


def _allowed(name: str, value: str) -> bool:
    return bool(value) and _ATTRIBUTE_NAME.fullmatch(name) is not None and _sendable(value)


def _sendable(text: str) -> bool:
    return _UNSENDABLE.search(text) is None
