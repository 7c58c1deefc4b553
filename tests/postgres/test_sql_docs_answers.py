"""What the queries below docs/sql answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from tests.postgres.test_sql_docs import rows
from tests.support.observing import eventually
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from collections.abc import Mapping

DEAD: dict[str, Any] = {"status": "dead", "pending_since": None}


def of(found: list[dict[str, Any]], **wanted: object) -> Mapping[str, Any]:
    """The one row that has these values."""
    (row,) = (each for each in found if wanted.items() <= each.items())
    return row


def test_the_backlog_is_told_by_destination_the_latest_first(conn: psycopg.Connection) -> None:
    insert(conn, destination="bank")
    insert(conn, destination="bank", **DEAD)
    insert(conn, destination="mail", pending_since="1999-01-01Z")
    mail, bank = rows(conn, "backlog")
    assert (mail["destination"], mail["oldest_pending"].days > 1000) == ("mail", True)
    assert (bank["ready"], bank["dead"], bank["at_least"]) == (1, 1, False)
    fill(conn, 10_000, destination="'bank'")
    assert of(rows(conn, "backlog"), destination="bank")["at_least"]


def test_dead_messages_are_told_apart_by_the_words_of_their_error(conn: psycopg.Connection) -> None:
    for number in range(3):
        insert(conn, destination="bank", last_error=f"answered 503 after {number} s", **DEAD)
    insert(conn, destination="bank", last_error="answered 410", **DEAD)
    common, rare = rows(conn, "dead_by_error")
    assert (common["error"], common["messages"]) == ("answered # after # s", 3)
    assert (rare["error"], rare["messages"]) == ("answered #", 1)


def test_a_blocked_key_is_told_with_how_many_wait_behind_it(conn: psycopg.Connection) -> None:
    insert(conn, destination="bank", ordering_key="other")
    head = insert(conn, destination="bank", ordering_key="k", **DEAD)
    for _ in range(3):
        insert(conn, destination="bank", ordering_key="k")
    insert(conn, destination="bank", **DEAD)
    (row,) = rows(conn, "blocked_lanes")
    assert (row["ordering_key"], row["dead_id"], row["waiting"]) == ("k", head, 3)


def test_leases_are_told_by_whom_holds_them_and_which_ran_out(conn: psycopg.Connection) -> None:
    held = {"status": "processing", "destination": "bank"}
    insert(conn, **held, lease_owner="a", lease_until="1999-01-01Z")
    insert(conn, **held, lease_owner="a", lease_until="2999-01-01Z")
    insert(conn, **held, lease_owner="b", lease_until="2999-01-01Z")
    found = rows(conn, "leases")
    assert (of(found, lease_owner="a")["held"], of(found, lease_owner="a")["expired"]) == (2, 1)
    assert (of(found, lease_owner="b")["held"], of(found, lease_owner="b")["expired"]) == (1, 0)


def test_minutes_without_deliveries_are_told_as_0(conn: psycopg.Connection) -> None:
    kept = {"status": "'done'", "pending_since": "NULL"}
    fill(conn, 120, **kept, done_at="now() - interval '3 minutes'")
    fill(conn, 7, **kept, done_at="now() - interval '2 hours'")
    found = rows(conn, "throughput")
    *others, first = found
    assert (first["messages"], first["per_second"]) == (120, 2)
    # One more if a minute ended meanwhile.
    assert len(others) in {3, 4}
    assert {row["messages"] for row in others} == {0}


def test_workers_are_told_with_what_they_serve(conn: psycopg.Connection) -> None:
    conn.execute("""
        INSERT INTO outbox_workers
            (incarnation, owner, version, seen_at, state, slots, busy, destinations)
        VALUES (gen_random_uuid(), 'pod-1', '1', now() - interval '20 s', 'running', 9, 2,
                '{"mail": {}, "bank": {}}')
    """)
    (row,) = rows(conn, "workers")
    assert (row["state"], row["busy"], row["destinations"]) == ("silent", 2, "bank, mail")


def test_who_waits_for_a_row_is_told_with_who_has_it(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn)
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn) as waiter:
        holder.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [number])
        with waiter.pipeline():
            waiter.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [number])
            eventually(lambda: bool(rows(conn, "locks")), "a session that waits")
            (row,) = rows(conn, "locks")
            holder.rollback()
        assert row["blocker"] == holder.info.backend_pid
        assert row["pid"] == waiter.info.backend_pid
