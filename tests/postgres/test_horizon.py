"""Who is said to hold back the xmin horizon, asked of a real server."""

from __future__ import annotations

import contextlib
import threading
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from pgoutbox.database.horizon import Holder, Horizon, read, read_async
from pgoutbox.database.migrate import apply
from tests.support.horizons import (
    copying,
    held_snapshot,
    next_xid,
    pass_transactions,
    physical_slot,
    standby,
)
from tests.support.observing import eventually
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

GRANT = "EXECUTE ON FUNCTION outbox_horizon() "


def look(conn: psycopg.Connection[Any], schema: str = "public") -> Horizon:
    seen = read(conn, schema=schema)
    assert seen is not None
    return seen


def of(conn: psycopg.Connection[Any], pid: int, schema: str = "public") -> Holder | None:
    return next((each for each in look(conn, schema).holders if each.pid == pid), None)


@pytest.fixture
def slot(dsn: str) -> Iterator[str]:
    with physical_slot(dsn, f"slot_{uuid.uuid4().hex[:8]}") as name:
        yield name


def test_a_held_snapshot_is_named_with_its_age(dsn: str, conn: psycopg.Connection) -> None:
    with held_snapshot(dsn) as report:
        pass_transactions(conn)
        seen = look(conn)
        held = of(conn, report.info.backend_pid)
        assert held is not None
        assert (held.kind, held.application, held.state) == (
            *("backend", "report", "idle in transaction"),
        )
        assert held.role == report.info.user
        assert held.database == report.info.dbname
        assert held.transactions >= 200
        assert held.seconds is not None
        assert 0 < held.seconds < 60
        assert seen.transactions >= 200
        assert not seen.hidden
        pid = report.info.backend_pid
    assert of(conn, pid) is None


async def test_an_event_loop_sees_the_same(dsn: str, aconn: psycopg.AsyncConnection) -> None:
    with held_snapshot(dsn) as report:
        seen = await read_async(aconn, schema="public")
        assert seen is not None
        assert report.info.backend_pid in {holder.pid for holder in seen.holders}


def test_whoever_asks_is_not_a_holder(dsn: str, conn: psycopg.Connection) -> None:
    with conn.transaction():
        conn.execute("SELECT pg_current_xact_id()")
        with psycopg.connect(dsn, autocommit=True) as other:
            pass_transactions(other)
        assert of(conn, conn.info.backend_pid) is None


def test_a_writer_without_a_snapshot_comes_before_those_whose_snapshots_reach_back_to_it(
    dsn: str, conn: psycopg.Connection
) -> None:
    with psycopg.connect(dsn) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        with held_snapshot(dsn) as victim:
            pids = [writer.info.backend_pid, victim.info.backend_pid]
            pass_transactions(conn)
            found = [holder for holder in look(conn).holders if holder.pid in pids]
        assert [holder.pid for holder in found] == pids
        assert found[0].transactions == found[1].transactions
        writer.rollback()


def test_of_another_database_a_writer_counts_and_a_reader_does_not(
    empty_dsn: str, conn: psycopg.Connection
) -> None:
    elsewhere = conninfo_to_dict(empty_dsn)["dbname"]
    with held_snapshot(empty_dsn) as reader, psycopg.connect(empty_dsn) as writer:
        pass_transactions(conn)
        writer.execute("SELECT pg_current_xact_id()")
        held = of(conn, writer.info.backend_pid)
        assert held is not None
        assert (held.kind, held.database) == ("backend", elsewhere)
        assert held.transactions < 200
        assert of(conn, reader.info.backend_pid) is None
        writer.rollback()


def test_a_slot_with_an_xmin_is_named_also_when_nobody_uses_it(
    dsn: str, conn: psycopg.Connection, slot: str
) -> None:
    def found(state: str) -> Holder | None:
        slots = [each for each in look(conn).holders if each.kind == "slot"]
        return next((each for each in slots if (each.name, each.state) == (slot, state)), None)

    with standby(dsn, slot=slot, xmin=next_xid(conn)) as walsender:
        eventually(lambda: found("active") is not None, "a slot with an xmin")
        held = found("active")
        assert held is not None
        assert (held.pid, held.seconds) == (walsender.info.backend_pid, None)
    eventually(lambda: found("inactive") is not None, "a slot that was left")
    pass_transactions(conn)
    held = found("inactive")
    assert held is not None
    assert held.transactions >= 200
    # Since when it is unused is known from PostgreSQL 17 on.
    assert (held.seconds is not None) == (conn.info.server_version >= 170_000)


def test_a_slot_that_only_spares_the_catalogs_is_not_named(
    dsn: str, conn: psycopg.Connection, slot: str
) -> None:
    query = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND catalog_xmin IS NOT NULL"
    with standby(dsn, slot=slot, catalog_xmin=next_xid(conn)):
        eventually(lambda: bool(conn.execute(query, [slot]).rowcount), "a catalog_xmin")
    assert slot not in {holder.name for holder in look(conn).holders}


def test_a_standby_without_a_slot_is_named(dsn: str, conn: psycopg.Connection) -> None:
    with standby(dsn, xmin=next_xid(conn)) as walsender:
        pid = walsender.info.backend_pid
        eventually(lambda: of(conn, pid) is not None, "a standby that gives feedback")
        held = of(conn, pid)
        assert held is not None
        assert (held.kind, held.application, held.database) == ("standby", "standby", None)


def test_a_subscriber_that_copies_tables_is_named(dsn: str, conn: psycopg.Connection) -> None:
    with copying(dsn) as walsender:
        held = of(conn, walsender.info.backend_pid)
        assert held is not None
        assert (held.kind, held.state) == ("backend", "idle in transaction")


def test_vacuum_does_not_wait_for_itself(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE big AS SELECT repeat('x', 2000) FROM generate_series(1, 2000)")
    running = "SELECT backend_xmin FROM pg_stat_progress_vacuum v JOIN pg_stat_activity USING (pid)"
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SET vacuum_cost_delay = 100")
        other.execute("SET vacuum_cost_limit = 1")

        def vacuum() -> None:
            with contextlib.suppress(errors.QueryCanceled):
                other.execute("VACUUM (DISABLE_PAGE_SKIPPING) big")

        thread = threading.Thread(target=vacuum)
        thread.start()
        pid = other.info.backend_pid
        try:
            query = f"{running} WHERE pid = {pid} AND backend_xmin IS NOT NULL"
            eventually(lambda: bool(conn.execute(query.encode()).rowcount), "a vacuum")
            assert of(conn, pid) is None
        finally:
            conn.execute("SELECT pg_cancel_backend(%s)", [pid])
            thread.join()


def test_without_the_right_to_other_sessions_the_age_is_hidden_and_not_zero(
    empty_dsn: str,
) -> None:
    database = conninfo_to_dict(empty_dsn)["dbname"]
    with (
        login_role(empty_dsn, f"CREATE ON DATABASE {database}") as owner,
        psycopg.connect(owner.dsn, autocommit=True) as conn,
        held_snapshot(empty_dsn) as report,
    ):
        apply(conn, schema="events")
        pass_transactions(conn)
        assert look(conn, "events").hidden
        held = of(conn, report.info.backend_pid, "events")
        assert held is not None
        assert (held.seconds, held.state) == (None, None)
        assert held.transactions >= 200
        assert (held.role, held.application) == (report.info.user, "report")


def test_monitoring_needs_one_grant_and_sees_no_query(dsn: str, conn: psycopg.Connection) -> None:
    with login_role(dsn) as monitor, psycopg.connect(monitor.dsn, autocommit=True) as theirs:
        assert read(theirs, schema="public") is None
        conn.execute(f"GRANT {GRANT} TO {monitor.name}".encode())
        with held_snapshot(dsn) as report:
            report.execute("SELECT 'a secret'")
            held = of(theirs, report.info.backend_pid)
            told = theirs.execute("SELECT outbox_horizon()::text").fetchone()
    assert held is not None
    assert held.state == "idle in transaction"
    assert told is not None
    assert "secret" not in told[0]


def test_a_schema_without_the_function_has_no_answer_and_leaves_the_transaction_usable(
    conn: psycopg.Connection,
) -> None:
    with conn.transaction():
        assert read(conn, schema="nowhere") is None
        assert conn.execute("SELECT 1").fetchone() == (1,)
