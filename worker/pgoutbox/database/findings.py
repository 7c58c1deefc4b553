"""What a condition means, and what to do about it. Pure: facts in, findings out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.database.doctor import Condition
    from pgoutbox.database.statistics import DestinationStatistics, Statistics

OLD_SECONDS = 300.0
"""Age from which a message that could be claimed is overdue: many sweeps and backoffs."""
EXPIRED_SECONDS = 60.0
SEEN_WITHIN = 60.0
"""Seconds after its last heartbeat for which a worker counts as alive."""
SILENT_SECONDS = 15.0
DEAD_LATE = 10
"""Rounds of autovacuum by which it may be late, with the settings that the migrations gave."""
ROW_BYTES = 4096
"""What a row may take, in table and indexes, before it must be empty space: rows with a kilobyte
of payload take half of that."""
BLOAT_BYTES = 256 * 2**20
"""Empty space below this is not worth a word."""
FROZEN = 0.9
"""Of autovacuum_freeze_max_age: vacuum should have frozen the rows long before."""
CONNECTIONS = 0.9

Severity = Literal["problem", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was seen, and what to do. Problems stop deliveries, warnings will, notes do not."""

    severity: Severity
    seen: str
    do: str


def of_table(found: Condition, *, schema: str) -> Iterator[Finding]:
    """What is wrong with the table of messages."""
    table = f"{schema}.outbox"
    for name in found.invalid_indexes:
        yield Finding(
            severity="problem",
            seen=f"the index {name} is invalid, so claims read the whole table",
            do=f"REINDEX INDEX CONCURRENTLY {name};",
        )
    for name in found.disabled_triggers:
        yield Finding(
            severity="problem",
            seen=f"the trigger {name} of {table} is disabled, so messages are stored unchecked",
            do=f"ALTER TABLE {table} ENABLE TRIGGER {name};",
        )
    if found.waiting_for_locks:
        yield Finding(
            severity="warning",
            seen=f"{_some(found.waiting_for_locks, 'session')} waiting for a lock on {table}",
            do="See who holds it: docs/sql/locks.sql. A migration of the table must be brief.",
        )
    if found.frozen_age > FROZEN * found.freeze_max_age:
        yield Finding(
            severity="warning",
            seen=f"{table} was last frozen {found.frozen_age} transactions ago",
            do=f"VACUUM (FREEZE) {table}; and find out what keeps autovacuum from it.",
        )
    rows = max(found.live + found.dead, 1)
    size = found.table_bytes + found.index_bytes
    if size > BLOAT_BYTES + ROW_BYTES * rows:
        yield Finding(
            severity="note",
            seen=f"{table} takes {size // 2**20} MiB for about {rows} rows: most of it is empty",
            do=f"REINDEX TABLE CONCURRENTLY {table}; gives back the space of the indexes, pg_repack"
            " that of the table. It is reused otherwise.",
        )


def of_vacuum(found: Condition, *, schema: str) -> Iterator[Finding]:
    """What keeps vacuum from its work."""
    table = f"{schema}.outbox"
    if not (found.autovacuum and found.track_counts):
        yield Finding(
            severity="problem",
            seen="autovacuum is off on this server, so every delivery leaves rows for ever",
            do="ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on;"
            " SELECT pg_reload_conf();",
        )
    if not found.table_autovacuum:
        yield Finding(
            severity="problem",
            seen=f"autovacuum is off for {table}, so every delivery leaves rows for ever",
            do=f"ALTER TABLE {table} RESET (autovacuum_enabled);",
        )
    elif found.plain_autovacuum:
        yield Finding(
            severity="warning",
            seen=f"{table} has lost the autovacuum settings that its migrations gave to it",
            do=f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01,"
            " autovacuum_vacuum_threshold = 1000);",
        )
    if found.dead > DEAD_LATE * (1000 + 0.01 * found.live):
        ran = f"after {found.vacuums} vacuums" if found.vacuums else "and it was never vacuumed"
        yield Finding(
            severity="warning",
            seen=f"{table} has about {found.dead} dead rows beside {found.live} live ones, {ran}",
            do="See who holds the xmin horizon, which would be told here as well; otherwise give"
            " autovacuum more room: autovacuum_max_workers, autovacuum_vacuum_cost_limit.",
        )


def of_server(found: Condition, *, pool_max: int) -> Iterator[Finding]:
    """What is wrong with the server as a whole."""
    if not found.fsync:
        yield Finding(
            severity="problem",
            seen="fsync is off: a crash of the machine may lose or destroy what was committed",
            do="ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
        )
    if found.connected > CONNECTIONS * found.connections:
        yield Finding(
            severity="warning",
            seen=f"{found.connected} of {found.connections} connections are taken, and one worker"
            f" takes up to {pool_max + 1}",
            do="Raise max_connections, lower PGOUTBOX_DATABASE__POOL_MAX, or use a pooler.",
        )


def of_messages(found: Statistics) -> Iterator[Finding]:
    """What waits for longer than it should, and for whom."""
    for worker in found.workers:
        if worker.seen_age > SILENT_SECONDS:
            yield Finding(
                severity="note",
                seen=f"worker {worker.owner} was last seen {worker.seen_age:.0f} seconds ago",
                do="It was killed, hangs, or does not reach the database; its leases run out.",
            )
    unserved = found.unserved(within=SEEN_WITHIN)
    for name, counts in found.destinations.items():
        yield from _of_destination(name, counts, served=name not in unserved)


def _of_destination(name: str, counts: DestinationStatistics, *, served: bool) -> Iterator[Finding]:
    if not served:
        yield Finding(
            severity="problem",
            seen=f"no worker serves {name}: {_some(counts.undelivered, 'message')} undelivered",
            do=f"Start one with PGOUTBOX_DESTINATIONS__{name.upper()}__URL, or find the producer"
            " that has the name wrong.",
        )
    elif counts.oldest_ready_age > OLD_SECONDS:
        yield Finding(
            severity="warning",
            seen=f"a message for {name} could be claimed since"
            f" {counts.oldest_ready_age:.0f} seconds",
            do="Workers cannot keep up, or leave the destination alone: see outbox_breaker_open,"
            " their logs, and `pgoutbox status`.",
        )
    if counts.expired:
        yield Finding(
            severity="warning",
            seen=f"{_some(counts.expired, 'message')} for {name} under a lease that ran out",
            do="A worker died with them. A live one reclaims them within seconds; if they stay, no"
            f" worker serves {name}.",
        )
    if counts.blocked_lanes:
        yield Finding(
            severity="warning",
            seen=f"{_some(counts.blocked_lanes, 'lane')} of {name} blocked by a dead message, the"
            f" oldest for {counts.oldest_blocked_age:.0f} seconds",
            do=f"pgoutbox dead list --destination {name}; then requeue, skip or discard.",
        )
    elif counts.dead:
        yield Finding(
            severity="note",
            seen=f"{_some(counts.dead, 'dead message')} for {name}",
            do=f"pgoutbox dead list --destination {name}; then requeue or discard.",
        )


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
