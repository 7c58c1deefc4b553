"""What several alerts and panels ask for, computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitoring.limits import DAY, HOUR, MINUTE
from monitoring.rise import rise
from monitoring.rule import Record

if TYPE_CHECKING:
    from monitoring.limits import Limits, Pace

DELIVERIES = "namespace_destination:outbox_deliveries:rate5m"
LATE_DELIVERIES = "namespace_destination:outbox_late_deliveries:rate5m"
LATE_SHARE = "namespace_destination:outbox_late_deliveries:ratio_rate"
"""Followed by its window."""
DEAD = "namespace_destination:outbox_messages_dead_lettered:rise15m"
ATTEMPTS = "namespace_destination:outbox_publish_attempts:rise15m"
BACKLOG = "namespace_database_destination:outbox_backlog_messages:sum"

LONG_WINDOWS = {"30m": 30 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "3d": 3 * DAY}


def records(limits: Limits, pace: Pace) -> tuple[Record, ...]:
    """In the order in which they build on each other."""
    return (*_rates(limits, pace), *_shares(pace), *_rises(pace), _backlog())


def _rates(limits: Limits, pace: Pace) -> tuple[Record, ...]:
    window = pace(5 * MINUTE)
    bound = str(float(limits.delivery_seconds))
    return (
        Record(
            name=DELIVERIES,
            expr=f"""
                sum by (namespace, destination) (
                  rate(outbox_delivery_latency_seconds_count[{window}])
                )
            """,
        ),
        Record(
            name=LATE_DELIVERIES,
            expr=f"""
                {DELIVERIES}
                - sum by (namespace, destination) (
                  rate(outbox_delivery_latency_seconds_bucket{{le="{bound}"}}[{window}])
                )
            """,
        ),
    )


def _shares(pace: Pace) -> tuple[Record, ...]:
    """Of the sums, since those outlive the pods, and days of buckets would be dear to read."""
    return (
        Record(name=f"{LATE_SHARE}5m", expr=f"{LATE_DELIVERIES} / {DELIVERIES}"),
        *(
            Record(
                name=f"{LATE_SHARE}{name}",
                expr=f"""
                    sum_over_time({LATE_DELIVERIES}[{pace(seconds)}])
                    / sum_over_time({DELIVERIES}[{pace(seconds)}])
                """,
            )
            for name, seconds in LONG_WINDOWS.items()
        ),
    )


def _rises(pace: Pace) -> tuple[Record, ...]:
    by = "namespace, destination"
    return (
        Record(name=DEAD, expr=rise("outbox_messages_dead_lettered_total", by=by, pace=pace)),
        Record(name=ATTEMPTS, expr=rise("outbox_publish_attempts_total", by=by, pace=pace)),
    )


def _backlog() -> Record:
    # What is scheduled for later is no backlog.
    return Record(
        name=BACKLOG,
        expr="""
            sum by (namespace, database, destination) (
              max by (namespace, database, destination, state) (
                outbox_pending_messages{state!="scheduled"}
              )
            )
        """,
    )
