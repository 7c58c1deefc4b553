"""Decisions about many dead letters, while others decide and workers go on."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgoutbox.database import desk, letters
from pgoutbox.database.letters import Selection
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury
from tests.support.leases import DESTINATION, LIMIT, claim_as, expire, settle
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from pgoutbox.database.desk_writes import Action
    from tests.support.locks import Session

LIMITS = {DESTINATION: LIMIT}
DEAD: dict[str, Any] = {"status": "dead", "pending_since": None, "attempts": 12}


def all_at_once(
    conn: psycopg.Connection[Any], action: Action = "requeue", *, until: str | None = None
) -> list[int]:
    """The ids of what was decided about."""
    deciding = letters.decide(
        conn,
        action,
        "it is a test",
        Selection(died_before=until),
        schema="public",
        sizes=itertools.repeat(2),
    )
    return [letter.id for some in deciding for letter in some]


def audited(conn: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    return conn.execute("SELECT outbox_id, action FROM outbox_audit ORDER BY 1, 2").fetchall()


def test_of_two_people_at_once_each_letter_has_one_and_nobody_waits(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    numbers = [insert(conn, **DEAD) for _ in range(6)]
    with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as two:
        mine = letters.decide(
            one, "requeue", "mine", Selection(), schema="public", sizes=itertools.repeat(4)
        )
        # Not committed: the other one finds these locked, and takes the rest.
        with one.transaction():
            locked = one.execute("SELECT id FROM outbox WHERE id <= %s FOR UPDATE", [numbers[2]])
            held = [number for (number,) in locked]
            theirs = all_at_once(two)
        left = [letter.id for some in mine for letter in some]
    assert theirs == numbers[3:]
    assert left == held == numbers[:3]
    assert audited(conn) == [(number, "requeue") for number in numbers]


def test_what_was_locked_at_first_is_looked_at_again(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    numbers = [insert(conn, **DEAD) for _ in range(3)]
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as person:
        holder.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [numbers[0]])
        deciding = letters.decide(
            person, "requeue", "all", Selection(), schema="public", sizes=itertools.repeat(1)
        )
        first = [letter.id for letter in next(deciding)]
        holder.rollback()
        rest = [letter.id for some in deciding for letter in some]
    assert (first, rest) == ([numbers[1]], [numbers[2], numbers[0]])


def test_of_many_decisions_of_two_people_at_once_each_letter_has_one(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    numbers = [insert(conn, **DEAD) for _ in range(60)]
    together = Barrier(2, timeout=20)

    def decide(action: Action) -> list[int]:
        with psycopg.connect(dsn, autocommit=True) as person:
            together.wait()
            return all_at_once(person, action)

    with ThreadPoolExecutor(2) as pool:
        requeued, discarded = pool.map(decide, ("requeue", "discard"))
    assert sorted(requeued + discarded) == numbers
    assert audited(conn) == sorted(
        [(number, "requeue") for number in requeued] + [(number, "discard") for number in discarded]
    )
    left = conn.execute("SELECT id FROM outbox WHERE status = 'pending' ORDER BY id").fetchall()
    assert [number for (number,) in left] == sorted(requeued)


async def test_what_a_worker_is_burying_is_the_next_ones_to_decide_about(
    aconn: psycopg.AsyncConnection[Any], conn: psycopg.Connection[Any], one: Session, two: Session
) -> None:
    number = insert(conn)
    (message,) = await claim_as("a", one)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        assert await reap(one, LIMITS) == {DESTINATION: 1}
        assert all_at_once(conn) == []
    assert all_at_once(conn) == [number]
    # The lease that it had is over: there is nothing to reap any more, and nothing to finalize.
    assert not await reap(two, LIMITS)
    assert (await finalize(two, settle([message]), retried=False)).lost == settle([message])
    assert audited(conn) == [(number, "requeue")]


@pytest.mark.parametrize("until", [None, "now", "tomorrow", "infinity"])
async def test_a_message_that_dies_again_meanwhile_is_left_alone(
    dsn: str, conn: psycopg.Connection[Any], one: Session, until: str | None
) -> None:
    first, _second = insert(conn, **DEAD), insert(conn, **DEAD)
    with psycopg.connect(dsn, autocommit=True) as person:
        asked = Selection(died_before=until, newer_than="1 day")
        counted = letters.count(person, asked, schema="public", action="requeue")
        deciding = letters.decide(
            person,
            "requeue",
            "all",
            asked.fixed(counted),
            schema="public",
            sizes=itertools.repeat(1),
        )
        assert [letter.id for letter in next(deciding)] == [first]
        (claimed,) = await claim_as("a", one)
        await finalize(one, settle([claimed], Bury("again")), retried=False)
        list(deciding)
    status = dict(conn.execute("SELECT id, status FROM outbox").fetchall())
    assert status[first] == "dead"
    assert audited(conn).count((first, "requeue")) == 1


@pytest.mark.parametrize("action", ["requeue", "skip", "discard"])
def test_what_is_leased_is_never_touched(conn: psycopg.Connection[Any], action: Action) -> None:
    insert(conn, status="processing", lease_owner="pod-1", lease_until="2020-01-01Z")
    insert(conn)
    before = conn.execute("SELECT * FROM outbox ORDER BY id").fetchall()
    assert all_at_once(conn, action) == []
    # By name neither, however stale the person's knowledge of it is.
    conn.execute("SELECT outbox_discard(ARRAY(SELECT id FROM outbox), 'all of them')")
    assert conn.execute("SELECT * FROM outbox ORDER BY id").fetchall() == before
    assert audited(conn) == []


def test_of_a_discard_and_a_requeue_the_second_is_told_what_the_first_did(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    number = insert(conn, **DEAD)
    with psycopg.connect(dsn, autocommit=True) as person:
        assert desk.discard(person, number, "gone", schema="public").done
        after = desk.requeue(conn, number, "back", schema="public")
    assert not after.done
    assert after.said == (
        f"there is no message {number}: it was discarded, it was delivered and removed, or it"
        " never was"
    )


async def test_what_a_worker_has_claimed_since_is_its_own(
    dsn: str, conn: psycopg.Connection[Any], one: Session
) -> None:
    number = insert(conn, **DEAD)
    with psycopg.connect(dsn, autocommit=True) as person:
        assert all_at_once(person) == [number]
        (claimed,) = await claim_as("a", one)
        assert all_at_once(person) == []
        assert not desk.discard(person, number, "gone", schema="public").done
    result = await finalize(one, settle([claimed]), retried=False)
    assert len(result.written) == 1
