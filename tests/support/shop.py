"""A shop that traces its requests, as its owner would write it: one request, then it ends."""

from __future__ import annotations

import os
import uuid

import psycopg
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from pgoutbox import Message, enqueue


def main() -> None:
    """Take an order; print the id of its trace."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    with trace.get_tracer("shop").start_as_current_span(
        "POST /orders", kind=trace.SpanKind.SERVER
    ) as span:
        take_order(os.environ["SHOP_DSN"])
    provider.shutdown()
    print(format(span.get_span_context().trace_id, "032x"))  # noqa: T201 - who runs it reads it


def take_order(dsn: str) -> None:
    """The order and its message, in one transaction."""
    order_id = str(uuid.uuid4())
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY)")
        conn.execute("INSERT INTO orders VALUES (%s)", [order_id])
        message = Message(
            destination="orders",
            aggregate_type="order",
            aggregate_id=order_id,
            event_type="order_placed",
            payload={"total": 1},
        )
        enqueue(conn, message)


if __name__ == "__main__":
    main()
