"""Encoded pieces of spans. Joined they are a span, for so Protocol Buffers are defined.

What stands before a value of fixed length is taken from what protobuf itself writes, once.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pgoutbox.telemetry.tracing.attributes import Value

MESSAGE_ID = "messaging.message.id"
AGE = "outbox.age_seconds"
SEVEN_BITS = 0x7F


def encoded(message: Any) -> bytes:  # noqa: ANN401 - protobuf's own class has no types
    """What protobuf makes of it."""
    data: bytes = message.SerializeToString()
    return data


def delimited(tag: bytes, body: bytes) -> bytes:
    """A field whose length stands before it."""
    length = len(body)
    digits = bytearray()
    while length > SEVEN_BITS:
        digits.append(length & SEVEN_BITS | SEVEN_BITS + 1)
        length >>= 7
    digits.append(length)
    return b"".join((tag, digits, body))


def _key_value(name: str, value: Value) -> KeyValue:
    if isinstance(value, str):
        return KeyValue(key=name, value=AnyValue(string_value=value))
    if isinstance(value, int):
        return KeyValue(key=name, value=AnyValue(int_value=value))
    return KeyValue(key=name, value=AnyValue(double_value=value))


def key_values(attributes: Mapping[str, Value]) -> list[KeyValue]:
    """Attributes as protobuf has them."""
    return [_key_value(name, value) for name, value in attributes.items()]


def attributes_of(attributes: Mapping[str, Value]) -> bytes:
    """Attributes of a span."""
    return encoded(Span(attributes=key_values(attributes)))


@lru_cache(maxsize=10_000)
def number(name: str, value: int) -> bytes:
    """An attribute that has the same few values again and again."""
    return attributes_of({name: value})


TRACE_ID, SPAN_ID, UUID = b"T" * 16, b"S" * 8, b"M" * 36
_MESSAGE_ID = attributes_of({MESSAGE_ID: UUID.decode()}).removesuffix(UUID)
_AGE = attributes_of({AGE: 0.5})[:-8]
_TRACE_ID = encoded(Span(trace_id=TRACE_ID)).removesuffix(TRACE_ID)
_SPAN_ID = encoded(Span(span_id=SPAN_ID)).removesuffix(SPAN_ID)
_PARENT_ID = encoded(Span(parent_span_id=SPAN_ID)).removesuffix(SPAN_ID)
_START = encoded(Span(start_time_unix_nano=1))[:-8]
_END = encoded(Span(end_time_unix_nano=1))[:-8]
SPAN_TAG = encoded(ScopeSpans(spans=[Span()]))[:1]

_DOUBLE = struct.Struct("<d").pack
_TIME = struct.Struct("<Q").pack


def message_id(text: bytes) -> bytes:
    """The attribute with the id of a message, of 36 characters."""
    return _MESSAGE_ID + text


def age(seconds: float) -> bytes:
    """The attribute with the age of a message."""
    return _AGE + _DOUBLE(seconds)


def place(trace_id: bytes, span_id: bytes, parent_id: bytes) -> bytes:
    """Where it is; an empty ``parent_id`` where it is the first of its trace."""
    first = b"%b%b%b%b" % (_TRACE_ID, trace_id, _SPAN_ID, span_id)
    return first + _PARENT_ID + parent_id if parent_id else first


def period(start: int, end: int) -> bytes:
    """When it was, in nanoseconds since 1970."""
    return b"%b%b%b%b" % (_START, _TIME(start), _END, _TIME(end))


@lru_cache(maxsize=8)
def flags(value: int) -> bytes:
    """The flags of a span."""
    return encoded(Span(flags=value))


def tracestate(value: str) -> bytes:
    """The tracestate of a span."""
    return encoded(Span(trace_state=value)) if value else b""


def error(words: str) -> bytes:
    """The status of a span that failed, with words for it."""
    # With its code, though the span has that already: not every decoder joins the two.
    return encoded(Span(status=Status(code=Status.StatusCode.STATUS_CODE_ERROR, message=words)))


def event(name: str, at: int, attributes: Mapping[str, Value]) -> bytes:
    """Something that happened meanwhile."""
    happened = Span.Event(name=name, time_unix_nano=at, attributes=key_values(attributes))
    return encoded(Span(events=[happened]))


def links(encoded_links: Sequence[bytes], limit: int) -> list[bytes]:
    """No more than ``limit`` of them, and how many are left out."""
    more = len(encoded_links) - limit
    if more <= 0:
        return list(encoded_links)
    return [*encoded_links[:limit], encoded(Span(dropped_links_count=more))]


def events(encoded_events: Sequence[bytes], limit: int, more: int = 0) -> list[bytes]:
    """No more than ``limit`` of them, and how many are left out; ``more`` are not even here."""
    more += max(len(encoded_events) - limit, 0)
    if not more:
        return list(encoded_events)
    return [*encoded_events[:limit], encoded(Span(dropped_events_count=more))]


def _link(flags: int, about: Iterable[KeyValue] = (), trace_state: str = "") -> bytes:
    link = Span.Link(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        flags=flags,
        attributes=about,
        trace_state=trace_state,
    )
    return encoded(Span(links=[link]))


@lru_cache(maxsize=8)
def _around(flags: int, about: bool) -> tuple[bytes, bytes, bytes, bytes]:  # noqa: FBT001 - a key
    """What stands before, between and behind the ids of a link."""
    whole = _link(flags, key_values({MESSAGE_ID: UUID.decode()}) if about else ())
    before, rest = whole.split(TRACE_ID)
    between, rest = rest.split(SPAN_ID)
    last, behind = rest.split(UUID) if about else (rest, b"")
    return before, between, last, behind


def link(trace_id: bytes, span_id: bytes, flags: int, about: bytes, trace_state: str) -> bytes:
    """To a span; ``about`` is the id of the message that it is for, or empty."""
    if trace_state:
        text = key_values({MESSAGE_ID: about.decode()} if about else {})
        whole = _link(flags, text, trace_state)
        return whole.replace(TRACE_ID, trace_id, 1).replace(SPAN_ID, span_id, 1)
    before, between, last, behind = _around(flags, bool(about))
    return b"%b%b%b%b%b%b%b" % (before, trace_id, between, span_id, last, about, behind)
