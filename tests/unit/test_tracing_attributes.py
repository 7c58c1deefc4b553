"""What spans say: OpenTelemetry's words, few values, when it was, and nothing that is secret."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pgoutbox.outcome import (
    Bury,
    Interrupted,
    PermanentFailure,
    Retry,
    RetryableFailure,
    Unavailable,
)
from pgoutbox.telemetry.tracing.attributes import error_of, of_destination, status_of
from tests.support.otlp import attributes, headers, traceparent
from tests.support.traced import Traced, created, untraced

if TYPE_CHECKING:
    from pgoutbox.outcome import Outcome

SECRET = "hunter2"  # noqa: S105 - to be looked for


def test_a_publish_names_broker_message_attempt_and_lease() -> None:
    traced = Traced()
    message = created(1, attempts=3, lease_version=4, age=1.5)
    traced.deliver(message)
    assert attributes(traced.named("publish")[0]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": str(message.message_id),
        "messaging.client.id": "pod-1",
        "server.address": "broker",
        "server.port": 9092,
        "outbox.attempt": 3,
        "outbox.lease.token": 4,
        "outbox.age_seconds": 1.5,
        "outbox.outcome": "ok",
    }


def test_claim_and_acknowledgement_are_operations_of_the_outbox() -> None:
    traced = Traced()
    traced.deliver(created(1), created(2))
    said = [attributes(traced.named(name)[0]) for name in ("claim", "ack")]
    assert said == [
        {
            "messaging.system": "outbox",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": "orders",
            "messaging.client.id": "pod-1",
            "messaging.batch.message_count": 2,
        }
        for name, kind in (("claim", "receive"), ("ack", "settle"))
    ]


def test_links_of_a_batch_name_the_messages() -> None:
    traced = Traced()
    messages = [created(1), created(2)]
    traced.deliver(*messages)
    expected = [str(message.message_id) for message in messages]
    for span in (traced.named("claim")[0], traced.named("ack")[0]):
        ids = [link.attributes[0].value.string_value for link in span.links]
        assert ids == expected


def test_a_webhook_is_an_http_client_and_tells_the_status_that_it_met_with() -> None:
    traced = Traced(url=f"https://user:{SECRET}@hooks.example/{SECRET}?token={SECRET}")
    traced.claim(created(1))
    error = "answered 503 Service Unavailable"
    traced.finalize(created(1), outcome=RetryableFailure(error), transition=Retry(1, error))
    [span] = traced.named("publish")
    said = attributes(span)
    assert (
        said.items()
        >= {
            "http.request.method": "POST",
            "http.response.status_code": 503,
            "url.scheme": "https",
            "server.address": "hooks.example",
            "server.port": 443,
            "error.type": "http_503",
            "outbox.outcome": "retryable",
        }.items()
    )
    assert "messaging.system" not in said
    assert span.status.message == error


@pytest.mark.parametrize(
    ("url", "system", "server"),
    [
        ("kafka://a:9092,b:9093/t", "kafka", {}),
        ("amqp://u:p@rabbit/vhost", "rabbitmq", {"server.address": "rabbit"}),
        ("amqps://rabbit:5671", "rabbitmq", {"server.address": "rabbit", "server.port": 5671}),
        ("nats://[::1]:4222", "nats", {"server.address": "::1", "server.port": 4222}),
        ("rediss://cache:6380/0", "redis", {"server.address": "cache", "server.port": 6380}),
        ("sqs://eu-west-1/queue", "aws_sqs", {}),
        ("sns://eu-west-1/topic", "aws.sns", {}),
        ("pubsub://project/topic", "gcp_pubsub", {}),
        ("stdout://", "stdout", {}),
        ("fax://desk:99", "fax", {}),
    ],
)
def test_the_scheme_of_the_url_is_the_messaging_system(
    url: str, system: str, server: dict[str, object]
) -> None:
    named = {"messaging.destination.name": "orders", "messaging.system": system}
    assert of_destination("orders", url) == named | server


@pytest.mark.parametrize(
    "url",
    [
        "https://{headers[host]}/x",
        "https://{aggregate_id}.example/",
        "https://[bad",
        "http://h:port/",
    ],
)
def test_a_url_without_one_server_names_none(url: str) -> None:
    assert "server.address" not in of_destination("orders", url)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (RetryableFailure("no answer within 5 s", timed_out=True), "timeout"),
        (RetryableFailure("broker:9092: no answer in time"), "timeout"),
        (RetryableFailure("answered 503 Service Unavailable"), "http_503"),
        (PermanentFailure("answered 413 Content Too Large"), "http_413"),
        (
            Unavailable("broker:9092: Connection refused", works_for_others=False),
            "connection_refused",
        ),
        (Unavailable("broker:9092: no route", works_for_others=False), "unavailable"),
        (RetryableFailure("unclassified: 'x'"), "unclassified"),
        (RetryableFailure("cancelled: the lease could not be renewed in time"), "cancelled"),
        (Interrupted(), "cancelled"),
        (PermanentFailure("the message is too large: 1234567 bytes"), "permanent"),
    ],
)
def test_the_kind_of_an_error_is_one_of_few(outcome: Outcome, kind: str) -> None:
    assert error_of(outcome) == kind


def test_only_an_answer_has_a_status() -> None:
    assert status_of(PermanentFailure("answered 400 Bad Request")) == 400
    assert status_of(PermanentFailure("has 400 bytes too many")) is None
    assert status_of(Interrupted()) is None


def test_neither_payload_nor_headers_nor_credentials_are_told() -> None:
    traced = Traced(url=f"kafka://user:{SECRET}@broker:9092/t")
    message = created(1, body=SECRET.encode(), headers_json=headers(1, authorization=SECRET))
    traced.claim(message)
    traced.finalize(message, outcome=PermanentFailure("no"), transition=Bury("no"))
    assert all(SECRET not in str(span) for span in traced.spans)


def test_the_conversation_is_the_correlation_id_that_the_producer_gave() -> None:
    traced = Traced()
    traced.deliver(untraced(1, **{"traceparent": traceparent(1), "Correlation-Id": "c-1"}))
    said = attributes(traced.named("publish")[0])
    assert said["messaging.message.conversation_id"] == "c-1"


def test_a_span_begins_and_ends_when_its_publish_did() -> None:
    traced = Traced()
    traced.deliver(created(1))
    now = time.time_ns()
    [publish], [claim] = traced.named("publish"), traced.named("claim")
    lasted = publish.end_time_unix_nano - publish.start_time_unix_nano
    assert lasted == pytest.approx(100_000_000, abs=1000)
    assert 0 <= now - publish.end_time_unix_nano < 5_000_000_000
    assert claim.end_time_unix_nano - claim.start_time_unix_nano == 10_000_000


def test_an_error_of_somebody_else_is_one_line_of_limited_length() -> None:
    traced = Traced()
    traced.claim(created(1))
    error = "bad\nthing \ud800" + "x" * 5000
    traced.finalize(created(1), outcome=PermanentFailure(error), transition=Bury(error))
    words = traced.named("publish")[0].status.message
    assert "\n" not in words
    assert len(words) < 400


def test_the_tracestate_of_the_producer_goes_on_and_a_malformed_one_does_not() -> None:
    traced = Traced()
    good = headers(1, tracestate="rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    traced.deliver(created(1, headers_json=good))
    assert {span.trace_state for span in traced.spans} == {
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    }
    for number, bad in enumerate(["Upper=1", "a=1,,b", "a=" + "x" * 600, "x" * 600], start=2):
        other = Traced()
        other.deliver(created(number, headers_json=headers(number, tracestate=bad)))
        assert {span.trace_state for span in other.spans} == {""}


def test_all_spans_are_of_a_client_and_sampled() -> None:
    traced = Traced()
    traced.deliver(created(1), created(2), untraced(7))
    assert {span.kind for span in traced.spans} == {3}
    assert all(span.flags & 1 for span in traced.spans)
    assert len({span.span_id for span in traced.spans}) == 4
