"""Every statement of the worker that meets a large table, and how it is to read it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.dispatch.claim import CLAIM, MAX_CLAIM_BYTES
from pgoutbox.dispatch.finalize import EXPLAIN_UNWRITTEN, FINALIZE, LOCKED
from pgoutbox.dispatch.finalize_statements import ARCHIVE, DELETE
from pgoutbox.dispatch.lanes import CLAIM_RUNS
from pgoutbox.dispatch.reclaim import RECLAIM, RECLAIM_HEADS
from pgoutbox.dispatch.renew import LOOK, RENEW
from pgoutbox.dispatch.retention import ARCHIVE_KEPT, PRUNE
from pgoutbox.dispatch.scan import RECENT_SECONDS
from pgoutbox.dispatch.sweep import REAP
from tests.support.big_tables import LANES, MAX_ATTEMPTS, SPENT
from tests.support.plans import Plan, Prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import Connection

BATCH = 100
PRUNED = 1000
EXECUTIONS = 8
MODES = {"force_custom_plan": 2, "auto": EXECUTIONS, "force_generic_plan": 2}
"""How often to execute: left to itself, the server may take a generic plan from the sixth on."""
STATISTICS = ["never", "quiet", "fresh"]
RUN = 5
ONLY = "Index Only Scan using"
BY_ID = "Index Scan using outbox_pkey"
READY = "Index Scan using outbox_ready"
LEASED = "Index Scan using outbox_leased"
DONE = "Index Scan using outbox_done"
LANE = "Index Scan using outbox_lane"
LANE_READY = "Index Scan using outbox_lane_ready"


class Case(NamedTuple):
    """A statement, how it is to read the table, and the blocks that one row may cost."""

    statement: bytes
    scans: set[str]
    blocks: int
    values: Mapping[str, Any] = {}
    """Other values than those of `parameters`."""
    batch: int = BATCH
    """Rows that it locks, or reads in order to choose those."""
    rows: int = 20
    """What all nodes of a plan together may produce or throw away for one row of the batch."""


CLAIM_SCANS = {READY, f"{ONLY} outbox_lane_ready", BY_ID}
RUNS_SCANS = {LANE, LANE_READY, BY_ID}
REAP_SCANS = {LEASED, LANE, f"{ONLY} outbox_lane", BY_ID}
# Of each lane one row more is read than its run has. Each row passes through every step.
WALK = {"cursor": "ready", "recent": timedelta(0)}
RUNS = Case(CLAIM_RUNS, RUNS_SCANS, 30, WALK, batch=BATCH // RUN * (RUN + 1), rows=30)
HOT_LANES = {
    "steps": 0,
    "recent": timedelta(0),
    "hot_keys": [f"ready {number}" for number in range(BATCH // RUN)],
    "hot_ids": [0] * (BATCH // RUN),
    "hot_tries": [True] * (BATCH // RUN),
}
# A row that changes moves to a new place and into each of its indexes, three to four blocks each.
CASES = {
    "claim": Case(CLAIM, CLAIM_SCANS, 25),
    "claim from a place on": Case(CLAIM, CLAIM_SCANS, 25, {"last_ats": "{0,NULL}"}),
    "claim what is recent": Case(
        CLAIM, CLAIM_SCANS, 25, {"recents": [True, True], "recent": timedelta(days=1)}
    ),
    "claim runs": RUNS,
    "claim runs of hot lanes": RUNS._replace(values=HOT_LANES),
    "claim runs of fresh lanes": RUNS._replace(
        # Of each of the newest messages the lane's head is looked at.
        values={"steps": 0, "recent": timedelta(days=1)},
        rows=40,
    ),
    "reclaim": Case(RECLAIM, {LEASED, BY_ID}, 25),
    # The heads of all lanes that expired are looked at, and all that is behind them goes back.
    "reclaim heads": Case(
        RECLAIM_HEADS,
        {LEASED, LANE, BY_ID},
        5,
        {"destinations": ["lanes", "mail"], "slots": [BATCH, BATCH]},
        batch=3 * LANES,
    ),
    "finalize": Case(FINALIZE, {BY_ID}, 25),
    "renew": Case(RENEW, {BY_ID}, 28),
    "look": Case(LOOK, {BY_ID}, 5),
    "locked": Case(LOCKED, {BY_ID}, 12),
    "explain unwritten": Case(EXPLAIN_UNWRITTEN, {BY_ID}, 5),
    "reap": Case(REAP, REAP_SCANS, 25, {"skips": [False, False]}, batch=SPENT),
    "reap heads": Case(
        REAP,
        REAP_SCANS,
        25,
        {"destinations": ["spent", "mail"], "skips": [False, False]},
        batch=3 * SPENT,
    ),
    "prune": Case(PRUNE, {DONE, BY_ID}, 4, batch=PRUNED),
    "finalize and delete": Case(DELETE, {BY_ID}, 25),
    "finalize and archive": Case(ARCHIVE, {BY_ID}, 25),
    "archive kept": Case(ARCHIVE_KEPT, {DONE, BY_ID}, 10, batch=PRUNED),
}


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
        **_lane_parameters(batch),
        "destinations": [own, "mail"],
        "slots": [batch, batch],
        "recents": [False, False],
        "last_ats": [None, None],
        "last_ids": [0, 0],
        "recent": timedelta(seconds=RECENT_SECONDS),
        "since": timedelta(days=1),
        "max_attempts": [MAX_ATTEMPTS, MAX_ATTEMPTS],
        "skips": [False] * batch,
        "owner": "a",
        "lease": timedelta(seconds=30),
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
        "keep": timedelta(0),
        "limit": PRUNED,
        "past": "-infinity",
    }


def _lane_parameters(batch: int) -> dict[str, Any]:
    """Runs of so many messages together, found by the walk."""
    return {
        "destination": "lanes",
        "lanes": batch // RUN,
        "rows": batch,
        "run": RUN,
        "cursor": "",
        "steps": 500,
        "fresh": 100,
        "turn": 0,
        "hot_keys": [],
        "hot_ids": [],
        "hot_tries": [],
    }


def explained(
    conn: Connection[Any],
    name: str,
    values: Mapping[str, Any],
    times: int = EXECUTIONS,
    **others: Any,
) -> list[Plan]:
    """The plans of all executions of a statement that is prepared once."""
    case = CASES[name]
    prepared = Prepared(conn, name, case.statement)
    return [prepared.explain({**values, **case.values, **others}) for _ in range(times)]
