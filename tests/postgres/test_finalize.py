from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch import finalize as module
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition
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
    import pytest

    from pgoutbox.database.pool import Database


def due_in(conn: psycopg.Connection[Any], number: int) -> float:
    found = conn.execute(
        "SELECT extract(epoch FROM available_at - now())::float8 FROM outbox WHERE id = %s",
        [number],
    ).fetchone()
    assert found is not None
    seconds: float = found[0]
    return seconds


async def test_each_transition_leaves_its_row_as_the_protocol_says(
    db: Database, conn: psycopg.Connection
) -> None:
    transitions: list[Transition] = [
        Finish(),
        Retry(600.0, "busy"),
        DeferUntil(600.0, "later"),
        Release(600.0, "nobody there"),
        Release(),
        Bury("too large"),
    ]
    fill(conn, len(transitions))
    messages = await claimed(db, count=99)
    conn.execute("UPDATE outbox SET reclaims = 2")
    batch = [settled(message, what) for message, what in zip(messages, transitions, strict=True)]
    result = await finalize(db, batch, retried=False)
    assert result.written == batch
    rows = [row(conn, message.id) for message in messages]
    assert [(r["status"], r["attempts"], r["last_error"]) for r in rows] == [
        ("done", 1, None),
        ("pending", 1, "busy"),
        ("pending", 0, "later"),
        ("pending", 0, "nobody there"),
        ("pending", 0, None),
        ("dead", 1, "too large"),
    ]
    for r in rows:
        assert (r["lease_owner"], r["lease_until"], r["reclaims"]) == (None, None, 0)
        assert r["lease_version"] == 1
        assert (r["pending_since"] is None) == (r["status"] in ("done", "dead"))
        assert (r["done_at"] is None) == (r["status"] == "pending")
    due = [due_in(conn, message.id) for message in messages]
    assert all(590 < seconds <= 600 for seconds in due[1:4])
    assert all(seconds <= 0 for seconds in (due[0], *due[4:]))


async def test_what_is_handed_back_keeps_its_place_in_the_order(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    before = row(conn, number)["available_at"]
    [message] = await claimed(db)
    await finalize(db, [settled(message, Release())], retried=False)
    assert row(conn, number)["available_at"] == before


async def test_the_reason_of_the_last_failure_stays_until_the_message_is_done(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    stories: list[tuple[Transition, str | None]] = [
        (Retry(0.0, "busy"), "busy"),
        (Release(), "busy"),
        (Finish(), None),
    ]
    for transition, told in stories:
        [message] = await claimed(db)
        await finalize(db, [settled(message, transition)], retried=False)
        assert row(conn, number)["last_error"] == told


async def test_an_ordered_message_that_is_buried_still_blocks_its_lane(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    [message] = await claimed(db)
    conn.execute("UPDATE outbox SET ordering_key = 'k'")
    await finalize(db, [settled(message, Bury("too large"))], retried=False)
    assert (row(conn, number)["status"], row(conn, number)["done_at"]) == ("dead", None)


async def test_a_row_with_a_newer_lease_is_lost_and_its_neighbours_are_written(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 3)
    old = await claimed(db)
    conn.execute(
        "UPDATE outbox SET lease_until = now() - interval '1 s' WHERE id = %s", [old[1].id]
    )
    [new] = await reclaimed(db)
    result = await finalize(db, [settled(m, Finish()) for m in old], retried=False)
    assert [s.message.id for s in result.written] == [old[0].id, old[2].id]
    assert [s.message for s in result.lost] == [old[1]]
    assert row(conn, new.id)["lease_owner"] == "b"


async def test_two_leases_of_one_row_in_one_batch_are_told_apart(
    db: Database, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    [old] = await claimed(db)
    expire(conn)
    [new] = await reclaimed(db, owner="a")
    batch = [settled(old, Bury("stale")), settled(new, Finish())]
    result = await finalize(db, batch, retried=False)
    assert (result.written, result.lost) == ([batch[1]], [batch[0]])
    assert row(conn, number)["status"] == "done"


async def test_only_the_rows_of_the_batch_are_written(
    db: Database, conn: psycopg.Connection
) -> None:
    first = insert(conn)
    [message] = await claimed(db)
    late = insert(conn)
    await finalize(db, [settled(message, Finish())], retried=False)
    assert (row(conn, first)["status"], row(conn, late)["status"]) == ("done", "pending")


async def test_a_retry_recognises_what_its_lost_answer_had_written(
    db: Database, conn: psycopg.Connection
) -> None:
    transitions: list[Transition] = [Finish(), Retry(600.0, "busy"), Bury("too large"), Finish()]
    fill(conn, len(transitions))
    messages = await claimed(db)
    batch = [settled(message, what) for message, what in zip(messages, transitions, strict=True)]
    await finalize(db, batch[:3], retried=False)
    result = await finalize(db, batch, retried=True)
    assert (result.already_written, result.written) == (batch[:3], batch[3:])
    assert (result.lost, result.unknown) == ([], [])


async def test_a_retry_calls_a_row_that_is_gone_unknown_and_a_newer_version_lost(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 3)
    batch = [settled(message, Finish()) for message in await claimed(db)]
    gone, reclaimed_by_b, reaped = batch
    conn.execute("DELETE FROM outbox WHERE id = %s", [gone.message.id])
    expire(conn)
    await reclaimed(db, count=1)
    conn.execute("UPDATE outbox SET attempts = 9 WHERE lease_owner = 'a'")
    await reap(db, {"default": 9})
    assert statuses(conn) == {"processing": 1, "dead": 1}
    result = await finalize(db, batch, retried=True)
    assert result.unknown == [gone]
    assert result.lost == [reclaimed_by_b, reaped]
    assert result.written == result.already_written == []


async def test_a_row_that_the_database_refuses_does_not_take_its_neighbours_along(
    db: Database, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(conn, 50)
    messages = await claimed(db, count=50)
    bad = messages[17].id
    monkeypatch.setattr(module, "clean", lambda error: error * 3000 if error == "!" else error)
    batch = [settled(m, Retry(0.0, "!" if m.id == bad else "busy")) for m in messages]
    result = await finalize(db, batch, retried=False)
    assert [refused.settled.message.id for refused in result.refused] == [bad]
    assert len(result.written) == 49
    assert result.lost == []
    assert statuses(conn) == {"pending": 49, "processing": 1}


async def test_a_delay_beyond_the_calendar_is_refused_alone(
    db: Database, conn: psycopg.Connection
) -> None:
    impossible: list[Transition] = [
        Retry(1e15, "x"),
        DeferUntil(1e300, "x"),
        Retry(float("nan"), "x"),
    ]
    fill(conn, 5)
    messages = await claimed(db)
    good = [settled(message, Finish()) for message in messages[:2]]
    bad = [settled(m, what) for m, what in zip(messages[2:], impossible, strict=True)]
    result = await finalize(db, [bad[0], good[0], *bad[1:], good[1]], retried=False)
    assert result.written == good
    assert [refused.settled for refused in result.refused] == bad


async def test_any_text_of_an_error_can_be_recorded(db: Database, conn: psycopg.Connection) -> None:
    errors = ["a\x00b", "x\ud800", repr(b"\xff\x00"), "🙂" * 1_250_000, "x" * 5_000_000, ""]
    fill(conn, len(errors))
    messages = await claimed(db)
    batch = [settled(m, Bury(error)) for m, error in zip(messages, errors, strict=True)]
    assert (await finalize(db, batch, retried=False)).written == batch
    stored = [row(conn, message.id)["last_error"] for message in messages]
    assert [len(text) for text in stored] == [min(len(error), 2000) for error in errors]


async def test_counters_far_beyond_small_integers_are_written_like_others(
    db: Database, conn: psycopg.Connection
) -> None:
    insert(conn, attempts=40_000, lease_version=2**40)
    for _ in range(3):
        [message] = await claimed(db)
        batch = [settled(message, DeferUntil(0.0, "not yet"))]
        assert (await finalize(db, batch, retried=False)).written == batch
    assert row(conn, message.id)["attempts"] == 40_000
    assert row(conn, message.id)["lease_version"] == 2**40 + 3
