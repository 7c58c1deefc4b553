"""A person against another person, and against the workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgoutbox.database import desk
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.errors import PgOutboxError
from pgoutbox.outcome import Bury
from tests.support.leases import (
    State,
    claim_as,
    enqueue,
    expire,
    reclaim_as,
    settle,
    state_of,
)
from tests.support.outbox_rows import insert
from tests.support.waiting import until_waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.database.desk import Decision
    from tests.support.locks import Session

    Decide = Callable[..., Decision]

BLOCKING = {"status": "dead", "pending_since": None, "ordering_key": "k", "attempts": 12}


def at_once(
    dsn: str, conn: psycopg.Connection[Any], first: Decide, second: Decide
) -> tuple[Decision, Decision]:
    """Two people who decide about the same message while somebody holds it, in this order."""
    number = insert(conn, **BLOCKING)
    # Whoever waits under this level would get an error, were it left as it is.
    options = "-c default_transaction_isolation=serializable"
    with (
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(dsn) as holder,
        psycopg.connect(dsn, autocommit=True, options=options) as one,
        psycopg.connect(dsn, autocommit=True, options=options) as two,
    ):
        holder.execute("SELECT FROM outbox FOR UPDATE")
        before = pool.submit(first, one, number, "the first", schema="public")
        until_waiting(conn, one.info.backend_pid, on="transactionid")
        after = pool.submit(second, two, number, "the second", schema="public")
        until_waiting(conn, two.info.backend_pid, on="tuple")
        holder.rollback()
        return before.result(), after.result()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (desk.skip, desk.skip, "the lane 'k' of default has gone on without message"),
        (desk.requeue, desk.requeue, "is not dead: it waits to be delivered"),
        (desk.requeue, desk.skip, "is not dead: it waits to be delivered"),
        (desk.requeue, desk.discard, "is not dead: it waits to be delivered"),
        (desk.discard, desk.requeue, "it was discarded"),
        (desk.discard, desk.discard, "it was discarded"),
    ],
)
def test_of_two_people_at_once_the_second_is_told_what_the_first_did(
    dsn: str, conn: psycopg.Connection, first: Decide, second: Decide, said: str
) -> None:
    one, two = at_once(dsn, conn, first, second)
    assert (one.done, two.done) == (True, False)
    assert said in two.said
    assert conn.execute("SELECT reason FROM outbox_audit").fetchall() == [("the first",)]


def test_who_requeues_while_another_one_skips_takes_the_message_out_of_its_lane(
    dsn: str, conn: psycopg.Connection
) -> None:
    one, two = at_once(dsn, conn, desk.skip, desk.requeue)
    assert (one.done, two.done) == (True, True)
    assert "out of order" in two.said
    assert conn.execute("SELECT status, ordering_key FROM outbox").fetchall() == [("pending", None)]


def test_who_waits_for_too_long_is_told_to_try_again(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn, **BLOCKING)
    impatient = desk._LOCAL_SETTINGS.replace(b"'5s'", b"'10ms'")
    monkeypatch.setattr(desk, "_LOCAL_SETTINGS", impatient)
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM outbox FOR UPDATE")
        with pytest.raises(PgOutboxError, match="locked by somebody else"):
            desk.skip(conn, number, "mine", schema="public")
        holder.rollback()
    assert desk.skip(conn, number, "mine", schema="public").done


async def test_an_owner_that_comes_back_after_a_requeue_can_change_nothing(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (stale,) = await claim_as("stale", one)
    await expire(aconn, [stale])
    (taken,) = await reclaim_as("b", two)
    await finalize(two, settle([taken], Bury("no")), retried=False)
    assert desk.requeue(conn, taken.id, "mine", schema="public").done
    for owner, message in ((one, stale), (two, taken)):
        result = await finalize(owner, settle([message]), retried=False)
        assert not result.written
    assert await state_of(aconn, taken) == State("pending", None, 3, 0, 0)


async def test_a_person_who_meets_a_worker_decides_about_what_the_worker_wrote(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection, one: Session, dsn: str
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn, autocommit=True) as person:
        async with one.transaction():
            await finalize(one, settle([message], Bury("no")), retried=False)
            waiting = pool.submit(desk.requeue, person, message.id, "mine", schema="public")
            until_waiting(conn, person.info.backend_pid, on="transactionid")
        assert waiting.result().done
    assert await state_of(aconn, message) == State("pending", None, 2, 0, 0)
