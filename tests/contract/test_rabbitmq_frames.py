"""Our frames are what the protocol's own library reads out of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pamqp.frame
import pytest
from hypothesis import given, strategies as st
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from pgoutbox.brokers.rabbitmq.frames import Framing
from pgoutbox.errors import PermanentError
from pgoutbox.testing import make_message
from pgoutbox.wire.envelope import Envelope
from pgoutbox.wire.plain import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage

FRAME_MAX = 4096
FRAMING = Framing(channel=7, frame_max=FRAME_MAX, exchange="events")
SHORT = st.text(max_size=60)
HEADERS = st.dictionaries(SHORT.filter(lambda name: name not in ("CC", "BCC")), SHORT, max_size=8)


def read(frames: Sequence[bytes | memoryview]) -> tuple[Basic.Publish, ContentHeader, bytes]:
    data, found = b"".join(frames), []
    while data:
        size, channel, frame = pamqp.frame.unmarshal(data)
        assert channel == 7
        assert size <= FRAME_MAX
        found.append(frame)
        data = data[size:]
    publish, header, *bodies = found
    assert isinstance(publish, Basic.Publish)
    assert isinstance(header, ContentHeader)
    assert all(isinstance(body, ContentBody) for body in bodies)
    body = b"".join(body.value for body in bodies if isinstance(body, ContentBody))
    assert header.body_size == len(body)
    return publish, header, body


@given(key=SHORT, event_type=SHORT, content_type=SHORT, headers=HEADERS, body=st.binary())
def test_what_is_written_is_what_is_read(
    key: str, event_type: str, content_type: str, headers: dict[str, str], body: bytes
) -> None:
    message = make_message(event_type=event_type, created_at=datetime(2026, 1, 2, tzinfo=UTC))
    envelope = Envelope("", list(headers.items()), content_type, body)
    publish, header, payload = read(FRAMING.frames(message, envelope, key))
    assert (publish.exchange, publish.routing_key) == ("events", key)
    assert publish.mandatory
    assert not publish.immediate
    assert payload == body
    properties = header.properties
    assert properties.headers == headers
    assert properties.content_type == content_type
    assert properties.message_type == event_type
    assert properties.message_id == str(message.message_id)
    assert properties.timestamp == datetime(2026, 1, 2, tzinfo=UTC)
    assert properties.delivery_mode == 2
    assert properties.app_id == "pgoutbox"


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 100_000])
def test_a_payload_of_any_size_is_cut_into_frames(size: int) -> None:
    message = make_message(body=bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    assert read(FRAMING.frames(message, PLAIN.encode(message), "key"))[2] == message.body


def test_without_a_limit_a_payload_is_one_frame() -> None:
    framing = Framing(channel=7, frame_max=0, exchange="")
    message = make_message(body=b"x" * 10_000)
    assert len(framing.frames(message, PLAIN.encode(message), "key")) == 9


def refusal(message: ClaimedMessage, key: str = "key") -> str:
    with pytest.raises(PermanentError) as caught:
        FRAMING.frames(message, PLAIN.encode(message), key)
    return str(caught.value)


def test_what_does_not_fit_is_refused_for_good() -> None:
    message = make_message()
    assert "the routing key has 256 bytes" in refusal(message, "k" * 256)
    assert "the event type has 256 bytes" in refusal(make_message(event_type="ü" * 128))
    assert "the content type has 256 bytes" in refusal(make_message(content_type="c" * 256))
    long_name = make_message(headers_json=json.dumps({"n" * 256: ""}))
    assert "the name of a header has 256 bytes" in refusal(long_name)
    many = make_message(headers_json=json.dumps({"n": "v" * FRAME_MAX}))
    assert "the broker takes 4088" in refusal(many)
    assert "not Unicode" in refusal(message, "\ud800")
