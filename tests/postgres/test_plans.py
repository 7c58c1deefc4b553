"""Each statement of the worker costs what its batch costs, whatever else the table holds."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.dispatch.claim import CLAIM, MAX_CLAIM_BYTES
from pgoutbox.dispatch.finalize import EXPLAIN_UNWRITTEN, FINALIZE, LOCKED
from pgoutbox.dispatch.finalize_statements import ARCHIVE, DELETE
from pgoutbox.dispatch.reclaim import RECLAIM
from pgoutbox.dispatch.renew import LOOK, RENEW
from pgoutbox.dispatch.retention import ARCHIVE_KEPT, PRUNE
from pgoutbox.dispatch.sweep import REAP
from tests.support.big_tables import MAX_ATTEMPTS, SPENT, Tables, big_tables
from tests.support.plans import Plan, Prepared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

BATCH = 100
PRUNED = 1000
BATCHES = {"reap": SPENT, "prune": PRUNED, "archive kept": PRUNED}
EXECUTIONS = 8
MODES = {"force_custom_plan": 2, "auto": EXECUTIONS, "force_generic_plan": 2}
"""How often to execute: left to itself, the server may take a generic plan from the sixth on."""
STATISTICS = ["never", "quiet", "fresh"]
LEASE = timedelta(seconds=30)
BY_ID = "Index Scan using outbox_pkey"
# Some of the kept messages are of yesterday, shortly after midnight.
YESTERDAY = """
DO $$ BEGIN EXECUTE format(
    'CREATE TABLE yesterday PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
    date_trunc('day', now(), 'UTC') - interval '24 hours', date_trunc('day', now(), 'UTC'));
END $$
"""


class Case(NamedTuple):
    """A statement, how it is to read the table, and the blocks that one row may cost."""

    statement: bytes
    scans: set[str]
    blocks: int


# A row that changes moves to a new place and into each of its indexes, three to four blocks each.
CASES = {
    "claim": Case(CLAIM, {"Index Scan using outbox_ready", BY_ID}, 25),
    "reclaim": Case(RECLAIM, {"Index Scan using outbox_leased", BY_ID}, 25),
    "finalize": Case(FINALIZE, {BY_ID}, 25),
    "renew": Case(RENEW, {BY_ID}, 28),
    "look": Case(LOOK, {BY_ID}, 5),
    "locked": Case(LOCKED, {BY_ID}, 12),
    "explain unwritten": Case(EXPLAIN_UNWRITTEN, {BY_ID}, 5),
    "reap": Case(REAP, {"Index Scan using outbox_leased", BY_ID}, 25),
    "prune": Case(PRUNE, {"Index Scan using outbox_done", BY_ID}, 7),
    "finalize and delete": Case(DELETE, {BY_ID}, 25),
    "finalize and archive": Case(ARCHIVE, {BY_ID}, 25),
    "archive kept": Case(ARCHIVE_KEPT, {"Index Scan using outbox_done", BY_ID}, 10),
}
ROWS = 20
"""What all nodes of a plan together may produce or throw away for one row of the batch."""


@pytest.fixture(scope="module")
def tables(server_dsn: str, template: str) -> Iterator[Tables]:
    with big_tables(server_dsn, template) as built:
        for dsn in built:
            with psycopg.connect(dsn) as conn:
                conn.execute("SELECT outbox_archive_prepare()")
                conn.execute(YESTERDAY)
        yield built


def worker(dsn: str, mode: str = "force_custom_plan") -> Connection[Any]:
    """A connection with the worker's settings, apart from how plans are cached."""
    options = DatabaseOptions(dsn=lambda: dsn)
    conn: Connection[Any] = psycopg.connect(
        conninfo(options, session_settings=True), autocommit=True, prepare_threshold=None
    )
    conn.execute(f"SET plan_cache_mode = {mode}".encode())
    return conn


def parameters(conn: Connection[Any], batch: int, *, own: str = "default") -> dict[str, Any]:
    """For any of the statements: held ids in no order, and every third message to be retried."""
    held = conn.execute(
        "SELECT id FROM outbox WHERE status = 'processing' AND lease_until > now()"
        " ORDER BY md5(id::text) LIMIT %s",
        [batch],
    ).fetchall()
    retried = [number % 3 == 0 for number in range(batch)]
    return {
        "destinations": [own, "mail"],
        "slots": [batch, batch],
        "max_attempts": [MAX_ATTEMPTS, MAX_ATTEMPTS],
        "owner": "a",
        "lease": LEASE,
        "budget": MAX_CLAIM_BYTES,
        "patience": "500ms",
        "suspect_allowed": True,
        # What a worker holds that was claimed long ago.
        "held": "{" + ",".join(map(str, range(1, BATCH + 1))) + "}",
        "ids": "{" + ",".join(str(row_id) for (row_id,) in held) + "}",
        "versions": "{" + ",".join(["1"] * batch) + "}",
        "statuses": ["pending" if again else "done" for again in retried],
        "delays": [5.0 if again else None for again in retried],
        "refunds": [0] * batch,
        "errors": ["timeout" if again else None for again in retried],
        "skips": [False] * batch,
        "keep": timedelta(0),
        "limit": PRUNED,
    }


def explained(
    conn: Connection[Any], name: str, values: dict[str, Any], times: int = EXECUTIONS
) -> list[Plan]:
    """The plans of all executions of a statement that is prepared once."""
    prepared = Prepared(conn, name, CASES[name].statement)
    return [prepared.explain(values) for _ in range(times)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("name", CASES)
def test_a_statement_reads_what_its_batch_needs(
    tables: Tables, name: str, statistics: str, mode: str
) -> None:
    case = CASES[name]
    batch = BATCHES.get(name, BATCH)
    with worker(getattr(tables, statistics), mode) as conn:
        plans = explained(conn, name, parameters(conn, BATCH), MODES[mode])
    for plan in plans:
        assert plan.scans == case.scans
        assert plan.sorted_rows <= batch
        assert plan.rows <= ROWS * batch
        assert plan.blocks <= case.blocks * batch
        assert plan.repeated_searches == []


# What only looks rows up pays for the height of the index, which grows by one in a thousandfold.
@pytest.mark.parametrize("name", [name for name in CASES if name != "locked"])
def test_a_million_kept_messages_make_no_statement_dearer_by_half(
    tables: Tables, name: str
) -> None:
    blocks = []
    for dsn in (tables.small, tables.fresh):
        with worker(dsn) as conn:
            # The last one: by then both have met the rows that the ones before it left behind.
            blocks.append(explained(conn, name, parameters(conn, BATCH))[-1].blocks)
    small, large = blocks
    assert large <= 1.5 * small


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", ["never", "quiet"])
@pytest.mark.parametrize(
    "name",
    [
        *("claim", "finalize", "finalize and delete", "finalize and archive"),
        *("locked", "renew", "look", "explain unwritten"),
    ],
)
def test_a_batch_four_times_as_large_costs_about_four_times_as_much(
    tables: Tables, name: str, statistics: str, mode: str
) -> None:
    work = []
    for batch in (500, 2000):
        with worker(getattr(tables, statistics), mode) as conn:
            plan = explained(conn, name, parameters(conn, batch), MODES[mode])[-1]
        assert plan.repeated_searches == []
        work.append((plan.rows, plan.blocks))
    (few_rows, few_blocks), (many_rows, many_blocks) = work
    assert many_rows <= 5 * few_rows
    assert many_blocks <= 5 * few_blocks


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize(
    ("name", "own", "wealth"),
    [
        ("claim", "slow", "100,000 messages in backoff"),
        ("claim", "other", "100,000 expired messages"),
        ("reclaim", "mail", "100,000 expired messages of another destination"),
        ("reap", "mail", "100,000 expired messages of another destination"),
        ("reclaim", "slow", "100,000 messages in backoff"),
    ],
)
def test_finding_nothing_costs_nothing_beside(
    tables: Tables, name: str, own: str, wealth: str, statistics: str
) -> None:
    with worker(getattr(tables, statistics)) as conn:
        plans = explained(conn, name, parameters(conn, BATCH, own=own), 2)
    assert max(plan.blocks for plan in plans) <= 40, wealth


def test_to_claim_and_finalize_beside_a_million_kept_messages_reads_about_as_much_as_without(
    tables: Tables,
) -> None:
    blocks, seconds = [], []
    for dsn in (tables.small, tables.fresh):
        with worker(dsn) as conn:
            values = parameters(conn, BATCH)
            prepared = [
                Prepared(conn, name, CASES[name].statement) for name in ("claim", "finalize")
            ]
            rounds = []
            for _ in range(EXECUTIONS):
                started = time.perf_counter()
                plans = [each.explain(values) for each in prepared]
                rounds.append((time.perf_counter() - started, sum(plan.blocks for plan in plans)))
        seconds.append(min(elapsed for elapsed, _ in rounds))
        blocks.append(rounds[-1][1])
    print(f"100 messages: {seconds} s and {blocks} blocks, without and with them")  # noqa: T201 - a measurement to look at
    assert blocks[1] <= 1.5 * blocks[0]
