"""What a dispatcher does with messages that come to it late, again, or under suspicion."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgoutbox.dispatch.reclaim import reclaim
from pgoutbox.dispatch.sweep import REAP_BATCH, reap
from pgoutbox.events import Reaped
from pgoutbox.outcome import Unstarted
from tests.support.dispatching import (
    Scripted,
    claimed,
    database,
    dispatching,
    eventually,
    expire,
    row,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg


async def test_what_a_worker_still_holds_it_neither_reclaims_nor_reaps(
    dsn: str, conn: psycopg.Connection
) -> None:
    mine, other = insert(conn), insert(conn)
    async with database(dsn) as db:
        await claimed(db)
        expire(conn)
        assert await reap(db, {"default": 1}, held=[mine, other]) == {}
        again = await reclaim(
            db,
            owner="a",
            lease=30.0,
            slots={"default": (10, 5)},
            suspect_allowed=True,
            held=[mine],
        )
    assert [message.id for message in again] == [other]


async def test_suspects_follow_each_other_without_waiting_for_the_next_interval(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 8)
    async with database(dsn) as db:
        await claimed(db)
    conn.execute("UPDATE outbox SET reclaims = 1")
    expire(conn)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher), reclaim_interval=60.0) as running:
        await running.events.finished(8)
    assert publisher.most == 1


async def test_what_was_claimed_for_a_destination_that_stopped_meanwhile_is_handed_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        running.dispatcher.destinations["default"].stopped = True
        number = insert(conn)
        messages = await claimed(running.dispatcher.db)
        running.dispatcher.starter.begin(messages, 0, time.monotonic())
        await running.events.finished(1)
    assert publisher.begun == []
    assert (row(conn, number)["status"], row(conn, number)["attempts"]) == ("pending", 0)


async def test_a_claim_whose_answer_comes_when_its_lease_is_nearly_over_is_not_published(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    async with database(dsn) as db:
        messages = await claimed(db)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        margin = running.dispatcher.keeper.margin
        sent = time.monotonic() - running.dispatcher.options.lease + margin / 2
        running.dispatcher.starter.begin(messages, 0, sent)
        first, *_ = await running.events.finished(1)
    assert first.outcome == Unstarted()
    assert [message.lease_version for message in publisher.begun] in ([], [2])


async def test_a_worker_goes_on_reaping_until_nothing_is_left(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, REAP_BATCH * 2 + 1)
    async with database(dsn) as db:
        await claimed(db, count=REAP_BATCH * 2 + 1)
    conn.execute("UPDATE outbox SET attempts = 3")
    expire(conn)
    async with dispatching(dsn, to(Scripted()), reap_interval=60.0) as running:
        await running.events.seen(Reaped, 3)
    assert statuses(conn) == {"dead": REAP_BATCH * 2 + 1}


async def test_with_fewer_slots_than_destinations_one_notification_finds_the_message(
    dsn: str, conn: psycopg.Connection
) -> None:
    destinations = [to(Scripted(), f"d{number}") for number in range(6)]
    async with dispatching(dsn, *destinations, max_in_flight=1, max_interval=600.0) as running:
        for count, number in enumerate((5, 0, 3), start=1):
            # From the next look in vain on, it sleeps for longer than the test.
            running.wakeup._interval = 600.0
            await eventually(lambda: running.dispatcher._in_vain == set())
            insert(conn, destination=f"d{number}")
            running.wakeup.notified()
            await running.events.finished(count)


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not this one';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW
    WHEN (NEW.status = 'processing' AND NEW.aggregate_id = 'poison') EXECUTE FUNCTION refuse()
"""


async def test_a_row_that_cannot_be_claimed_is_put_off_and_holds_up_nobody(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute(REFUSE)
    poison = insert(conn, aggregate_id="poison")
    fill(conn, 5)
    insert(conn, destination="other")
    async with dispatching(dsn, to(Scripted()), to(Scripted(), "other")) as running:
        await running.events.finished(6)
    left = row(conn, poison)
    assert (left["status"], left["attempts"], left["lease_version"]) == ("pending", 0, 0)
    assert "not this one" in left["last_error"]
    assert left["available_at"] > left["created_at"]


async def test_an_expired_row_that_cannot_be_reclaimed_holds_up_nobody(
    dsn: str, conn: psycopg.Connection
) -> None:
    poison = insert(conn, aggregate_id="poison")
    async with database(dsn) as db:
        await claimed(db)
    expire(conn)
    conn.execute(REFUSE)
    fill(conn, 5)
    async with dispatching(dsn, to(Scripted())) as running:
        await running.events.finished(5)
    assert row(conn, poison)["status"] == "processing"


async def test_a_destination_that_stops_before_its_turn_does_not_end_the_search(
    dsn: str, conn: psycopg.Connection
) -> None:
    first, second = to(Scripted(), "first"), to(Scripted(), "second")
    async with dispatching(dsn, first, second, max_in_flight=1) as running:
        # The first was asked in vain, and the second's turn never comes.
        second.stopped = True
        running.dispatcher._in_vain.add("first")
        insert(conn, destination="first")
        running.wakeup.ring()
        await running.events.finished(1)
