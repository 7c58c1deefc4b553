"""``plain``: the payload as it is, and what is known about it in headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.wire.envelope import Envelope, WireFormat
from pgoutbox.wire.headers import user_headers

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

# Kept for us as a whole, so that a consumer can trust them.
OUR_PREFIX = "outbox-"


def encode_plain(message: ClaimedMessage, /, *, prefix: str = "ce-") -> Envelope:  # noqa: ARG001 - no CloudEvent
    """The payload's bytes; the key is the ordering key, or else the aggregate's id."""
    headers = [
        ("outbox-message-id", str(message.message_id)),
        ("outbox-aggregate-type", message.aggregate_type),
        ("outbox-aggregate-id", message.aggregate_id),
        ("outbox-event-type", message.event_type),
        ("outbox-attempt", str(message.attempts)),
    ]
    if message.ordering_key is not None:
        headers.append(("outbox-ordering-key", message.ordering_key))
    own = len(headers)
    headers += user_headers(message.headers, prefix=OUR_PREFIX)
    key = message.aggregate_id if message.ordering_key is None else message.ordering_key
    return Envelope(key, headers, message.content_type, message.body, own)


PLAIN = WireFormat("plain", encode_plain)
