"""Under a held xmin horizon every index keeps what left it: a claim must not step over it all."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.horizons import held_snapshot
from tests.support.outbox_rows import fill
from tests.support.plan_cases import MODES, STATISTICS, explained, parameters, worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEFT = 40_000
BATCH = 10
BLOCKS = 40 * BATCH
"""What a claim may read: less than half of what those that left have in one index."""


class Drained(NamedTuple):
    """An outbox that much has left, and nothing of it from its indexes."""

    dsn: str
    head: int
    """The first row that the lane ``hot`` still has."""
    place: int
    """When the unordered ones are due that are left, in microseconds."""
    last: int
    """The last unordered row that left."""


@pytest.fixture(scope="module", params=STATISTICS)
def drained(server_dsn: str, template: str, request: pytest.FixtureRequest) -> Iterator[Drained]:
    statistics = request.param
    name = f"pgoutbox_horizon_{statistics}"
    dsn = make_conninfo(server_dsn, dbname=name)
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        try:
            with held_snapshot(dsn):
                yield _drain(dsn, statistics)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _drain(dsn: str, statistics: str) -> Drained:
    due = {"available_at": "now() - interval '1 hour'"}
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("ALTER TABLE outbox SET (autovacuum_enabled = false)")
        if statistics == "never":
            conn.execute("ANALYZE outbox")
        fill(conn, LEFT, ordering_key="'hot'", **due)
        fill(conn, LEFT, **due)
        conn.execute("UPDATE outbox SET status = 'done', done_at = now(), pending_since = NULL")
        if statistics == "quiet":
            conn.execute("ANALYZE outbox")
        fill(conn, 2 * BATCH)
        fill(conn, 2 * BATCH, ordering_key="'lane ' || g")
        fill(conn, 2 * BATCH, ordering_key="'hot'")
        if statistics == "fresh":
            conn.execute("ANALYZE outbox")
        found = conn.execute(
            "SELECT min(id) FILTER (WHERE status = 'pending' AND ordering_key = 'hot'),"
            "       (extract(epoch FROM max(available_at) FILTER (WHERE status = 'done'))"
            "         * 1000000)::bigint,"
            "       max(id) FILTER (WHERE status = 'done' AND ordering_key IS NULL)"
            " FROM outbox"
        ).fetchone()
    assert found is not None
    return Drained(dsn, *found)


def blocks(
    drained: Drained, name: str, mode: str, asked: Mapping[str, Any], found: int = BATCH
) -> list[int]:
    """What each execution read; each found so many messages."""
    with worker(drained.dsn, mode) as conn:
        values = parameters(conn, BATCH) | {"destination": "default"}
        plans = explained(conn, name, values, MODES[mode], **asked)
    assert {plan.root["Actual Rows"] for plan in plans} == {found + 1}
    return [plan.blocks for plan in plans]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", ["place", "recent"])
def test_a_claim_that_begins_further_on_steps_over_nothing_that_left(
    drained: Drained, start: str, mode: str
) -> None:
    begins: dict[str, dict[str, Any]] = {
        "place": {
            "last_ats": f"{{{drained.place},NULL}}",
            "last_ids": [drained.last, 0],
            "recents": [False, True],
        },
        "recent": {"recents": [True, True], "recent": timedelta(minutes=5)},
    }
    read = blocks(drained, "claim", mode, begins[start])
    assert max(read) <= BLOCKS
    # Which is not so for the sweep from the front.
    assert min(blocks(drained, "claim", mode, {})) > 2 * BLOCKS


def hot(drained: Drained, *, tried: bool) -> dict[str, Any]:
    """The lane is known to be hot, and where its head was; it is the turn of such lanes."""
    return {"hot_keys": ["hot"], "hot_ids": [drained.head], "hot_tries": [tried], "turn": 2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [0, 500])
def test_a_claim_of_a_hot_lane_steps_over_nothing_that_left_it(
    drained: Drained, steps: int, mode: str
) -> None:
    asked = {"lanes": 1, "run": BATCH, "cursor": "", "steps": steps, "fresh": 0}
    read = blocks(drained, "claim runs", mode, asked | hot(drained, tried=True))
    assert max(read) <= BLOCKS
    # Which is not so where nothing is known of it.
    assert min(blocks(drained, "claim runs", mode, asked | {"steps": 1})) > 2 * BLOCKS


@pytest.mark.parametrize("mode", MODES)
def test_a_walk_over_a_hot_lane_steps_over_nothing_that_left_it(
    drained: Drained, mode: str
) -> None:
    asked = {"lanes": BATCH, "run": 1, "cursor": "", "steps": 500, "fresh": 0}
    read = blocks(drained, "claim runs", mode, asked | hot(drained, tried=False))
    assert max(read) <= BLOCKS


@pytest.mark.parametrize("mode", MODES)
def test_a_look_at_new_messages_of_a_hot_lane_steps_over_nothing_that_left_it(
    drained: Drained, mode: str
) -> None:
    recent = {"recent": timedelta(minutes=5), "fresh": BATCH}
    asked = {"lanes": 1, "run": BATCH, "cursor": "", "steps": 0} | recent
    # They are known already, and it is not their turn.
    read = blocks(drained, "claim runs", mode, asked | hot(drained, tried=False), 0)
    assert max(read) <= BLOCKS
