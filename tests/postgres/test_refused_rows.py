"""Single rows that nothing can be written to, as under a legal hold, and all the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.careful import MAX_TRIES
from pgoutbox.events import DatabaseFailed, Reaped
from tests.support.dispatching import Scripted, dispatching, eventually, statuses, to
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from tests.support.dispatching import Running


def hold(conn: psycopg.Connection[Any]) -> None:
    """Refuse every update of a message whose aggregate is held."""
    conn.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " IF NEW.aggregate_id LIKE 'held%' THEN RAISE EXCEPTION 'legal hold'; END IF;"
        " RETURN NEW; END$$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()"
    )


def expired(conn: psycopg.Connection[Any], count: int, attempts: int, **columns: str) -> None:
    """Messages of a worker that is no more; the first one's aggregate is held."""
    fill(
        conn,
        count,
        aggregate_id="CASE WHEN g = 1 THEN 'held' ELSE 'other' END",
        status="'processing'",
        lease_owner="'gone'",
        lease_until="now() - interval '5 s' + g * interval '1 ms'",
        attempts=str(attempts),
        **columns,
    )


def told(running: Running) -> list[str]:
    return [failed.error for failed in running.events.of(DatabaseFailed)]


@pytest.mark.parametrize("held", [1, 7])
async def test_messages_that_no_update_can_touch_hold_up_no_other_message(
    dsn: str, conn: psycopg.Connection, held: int
) -> None:
    hold(conn)
    fill(conn, held, aggregate_id="'held'")
    fill(conn, 5)
    fill(conn, 5, ordering_key="'lane ' || g")
    fill(conn, 5, destination="'other'")
    mine, other = Scripted(), Scripted()
    async with dispatching(dsn, to(mine), to(other, "other")) as running:
        await running.events.finished(15)
        fill(conn, 5)
        await running.events.finished(20)
    assert (len(mine.taken), len(other.taken)) == (15, 5)
    assert statuses(conn) == {"pending": held, "done": 20}
    assert len([error for error in told(running) if "legal hold" in error]) == held


async def test_a_crowd_that_no_update_can_touch_is_passed_without_a_pause(
    dsn: str, conn: psycopg.Connection
) -> None:
    hold(conn)
    long_ago = "now() - interval '1 hour'"
    fill(conn, 2 * MAX_TRIES + 20, aggregate_id="'held'", available_at=long_ago)
    fill(conn, 5, available_at=long_ago)
    async with dispatching(dsn, to(Scripted()), max_interval=2.0) as running:
        await running.events.finished(5)
    assert len(told(running)) == 2 * MAX_TRIES + 20


async def test_a_head_that_no_update_can_touch_holds_up_its_own_lane_only(
    dsn: str, conn: psycopg.Connection
) -> None:
    hold(conn)
    first = insert(conn, aggregate_id="held", ordering_key="b")
    fill(conn, 3, ordering_key="'b'")
    fill(conn, 9, ordering_key="chr(96 + g)", aggregate_id="'free'")
    fill(conn, 1)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(9)
        fill(conn, 9, ordering_key="'new ' || g")
        await running.events.finished(18)
        before = len(told(running))
        # Asked again and again, of the lane as well, and nothing fails any more.
        for count in range(19, 40):
            insert(conn, ordering_key="another")
            await running.events.finished(count)
        assert len(told(running)) == before
    assert [error for error in told(running) if f"id {first}," in error] == told(running)
    assert len(told(running)) == 1
    assert {message.ordering_key for message in publisher.taken} >= {"a", "c", "new 9"}
    assert "b" not in {message.ordering_key for message in publisher.taken}


@pytest.mark.parametrize("key", ["NULL", "'lane ' || g"])
async def test_an_expired_message_that_no_update_can_touch_keeps_no_other_from_being_reclaimed(
    dsn: str, conn: psycopg.Connection, key: str
) -> None:
    hold(conn)
    expired(conn, 6, 1, ordering_key=key)
    async with dispatching(dsn, to(Scripted())) as running:
        await running.events.finished(5)
        expired(
            conn, 6, 1, ordering_key=key.replace("lane", "late"), message_id="gen_random_uuid()"
        )
        await running.events.finished(10)
    assert statuses(conn) == {"processing": 2, "done": 10}
    assert len(told(running)) == 2


async def test_what_expired_behind_an_untouchable_message_of_its_lane_goes_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    hold(conn)
    expired(conn, 3, 1, ordering_key="'lane'")
    async with dispatching(dsn, to(Scripted())):
        await eventually(lambda: statuses(conn) == {"processing": 1, "pending": 2})
    found = conn.execute("SELECT status FROM outbox ORDER BY id")
    assert found.fetchall() == [("processing",), ("pending",), ("pending",)]


@pytest.mark.parametrize("key", ["NULL", "'lane ' || g"])
async def test_a_spent_message_that_no_update_can_touch_keeps_no_other_from_being_buried(
    dsn: str, conn: psycopg.Connection, key: str
) -> None:
    hold(conn)
    expired(conn, 6, 3, ordering_key=key)
    async with dispatching(dsn, to(Scripted())) as running:
        await running.events.until(
            lambda: (
                sum(reaped.destination_counts["default"] for reaped in running.events.of(Reaped))
                == 5
            )
        )
    assert statuses(conn) == {"processing": 1, "dead": 5}
    assert len(told(running)) == 1
