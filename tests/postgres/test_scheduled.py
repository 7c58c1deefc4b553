"""Messages that are not to be delivered yet, from the enqueue to the publisher."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import pgoutbox
from pgoutbox import Message
from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.errors import Defer
from tests.support.dispatching import Scripted, dispatching, raising, row, to, until_true
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage

GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload=1)
AN_HOUR = dt.timedelta(hours=1)
PATIENT = RetryPolicy(base=0.0, cap=0.0, max_attempts=3, defer_max_age=3600.0)
NOTHING_DUE = b"""
SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'processing')
   AND NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND ordering_key = 'l')
"""


def enqueue(conn: psycopg.Connection[Any], event_type: str, **fields: Any) -> None:
    with conn.transaction():
        pgoutbox.enqueue(conn, replace(GOOD, event_type=event_type, **fields))


def due_now(conn: psycopg.Connection[Any], event_type: str) -> None:
    """As if the time had come."""
    conn.execute(
        "UPDATE outbox SET available_at = now(), pending_since = now() WHERE event_type = %s",
        [event_type],
    )


def names(publisher: Scripted) -> list[str]:
    return [message.event_type for message in publisher.taken]


@pytest.mark.parametrize("ordering_key", [None, "k"])
async def test_a_message_is_published_after_its_time_and_not_before(
    dsn: str, conn: psycopg.Connection, ordering_key: str | None
) -> None:
    seen: list[tuple[str, bool]] = []

    async def look(message: ClaimedMessage) -> None:
        found = conn.execute(
            "SELECT event_type, clock_timestamp() >= available_at FROM outbox WHERE id = %s",
            [message.id],
        ).fetchone()
        assert found is not None
        seen.append(found)

    soon = dt.datetime.now(tz=dt.UTC) + dt.timedelta(seconds=0.4)
    enqueue(conn, "delayed", ordering_key=ordering_key, delay=dt.timedelta(seconds=0.3))
    enqueue(conn, "at a time", ordering_key=ordering_key, available_at=soon)
    enqueue(conn, "never", ordering_key="another", delay=AN_HOUR)
    async with dispatching(dsn, to(Scripted(look))) as running:
        await running.events.finished(2)
    assert seen == [("delayed", True), ("at a time", True)]


@pytest.mark.parametrize("ordering_key", [None, "k"])
async def test_a_time_that_has_passed_is_now(
    dsn: str, conn: psycopg.Connection, ordering_key: str | None
) -> None:
    past = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
    enqueue(conn, "late", ordering_key=ordering_key, available_at=past)
    async with dispatching(dsn, to(Scripted())) as running:
        await running.events.finished(1)


async def test_a_scheduled_message_holds_back_those_behind_it_in_its_lane_and_nobody_else(
    dsn: str, conn: psycopg.Connection
) -> None:
    enqueue(conn, "first", ordering_key="k")
    enqueue(conn, "scheduled", ordering_key="k", delay=AN_HOUR)
    enqueue(conn, "behind", ordering_key="k")
    enqueue(conn, "elsewhere", ordering_key="l")
    enqueue(conn, "unordered")
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(3)
        await until_true(conn, NOTHING_DUE)
        assert set(names(publisher)) == {"first", "elsewhere", "unordered"}
        due_now(conn, "scheduled")
        await running.events.finished(5)
    assert names(publisher)[3:] == ["scheduled", "behind"]


async def test_a_deferred_head_holds_back_its_lane_until_it_is_taken(
    dsn: str, conn: psycopg.Connection
) -> None:
    async def once(message: ClaimedMessage) -> None:
        if message.event_type == "first" and not deferred:
            deferred.append(message)
            raise Defer(AN_HOUR, "not yet")

    deferred: list[ClaimedMessage] = []
    enqueue(conn, "first", ordering_key="k")
    enqueue(conn, "behind", ordering_key="k")
    enqueue(conn, "elsewhere", ordering_key="l")
    publisher = Scripted(once)
    async with dispatching(dsn, to(publisher, policy=PATIENT)) as running:
        await running.events.finished(2)
        await until_true(conn, NOTHING_DUE)
        assert names(publisher) == ["elsewhere"]
        due_now(conn, "first")
        await running.events.finished(4)
    assert names(publisher) == ["elsewhere", "first", "behind"]


@pytest.mark.parametrize(
    ("owed_for", "status", "said"),
    [
        ("59 minutes", "pending", "deferred: x"),
        ("61 minutes", "dead", "deferred for longer than 3600 s: x"),
    ],
)
async def test_a_message_that_is_deferred_again_and_again_is_dead_at_the_cap_of_its_age(
    dsn: str, conn: psycopg.Connection, owed_for: str, status: str, said: str
) -> None:
    number = insert(conn)
    conn.execute("UPDATE outbox SET pending_since = now() - %s::interval", [owed_for])
    publisher = Scripted(raising(lambda: Defer(dt.timedelta(minutes=10), "x")))
    async with dispatching(dsn, to(publisher, policy=PATIENT)) as running:
        await running.events.finished(1)
    end = row(conn, number)
    assert (end["status"], end["last_error"]) == (status, said)
    assert end["attempts"] == (1 if status == "dead" else 0)


async def test_the_cap_on_deferrals_counts_from_when_a_message_was_due_not_from_its_enqueue(
    dsn: str, conn: psycopg.Connection
) -> None:
    enqueue(conn, "scheduled long ago", delay=AN_HOUR)
    conn.execute("UPDATE outbox SET created_at = now() - interval '30 days'")
    due_now(conn, "scheduled long ago")
    publisher = Scripted(raising(lambda: Defer(dt.timedelta(minutes=10), "x")))
    async with dispatching(dsn, to(publisher, policy=PATIENT)) as running:
        await running.events.finished(1)
    assert conn.execute("SELECT status FROM outbox").fetchone() == ("pending",)
