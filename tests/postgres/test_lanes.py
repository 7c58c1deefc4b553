"""Messages with one ordering key are published in commit order, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pgoutbox
from pgoutbox.errors import RetryableError
from tests.support.dispatching import Scripted, dispatching, to
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from typing import Any

    import psycopg

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.postgres


def enqueue(conn: psycopg.Connection[Any], key: str | None, count: int) -> None:
    pgoutbox.enqueue_many(
        conn,
        [
            pgoutbox.Message(
                aggregate_type="order",
                aggregate_id=str(number),
                event_type="created",
                payload={"n": number},
                ordering_key=key,
            )
            for number in range(count)
        ],
        allow_autocommit=True,
    )


async def test_a_lane_is_published_in_order_and_one_message_at_a_time(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, "a", 120)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(120)
    assert publisher.most == 1
    assert [m.aggregate_id for m in publisher.taken] == [str(n) for n in range(120)]


async def test_lanes_are_published_side_by_side(dsn: str, conn: psycopg.Connection[Any]) -> None:
    for number in range(5):
        enqueue(conn, f"lane {number}", 20)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(100)
    assert publisher.most > 1
    for number in range(5):
        lane = [m.aggregate_id for m in publisher.taken if m.ordering_key == f"lane {number}"]
        assert lane == [str(n) for n in range(20)]


async def test_a_lane_stops_at_a_failure_and_begins_again_there(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, "a", 10)
    failed: list[str] = []

    async def fail_once(message: ClaimedMessage) -> None:
        if message.aggregate_id == "4" and not failed:
            failed.append(message.aggregate_id)
            raise RetryableError("busy")

    publisher = Scripted(fail_once)
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.until(
            lambda: (
                conn.execute("SELECT bool_and(status = 'done') FROM outbox").fetchone() == (True,)
            )
        )
    assert [m.aggregate_id for m in publisher.taken] == [str(n) for n in range(10)]
    attempts = {m.aggregate_id: m.attempts for m in publisher.taken}
    assert attempts == {str(n): 2 if n == 4 else 1 for n in range(10)}


async def test_lanes_of_two_destinations_that_expired_together_each_go_to_their_own(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    insert(conn, ordering_key="a")
    insert(conn, destination="mail", ordering_key="a")
    conn.execute(
        "UPDATE outbox SET status = 'processing', lease_owner = 'gone', lease_version = 1,"
        " attempts = 1, lease_until = now() - interval '1 s'"
    )
    first, second = Scripted(), Scripted()
    async with dispatching(dsn, to(first), to(second, "mail")) as running:
        await running.events.finished(2)
    assert [message.destination for message in first.taken] == ["default"]
    assert [message.destination for message in second.taken] == ["mail"]
