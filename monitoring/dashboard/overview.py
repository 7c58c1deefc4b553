"""Whether all is well."""

from __future__ import annotations

from monitoring.alerts.delivery import FASTEST
from monitoring.dashboard.chosen import TABLE, TABLE_FOR, WORKERS_TO, held, rate
from monitoring.dashboard.grafana import Panel, Query, Row, graph, stat
from monitoring.recording import LATE_SHARE
from monitoring.rules import DEFAULT_LIMITS

BY = "namespace, database, destination"
LATE = DEFAULT_LIMITS.delivery_seconds
BUDGET = round(1 - DEFAULT_LIMITS.delivery_objective, 6)
TOO_LATE = DEFAULT_LIMITS.oldest_pending_seconds


def row() -> Row:
    """One number each, and what fires."""
    return Row("Overview", (*_of_the_table(), *_of_the_workers(), *_pictures()))


def _of_the_table() -> tuple[Panel, ...]:
    pending = held("outbox_pending_messages", f"{BY}, state", TABLE_FOR)
    return (
        stat(
            "Oldest pending",
            f"max({held('outbox_oldest_pending_age_seconds', BY, TABLE_FOR)})",
            what="Since when the oldest undelivered message is owed.",
            unit="s",
            limits=(LATE, TOO_LATE),
        ),
        stat("Undelivered", f"sum({pending})", what="10000 of one state may be more."),
        stat(
            "Dead",
            f"sum({held('outbox_dead_letter_messages', BY, TABLE_FOR)})",
            what="Each waits for a person.",
            limits=(1,),
        ),
    )


def _of_the_workers() -> tuple[Panel, ...]:
    return (
        stat(
            "Delivered",
            f"sum({rate('outbox_messages_published_total', 'destination', WORKERS_TO)})",
            unit="ops",
        ),
        stat(
            "Late in the last hour",
            f"max({LATE_SHARE}1h{{{WORKERS_TO}}})",
            what=f"The share of deliveries that took more than {LATE:g} seconds, of the worst.",
            unit="percentunit",
            limits=(BUDGET, round(FASTEST * BUDGET, 6)),
        ),
        stat(
            "Workers",
            f"sum({held('outbox_workers', 'namespace, database', TABLE + _RUNNING)})",
            what="Those with a heartbeat that are not draining.",
        ),
        stat(
            "Breakers open",
            f"sum(max by (namespace, destination) (outbox_breaker_open{{{WORKERS_TO}}}))",
            what="Destinations that fail for all messages.",
            limits=(1,),
        ),
        stat(
            "Exporter",
            f"min(outbox_collector_up{{{TABLE}}})",
            what="1 while it can look at the database. 0: most numbers here are missing.",
        ),
    )


_RUNNING = ', state="running"'


def _pictures() -> tuple[Panel, ...]:
    return (
        graph(
            "Delivered",
            Query(
                rate("outbox_messages_published_total", "namespace, destination", WORKERS_TO),
                "{{namespace}} {{destination}}",
            ),
            unit="ops",
            width=12,
        ),
        Panel(
            "Firing alerts",
            (
                Query(
                    "sum by (alertname, severity, namespace, database, destination) ("
                    'ALERTS{alertname=~"Outbox.*", alertstate="firing", namespace=~"$namespace"})'
                ),
            ),
            kind="table",
            width=12,
        ),
    )
