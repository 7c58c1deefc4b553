from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Finish
from tests.support.dispatching import (
    claimed,
    expire,
    reclaimed,
    row,
    settled,
    statuses,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database


def leased(conn: psycopg.Connection[Any], **columns: object) -> int:
    """A row whose lease has expired."""
    lease = {"status": "processing", "lease_owner": "w-7", "lease_until": dt.datetime.now(dt.UTC)}
    number = insert(conn, **lease | columns)
    expire(conn)
    return number


async def test_what_expired_at_its_limit_is_buried_with_a_reason_for_people(
    db: Database, conn: psycopg.Connection
) -> None:
    number = leased(conn, attempts=3, lease_version=7)
    assert await reap(db, {"default": 3}) == {"default": 1}
    end = row(conn, number)
    assert (end["status"], end["attempts"], end["lease_version"]) == ("dead", 3, 8)
    assert (end["lease_owner"], end["lease_until"], end["pending_since"]) == (None, None, None)
    assert end["last_error"].startswith("the lease of w-7 expired at attempt 3")
    assert end["done_at"] is not None


async def test_what_expired_below_its_limit_or_did_not_expire_is_left_alone(
    db: Database, conn: psycopg.Connection
) -> None:
    leased(conn, attempts=2)
    insert(conn, created_at=dt.datetime.now(dt.UTC) - dt.timedelta(days=300), attempts=2)
    await claimed(db)
    assert await reap(db, {"default": 3}) == {}
    assert statuses(conn) == {"processing": 2}


async def test_a_worker_buries_only_for_the_destinations_that_it_serves(
    db: Database, conn: psycopg.Connection
) -> None:
    mine = leased(conn, destination="mine", attempts=5)
    theirs = leased(conn, destination="theirs", attempts=5)
    assert await reap(db, {"mine": 5}) == {"mine": 1}
    assert row(conn, mine)["status"] == "dead"
    assert row(conn, theirs)["status"] == "processing"


async def test_each_destination_is_judged_by_its_own_limit(
    db: Database, conn: psycopg.Connection
) -> None:
    for name in ("patient", "strict"):
        leased(conn, destination=name, attempts=5)
    assert await reap(db, {"patient": 9, "strict": 5}) == {"strict": 1}


async def test_an_ordered_message_that_is_reaped_still_blocks_its_lane(
    db: Database, conn: psycopg.Connection
) -> None:
    number = leased(conn, ordering_key="k", attempts=3)
    assert await reap(db, {"default": 3}) == {"default": 1}
    assert (row(conn, number)["status"], row(conn, number)["done_at"]) == ("dead", None)


async def test_a_row_that_is_being_finalized_or_taken_over_is_stepped_over(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    number = leased(conn, attempts=3, lease_version=7)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [number])
        assert await reap(db, {"default": 3}) == {}
        other.execute(
            "UPDATE outbox SET status = 'done', done_at = now(), lease_until = NULL,"
            " lease_owner = NULL, pending_since = NULL WHERE id = %s AND lease_version = 7",
            [number],
        )
        other.commit()
    assert await reap(db, {"default": 3}) == {}
    assert row(conn, number)["status"] == "done"


async def test_the_late_owner_of_a_reaped_row_is_told_that_it_lost_it(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn, attempts=2)
    [message] = await claimed(db)
    expire(conn)
    await reap(db, {"default": 3})
    late = await finalize(db, [settled(message, Finish())], retried=True)
    assert (len(late.lost), late.already_written) == (1, [])
    assert statuses(conn) == {"dead": 1}


async def test_a_crowd_is_reaped_in_batches_and_none_of_it_is_handed_out(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 700, status="'processing'", lease_owner="'x'", lease_until="now()", attempts="3")
    expire(conn)
    assert await reclaimed(db, limit=3, count=9) == []
    assert await reap(db, {"default": 3}) == {"default": 500}
    assert await reap(db, {"default": 3}) == {"default": 200}
    assert statuses(conn) == {"dead": 700}


async def test_a_very_long_name_of_an_owner_does_not_keep_a_row_from_being_buried(
    db: Database, conn: psycopg.Connection
) -> None:
    number = leased(conn, attempts=3, lease_owner="w" * 5000)
    await reap(db, {"default": 3})
    assert len(row(conn, number)["last_error"]) == 2000
