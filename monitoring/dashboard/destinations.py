"""What comes in for each destination, and how it goes out."""

from __future__ import annotations

from monitoring.dashboard.chosen import (
    NAMED,
    TABLE_FOR,
    WORKERS,
    WORKERS_TO,
    held,
    quantile,
    rate,
)
from monitoring.dashboard.grafana import Panel, Query, Row, graph
from monitoring.recording import LATE_SHARE
from monitoring.rules import DEFAULT_LIMITS

BY_TABLE = "namespace, database, destination"
BY = "namespace, destination"
SHARES = (0.5, 0.95, 0.99)


def row() -> Row:
    """Waiting, going out, failing."""
    return Row("Destinations", (*_waiting(), *_going_out(), *_failing(), *_watched()))


def _waiting() -> tuple[Panel, ...]:
    return (
        graph(
            "Age of the oldest message",
            Query(held("outbox_oldest_pending_age_seconds", BY_TABLE, TABLE_FOR), f"owed {NAMED}"),
            Query(
                held("outbox_oldest_ready_age_seconds", BY_TABLE, TABLE_FOR), f"claimable {NAMED}"
            ),
            what="Owed counts backoff and outages; claimable is what more workers would help with.",
            unit="s",
        ),
        graph(
            "Undelivered",
            Query(
                held("outbox_pending_messages", f"{BY_TABLE}, state", TABLE_FOR),
                f"{{{{state}}}} {NAMED}",
            ),
            what="10000 may be more.",
        ),
        graph(
            "Blocked lanes",
            Query(held("outbox_blocked_lanes", BY_TABLE, TABLE_FOR), f"lanes {NAMED}"),
            what="Each by a dead message, until a person requeues or skips it.",
        ),
    )


def _going_out() -> tuple[Panel, ...]:
    return (
        graph(
            "Publishes by outcome",
            Query(
                rate("outbox_publish_attempts_total", "destination, outcome", WORKERS_TO),
                "{{destination}} {{outcome}}",
            ),
            unit="ops",
        ),
        _quantiles("Delivery latency", "outbox_delivery_latency_seconds"),
        _quantiles("Publish duration", "outbox_publish_duration_seconds"),
        graph(
            "Late deliveries",
            *(
                Query(
                    f"{LATE_SHARE}{window}{{{WORKERS_TO}}}",
                    f"{window} {{{{namespace}}}} {{{{destination}}}}",
                )
                for window in ("5m", "1h", "6h")
            ),
            what=f"The share that took more than {DEFAULT_LIMITS.delivery_seconds:g} seconds.",
            unit="percentunit",
        ),
    )


def _quantiles(title: str, histogram: str) -> Panel:
    return graph(
        title,
        *(
            Query(
                quantile(share, histogram, "destination", WORKERS_TO),
                f"{share:.0%} {{{{destination}}}}",
            )
            for share in SHARES
        ),
        unit="s",
    )


def _failing() -> tuple[Panel, ...]:
    return (
        graph(
            "Dead messages",
            Query(held("outbox_dead_letter_messages", BY_TABLE, TABLE_FOR), NAMED),
        ),
        graph(
            "Buried, by reason",
            Query(
                rate("outbox_messages_dead_lettered_total", "destination, reason", WORKERS_TO),
                "{{destination}} {{reason}}",
            ),
            unit="ops",
        ),
        graph(
            "Workers whose breaker is open",
            Query(
                f"sum by ({BY}) (outbox_breaker_open{{{WORKERS_TO}}})",
                "{{namespace}} {{destination}}",
            ),
        ),
        graph(
            "Longest blocked lane",
            Query(held("outbox_oldest_blocked_age_seconds", BY_TABLE, TABLE_FOR), NAMED),
            unit="s",
        ),
    )


def _watched() -> tuple[Panel, ...]:
    return (
        graph(
            "Bugs and refusals",
            Query(rate("outbox_publisher_failures_total", BY, WORKERS_TO), "bug {{destination}}"),
            Query(rate("outbox_finalize_refused_total", BY, WORKERS_TO), "refused {{destination}}"),
            what="Exceptions that a publisher did not classify; results that were not recorded.",
            unit="ops",
        ),
        graph(
            "Spans",
            Query(rate("outbox_spans_exported_total", "namespace", WORKERS), "taken {{namespace}}"),
            Query(
                rate("outbox_spans_dropped_total", "namespace, reason", WORKERS),
                "lost, {{reason}} {{namespace}}",
            ),
            what="Of traces, whatever the destination. Lost ones cost no delivery.",
            unit="ops",
        ),
    )
