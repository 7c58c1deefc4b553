"""How many bytes one claim may bring, whatever the slots have room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.reclaim import reclaim
from tests.support.dispatching import expire, statuses
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.claim import ClaimedBatch

KIB = 1024


async def claim_within(db: Database, kib: int, **slots: int) -> ClaimedBatch:
    return await claim(db, owner="a", lease=30.0, slots=slots, budget=kib * KIB)


def large(conn: psycopg.Connection, kib: int, destination: str = "default") -> int:
    body = b"\x00" * (kib * KIB)
    return insert(conn, payload=None, body=body, destination=destination)


async def test_a_claim_brings_no_more_bytes_than_its_budget_and_leaves_the_rest_pending(
    db: Database, conn: psycopg.Connection
) -> None:
    for _ in range(7):
        large(conn, 300)
    first = await claim_within(db, 1000, default=50)
    assert (len(first), first.cut) == (3, True)
    assert statuses(conn) == {"processing": 3, "pending": 4}
    assert conn.execute(
        "SELECT array_agg(DISTINCT attempts) FROM outbox WHERE status = 'pending'"
    ).fetchone() == ([0],)
    second = await claim_within(db, 1000, default=50)
    last = await claim_within(db, 1000, default=50)
    assert [(len(batch), batch.cut) for batch in (second, last)] == [(3, True), (1, False)]
    ids = [message.id for batch in (first, second, last) for message in batch]
    assert ids == sorted(ids)
    assert len(set(ids)) == 7


async def test_a_message_larger_than_the_budget_travels_alone(
    db: Database, conn: psycopg.Connection
) -> None:
    small, huge, later = large(conn, 1), large(conn, 900), large(conn, 1)
    brought = [await claim_within(db, 100, default=50) for _ in range(4)]
    assert [[message.id for message in batch] for batch in brought] == [
        [small],
        [huge],
        [later],
        [],
    ]
    assert [batch.cut for batch in brought] == [True, True, False, False]


async def test_large_messages_for_one_destination_do_not_starve_another(
    db: Database, conn: psycopg.Connection
) -> None:
    for _ in range(5):
        large(conn, 900, "a")
    for _ in range(5):
        large(conn, 1, "b")
    brought = await claim_within(db, 1000, a=50, b=50, c=50)
    assert [message.destination for message in brought] == ["a"] + ["b"] * 5
    assert brought.cut


async def test_slots_that_are_filled_within_the_budget_cut_nothing(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    brought = await claim_within(db, 1000, default=10)
    assert (len(brought), brought.cut) == (10, False)


async def test_what_a_payload_and_its_headers_take_in_the_table_counts(
    db: Database, conn: psycopg.Connection
) -> None:
    noise = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3200) n)"
    fill(conn, 2, payload=f"to_jsonb({noise})")
    fill(conn, 2, headers=f"jsonb_build_object('x', {noise})")
    assert len(await claim_within(db, 250, default=50)) == 2
    assert len(await claim_within(db, 250, default=50)) == 2


async def test_a_reclaim_keeps_to_its_budget_too(db: Database, conn: psycopg.Connection) -> None:
    for _ in range(5):
        large(conn, 300)
    await claim_within(db, 9999, default=50)
    expire(conn)
    brought = []
    for _ in range(3):
        batch = await reclaim(
            db,
            owner="b",
            lease=30.0,
            slots={"default": (50, 9)},
            suspect_allowed=True,
            budget=700 * KIB,
        )
        brought.append((len(batch), batch.cut))
    assert brought == [(2, True), (2, True), (1, False)]
