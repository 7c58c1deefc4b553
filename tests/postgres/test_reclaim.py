from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import is_suspect
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.reclaim import reclaim
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Finish, Retry
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
    import psycopg

    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage


async def test_only_the_end_of_the_lease_makes_a_row_free_for_others(
    db: Database, conn: psycopg.Connection
) -> None:
    old = insert(conn, created_at=dt.datetime.now(dt.UTC) - dt.timedelta(days=300))
    await claimed(db, owner="w-0")
    assert await reclaimed(db, owner="w-0") == []
    assert await reclaimed(db, owner="w-1") == []
    expire(conn)
    assert [message.id for message in await reclaimed(db, owner="w-1")] == [old]
    assert row(conn, old)["lease_owner"] == "w-1"


async def test_a_worker_that_was_restarted_under_its_old_name_waits_like_any_other(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn)
    [before] = await claimed(db, owner="w-0")
    assert await reclaimed(db, owner="w-0") == []
    expire(conn)
    [after] = await reclaimed(db, owner="w-0")
    late = await finalize(db, [settled(before, Finish())], retried=False)
    assert (late.written, len(late.lost)) == ([], 1)
    assert (after.attempts, after.reclaims) == (2, 1)


async def test_a_row_at_its_limit_of_attempts_is_never_handed_out_again(
    db: Database, conn: psycopg.Connection
) -> None:
    lease = {"status": "processing", "lease_owner": "x", "lease_until": dt.datetime.now(dt.UTC)}
    insert(conn, attempts=3, **lease)
    below = insert(conn, attempts=2, **lease)
    expire(conn)
    assert [message.id for message in await reclaimed(db, limit=3)] == [below]


async def test_an_ordered_message_is_never_taken_by_the_reclaim_of_unordered_ones(
    db: Database, conn: psycopg.Connection
) -> None:
    lease = {"status": "processing", "lease_owner": "x", "lease_until": dt.datetime.now(dt.UTC)}
    for reclaims in (0, 5):
        insert(conn, ordering_key="k", attempts=1, reclaims=reclaims, **lease)
    expire(conn)
    assert await reclaimed(db) == []


async def test_every_destination_reclaims_up_to_its_slots_and_below_its_own_limit(
    db: Database, conn: psycopg.Connection
) -> None:
    for name in ("a", "b", "c"):
        fill(
            conn,
            5,
            destination=f"'{name}'",
            status="'processing'",
            lease_owner="'x'",
            lease_until="now()",
            attempts="g",
        )
    expire(conn)
    brought = await reclaim(
        db, owner="w", lease=30.0, slots={"a": (2, 9), "b": (9, 4)}, suspect_allowed=True
    )
    assert Counter(message.destination for message in brought) == {"a": 2, "b": 3}


async def test_any_finalize_clears_a_row_of_the_suspicion(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    await claimed(db)
    for _ in range(3):
        expire(conn)
        [message] = await reclaimed(db, limit=9)
    assert is_suspect(message)
    await finalize(db, [settled(message, Retry(0.0, "busy"))], retried=False)
    assert row(conn, number)["reclaims"] == 0
    [again] = await claimed(db)
    assert not is_suspect(again)


async def test_suspects_come_one_at_a_time_and_not_while_another_is_held(
    db: Database, conn: psycopg.Connection
) -> None:
    for _ in range(5):
        insert(conn)
    await claimed(db)
    expire(conn)
    assert len(await reclaimed(db, limit=9)) == 5
    expire(conn)
    assert await reclaimed(db, limit=9, suspect_allowed=False) == []
    [suspect] = await reclaimed(db, limit=9)
    assert is_suspect(suspect)


async def test_suspects_of_several_destinations_do_not_travel_together_either(
    db: Database, conn: psycopg.Connection
) -> None:
    for name in ("a", "b", "c"):
        insert(
            conn,
            destination=name,
            status="processing",
            lease_owner="x",
            lease_until=dt.datetime.now(dt.UTC),
            reclaims=1,
        )
    expire(conn)
    slots = dict.fromkeys("abc", (9, 9))
    brought = await reclaim(db, owner="w", lease=30.0, slots=slots, suspect_allowed=True)
    assert len(brought) == 1


async def test_a_message_that_kills_its_worker_takes_none_of_its_neighbours_along(
    db: Database, conn: psycopg.Connection
) -> None:
    """Twenty rows at a limit of five; whoever holds the poison dies with all that it holds."""
    poison = insert(conn)
    fill(conn, 19)
    crashes = 0
    for _ in range(200):
        held = await a_workers_life(db)
        if any(message.id == poison for message in held):
            crashes += 1
        else:
            batch = [settled(message, Finish()) for message in held]
            await finalize(db, batch, retried=False)
        expire(conn)
        await reap(db, {"default": 5})
        if "processing" not in statuses(conn) and "pending" not in statuses(conn):
            break
    assert statuses(conn) == {"done": 19, "dead": 1}
    assert row(conn, poison)["status"] == "dead"
    assert crashes == 5


async def a_workers_life(db: Database) -> list[ClaimedMessage]:
    """What a fresh worker takes in its first round."""
    held = await reclaimed(db, count=20, limit=5)
    return held + await claimed(db, count=20 - len(held))
