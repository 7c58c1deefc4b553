from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.renew import renew
from pgoutbox.outcome import Finish
from tests.support.dispatching import claimed, expire, reclaimed, row, settled
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.pool import Database


def left(conn: psycopg.Connection[Any], number: int) -> float:
    """Seconds to the end of the lease."""
    found = conn.execute(
        "SELECT extract(epoch FROM lease_until - now())::float8 FROM outbox WHERE id = %s",
        [number],
    ).fetchone()
    assert found is not None
    seconds: float = found[0]
    return seconds


async def test_a_renewed_lease_ends_later_and_nothing_else_changes(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    [message] = await claimed(db)
    before = row(conn, number)
    assert await renew(db, [message], lease=300.0) == ({message.lease}, set())
    assert 290 < left(conn, number) <= 300
    assert row(conn, number) | {"lease_until": None} == before | {"lease_until": None}


async def test_a_lease_that_ran_out_unnoticed_is_ours_again_after_a_renewal(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn)
    [message] = await claimed(db)
    expire(conn)
    assert await renew(db, [message], lease=30.0) == ({message.lease}, set())
    assert await reclaimed(db) == []


async def test_what_was_finished_taken_over_or_deleted_is_not_renewed(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 4)
    finished, taken, deleted, kept = messages = await claimed(db)
    await finalize(db, [settled(finished, Finish())], retried=False)
    conn.execute("DELETE FROM outbox WHERE id = %s", [deleted.id])
    conn.execute("UPDATE outbox SET lease_until = now() WHERE id = %s", [taken.id])
    [theirs] = await reclaimed(db, owner="b")
    before = row(conn, taken.id)
    lost = {message.lease for message in messages} - {kept.lease}
    assert await renew(db, messages, lease=300.0) == ({kept.lease}, lost)
    assert row(conn, taken.id) == before
    assert row(conn, finished.id)["status"] == "done"
    assert theirs.id == taken.id
