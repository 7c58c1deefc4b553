"""What becomes of a message at the moment that it is delivered, under each retention mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.finalize_statements import STATEMENTS, Mode
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition
from tests.support.dispatching import claimed, database, expire, reclaimed, row, settled, statuses
from tests.support.outbox_rows import fill, insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database
    from pgoutbox.events import Settled

MODES: tuple[Mode, ...] = get_args(Mode)
LEAVING: list[Mode] = ["delete", "archive"]
DROP_TODAY = """
DO $$ BEGIN EXECUTE format('DROP TABLE %I', name) FROM outbox_archive_partitions() LIMIT 1; END $$
"""
LOCK_TODAY = """
DO $$ BEGIN
    EXECUTE format('LOCK %I IN SHARE MODE', name) FROM outbox_archive_partitions() LIMIT 1;
END $$
"""
OTHERS: list[Transition] = [
    Retry(600.0, "busy"),
    DeferUntil(600.0, "later"),
    Release(600.0, "nobody there"),
    Release(),
    Bury("too large"),
    Bury("too large", skipped=True),
]


@pytest.fixture(autouse=True)
def prepared(conn: psycopg.Connection) -> None:
    conn.execute("SELECT outbox_archive_prepare()")


def archived(conn: psycopg.Connection[Any]) -> list[int]:
    """The ids in the archive."""
    return [number for (number,) in conn.execute("SELECT id FROM outbox_archive ORDER BY id")]


def left(conn: psycopg.Connection[Any]) -> list[int]:
    """The ids in the outbox."""
    return [number for (number,) in conn.execute("SELECT id FROM outbox ORDER BY id")]


async def some(db: Database, conn: psycopg.Connection[Any], count: int) -> list[Settled]:
    """Messages that were delivered."""
    fill(conn, count)
    return [settled(message, Finish()) for message in await claimed(db, count=count)]


def test_there_is_one_statement_for_each_mode() -> None:
    assert set(STATEMENTS) == set(MODES)


@pytest.mark.parametrize(
    ("mode", "stays", "moves"),
    [("keep", True, False), ("delete", False, False), ("archive", False, True)],
)
async def test_a_delivered_message_stays_or_goes_or_moves(
    db: Database, conn: psycopg.Connection, mode: Mode, *, stays: bool, moves: bool
) -> None:
    batch = await some(db, conn, 3)
    result = await finalize(db, batch, retried=False, retention=mode)
    assert result.written == batch
    assert result.kept == []
    ids = [each.message.id for each in batch]
    assert left(conn) == (ids if stays else [])
    assert archived(conn) == (ids if moves else [])


@pytest.mark.parametrize("mode", LEAVING)
async def test_what_is_not_done_is_written_as_under_keep_by_the_same_statement(
    db: Database, conn: psycopg.Connection, mode: Mode
) -> None:
    rows: list[list[dict[str, Any]]] = []
    for each in ("keep", mode):
        conn.execute("TRUNCATE outbox RESTART IDENTITY")
        fill(conn, 2 * len(OTHERS) + 1, message_id="md5(g::text)::uuid", created_at="'2020-01-01Z'")
        messages = await claimed(db, count=99)
        conn.execute("UPDATE outbox SET reclaims = 2, last_error = 'before'")
        what = [Finish(), *(one for other in OTHERS for one in (other, Finish()))]
        batch = [settled(*pair) for pair in zip(messages, what, strict=True)]
        assert (await finalize(db, batch, retried=False, retention=each)).written == batch
        found = conn.execute(
            "SELECT to_jsonb(o) - 'available_at' - 'done_at' - 'pending_since'"
            " || jsonb_build_object('age', round(extract(epoch FROM available_at - now()) / 60),"
            "                       'left', done_at IS NULL, 'owed', pending_since IS NULL)"
            " FROM outbox o WHERE status <> 'done' ORDER BY id"
        )
        rows.append([columns for (columns,) in found])
    assert len(rows[0]) == len(OTHERS)
    assert rows[0] == rows[1]
    assert statuses(conn) == {"pending": 4, "dead": 2}


async def test_the_archive_holds_the_message_as_it_was_and_when_it_was_delivered(
    db: Database, conn: psycopg.Connection
) -> None:
    conn.execute("SET timezone = 'Asia/Tokyo'")
    number = insert(
        conn, ordering_key=None, dedup_key="d", destination="default", aggregate_id="o-9"
    )
    [message] = await claimed(db)
    before = row(conn, number)
    await finalize(db, [settled(message, Finish())], retried=False, retention="archive")
    found = conn.execute(
        "SELECT to_jsonb(a), a.done_at BETWEEN now() - interval '1 minute' AND now()"
        "  FROM outbox_archive a"
    ).fetchone()
    assert found is not None
    after, recent = found
    assert recent
    assert after.pop("done_at") is not None
    assert after.items() <= before.items()
    gone = before.keys() - after.keys()
    assert gone == {
        *("status", "done_at", "pending_since", "last_error", "reclaims"),
        *("lease_owner", "lease_until", "lease_version"),
    }


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_lost_lease_deletes_and_archives_nothing(
    db: Database, conn: psycopg.Connection, mode: Mode
) -> None:
    batch = await some(db, conn, 3)
    expire(conn)
    await reclaimed(db, count=1)
    result = await finalize(db, batch, retried=False, retention=mode)
    assert [each.message.id for each in result.lost] == [batch[0].message.id]
    assert result.written == batch[1:]
    assert left(conn) == [batch[0].message.id]
    assert archived(conn) == ([each.message.id for each in batch[1:]] if mode == "archive" else [])


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_retry_after_a_lost_answer_says_of_what_is_gone_that_nobody_knows(
    db: Database, conn: psycopg.Connection, mode: Mode
) -> None:
    fill(conn, 2)
    one, two = await claimed(db)
    batch = [settled(one, Finish()), settled(two, Retry(5.0, "busy"))]
    await finalize(db, batch, retried=False, retention=mode)
    again = await finalize(db, batch, retried=True, retention=mode)
    assert (again.unknown, again.already_written) == ([batch[0]], [batch[1]])
    assert (again.written, again.lost) == ([], [])
    assert len(archived(conn)) == (mode == "archive")


async def test_without_a_partition_for_today_a_delivered_message_stays_as_under_keep(
    db: Database, conn: psycopg.Connection
) -> None:
    conn.execute(DROP_TODAY)
    batch = await some(db, conn, 3)
    result = await finalize(db, batch, retried=False, retention="archive")
    assert (result.written, result.kept) == (batch, [])
    assert statuses(conn) == {"done": 3}


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
async def test_the_day_of_a_delivery_is_that_of_utc_wherever_the_worker_is(
    dsn: str, conn: psycopg.Connection, zone: str
) -> None:
    conn.execute(
        "DO $$ BEGIN EXECUTE format('DROP TABLE %I', name)"
        " FROM outbox_archive_partitions() OFFSET 1 LIMIT 1; END $$"
    )
    conn.execute(f"ALTER DATABASE {conn.info.dbname} SET timezone = '{zone}'".encode())
    async with database(dsn) as db:
        batch = await some(db, conn, 2)
        result = await finalize(db, batch, retried=False, retention="archive")
    assert (result.written, result.kept) == (batch, [])
    assert len(archived(conn)) == 2


async def test_a_partition_that_comes_or_goes_is_noticed_by_the_next_finalize(
    db: Database, conn: psycopg.Connection
) -> None:
    async def finish(count: int) -> tuple[int, int]:
        batch = await some(db, conn, count)
        result = await finalize(db, batch, retried=False, retention="archive")
        assert (result.written, result.kept) == (batch, [])
        return len(left(conn)), len(archived(conn))

    assert await finish(3) == (0, 3)
    conn.execute(DROP_TODAY)
    assert await finish(4) == (4, 0)
    conn.execute("SELECT outbox_archive_prepare()")
    assert await finish(5) == (4, 5)


@pytest.mark.parametrize(
    ("mode", "breakage", "why"),
    [
        ("archive", "ALTER TABLE outbox_archive ADD COLUMN x int NOT NULL", "null value"),
        ("archive", "ALTER TABLE outbox_archive RENAME TO elsewhere", "does not exist"),
        ("archive", "ALTER TABLE outbox_archive ADD CHECK (attempts > 7) NOT VALID", "violates"),
        (
            "delete",
            "CREATE TABLE child (id bigint REFERENCES outbox); INSERT INTO child VALUES (1)",
            "violates foreign key",
        ),
    ],
)
async def test_what_cannot_leave_is_done_all_the_same_and_says_why_it_stays(
    db: Database, conn: psycopg.Connection, mode: Mode, breakage: str, why: str
) -> None:
    batch = await some(db, conn, 20)
    conn.execute(breakage.encode())
    result = await finalize(db, batch, retried=False, retention=mode)
    assert (result.written, result.refused, result.stuck) == (batch, [], [])
    [said] = result.kept
    assert why in said
    assert statuses(conn) == {"done": 20}


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_role_that_may_neither_delete_nor_archive_still_finishes_messages(
    dsn: str, conn: psycopg.Connection, mode: Mode
) -> None:
    fill(conn, 3)
    with login_role(dsn, "SELECT, UPDATE ON outbox") as role:
        async with database(make_conninfo(role.dsn)) as db:
            batch = [settled(message, Finish()) for message in await claimed(db)]
            result = await finalize(db, batch, retried=False, retention=mode)
    assert (result.written, len(result.kept)) == (batch, 1)
    assert "permission denied" in result.kept[0]
    assert statuses(conn) == {"done": 3}


@pytest.mark.parametrize("mode", LEAVING)
async def test_one_bad_row_is_refused_alone_and_is_no_fault_of_the_archive(
    db: Database, conn: psycopg.Connection, mode: Mode
) -> None:
    fill(conn, 20)
    messages = await claimed(db, count=20)
    conn.execute("ALTER TABLE outbox ADD CHECK (last_error <> 'bad') NOT VALID")
    batch = [settled(message, Finish()) for message in messages]
    batch[7] = settled(messages[7], Retry(0.0, "bad"))
    result = await finalize(db, batch, retried=False, retention=mode)
    assert [each.settled for each in result.refused] == [batch[7]]
    assert (len(result.written), result.kept) == (19, [])


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_row_that_somebody_has_locked_holds_up_no_other_one(
    dsn: str, db: Database, conn: psycopg.Connection, mode: Mode
) -> None:
    batch = await some(db, conn, 5)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [batch[2].message.id])
        result = await finalize(db, batch, retried=False, patience=0.05, retention=mode)
    assert (result.locked, len(result.written), result.kept) == ([batch[2]], 4, [])
    assert left(conn) == [batch[2].message.id]


async def test_an_archive_whose_day_is_locked_delays_a_finalize_by_its_patience_only(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    batch = await some(db, conn, 5)
    with psycopg.connect(dsn) as other:
        other.execute(LOCK_TODAY)
        result = await finalize(db, batch, retried=False, patience=0.05, retention="archive")
    assert (result.written, result.stuck, result.locked) == (batch, [], [])
    assert "lock timeout" in result.kept[0]
    assert statuses(conn) == {"done": 5}
