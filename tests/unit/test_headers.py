"""Headers are short texts that every protocol can carry, with the trace context beside them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, propagate, trace as api
from opentelemetry.sdk.trace import TracerProvider

from pgoutbox import InvalidMessage
from pgoutbox.producer import trace
from pgoutbox.producer.headers import MAX_BYTES, headers_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span


@pytest.fixture(autouse=True)
def _fresh_lookup() -> Iterator[None]:
    trace._writer.cache_clear()
    yield
    trace._writer.cache_clear()


@pytest.fixture
def span() -> Iterator[Span]:
    provider = TracerProvider()
    with provider.get_tracer("test").start_as_current_span("request") as current:
        yield current
    provider.shutdown()


def stored(headers: dict[str, str]) -> dict[str, str]:
    parsed: dict[str, str] = json.loads(headers_text(headers))
    return parsed


def traceparent(span: Span) -> str:
    ids = span.get_span_context()
    return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{ids.trace_flags:02x}"


@pytest.mark.parametrize(
    ("headers", "path", "word"),
    [
        ([("a", "b")], "headers", "not list"),
        (None, "headers", "not NoneType"),
        ({1: "x"}, "headers[1]", "name must be a str"),
        ({"": "x"}, "headers['']", "not empty"),
        ({"a b": "x"}, "headers['a b']", "letters"),
        ({"a\n": "x"}, "headers['a\\n']", "letters"),
        ({"é": "x"}, "headers['é']", "letters"),
        ({"a": 1}, "headers['a']", "value must be a str, not int"),
        ({"a": None}, "headers['a']", "not NoneType"),
        ({"a": "x\r\ny"}, "headers['a']", "'\\r'"),
        ({"a": "x\t"}, "headers['a']", "'\\t'"),
        ({"a": "\x7f"}, "headers['a']", "'\\x7f'"),
        ({"a": "\x85"}, "headers['a']", "'\\x85'"),
        ({"a": "\0"}, "headers['a']", "NUL"),
        ({"a": "\ud800"}, "headers['a']", "U+D800"),
        ({"Key": "x", "key": "y"}, "headers['key']", "'Key' only in its case"),
        ({"a": "x" * MAX_BYTES}, "headers", f"{MAX_BYTES + 1} bytes"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_by_name(headers: Any, path: str, word: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        headers_text(headers)
    assert refused.value.path == path
    assert word in refused.value.problem


def test_values_may_be_empty_or_beyond_ascii() -> None:
    assert stored({"a": "", "b": "é €"}) == {"a": "", "b": "é €"}


def test_headers_may_fill_their_limit() -> None:
    assert stored({"a": "x" * (MAX_BYTES - 1)})


def test_without_a_current_span_nothing_is_added() -> None:
    assert headers_text({}) == "{}"
    assert stored({"a": "b"}) == {"a": "b"}


def test_the_current_span_travels_with_the_message(span: Span) -> None:
    assert stored({"a": "b"}) == {"a": "b", "traceparent": traceparent(span)}


def test_baggage_travels_without_a_span() -> None:
    token = context.attach(baggage.set_baggage("tenant", "t1"))
    try:
        assert stored({}) == {"baggage": "tenant=t1"}
    finally:
        context.detach(token)


@pytest.mark.usefixtures("span")
def test_a_trace_header_of_the_user_wins_in_any_case() -> None:
    assert stored({"TraceParent": "mine"}) == {"TraceParent": "mine"}


@pytest.mark.usefixtures("span")
def test_a_trace_that_no_longer_fits_is_left_out() -> None:
    assert stored({"a": "x" * (MAX_BYTES - 1)}).keys() == {"a"}


@pytest.mark.usefixtures("span")
def test_a_propagator_that_raises_fails_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(propagate, "inject", fail)
    assert stored({"a": "b"}) == {"a": "b"}


@pytest.mark.usefixtures("span")
def test_what_a_propagator_writes_is_checked_like_any_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def litter(carrier: dict[str, object], **_: object) -> None:
        carrier.update({"bad name": "x", "number": 1, "line": "a\nb", "good": "x"})

    monkeypatch.setattr(propagate, "inject", litter)
    assert stored({}) == {"good": "x"}


@pytest.mark.usefixtures("span")
def test_without_opentelemetry_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert headers_text({}) == "{}"


def test_the_span_that_is_current_at_the_call_counts_and_not_a_later_one(span: Span) -> None:
    outer = stored({})
    with api.use_span(api.NonRecordingSpan(api.SpanContext(1, 2, is_remote=False))):
        inner = stored({})
    assert outer["traceparent"] == traceparent(span) != inner["traceparent"]
