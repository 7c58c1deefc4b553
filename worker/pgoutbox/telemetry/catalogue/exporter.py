"""What the exporter shows: what a table holds, from one process per database.

Where there is an operator, that is the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.telemetry.catalogue.metric import Metric
from pgoutbox.telemetry.catalogue.worker import BUILD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.telemetry.catalogue.metric import Values

DESTINATION = ("destination",)


def _shown(
    name: str,
    what: str,
    labels: Values = (),
    *,
    values: Mapping[str, Values] | None = None,
    more: str = "",
) -> Metric:
    return Metric(
        name,
        "gauge",
        what,
        labels,
        components=("exporter", "operator"),
        values=values or {},
        more=more,
        per_database=True,
    )


COLLECTOR_UP = _shown(
    "outbox_collector_up", "1 if the last look at the database succeeded, in all of its parts"
)
COLLECTOR_DURATION = _shown(
    "outbox_collector_duration_seconds", "How long the last look at the database took"
)
COLLECTOR_LAST_SUCCESS = _shown(
    "outbox_collector_last_success_timestamp_seconds",
    "When the last look that succeeded ended, which is how old the other gauges are",
    more="Stays while the database cannot be asked; absent before the first",
)
PENDING_MESSAGES = _shown(
    "outbox_pending_messages",
    "Undelivered messages; a count of 10000 means at least",
    ("destination", "state"),
    values={"state": ("ready", "waiting", "scheduled", "leased")},
)
OLDEST_PENDING_AGE = _shown(
    "outbox_oldest_pending_age_seconds",
    "Since when the oldest undelivered message is owed, backoff and deferrals included",
    DESTINATION,
    more="0 when none is. Alert on this first",
)
OLDEST_PENDING_TIMESTAMP = _shown(
    "outbox_oldest_pending_timestamp_seconds",
    "The time since which the oldest undelivered message is owed",
    DESTINATION,
    more="Absent when none is",
)
OLDEST_READY_AGE = _shown(
    "outbox_oldest_ready_age_seconds",
    "Since when the oldest message that can be claimed is due",
    DESTINATION,
    more="0 when none is",
)
EXPIRED_LEASES = _shown(
    "outbox_expired_leases",
    "Messages whose lease ran out and that nobody has taken over",
    DESTINATION,
)
DEAD_LETTER_MESSAGES = _shown("outbox_dead_letter_messages", "Dead messages", DESTINATION)
BLOCKED_LANES = _shown(
    "outbox_blocked_lanes",
    "Lanes that a dead message blocks",
    DESTINATION,
    more="See [ordering.md](ordering.md)",
)
OLDEST_BLOCKED_AGE = _shown(
    "outbox_oldest_blocked_age_seconds",
    "Since when the longest blocked lane is blocked",
    DESTINATION,
    more="0 when none is",
)
WORKERS = _shown(
    "outbox_workers",
    "Workers by their heartbeat, silent after 15 seconds without",
    ("state",),
    values={"state": ("running", "draining", "silent")},
)
XMIN_AGE_SECONDS = _shown(
    "outbox_xmin_age_seconds",
    "For how long vacuum has been held back, at most",
    more="By [the xmin horizon](operations.md#the-xmin-horizon); absent where nobody knows",
)
XMIN_AGE_TRANSACTIONS = _shown(
    "outbox_xmin_age_transactions",
    "How many transactions back vacuum can remove nothing",
)
TABLE_LIVE_TUPLES = _shown(
    "outbox_table_live_tuples",
    "Row versions in use in the table of messages, as PostgreSQL estimates",
)
TABLE_DEAD_TUPLES = _shown(
    "outbox_table_dead_tuples",
    "Row versions in the table of messages that vacuum has yet to remove, as PostgreSQL estimates",
)
TABLE_LAST_VACUUM = _shown(
    "outbox_table_last_vacuum_timestamp_seconds",
    "When the table of messages was last vacuumed, by autovacuum or by hand",
    more="Absent when never",
)

EXPORTER = (
    COLLECTOR_UP,
    COLLECTOR_DURATION,
    COLLECTOR_LAST_SUCCESS,
    BUILD,
    PENDING_MESSAGES,
    OLDEST_PENDING_AGE,
    OLDEST_PENDING_TIMESTAMP,
    OLDEST_READY_AGE,
    EXPIRED_LEASES,
    DEAD_LETTER_MESSAGES,
    BLOCKED_LANES,
    OLDEST_BLOCKED_AGE,
    WORKERS,
    XMIN_AGE_SECONDS,
    XMIN_AGE_TRANSACTIONS,
    TABLE_LIVE_TUPLES,
    TABLE_DEAD_TUPLES,
    TABLE_LAST_VACUUM,
)
