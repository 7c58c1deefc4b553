"""Names that depend on the message."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from pgoutbox.errors import PermanentError
from pgoutbox.testing import make_message
from pgoutbox.wire.template import Template

MESSAGE = make_message(
    aggregate_type="order",
    aggregate_id="o/1 {event_type}",
    event_type="placed",
    headers_json='{"Tenant-Id": "acme", "x": ""}',
)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("", ""),
        ("orders", "orders"),
        ("outbox.event.{aggregate_type}", "outbox.event.order"),
        ("{aggregate_type}{event_type}", "orderplaced"),
        ("a.{headers[tenant-id]}.b", "a.acme.b"),
        ("a.{headers[X]}.b", "a..b"),
        ("line\nbreak {event_type}", "line\nbreak placed"),
    ],
)
def test_fields_in_braces_are_filled_in(text: str, rendered: str) -> None:
    assert Template(text).render(MESSAGE) == rendered


def test_what_comes_out_of_a_message_is_never_read_as_a_template() -> None:
    assert Template("{aggregate_id}").render(MESSAGE) == "o/1 {event_type}"


def test_only_what_comes_out_of_the_message_is_escaped() -> None:
    template = Template("/a b/{aggregate_id}/{headers[tenant-id]}")
    escaped = template.render(MESSAGE, escape=lambda value: quote(value, safe=""))
    assert escaped == "/a b/o%2F1%20%7Bevent_type%7D/acme"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{aggregate_typ}", "no field {aggregate_typ}; there are {aggregate_type}"),
        ("{payload}", "no field {payload}"),
        ("{body.total}", "no field {body.total}"),
        ("{aggregate_id.__class__}", "no field"),
        ("{aggregate_id!r}", "no field"),
        ("{aggregate_id:>10}", "no field"),
        ("{headers}", "no field {headers}"),
        ("{headers[a][b]}", "no field"),
        ("{headers[]}", "a header '', which no message can have"),
        ("{headers[a b]}", "a header 'a b', which no message can have"),
        ("{}", "no field {}"),
        ("a{", "a '{' without its partner"),
        ("a}b", "a '}' without its partner"),
        ("{{aggregate_id}}", "a '{' without its partner"),
    ],
)
def test_a_template_with_anything_else_is_refused_at_the_start(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        Template(text)


def test_a_message_without_the_header_can_never_be_published() -> None:
    with pytest.raises(PermanentError, match="no header 'tenant'"):
        Template("{headers[tenant]}").render(MESSAGE)


def test_a_template_knows_whether_it_is_the_same_for_all() -> None:
    assert Template("orders").fixed
    assert not Template("orders.{event_type}").fixed


@given(st.text())
def test_any_text_without_braces_is_a_template_and_no_other_is_fixed(text: str) -> None:
    try:
        template = Template(text)
    except ValueError:
        assert "{" in text or "}" in text
    else:
        assert template.fixed == ("{" not in text)
