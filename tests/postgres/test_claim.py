from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.dispatch.claim import claim
from tests.support.dispatching import claimed, expire, reclaimed, row, statuses
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database


async def test_a_claimed_message_carries_the_row_as_the_producer_wrote_it(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn, headers='{"trace": "é"}', event_type="paid", destination="billing")
    [message] = await claimed(db, destination="billing")
    stored = row(conn, number)
    assert message.id == number
    assert (message.lease_version, message.attempts, message.reclaims) == (1, 1, 0)
    assert str(message.message_id) == stored["message_id"]
    assert (message.destination, message.event_type) == ("billing", "paid")
    assert (message.aggregate_type, message.aggregate_id) == ("order", "o-1")
    assert (message.body, message.content_type) == (b'{"total": 1}', "application/json")
    assert message.headers == {"trace": "é"}
    assert 0.0 <= message.age < 60.0


async def test_the_age_of_a_scheduled_message_counts_from_when_it_was_due(
    db: Database, conn: psycopg.Connection
) -> None:
    now = dt.datetime.now(dt.UTC)
    week, minute = dt.timedelta(days=7), dt.timedelta(minutes=1)
    insert(conn, created_at=now - week, available_at=now - minute)
    insert(conn, created_at=now - week, available_at=now - week, pending_since=now - week)
    insert(conn, pending_since=now + minute)
    scheduled, late, early = await claimed(db)
    assert 60.0 <= scheduled.age < 120.0
    assert week.total_seconds() <= late.age < week.total_seconds() + 60.0
    assert early.age == 0.0
    expire(conn)
    assert [message.age >= 60.0 for message in await reclaimed(db)] == [True, True, False]


async def test_bytes_and_huge_numbers_are_handed_on_unparsed(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn, payload=None, body=b"\x00\xff", content_type="application/x-protobuf")
    insert(conn, payload='{"n": 12345678901234567890123, "d": 0.1234567890123456789}')
    insert(conn, payload='"中文"')
    assert [message.body for message in await claimed(db)] == [
        b"\x00\xff",
        b'{"d": 0.1234567890123456789, "n": 12345678901234567890123}',
        '"中文"'.encode(),
    ]


async def test_a_claim_leases_the_row_to_its_owner_for_as_long_as_asked(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    await claim(db, owner="w-0", lease=90.0, slots={"default": 1})
    left = conn.execute(
        "SELECT status, lease_owner, lease_until BETWEEN now() + interval '80 s'"
        " AND now() + interval '90 s' FROM outbox WHERE id = %s",
        [number],
    ).fetchone()
    assert left == ("processing", "w-0", True)


async def test_the_oldest_due_messages_come_first_and_those_due_later_not_at_all(
    db: Database, conn: psycopg.Connection
) -> None:
    now = dt.datetime.now(dt.UTC)
    late = insert(conn, available_at=now - dt.timedelta(minutes=1))
    first = insert(conn, available_at=now - dt.timedelta(minutes=9))
    second = insert(conn, available_at=now - dt.timedelta(minutes=5))
    insert(conn, available_at=now + dt.timedelta(hours=1))
    assert [message.id for message in await claimed(db, count=2)] == [first, second]
    assert [message.id for message in await claimed(db, count=9)] == [late]


async def test_every_destination_gets_what_its_slots_hold_and_no_other_is_touched(
    db: Database, conn: psycopg.Connection
) -> None:
    for name in ("a", "b", "c", "d"):
        fill(conn, 5, destination=f"'{name}'")
    slots = {"a": 2, "b": 9, "c": 0}
    brought = await claim(db, owner="w", lease=30.0, slots=slots)
    assert Counter(message.destination for message in brought) == {"a": 2, "b": 5}
    assert [message.id for message in brought] == sorted(message.id for message in brought)


async def test_only_pending_messages_are_claimed_whatever_else_there_is(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 3, status="'done'", done_at="now()", pending_since="NULL")
    fill(conn, 3, status="'dead'", done_at="now()", pending_since="NULL")
    fill(conn, 3, status="'processing'", lease_owner="'x'", lease_until="now() + interval '1 h'")
    fill(conn, 3)
    expire(conn)
    assert len(await claimed(db, count=99)) == 3
    assert statuses(conn) == {"done": 3, "dead": 3, "processing": 6}


async def test_an_ordered_message_is_never_taken_by_the_claim_of_unordered_ones(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn, ordering_key="k")
    free = insert(conn)
    assert [message.id for message in await claimed(db)] == [free]


async def test_rows_that_somebody_has_locked_are_stepped_over_without_waiting(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 10)
    with psycopg.connect(dsn) as other:
        locked = {
            number
            for (number,) in other.execute(
                "SELECT id FROM outbox ORDER BY id LIMIT 5 FOR UPDATE"
            ).fetchall()
        }
        brought = {message.id for message in await claimed(db, count=5)}
        assert len(brought) == 5
        assert brought.isdisjoint(locked)


async def test_a_low_id_that_commits_late_is_claimed_all_the_same(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    with psycopg.connect(dsn) as slow:
        early = insert(slow)
        late = insert(conn)
        assert [message.id for message in await claimed(db)] == [late]
        slow.commit()
    assert early < late
    assert [message.id for message in await claimed(db)] == [early]


async def test_ids_and_versions_beyond_two_thousand_million_are_ordinary(
    db: Database, conn: psycopg.Connection
) -> None:
    conn.execute("ALTER TABLE outbox ALTER COLUMN id RESTART WITH 5000000000")
    number = insert(conn, lease_version=3_000_000_000)
    [message] = await claimed(db)
    assert (message.id, message.lease_version) == (number, 3_000_000_001)
    assert number >= 5_000_000_000


async def test_leases_of_others_neither_fill_the_slots_nor_hide_new_rows(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 5, status="'processing'", lease_owner="'x'", lease_until="now() + interval '1 h'")
    expire(conn)
    fill(conn, 5)
    assert len(await claimed(db, count=5)) == 5
