"""Whether the database keeps up."""

from __future__ import annotations

from monitoring.dashboard.chosen import TABLE, WORKERS, held, quantile, rate
from monitoring.dashboard.grafana import Panel, Query, Row, graph

BY = "namespace, database"
NAMED = "{{namespace}} {{database}}"


def row() -> Row:
    """Vacuum, statements, connections, the exporter."""
    return Row("Database", (*_vacuum(), *_statements(), *_exporter()))


def _vacuum() -> tuple[Panel, ...]:
    return (
        graph(
            "Age of the xmin horizon",
            Query(held("outbox_xmin_age_seconds", BY, TABLE), NAMED),
            what="For how long vacuum has been held back. Claims slow down.",
            unit="s",
        ),
        graph(
            "Transactions behind the xmin horizon",
            Query(held("outbox_xmin_age_transactions", BY, TABLE), NAMED),
        ),
        graph(
            "Row versions",
            Query(held("outbox_table_dead_tuples", BY, TABLE), f"dead {NAMED}"),
            Query(held("outbox_table_live_tuples", BY, TABLE), f"live {NAMED}"),
            what="Of the table of messages, as PostgreSQL estimates.",
        ),
        graph(
            "Since the last vacuum",
            Query(
                f"time() - {held('outbox_table_last_vacuum_timestamp_seconds', BY, TABLE)}", NAMED
            ),
            what="By autovacuum or by hand.",
            unit="s",
        ),
    )


def _statements() -> tuple[Panel, ...]:
    return (
        graph(
            "Statements",
            Query(quantile(0.95, "outbox_claim_duration_seconds", "namespace", WORKERS), "claim"),
            Query(
                quantile(0.95, "outbox_finalize_duration_seconds", "namespace", WORKERS), "finalize"
            ),
            what="95% took no longer.",
            unit="s",
        ),
        graph(
            "Connections of workers",
            Query(
                f"sum by (namespace, state) (outbox_db_pool_connections{{{WORKERS}}})", "{{state}}"
            ),
            Query(
                f"sum by (namespace) (outbox_db_pool_requests_waiting{{{WORKERS}}})", "waited for"
            ),
        ),
        graph(
            "Connections not had in time",
            Query(rate("outbox_db_pool_errors_total", "namespace", WORKERS), "{{namespace}}"),
            unit="ops",
        ),
    )


def _exporter() -> tuple[Panel, ...]:
    return (
        graph(
            "Looks of the exporter",
            Query(held("outbox_collector_duration_seconds", BY, TABLE), f"took {NAMED}"),
            Query(
                "time() - " + held("outbox_collector_last_success_timestamp_seconds", BY, TABLE),
                f"last success {NAMED}",
            ),
            unit="s",
        ),
    )
