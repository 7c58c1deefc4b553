"""From the request of a shop to whoever consumes its message: one trace, as Jaeger shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.observing import count, eventually
from tests.support.tracing import Consumer, FarEnd, Story, TracedWorker, Webhook, order

if TYPE_CHECKING:
    from tests.support.brokers.jaeger import Jaeger
    from tests.support.observing import Conn

pytestmark = pytest.mark.broker

PAGE = (Path(__file__).parents[2] / "docs" / "tracing-example.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
DELIVERED, TRIED_AGAIN, TAKEN_OVER, BATCHED = FENCED.findall(PAGE)
"""The trees that users are shown."""


def until_done(conn: Conn, number: int = 1) -> None:
    """Consumers are late, so that their spans stand behind those of the worker."""
    eventually(lambda: count(conn, "status = 'done'") == number, "delivery")


@pytest.mark.parametrize("broker", ["kafka", "nats"])
def test_one_trace_spans_request_enqueue_publish_and_consumer(
    broker: str, request: pytest.FixtureRequest, conn: Conn, jaeger: Jaeger, consumer: Consumer
) -> None:
    end: FarEnd = request.getfixturevalue(f"{broker}_end")
    dsn = request.getfixturevalue("dsn")
    with TracedWorker(dsn, jaeger.otlp, **end.settings).started() as worker:
        story = Story(jaeger, order(dsn, jaeger))
        until_done(conn)
        consumer.process(*end.received())
        story.until(DELIVERED)
        assert story.named("publish orders").tags["messaging.system"] == broker
        assert worker.stop().code == 0


def test_a_webhook_is_given_the_context_of_the_request(
    dsn: str, conn: Conn, jaeger: Jaeger, consumer: Consumer
) -> None:
    with Webhook() as webhook, TracedWorker(dsn, jaeger.otlp, URL=webhook.url).started():
        story = Story(jaeger, order(dsn, jaeger))
        until_done(conn)
        consumer.process(*webhook.headers)
        story.until(DELIVERED)


def test_each_attempt_is_a_span_and_the_one_that_failed_says_why(
    dsn: str, conn: Conn, jaeger: Jaeger, consumer: Consumer
) -> None:
    with (
        Webhook(failures=1) as webhook,
        TracedWorker(dsn, jaeger.otlp, URL=webhook.url, RETRY__BASE="0.1").started(),
    ):
        story = Story(jaeger, order(dsn, jaeger))
        until_done(conn)
        consumer.process(*webhook.headers)
        story.until(TRIED_AGAIN)


def test_a_message_that_a_second_worker_takes_over_stays_in_its_trace(
    dsn: str, conn: Conn, jaeger: Jaeger, consumer: Consumer
) -> None:
    with Webhook() as webhook:
        webhook.hold()
        with TracedWorker(dsn, jaeger.otlp, URL=webhook.url).started():
            story = Story(jaeger, order(dsn, jaeger))
            webhook.until_arrived(1)
            story.until_there("claim orders")
        webhook.let_go()
        with TracedWorker(dsn, jaeger.otlp, URL=webhook.url).started():
            until_done(conn)
            consumer.process(*webhook.headers)
            story.until(TAKEN_OVER)


def test_a_claim_for_several_requests_is_linked_with_the_trace_of_each(
    dsn: str, conn: Conn, jaeger: Jaeger
) -> None:
    stories = [Story(jaeger, order(dsn, jaeger)) for _ in range(2)]
    with Webhook() as webhook, TracedWorker(dsn, jaeger.otlp, URL=webhook.url).started():
        until_done(conn, 2)
        for story in stories:
            # Their results may come together or one after the other.
            story.until(BATCHED, without="ack orders")
            assert story.named("claim orders").tags["messaging.batch.message_count"] == 2
