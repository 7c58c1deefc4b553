"""What a worker exports: only what it did itself."""

from __future__ import annotations

from pgoutbox.telemetry.catalogue.metric import Metric
from pgoutbox.telemetry.tally import (
    DEATH_REASONS,
    DELIVERY_SECONDS,
    DRAIN_SECONDS,
    OUTCOMES,
    PUBLISH_SECONDS,
    RELEASE_REASONS,
    STATEMENT_SECONDS,
)
from pgoutbox.telemetry.tracing.counts import REASONS

DESTINATION = ("destination",)

MESSAGES_CLAIMED = Metric(
    "outbox_messages_claimed_total",
    "counter",
    "Claims of messages by this worker",
    DESTINATION,
)
PUBLISH_ATTEMPTS = Metric(
    "outbox_publish_attempts_total",
    "counter",
    "Publishes that ended, by what was observed",
    ("destination", "outcome"),
    values={"outcome": tuple(OUTCOMES.values())},
)
MESSAGES_PUBLISHED = Metric(
    "outbox_messages_published_total",
    "counter",
    "Messages that were published and recorded as done",
    DESTINATION,
)
MESSAGES_DEAD_LETTERED = Metric(
    "outbox_messages_dead_lettered_total",
    "counter",
    "Messages that this worker buried",
    ("destination", "reason"),
    values={"reason": DEATH_REASONS},
)
PUBLISHER_FAILURES = Metric(
    "outbox_publisher_failures_total",
    "counter",
    "Unclassified exceptions of a publisher: bugs",
    DESTINATION,
)
FINALIZE_REFUSED = Metric(
    "outbox_finalize_refused_total",
    "counter",
    "Results that the database would not record: these messages are published again",
    DESTINATION,
    more="E.g. since a trigger of yours raised",
)
LEASES_LOST = Metric(
    "outbox_leases_lost_total",
    "counter",
    "Leases that somebody else took over before this worker was done",
)
LEASES_RECLAIMED = Metric(
    "outbox_leases_reclaimed_total",
    "counter",
    "Claims of a message whose lease had expired",
)
LEASES_RELEASED = Metric(
    "outbox_leases_released_total",
    "counter",
    "Leases handed back, with their attempt refunded",
    ("reason",),
    values={"reason": RELEASE_REASONS},
)
POOL_ERRORS = Metric(
    "outbox_db_pool_errors_total",
    "counter",
    "Requests for a connection to the database that got none in time",
)
PUBLISH_DURATION = Metric(
    "outbox_publish_duration_seconds",
    "histogram",
    "From call to end of a publish",
    DESTINATION,
    buckets=PUBLISH_SECONDS,
)
DELIVERY_LATENCY = Metric(
    "outbox_delivery_latency_seconds",
    "histogram",
    "From when a message was owed to the end of the publish that delivered it",
    DESTINATION,
    buckets=DELIVERY_SECONDS,
    more="Owed since it was created, or since it was due where it was scheduled",
)
CLAIM_DURATION = Metric(
    "outbox_claim_duration_seconds",
    "histogram",
    "A claim that brought something",
    buckets=STATEMENT_SECONDS,
)
FINALIZE_DURATION = Metric(
    "outbox_finalize_duration_seconds",
    "histogram",
    "The write of one batch of transitions, retries included",
    buckets=STATEMENT_SECONDS,
)
DRAIN_DURATION = Metric(
    "outbox_drain_duration_seconds",
    "histogram",
    "From the signal to the end of the drain",
    buckets=DRAIN_SECONDS,
)
WORKER_SLOTS = Metric(
    "outbox_worker_slots",
    "gauge",
    "Messages that the worker may hold at the same time",
    more="`PGOUTBOX_MAX_IN_FLIGHT`. How many of them are published at once is up to"
    " `PGOUTBOX_DESTINATIONS__<NAME>__CONCURRENCY`",
)
WORKER_BUSY_SLOTS = Metric(
    "outbox_worker_busy_slots",
    "gauge",
    "Messages that it holds now: waiting to be published, being published, or to be recorded",
)
WORKER_DRAINING = Metric("outbox_worker_draining", "gauge", "1 from the signal to the end")
BREAKER_OPEN = Metric(
    "outbox_breaker_open",
    "gauge",
    "1 while the destination fails for all messages and is only tried now and then",
    DESTINATION,
    more="Nothing is claimed for it but one now and then, and no attempts are spent",
)
POOL_CONNECTIONS = Metric(
    "outbox_db_pool_connections",
    "gauge",
    "Connections to the database",
    ("state",),
    values={"state": ("idle", "used")},
)
POOL_REQUESTS_WAITING = Metric(
    "outbox_db_pool_requests_waiting",
    "gauge",
    "Tasks that wait for a connection to the database",
)
SPANS_EXPORTED = Metric(
    "outbox_spans_exported_total",
    "counter",
    "Spans that the collector took",
    more="Of traces; see docs/tracing.md",
)
SPANS_DROPPED = Metric(
    "outbox_spans_dropped_total",
    "counter",
    "Spans that were lost",
    ("reason",),
    values={"reason": REASONS},
    more="`queue_full`: the collector is away or slow, and more than `OTEL_BSP_MAX_QUEUE_SIZE`"
    " wait. `rejected`: it does not want them. `exit`: it did not take them in the seconds that a"
    " drain has for that",
)
BUILD = Metric(
    "outbox_build_info",
    "info",
    "The version that runs",
    ("version", "python"),
    components=("worker", "exporter", "operator"),
)

WORKER = (
    MESSAGES_CLAIMED,
    PUBLISH_ATTEMPTS,
    MESSAGES_PUBLISHED,
    MESSAGES_DEAD_LETTERED,
    PUBLISHER_FAILURES,
    FINALIZE_REFUSED,
    LEASES_LOST,
    LEASES_RECLAIMED,
    LEASES_RELEASED,
    POOL_ERRORS,
    PUBLISH_DURATION,
    DELIVERY_LATENCY,
    CLAIM_DURATION,
    FINALIZE_DURATION,
    DRAIN_DURATION,
    WORKER_SLOTS,
    WORKER_BUSY_SLOTS,
    WORKER_DRAINING,
    BREAKER_OPEN,
    POOL_CONNECTIONS,
    POOL_REQUESTS_WAITING,
    SPANS_EXPORTED,
    SPANS_DROPPED,
    BUILD,
)
