"""The dashboard for Grafana, described row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitoring.dashboard import database, destinations, leases, overview, scaling
from monitoring.dashboard.grafana import Variable, board

if TYPE_CHECKING:
    from monitoring.dashboard.grafana import Row

VARIABLES = (
    Variable("namespace", '{__name__=~"outbox_collector_up|outbox_worker_slots"}'),
    Variable("database", 'outbox_collector_up{namespace=~"$namespace"}'),
    Variable(
        "destination",
        '{__name__=~"outbox_messages_claimed_total|outbox_pending_messages",'
        ' namespace=~"$namespace"}',
    ),
)


def rows() -> tuple[Row, ...]:
    """From whether all is well to why not."""
    return (
        overview.row(),
        destinations.row(),
        leases.row(),
        database.row(),
        scaling.row(),
    )


def dashboard() -> dict[str, Any]:
    """As Grafana imports it."""
    return board("Outbox", uid="pgoutbox", variables=VARIABLES, rows=rows())
