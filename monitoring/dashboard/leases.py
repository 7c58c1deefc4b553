"""What workers hold, and what becomes of it when they go."""

from __future__ import annotations

from monitoring.dashboard.chosen import NAMED, TABLE, TABLE_FOR, WORKERS, held, quantile, rate
from monitoring.dashboard.grafana import Panel, Query, Row, graph


def row() -> Row:
    """Workers, their leases, their ends."""
    return Row("Drain and leases", (*_workers(), *_leases()))


def _workers() -> tuple[Panel, ...]:
    return (
        graph(
            "Workers",
            Query(held("outbox_workers", "namespace, database, state", TABLE), "{{state}}"),
            what="By their heartbeats. Silent: killed, hung, or without its database.",
        ),
        graph(
            "Slots",
            Query(f"sum by (namespace) (outbox_worker_busy_slots{{{WORKERS}}})", "busy"),
            Query(f"sum by (namespace) (outbox_worker_slots{{{WORKERS}}})", "all"),
            what="Messages that workers hold, of how many they may.",
        ),
        graph(
            "Draining workers",
            Query(f"sum by (namespace) (outbox_worker_draining{{{WORKERS}}})", "{{namespace}}"),
        ),
        graph(
            "Duration of drains",
            Query(quantile(0.95, "outbox_drain_duration_seconds", "namespace", WORKERS), "95%"),
            what="Of those that were scraped before the worker was gone.",
            unit="s",
        ),
    )


def _leases() -> tuple[Panel, ...]:
    return (
        graph(
            "Leases handed back",
            Query(rate("outbox_leases_released_total", "reason", WORKERS), "{{reason}}"),
            unit="ops",
        ),
        graph(
            "Leases lost and taken over",
            Query(rate("outbox_leases_lost_total", "namespace", WORKERS), "lost {{namespace}}"),
            Query(
                rate("outbox_leases_reclaimed_total", "namespace", WORKERS),
                "taken over {{namespace}}",
            ),
            what="Taken over: the holder was gone, or too slow. Lost: it was too slow.",
            unit="ops",
        ),
        graph(
            "Expired leases",
            Query(
                held("outbox_expired_leases", "namespace, database, destination", TABLE_FOR), NAMED
            ),
            what="Nobody has taken these over yet.",
        ),
    )
