"""Old rows that cannot be deleted, or only slowly, and all the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.rounds import Rounds
from pgoutbox.events import DatabaseFailed
from tests.support.dispatching import Scripted, dispatching, statuses, to
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    import psycopg

    from tests.support.dispatching import Running

OLD = {"status": "'done'", "done_at": "now() - interval '8 days'", "pending_since": "NULL"}
NEW = {"status": "'done'", "done_at": "now()", "pending_since": "NULL"}
SELDOM: dict[str, Any] = {"prune_interval": 600.0}


def before_each_delete(conn: psycopg.Connection[Any], body: str) -> None:
    """Run this before a row is deleted."""
    conn.execute(
        f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$;"
        "CREATE TRIGGER meddle BEFORE DELETE ON outbox FOR EACH ROW"
        " EXECUTE FUNCTION meddle()".encode()
    )


def refer_to(conn: psycopg.Connection[Any], places: str) -> None:
    """Let a table refer to the rows in these places of the outbox, the first one being 1."""
    conn.execute("CREATE TABLE audit (id bigint REFERENCES outbox (id))")
    conn.execute(
        "INSERT INTO audit SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS place"  # noqa: S608 - the test's own text
        f" FROM outbox) AS o WHERE place IN ({places})".encode()
    )


def told(running: Running) -> list[str]:
    return [failed.error for failed in running.events.of(DatabaseFailed)]


async def pruned(running: Running) -> None:
    """A round after the other, until nothing is left to do."""
    sweeps = Rounds(running.dispatcher)
    while await sweeps.prune() is not None:
        pass


async def test_old_rows_that_something_refers_to_stay_and_all_others_are_pruned(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 3000, **OLD)
    refer_to(conn, "1, 2, 700, 2999")
    async with dispatching(dsn, to(Scripted()), **SELDOM) as running:
        await pruned(running)
    assert statuses(conn) == {"done": 4}
    assert any("foreign key" in error for error in told(running))


async def test_a_row_that_stays_is_not_tried_again_in_each_round(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 2, **OLD)
    refer_to(conn, "1")
    async with dispatching(dsn, to(Scripted()), **SELDOM) as running:
        sweeps = Rounds(running.dispatcher)
        for _ in range(3):
            assert await sweeps.prune() is None
        assert len(told(running)) == 1
        # After an hour it may have become free.
        conn.execute("DROP TABLE audit")
        sweeps._old._left_since -= 3600.0
        assert await sweeps.prune() is None
    assert statuses(conn) == {}


async def test_batches_shrink_to_what_can_be_deleted_within_the_statement_timeout(
    dsn: str, conn: psycopg.Connection
) -> None:
    before_each_delete(conn, "PERFORM pg_sleep(0.002); RETURN OLD;")
    fill(conn, 1000, **OLD)
    async with dispatching(dsn, to(Scripted()), statement_timeout=1.0, **SELDOM) as running:
        await pruned(running)
    assert statuses(conn) == {}
    assert len(told(running)) in {1, 2}


async def test_what_stays_for_ever_does_not_keep_the_archive_from_what_comes_later(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT outbox_archive_prepare()")
    fill(conn, 20, **NEW)
    refer_to(conn, "1, 10")
    async with dispatching(dsn, to(Scripted()), retention_mode="archive", **SELDOM) as running:
        sweeps = Rounds(running.dispatcher)
        while await sweeps.archive() is not None:
            pass
    assert statuses(conn) == {"done": 2}
    assert conn.execute("SELECT count(*) FROM outbox_archive").fetchone() == (18,)


@pytest.mark.parametrize("reason", ["RAISE EXCEPTION 'legal hold'", "PERFORM 1 / 0"])
async def test_more_rows_than_can_be_named_are_stepped_over_by_their_time(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("pgoutbox.dispatch.batches.MAX_LEFT", 5)
    before_each_delete(conn, f"IF OLD.aggregate_id = 'held' THEN {reason}; END IF; RETURN OLD;")
    late = "now() - interval '20 days' + g * interval '1 ms'"
    fill(conn, 50, **OLD | {"done_at": late, "aggregate_id": "'held'"})
    fill(conn, 50, **OLD)
    async with dispatching(dsn, to(Scripted()), **SELDOM) as running:
        await pruned(running)
    assert statuses(conn) == {"done": 50}
