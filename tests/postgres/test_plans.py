"""Each statement of the worker costs what its batch costs, whatever else the table holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.big_tables import Tables, big_tables
from tests.support.plan_cases import (
    BATCH,
    CASES,
    EXECUTIONS,
    MODES,
    STATISTICS,
    explained,
    parameters,
    worker,
)
from tests.support.plans import Prepared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.plans import Plan

# Some of the kept messages are of yesterday, shortly after midnight.
YESTERDAY = """
DO $$ BEGIN EXECUTE format(
    'CREATE TABLE yesterday PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
    date_trunc('day', now(), 'UTC') - interval '24 hours', date_trunc('day', now(), 'UTC'));
END $$
"""


@pytest.fixture(scope="module")
def tables(server_dsn: str, template: str) -> Iterator[Tables]:
    with big_tables(server_dsn, template) as built:
        for dsn in built:
            with psycopg.connect(dsn) as conn:
                conn.execute("SELECT outbox_archive_prepare()")
                conn.execute(YESTERDAY)
        yield built


BEFORE_17 = 1.6
"""By how much more blocks: up to PostgreSQL 16 a scan for ``id = ANY (...)`` goes down the index
from its root once for each of the ids."""


def settled(plans: list[Plan]) -> int:
    """The most blocks that any of them read but the first.

    That one clears away what statements before it have put into the indexes and rolled back.
    """
    return max(plan.blocks for plan in plans[1:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("name", CASES)
def test_a_statement_reads_what_its_batch_needs(
    tables: Tables, name: str, statistics: str, mode: str
) -> None:
    case = CASES[name]
    with worker(getattr(tables, statistics), mode) as conn:
        plans = explained(conn, name, parameters(conn, BATCH), MODES[mode])
        room = BEFORE_17 if conn.info.server_version < 17_00_00 else 1
    for plan in plans:
        assert plan.scans == case.scans
        assert plan.sorted_rows <= case.batch
        assert plan.rows <= case.rows * case.batch
        assert plan.repeated_searches == []
    assert settled(plans) <= case.blocks * case.batch * room


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
        *("claim", "claim from a place on", "claim runs"),
        *("finalize", "finalize and delete", "finalize and archive"),
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
        ("claim", "slow_lanes", "100,000 messages of lanes in backoff"),
        ("claim", "other", "100,000 expired messages"),
        ("claim", "other_lanes", "100,000 expired messages of lanes"),
        ("claim", "hot", "100,000 messages of a lane"),
        ("claim runs of fresh lanes", "slow_lanes", "100,000 messages of lanes in backoff"),
        ("claim runs of fresh lanes", "other_lanes", "100,000 expired messages of lanes"),
        ("claim runs of fresh lanes", "slow", "100,000 messages in backoff"),
        ("claim runs", "slow", "100,000 messages in backoff"),
        ("claim runs", "other", "100,000 expired messages"),
        ("reclaim", "mail", "100,000 expired messages of another destination"),
        ("reclaim", "slow", "100,000 messages in backoff"),
        ("reclaim heads", "mail", "100,000 expired messages of another destination"),
        ("reclaim heads", "slow_lanes", "100,000 messages of lanes in backoff"),
        ("reap", "mail", "100,000 expired messages of another destination"),
    ],
)
def test_finding_nothing_costs_nothing_beside(
    tables: Tables, name: str, own: str, wealth: str, statistics: str
) -> None:
    with worker(getattr(tables, statistics)) as conn:
        plans = explained(
            conn,
            name,
            parameters(conn, BATCH),
            2,
            destination=own,
            destinations=[own, "mail"],
            cursor="",
        )
    assert settled(plans) <= 40, wealth


WALKED = 500


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("own", ["blocked", "slow_lanes", "other_lanes"])
def test_a_lane_that_is_walked_over_costs_one_look_at_its_head(
    tables: Tables, own: str, statistics: str, mode: str
) -> None:
    with worker(getattr(tables, statistics), mode) as conn:
        values = parameters(conn, BATCH) | {"destination": own, "cursor": "k", "steps": WALKED}
        plans = explained(conn, "claim runs", values, MODES[mode], cursor="k", fresh=0)
    for plan in plans:
        assert plan.scans == CASES["claim runs"].scans
        assert WALKED <= plan.rows <= 20 * WALKED
    assert settled(plans) <= 5 * WALKED


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_what_is_due_behind_a_dead_head_costs_a_look_at_that(
    tables: Tables, statistics: str, mode: str
) -> None:
    with worker(getattr(tables, statistics), mode) as conn:
        name = "claim runs of fresh lanes"
        values = parameters(conn, BATCH)
        plans = explained(conn, name, values, MODES[mode], destination="blocked", fresh=100)
    for plan in plans:
        assert 100 <= plan.rows <= 20 * 100
    assert settled(plans) <= 10 * 100


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize(
    "name", ["claim runs", "claim runs of hot lanes", "claim runs of fresh lanes"]
)
def test_a_run_of_a_lane_of_100_000_messages_reads_that_run(
    tables: Tables, name: str, statistics: str, mode: str
) -> None:
    run = 50
    with worker(getattr(tables, statistics), mode) as conn:
        hot = {"hot_keys": ["hot"], "hot_ids": [0], "hot_tries": [True]} if "hot" in name else {}
        values = parameters(conn, BATCH)
        asked = {"destination": "hot", "run": run, "lanes": 10, "cursor": ""} | hot
        plans = explained(conn, name, values, MODES[mode], **asked)
    for plan in plans:
        assert plan.root["Actual Rows"] == run + 1
        # The newest messages are a hundred, of one lane as they may be.
        assert plan.sorted_rows <= 100
        assert plan.rows <= CASES[name].rows * run
    # What is read once for each claim weighs more on one lane than on twenty.
    assert settled(plans) <= 60 * run


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
