from __future__ import annotations

import json

import pytest

from pgoutbox.events import Settled
from pgoutbox.outcome import Finish, Published
from pgoutbox.telemetry.stored_context import StoredContext, sampled, stored_context
from pgoutbox.testing import make_message

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def headers(parent: str) -> str:
    return json.dumps({"tenant": "a", "traceparent": parent, "tracestate": "x=1"})


def is_sampled(headers_json: str) -> bool:
    message = make_message(headers_json=headers_json)
    return bool(sampled([Settled(message, Published(), Finish(), 0.0, 0.0)]))


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_a_context_is_read_whether_or_not_it_is_sampled(flags: str) -> None:
    assert stored_context(headers(f"00-{TRACE}-{SPAN}-{flags}")) == StoredContext(TRACE, SPAN)


@pytest.mark.parametrize(
    ("flags", "expected"), [("00", False), ("01", True), ("02", False), ("03", True), ("0f", True)]
)
def test_the_lowest_flag_says_whether_it_is_sampled(flags: str, expected: bool) -> None:  # noqa: FBT001
    assert is_sampled(headers(f"00-{TRACE}-{SPAN}-{flags}")) is expected


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00-",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_a_context_that_is_malformed_is_none(parent: str) -> None:
    assert stored_context(headers(parent)) is None


def test_headers_that_end_early_are_not_sampled() -> None:
    assert not is_sampled('{"traceparent": "00-"}')
    assert not is_sampled("{}")


def test_text_in_a_value_that_looks_like_a_context_is_none() -> None:
    inside = json.dumps({"note": f'"traceparent": "00-{TRACE}-{SPAN}-01"'})
    assert stored_context(inside) is None
    assert not is_sampled(inside)
