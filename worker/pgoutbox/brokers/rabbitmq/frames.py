"""One message as AMQP 0-9-1 frames. Pure.

The client's own encoder takes most of the time that a publish takes, since it is made for every
frame there is. These three are all that a publisher sends.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pgoutbox.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.wire.envelope import Envelope

Part: TypeAlias = bytes | memoryview
Parts: TypeAlias = Sequence[Part]

METHOD, HEADER, BODY = 1, 2, 3
_START = struct.Struct(">BHI")
_END = b"\xce"
FRAME_OVERHEAD = _START.size + len(_END)
_BASIC_PUBLISH = struct.pack(">HHH", 60, 40, 0)
_MANDATORY = b"\x01"
_CONTENT = struct.Struct(">HHQH")
_LONG = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">Q")
# Which properties follow, in the protocol's order: content-type, headers, delivery-mode,
# message-id, timestamp, type, app-id.
_PROPERTIES = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 3
_PERSISTENT = b"\x02"
_APP_ID = b"\x08pgoutbox"

SHORT = 255
"""Bytes of a routing key, a name or a property."""
ROUTING_HEADERS = frozenset({"CC", "BCC"})
"""Headers that RabbitMQ takes for further routing keys, so they are not the message's to set."""


@dataclass(frozen=True, slots=True)
class Framing:
    """What all messages of one channel have in common."""

    channel: int
    frame_max: int
    """Bytes; 0: no limit."""
    exchange: str

    def frames(self, message: ClaimedMessage, envelope: Envelope, routing_key: str) -> Parts:
        """Raises `PermanentError` for what AMQP cannot hold."""
        try:
            publish = b"".join(
                (
                    _BASIC_PUBLISH,
                    short(self.exchange, "exchange"),
                    short(routing_key, "routing key"),
                    _MANDATORY,
                )
            )
            header = _header(message, envelope)
        except UnicodeEncodeError:
            raise PermanentError("the message has text that is not Unicode") from None
        if self.frame_max and len(header) + FRAME_OVERHEAD > self.frame_max:
            raise PermanentError(
                f"the message's headers take {len(header)} bytes; "
                f"the broker takes {self.frame_max - FRAME_OVERHEAD}"
            )
        return [
            *self._frame(METHOD, publish),
            *self._frame(HEADER, header),
            *self._body(envelope.body),
        ]

    def _frame(self, kind: int, payload: Part) -> tuple[Part, Part, Part]:
        return _START.pack(kind, self.channel, len(payload)), payload, _END

    def _body(self, body: bytes) -> Iterator[Part]:
        size = self.frame_max - FRAME_OVERHEAD if self.frame_max else len(body)
        whole = memoryview(body)
        for start in range(0, len(body), size or 1):
            yield from self._frame(BODY, whole[start : start + size])


def _header(message: ClaimedMessage, envelope: Envelope) -> bytes:
    return b"".join(
        (
            _CONTENT.pack(60, 0, len(envelope.body), _PROPERTIES),
            short(envelope.content_type, "content type"),
            table(envelope.headers),
            _PERSISTENT,
            short(str(message.message_id), "message id"),
            _TIMESTAMP.pack(max(int(message.created_at.timestamp()), 0)),
            short(message.event_type, "event type"),
            _APP_ID,
        )
    )


def short(text: str, what: str) -> bytes:
    """A text of at most 255 bytes, with its length before it."""
    data = text.encode()
    if len(data) > SHORT:
        raise PermanentError(f"the {what} has {len(data)} bytes; AMQP allows {SHORT}")
    return b"%c%b" % (len(data), data)


def table(headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers as a field table of long strings."""
    parts = []
    for name, value in headers:
        if name in ROUTING_HEADERS:
            continue
        data = value.encode()
        parts += [short(name, "name of a header"), b"S", _LONG.pack(len(data)), data]
    whole = b"".join(parts)
    return _LONG.pack(len(whole)) + whole
