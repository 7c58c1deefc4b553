"""Which rows one claim of lanes takes: the front of each, and of which lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.lanes import Asked, Runs, claim_runs
from pgoutbox.dispatch.scan import LaneScan
from tests.support.leases import (
    DESTINATION,
    LEASE,
    claim_lanes_as,
    enqueue,
    enqueue_lane,
    ids,
    states_of,
)
from tests.support.locks import Session, open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

    Conn = psycopg.AsyncConnection[Any]

BLOCKED = 2_000
# The ways to the lane ``a``: by the walk, as a new one, and as a hot one.
WAYS: list[dict[str, Any]] = [
    {},
    {"steps": 0, "fresh": 100},
    {"steps": 0, "hot": {"a": 0}, "tried": ["a"]},
]


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[Session]:
    async with open_session(dsn) as opened:
        yield opened


async def put_off(conn: Conn, row: int) -> None:
    await conn.execute(
        "UPDATE outbox SET available_at = now() + interval '1 hour' WHERE id = %s", [row]
    )


async def bury(conn: Conn, row: int, *, skipped: bool = False) -> None:
    await conn.execute(
        "UPDATE outbox SET status = 'dead', pending_since = NULL,"
        " done_at = CASE WHEN %s THEN now() END WHERE id = %s",
        [skipped, row],
    )


async def block_lanes(conn: Conn, count: int = BLOCKED, *, due: str = "-1 hour") -> None:
    """Lanes ``k0001`` and so on: a dead head, and a message behind it."""
    await conn.execute("SET session_replication_role = replica")
    await conn.execute(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, ordering_key,"
        "                    available_at, status, pending_since)"
        " SELECT 'order', 'o-1', 'order_paid', '{}', 'k' || lpad(g::text, 4, '0'),"
        "        now() + %s::interval, status, CASE WHEN status = 'pending' THEN now() END"
        " FROM unnest('{dead,pending}'::text[]) AS status, generate_series(1, %s) AS g"
        " ORDER BY status",
        [due, count],
    )
    await conn.execute("RESET session_replication_role")


async def test_a_run_is_the_front_of_its_lane_in_order(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 5)
    runs = await claim_lanes_as("w", session, run=3)
    assert [m.id for m in runs.lanes["a"]] == lane[:3]
    assert {(m.lease_version, m.attempts, m.reclaims) for m in runs.messages} == {(1, 1, 0)}


async def test_a_run_ends_before_what_is_due_later(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    await put_off(aconn, lane[1])
    assert ids((await claim_lanes_as("w", session)).messages) == lane[:1]


async def test_a_lane_waits_for_a_head_that_is_due_later(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 3, due="-1 s")
    await put_off(aconn, lane[0])
    for asked in WAYS:
        assert (await claim_lanes_as("w", session, **asked)).lanes == {}


async def test_a_run_ends_before_a_dead_message_that_blocks(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    await bury(aconn, lane[1])
    assert ids((await claim_lanes_as("w", session)).messages) == lane[:1]


async def test_a_lane_waits_for_a_dead_head_that_blocks(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 3, due="-1 s")
    await bury(aconn, lane[0])
    for asked in WAYS:
        assert (await claim_lanes_as("w", session, **asked)).lanes == {}


async def test_a_run_goes_round_a_dead_message_that_was_skipped(
    aconn: Conn, session: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 4)
    await bury(aconn, lane[0], skipped=True)
    await bury(aconn, lane[2], skipped=True)
    assert ids((await claim_lanes_as("w", session)).messages) == [lane[1], lane[3]]


@pytest.mark.parametrize("run", [1, 10])
@pytest.mark.parametrize("left", ["-1 hour", "1 hour"])
async def test_a_lane_in_which_the_next_message_is_leased_is_left_alone(
    aconn: Conn, session: Session, left: str, run: int
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    await aconn.execute(
        "UPDATE outbox SET status = 'processing', lease_owner = 'x', lease_version = 1,"
        " lease_until = now() + %s::interval WHERE id = %s",
        [left, lane[1]],
    )
    assert (await claim_lanes_as("w", session, run=run)).lanes == {}


async def test_lanes_of_one_key_at_two_destinations_have_nothing_to_do_with_each_other(
    aconn: Conn, session: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 2)
    await aconn.execute("UPDATE outbox SET destination = 'mail' WHERE id = %s", [lane[0]])
    assert ids((await claim_lanes_as("w", session)).messages) == lane[1:]


async def test_unordered_messages_are_none_of_a_lanes(aconn: Conn, session: Session) -> None:
    await enqueue(aconn, 3)
    assert (await claim_lanes_as("w", session, fresh=100)).lanes == {}


async def test_so_many_rows_are_the_heads_first_and_then_a_front_of_each_lane(
    aconn: Conn, session: Session
) -> None:
    lanes = {key: await enqueue_lane(aconn, key, 5) for key in "abcd"}
    runs = await claim_lanes_as("w", session, rows=6)
    assert {key: ids(run) for key, run in runs.lanes.items()} == {
        key: lanes[key][: 2 if key in "ab" else 1] for key in "abcd"
    }


async def test_fewer_rows_than_lanes_are_heads_only(aconn: Conn, session: Session) -> None:
    lanes = {key: await enqueue_lane(aconn, key, 5) for key in "abcd"}
    runs = await claim_lanes_as("w", session, rows=2)
    assert {key: ids(run) for key, run in runs.lanes.items()} == {
        key: lanes[key][:1] for key in "ab"
    }


async def claim_bytes(session: Session, budget: int) -> Runs:
    asked = Asked(DESTINATION, lanes=10, rows=100, run=10)
    return await claim_runs(session, asked, owner="w", lease=LEASE, budget=budget)


async def weigh(conn: Conn, row: int, size: int) -> None:
    await conn.execute(
        "UPDATE outbox SET payload = NULL, body = repeat('x', %s)::bytea WHERE id = %s",
        [size, row],
    )


async def test_so_many_bytes_leave_a_front_of_each_lane(aconn: Conn, session: Session) -> None:
    lanes = {key: await enqueue_lane(aconn, key, 3) for key in "ab"}
    for key in "ab":
        for row in lanes[key]:
            await weigh(aconn, row, 1000)
    # The second row of b is what does not fit.
    runs = await claim_bytes(session, 3500)
    assert {key: ids(run) for key, run in runs.lanes.items()} == {
        "a": lanes["a"][:2],
        "b": lanes["b"][:1],
    }


async def test_what_comes_after_a_message_that_does_not_fit_waits_though_it_is_small(
    aconn: Conn, session: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 4)
    await weigh(aconn, lane[1], 100_000)
    assert ids((await claim_bytes(session, 10_000)).messages) == lane[:1]


async def test_one_message_of_any_size_always_fits(aconn: Conn, session: Session) -> None:
    lane = await enqueue_lane(aconn, "a", 2)
    await weigh(aconn, lane[0], 100_000)
    assert ids((await claim_bytes(session, 10_000)).messages) == lane[:1]


async def test_a_fresh_message_is_found_among_blocked_lanes_at_the_first_look(
    aconn: Conn, session: Session
) -> None:
    await block_lanes(aconn)
    lane = await enqueue_lane(aconn, "k1000 and a half", 2, due="-1 s")
    runs = await claim_lanes_as("w", session, steps=0, fresh=100)
    assert ids(runs.messages) == lane


async def test_a_lane_that_was_due_long_ago_is_found_among_blocked_ones_within_one_circle(
    aconn: Conn, session: Session
) -> None:
    await block_lanes(aconn)
    lane = await enqueue_lane(aconn, "k1000 and a half", 2)
    scan = LaneScan(cursor="k1500")
    scan.begin(0.0)
    claims = 0
    found: list[int] = []
    while scan.walking and not found:
        runs = await claim_lanes_as("w", session, cursor=scan.cursor, steps=scan.steps)
        found = ids(runs.messages)
        scan.walked(runs.cursor, found=bool(found), ended=runs.ended, sent=0.0, now=0.0)
        claims += 1
    assert found == lane
    assert claims <= BLOCKED // scan.steps + 2


async def test_a_walk_over_blocked_lanes_only_comes_to_its_end(
    aconn: Conn, session: Session
) -> None:
    await block_lanes(aconn)
    scan = LaneScan(cursor="k1500")
    scan.begin(0.0)
    claims = 0
    while scan.walking:
        runs = await claim_lanes_as("w", session, cursor=scan.cursor, steps=scan.steps)
        assert runs.lanes == {}
        scan.walked(runs.cursor, found=False, ended=runs.ended, sent=0.0, now=0.0)
        claims += 1
    assert claims <= BLOCKED // scan.steps + 2


async def test_a_walk_goes_on_behind_the_last_key_that_it_looked_at(
    aconn: Conn, session: Session
) -> None:
    await block_lanes(aconn, 10)
    runs = await claim_lanes_as("w", session, cursor="k0003", steps=4)
    assert (runs.cursor, runs.ended, runs.lanes) == ("k0007", False, {})
    runs = await claim_lanes_as("w", session, cursor=runs.cursor, steps=4)
    assert (runs.cursor, runs.ended, runs.lanes) == ("k0010", True, {})


@pytest.mark.parametrize("key", ["Ä", "a'b", '"', "\\", "{,}", "NULL", "%s", "\U0001f600", " "])
async def test_any_key_can_be_walked_to_and_known_as_hot(
    aconn: Conn, session: Session, key: str
) -> None:
    lane = await enqueue_lane(aconn, key, 3)
    runs = await claim_lanes_as("w", session, run=1)
    assert (ids(runs.lanes[key]), runs.cursor) == (lane[:1], key)
    await aconn.execute(
        "UPDATE outbox SET status = 'done', done_at = now(), pending_since = NULL,"
        " lease_until = NULL, lease_owner = NULL WHERE id = %s",
        lane[:1],
    )
    hot: dict[str, Any] = {"hot": {key: lane[0]}, "tried": [key]}
    assert ids((await claim_lanes_as("w", session, steps=0, **hot)).messages) == lane[1:]


async def test_a_walk_steps_over_hot_lanes_that_are_not_tried(
    aconn: Conn, session: Session
) -> None:
    lanes = {key: await enqueue_lane(aconn, key, 2) for key in "abcde"}
    runs = await claim_lanes_as("w", session, hot={"b": lanes["b"][0], "e": lanes["e"][0]})
    assert sorted(runs.lanes) == ["a", "c", "d"]
    assert (runs.cursor, runs.ended) == ("e", True)


async def test_what_is_left_of_one_lane_after_another_is_its_front(
    aconn: Conn, session: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 5)
    (first,) = (await claim_lanes_as("w", session, run=1)).messages
    await aconn.execute(
        "UPDATE outbox SET status = 'pending', lease_until = NULL, lease_owner = NULL"
        " WHERE id = %s",
        [first.id],
    )
    assert ids((await claim_lanes_as("w", session)).messages) == lane
    assert [state.version for state in await states_of(aconn, "a")] == [2, 1, 1, 1, 1]
