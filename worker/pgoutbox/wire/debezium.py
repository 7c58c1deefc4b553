"""``debezium``: what Debezium's outbox event router makes of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.wire.envelope import Envelope, WireFormat
from pgoutbox.wire.headers import user_headers

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

_OURS = frozenset({"id", "eventtype"})


def encode_debezium(message: ClaimedMessage, /, *, prefix: str = "ce-") -> Envelope:  # noqa: ARG001 - no CloudEvent
    """The payload's bytes; the key is the aggregate's id, whatever the ordering key is."""
    headers = [("id", str(message.message_id)), ("eventType", message.event_type)]
    own = len(headers)
    headers += user_headers(message.headers, taken=_OURS)
    return Envelope(message.aggregate_id, headers, message.content_type, message.body, own)


DEBEZIUM = WireFormat("debezium", encode_debezium)
