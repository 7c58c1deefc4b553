"""What a lane lets through is ready; the rest of it waits, whatever its own state says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.database import statistics
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.statistics import DestinationStatistics

LEASED = {"status": "processing", "lease_owner": "pod-1", "lease_until": "2999-01-01Z"}
EXPIRED = LEASED | {"lease_until": "1999-01-01Z"}
DEAD = {"status": "dead", "pending_since": None}
SKIPPED = DEAD | {"done_at": "1999-01-01Z"}
DONE = SKIPPED | {"status": "done"}
LATER = {"available_at": "2999-01-01Z"}
DUE: dict[str, Any] = {}


def only(conn: psycopg.Connection, cap: int = 10_000) -> DestinationStatistics:
    found = statistics.read(conn, schema="public", cap=cap).destinations
    assert list(found) == ["default"]
    return found["default"]


def lanes(conn: psycopg.Connection, cap: int = 10_000) -> tuple[int, int, int, int]:
    found = only(conn, cap)
    return found.ready, found.waiting, found.ready_lanes, found.blocked_lanes


@pytest.mark.parametrize(
    ("head", "ready", "waiting", "ready_lanes", "blocked_lanes"),
    [
        (DUE, 3, 0, 1, 0),
        (DONE, 2, 0, 1, 0),
        (SKIPPED, 2, 0, 1, 0),
        (DEAD, 0, 2, 0, 1),
        (LATER, 0, 2, 0, 0),
        (LEASED, 0, 2, 0, 0),
        # It is reclaimed alone, and those behind it wait for what becomes of it.
        (EXPIRED, 0, 2, 1, 0),
    ],
)
def test_the_head_of_a_lane_says_whether_those_behind_it_are_ready(
    conn: psycopg.Connection,
    head: dict[str, Any],
    ready: int,
    waiting: int,
    ready_lanes: int,
    blocked_lanes: int,
) -> None:
    insert(conn, ordering_key="k", **head)
    fill(conn, 2, ordering_key="'k'")
    assert lanes(conn) == (ready, waiting, ready_lanes, blocked_lanes)


@pytest.mark.parametrize("obstacle", [DEAD, LATER, LEASED, EXPIRED])
def test_what_is_behind_an_obstacle_within_a_lane_waits(
    conn: psycopg.Connection, obstacle: dict[str, Any]
) -> None:
    fill(conn, 3, ordering_key="'k'")
    insert(conn, ordering_key="k", **obstacle)
    fill(conn, 4, ordering_key="'k'")
    found = only(conn)
    assert (found.ready, found.waiting, found.ready_lanes) == (3, 4, 1)


def test_lanes_are_counted_once_however_many_messages_they_hold(conn: psycopg.Connection) -> None:
    for key in ("a", "a", "b", "b"):
        insert(conn, ordering_key=key)
        insert(conn, ordering_key="blocked " + key, **DEAD)
    assert lanes(conn) == (4, 0, 2, 2)


def test_the_same_key_of_two_destinations_is_two_lanes(conn: psycopg.Connection) -> None:
    insert(conn, ordering_key="k", destination="bank", **DEAD)
    insert(conn, ordering_key="k", destination="bank")
    insert(conn, ordering_key="k", destination="mail")
    found = statistics.read(conn, schema="public").destinations
    assert (found["bank"].ready, found["bank"].waiting) == (0, 1)
    assert (found["mail"].ready, found["mail"].waiting) == (1, 0)


def test_the_age_of_a_blocked_lane_counts_from_when_its_message_died(
    conn: psycopg.Connection,
) -> None:
    insert(conn, **DEAD)
    insert(conn, ordering_key="k", **SKIPPED)
    assert only(conn).oldest_blocked_age == 0
    for hours in (1, 3, 2):
        insert(conn, ordering_key=f"k{hours}", **DEAD)
        conn.execute(
            "UPDATE outbox SET available_at = now() - make_interval(hours => %s)"
            " WHERE ordering_key = %s",
            [hours, f"k{hours}"],
        )
    assert only(conn).oldest_blocked_age == pytest.approx(3 * 3600, abs=60)


def test_the_oldest_ready_age_leaves_out_lanes_that_are_held_up(conn: psycopg.Connection) -> None:
    for head in (DEAD, LEASED, LATER):
        insert(conn, ordering_key="k", **head)
        insert(conn, ordering_key="k", available_at="1999-01-01Z")
        assert only(conn).oldest_ready_age == 0
        conn.execute("DELETE FROM outbox")
    insert(conn, ordering_key="k")
    conn.execute("UPDATE outbox SET available_at = now() - interval '2 hours'")
    assert only(conn).oldest_ready_age == pytest.approx(7200, abs=60)


def test_ready_lanes_are_found_beyond_the_cap_where_their_messages_are_the_oldest_or_the_newest(
    conn: psycopg.Connection,
) -> None:
    insert(conn, ordering_key="z oldest", available_at="1999-01-01Z")
    fill(conn, 50, ordering_key="'k' || g", status="'dead'", pending_since="NULL")
    fill(conn, 50, ordering_key="'k' || g")
    insert(conn, ordering_key="z newest")
    assert lanes(conn, cap=10) == (2, 10, 2, 10)


def test_messages_within_lanes_are_counted_up_to_the_cap_over_all_lanes(
    conn: psycopg.Connection,
) -> None:
    fill(conn, 100, ordering_key="'k' || g % 4")
    assert lanes(conn, cap=10) == (10, 10, 4, 0)
