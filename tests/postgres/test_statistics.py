from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgoutbox.database import migrate, statistics
from tests.support.outbox_rows import fill, insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from pgoutbox.database.statistics import DestinationStatistics, Statistics

NOTHING = {
    "ready": 0,
    "ready_unordered": 0,
    "waiting": 0,
    "scheduled": 0,
    "processing": 0,
    "processing_unordered": 0,
    "processing_lanes": 0,
    "expired": 0,
    "dead": 0,
    "ready_lanes": 0,
    "blocked_lanes": 0,
}
LEASED = {"status": "processing", "lease_owner": "pod-1", "lease_until": "2999-01-01Z"}
EXPIRED = LEASED | {"lease_until": "1999-01-01Z"}
DEAD = {"status": "dead", "pending_since": None}
DONE = DEAD | {"status": "done", "done_at": "1999-01-01Z"}
LATER = {"available_at": "2999-01-01Z"}


def read(conn: psycopg.Connection, cap: int = 10_000) -> Statistics:
    return statistics.read(conn, schema="public", cap=cap)


def only(conn: psycopg.Connection, cap: int = 10_000) -> DestinationStatistics:
    found = read(conn, cap).destinations
    assert list(found) == ["default"]
    return found["default"]


def counts(found: DestinationStatistics) -> dict[str, int]:
    return {name: getattr(found, name) for name in NOTHING if getattr(found, name)}


def heartbeat(conn: psycopg.Connection, owner: str, *, seen: str = "0", **columns: object) -> None:
    values = {"state": "running", "destinations": Jsonb({})} | columns
    conn.execute(
        """INSERT INTO outbox_workers (incarnation, owner, version, state, slots, busy,
                                       destinations, seen_at)
           VALUES (gen_random_uuid(), %s, '1.0', %s, 200, 7, %s, now() - %s::interval)""",
        [owner, values["state"], values["destinations"], seen],
    )


def test_an_empty_table_has_no_destination_and_no_worker(conn: psycopg.Connection) -> None:
    found = read(conn)
    assert (found.destinations, found.workers, found.cap) == ({}, (), 10_000)
    assert found.at == pytest.approx(_now(conn), abs=60)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, {"ready": 1, "ready_unordered": 1}),
        (LATER, {"scheduled": 1}),
        (LEASED, {"processing": 1, "processing_unordered": 1}),
        (EXPIRED, {"processing": 1, "processing_unordered": 1, "expired": 1}),
        (DEAD, {"dead": 1}),
        (DEAD | {"done_at": "1999-01-01Z"}, {"dead": 1}),
        ({"ordering_key": "k"}, {"ready": 1, "ready_lanes": 1}),
        (LATER | {"ordering_key": "k"}, {"scheduled": 1}),
        (LEASED | {"ordering_key": "k"}, {"processing": 1, "processing_lanes": 1}),
        (EXPIRED | {"ordering_key": "k"}, {"processing": 1, "expired": 1, "ready_lanes": 1}),
        (DEAD | {"ordering_key": "k"}, {"dead": 1, "blocked_lanes": 1}),
        (DEAD | {"ordering_key": "k", "done_at": "1999-01-01Z"}, {"dead": 1}),
    ],
)
def test_each_state_is_counted_where_it_belongs(
    conn: psycopg.Connection, columns: dict[str, Any], expected: dict[str, int]
) -> None:
    insert(conn, **columns)
    assert counts(only(conn)) == expected


def test_a_destination_whose_messages_are_all_done_is_not_listed(conn: psycopg.Connection) -> None:
    insert(conn, **DONE)
    assert read(conn).destinations == {}


def test_destinations_are_counted_apart_and_sorted_by_name(conn: psycopg.Connection) -> None:
    for name in ("mail", "bank", "bank"):
        insert(conn, destination=name)
    insert(conn, destination="attic", **DEAD)
    found = read(conn).destinations
    assert [(name, counts(found[name])) for name in found] == [
        ("attic", {"dead": 1}),
        ("bank", {"ready": 2, "ready_unordered": 2}),
        ("mail", {"ready": 1, "ready_unordered": 1}),
    ]


def test_counts_stop_at_the_cap_or_at_twice_the_cap_where_lanes_are_counted_apart(
    conn: psycopg.Connection,
) -> None:
    fill(conn, 30)
    fill(conn, 30, ordering_key="'k' || g")
    fill(conn, 30, status="'dead'", pending_since="NULL")
    fill(conn, 30, status="'dead'", pending_since="NULL", ordering_key="'b' || g")
    fill(conn, 30, ordering_key="'b' || g")
    fill(conn, 30, status="'processing'", lease_owner="'p'", lease_until="'1999-01-01Z'")
    found = counts(only(conn, cap=10))
    assert found == {
        "ready": 20,
        "ready_unordered": 10,
        "waiting": 10,
        "processing": 10,
        "processing_unordered": 10,
        "expired": 10,
        "dead": 10,
        "ready_lanes": 10,
        "blocked_lanes": 10,
    }


def test_the_oldest_pending_age_counts_backoff_and_work_in_progress(
    conn: psycopg.Connection,
) -> None:
    insert(conn)
    insert(conn, **LATER)
    conn.execute("UPDATE outbox SET pending_since = now() - interval '2 hours' WHERE id = 2")
    assert only(conn).oldest_pending_age == pytest.approx(7200, abs=60)
    conn.execute(
        """UPDATE outbox SET status = 'processing', lease_owner = 'p', lease_until = now(),
                             pending_since = now() - interval '3 hours' WHERE id = 1"""
    )
    assert only(conn).oldest_pending_age == pytest.approx(10_800, abs=60)


def test_a_scheduled_message_is_not_late_before_it_is_due(conn: psycopg.Connection) -> None:
    insert(conn, **LATER)
    found = only(conn)
    assert (found.oldest_pending_age, found.oldest_ready_age) == (0, 0)


def test_the_oldest_ready_age_leaves_out_what_cannot_be_claimed_yet(
    conn: psycopg.Connection,
) -> None:
    insert(conn, available_at="1999-01-01Z", **LEASED)
    insert(conn, **LATER)
    assert only(conn).oldest_ready_age == 0
    insert(conn, ordering_key="k")
    insert(conn)
    conn.execute(
        """UPDATE outbox
              SET available_at = now() - CASE WHEN ordering_key = 'k' THEN interval '2 hours'
                                              ELSE interval '1 hour' END
            WHERE id > 2"""
    )
    assert only(conn).oldest_ready_age == pytest.approx(7200, abs=60)


@pytest.mark.parametrize(("ordered", "unordered"), [(60, 90), (90, 60), (60, None), (None, 60)])
def test_the_next_scheduled_message_may_be_in_a_lane_or_in_none(
    conn: psycopg.Connection, ordered: int | None, unordered: int | None
) -> None:
    insert(conn)
    for key, seconds in (("k", ordered), (None, unordered)):
        if seconds is not None:
            fill(
                conn,
                2,
                available_at=f"now() + g * interval '{seconds} s'",
                ordering_key="NULL" if key is None else "'k'",
            )
    assert only(conn).next_due_in == pytest.approx(60, abs=20)


def test_nothing_is_next_where_nothing_is_scheduled(conn: psycopg.Connection) -> None:
    insert(conn)
    insert(conn, **LEASED)
    assert only(conn).next_due_in is None


def test_a_lane_of_which_a_worker_holds_several_messages_is_one(conn: psycopg.Connection) -> None:
    for key in ("a", "a", "b"):
        insert(conn, ordering_key=key, **LEASED)
    insert(conn, ordering_key="a")
    insert(conn, ordering_key="c")
    found = only(conn)
    assert (found.processing, found.processing_lanes, found.ready_lanes) == (3, 2, 1)


def test_dead_letters_have_no_age(conn: psycopg.Connection) -> None:
    insert(conn, **DEAD)
    found = only(conn)
    assert (found.oldest_pending_age, found.oldest_ready_age) == (0, 0)


def test_workers_are_read_from_their_heartbeats(conn: psycopg.Connection) -> None:
    heartbeat(conn, "pod-b", destinations=Jsonb({"bank": {"breaker": "open"}}))
    heartbeat(conn, "pod-a", seen="90 seconds", state="draining")
    first, second = read(conn).workers
    assert (first.owner, first.state, first.slots, first.busy) == ("pod-a", "draining", 200, 7)
    assert first.seen_age == pytest.approx(90, abs=10)
    assert (second.owner, second.destinations) == ("pod-b", {"bank": {"breaker": "open"}})


def test_a_role_that_can_call_nothing_else_can_read_them(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    with (
        login_role(dsn, "EXECUTE ON FUNCTION outbox_stats(integer)") as role,
        psycopg.connect(role.dsn) as scaler,
    ):
        assert counts(only(scaler)) == {"ready": 1, "ready_unordered": 1}
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            scaler.execute("SELECT FROM outbox")


async def test_the_async_reader_sees_the_same(
    conn: psycopg.Connection, aconn: psycopg.AsyncConnection
) -> None:
    insert(conn)
    heartbeat(conn, "pod-a")
    found = await statistics.read_async(aconn, schema="public")
    assert counts(found.destinations["default"]) == {"ready": 1, "ready_unordered": 1}
    assert [worker.owner for worker in found.workers] == ["pod-a"]


def test_another_schema_is_read_whatever_the_search_path_is(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        migrate.apply(conn, schema="app")
        conn.execute("SELECT app.outbox_enqueue('t', 'i', 'e', '1')")
        found = statistics.read(conn, schema="app")
        assert counts(found.destinations["default"]) == {"ready": 1, "ready_unordered": 1}
        assert statistics.attempts_histogram(
            conn, schema="app", destinations=["default"], cap=10
        ) == {"default": {0: 1}}


def test_attempts_are_counted_for_what_is_not_delivered_yet(conn: psycopg.Connection) -> None:
    for attempts in (0, 0, 3):
        insert(conn, attempts=attempts, **LATER)
    insert(conn, attempts=12, **DEAD)
    insert(conn, attempts=2, destination="bank", **LEASED)
    insert(conn, attempts=9, destination="elsewhere")
    found = statistics.attempts_histogram(
        conn, schema="public", destinations=["default", "bank", "nothing"]
    )
    assert found == {"default": {0: 2, 3: 1}, "bank": {2: 1}, "nothing": {}}


def test_the_attempts_histogram_stops_at_the_cap_of_each_destination(
    conn: psycopg.Connection,
) -> None:
    fill(conn, 30)
    found = statistics.attempts_histogram(conn, schema="public", destinations=["default"], cap=10)
    assert found == {"default": {0: 10}}


def _now(conn: psycopg.Connection) -> float:
    row = conn.execute("SELECT extract(epoch FROM now())::float8").fetchone()
    assert row is not None
    now: float = row[0]
    return now
