"""Any message has a form that AWS takes, and that a consumer reads back as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, strategies as st

from pgoutbox.brokers.aws.message import Entry, entry_for, group_of
from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED
from pgoutbox.wire.debezium import DEBEZIUM
from pgoutbox.wire.envelope import Envelope, WireFormat
from pgoutbox.wire.plain import PLAIN
from tests.support.brokers.aws import read

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

FORMATS = (PLAIN, DEBEZIUM, CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Neither NUL nor surrogates: PostgreSQL stores none.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def sent(message: ClaimedMessage, wire: WireFormat = PLAIN, name: str = "q") -> Entry:
    return entry_for(0, message, wire.encode(message), name)


def attributes(entry: Entry) -> dict[str, str]:
    assert {each["DataType"] for each in entry.fields["MessageAttributes"].values()} == {"String"}
    return {name: each["StringValue"] for name, each in entry.fields["MessageAttributes"].items()}


def received(entry: Entry) -> tuple[bytes, dict[str, str]]:
    message: dict[str, Any] = {"Body": entry.body, **entry.fields}
    return read(message)


@pytest.mark.parametrize(
    "body",
    [b'{"n": 1}', b"null", "Zürich\t\r\n🙂\x7f\ufffd".encode(), "\ud7ff\ue000".encode()],
)
def test_text_is_sent_as_it_is(body: bytes) -> None:
    entry = sent(make_message(body=body))
    assert entry.body.encode() == body
    assert "outbox-body-encoding" not in attributes(entry)
    assert received(entry)[0] == body


@pytest.mark.parametrize(
    "body",
    [b"\x00", b"a\x0bb", b"\x1f", b"\xff", b"\xed\xa0\x80", "\ufffe".encode(), "\uffff".encode()],
)
def test_what_is_no_text_for_aws_is_sent_in_base64(body: bytes) -> None:
    entry = sent(make_message(body=body))
    assert attributes(entry)["outbox-body-encoding"] == "base64"
    assert received(entry)[0] == body


def test_an_empty_payload_is_told_from_one_that_looks_like_its_stand_in() -> None:
    empty, dash = sent(make_message(body=b"")), sent(make_message(body=b"-"))
    assert (empty.body, dash.body) == ("-", "-")
    assert (received(empty)[0], received(dash)[0]) == (b"", b"-")


def test_a_cloud_event_keeps_its_first_seven_attributes_in_sight() -> None:
    message = make_message(headers_json=json.dumps({"traceparent": TRACE, "mine": "1"}))
    found = attributes(sent(message, CLOUDEVENTS_BINARY))
    assert list(json.loads(found.pop("outbox-headers"))) == [
        "ce-partitionkey",
        "ce-traceparent",
        "traceparent",
        "mine",
    ]
    names = ("specversion", "id", "source", "type", "subject", "time", "aggregatetype")
    assert sorted(found) == sorted(["content-type", *(f"ce-{name}" for name in names)])


def test_debezium_leaves_room_for_the_trace() -> None:
    message = make_message(headers_json=json.dumps({"traceparent": TRACE}))
    assert sorted(attributes(sent(message, DEBEZIUM))) == [
        "content-type",
        "eventType",
        "id",
        "traceparent",
    ]


@pytest.mark.parametrize("wire", FORMATS, ids=[wire.name for wire in FORMATS])
def test_a_header_named_as_an_attribute_of_the_format_neither_replaces_nor_hides_it(
    wire: WireFormat,
) -> None:
    message = make_message()
    entry = sent(message, wire)
    in_sight = attributes(entry).keys() - {"outbox-headers"}
    told = received(entry)[1]
    for spell in (str, str.upper):
        headers = json.dumps({spell(name): "forged" for name in told})
        forged = sent(message._replace(headers_json=headers), wire)
        assert attributes(forged).keys() - {"outbox-headers"} == in_sight
        assert {name: received(forged)[1].get(name) for name in told} == told


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a_b-c.D1", True),
        ("x" * 256, True),
        ("awsome", True),
        ("x" * 257, False),
        ("AWS.x", False),
        ("amazon.x", False),
        (".x", False),
        ("x.", False),
        ("x..y", False),
        ("x!", False),
        ("ä", False),
        ("x\n", False),
    ],
)
def test_only_a_name_that_aws_allows_becomes_an_attribute(name: str, allowed: bool) -> None:  # noqa: FBT001
    entry = entry_for(
        0, make_message(), Envelope("k", [(name, "1")], "text/plain", b"x", own=1), "q"
    )
    assert (name in attributes(entry)) is allowed
    assert received(entry)[1] == {name: "1", "content-type": "text/plain"}


def test_the_size_is_that_of_text_names_types_and_values_in_utf_8() -> None:
    envelope = Envelope("k", [("name", "ü")], "a/b", "ü".encode(), own=1)
    expected = 2 + len("name" + "String") + 2 + len("content-type" + "String" + "a/b")
    assert entry_for(0, make_message(), envelope, "q").size == expected


def test_a_standard_queue_gets_neither_group_nor_deduplication_id() -> None:
    assert list(sent(make_message(ordering_key="k")).fields) == ["MessageAttributes"]


@given(st.text(max_size=200))
def test_any_ordering_key_makes_a_group_that_aws_allows(key: str) -> None:
    group = group_of(make_message(ordering_key=key))
    assert 1 <= len(group) <= 128
    assert all("!" <= character <= "~" for character in group)
    assert group == group_of(make_message(ordering_key=key))


@example(b"", {"outbox-body-encoding": "", "outbox-headers": "{}"}, "", DEBEZIUM)
@given(
    st.binary(max_size=50) | texts.map(str.encode),
    st.dictionaries(texts, texts, max_size=15),
    texts,
    st.sampled_from(FORMATS),
)
def test_any_message_is_read_back_with_its_body_and_its_headers(
    body: bytes, headers: dict[str, str], text: str, wire: WireFormat
) -> None:
    message = make_message(
        body=body,
        headers_json=json.dumps(headers),
        aggregate_id=text,
        event_type=text,
        content_type=text,
        ordering_key=text,
    )
    envelope = wire.encode(message)
    entry = entry_for(0, message, envelope, "q.fifo")
    found = attributes(entry)
    assert len(found) <= 10
    assert all(found.values())
    assert entry.body
    kind = {"content-type": envelope.content_type}
    users = {k: v for k, v in envelope.headers if k.lower() != "content-type"}
    assert received(entry) == (envelope.body, users | kind)
