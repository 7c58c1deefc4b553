from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.migrate import apply
from pgoutbox.database.pool import DATABASE_ERRORS, Database, bounded
from tests.support.dispatching import claimed, database, eventually
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

SHOW = {
    name: f"SHOW {name}".encode()
    for name in (
        "search_path",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "plan_cache_mode",
        "enable_seqscan",
        "enable_bitmapscan",
        "jit",
        "default_transaction_isolation",
        "application_name",
    )
}


async def shown(db: Database, name: str) -> str:
    [(value,)] = await db.fetch(SHOW[name])
    return str(value)


async def test_every_connection_has_the_settings_that_the_plans_rely_on(dsn: str) -> None:
    async with database(dsn, statement_timeout=1.5, application_name="pgoutbox w-0") as db:
        assert await shown(db, "search_path") == '"public", pg_temp'
        assert await shown(db, "statement_timeout") == "1500ms"
        assert await shown(db, "plan_cache_mode") == "force_custom_plan"
        assert await shown(db, "enable_seqscan") == "off"
        assert await shown(db, "enable_bitmapscan") == "off"
        assert await shown(db, "jit") == "off"
        assert await shown(db, "application_name") == "pgoutbox w-0"


async def test_a_roles_strict_isolation_does_not_make_claims_fail(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn, "SELECT, UPDATE ON outbox") as role:
        conn.execute(
            f"ALTER ROLE {role.name} SET default_transaction_isolation = 'serializable'".encode()
        )
        async with database(role.dsn) as db:
            assert await shown(db, "default_transaction_isolation") == "read committed"
            insert(conn)
            assert len(await claimed(db)) == 1


async def test_behind_a_pooler_each_statement_brings_its_settings_and_leaves_none(
    dsn: str,
) -> None:
    async with database(dsn, pooler="transaction", statement_timeout=1.5, pool_max=1) as db:
        assert db.behind_pooler
        assert await shown(db, "search_path") == '"public", pg_temp'
        assert await shown(db, "statement_timeout") == "1500ms"
        assert await shown(db, "idle_in_transaction_session_timeout") == "1500ms"
        assert await shown(db, "plan_cache_mode") == "force_custom_plan"
        assert await shown(db, "enable_seqscan") == "off"
        assert await shown(db, "enable_bitmapscan") == "off"
        assert db._pool is not None
        async with db._pool.connection() as conn:
            left = await (await conn.execute("SHOW plan_cache_mode")).fetchone()
            prepared = await conn.execute("SELECT count(*) FROM pg_prepared_statements")
            assert left == ("auto",)
            assert await prepared.fetchone() == (0,)


async def test_a_statement_ends_at_its_timeout_and_the_connection_lives_on(dsn: str) -> None:
    async with database(dsn, statement_timeout=0.2, pool_max=1) as db:
        with pytest.raises(psycopg.errors.QueryCanceled):
            await db.fetch(b"SELECT pg_sleep(20)")
        assert await db.fetch(b"SELECT 1") == [(1,)]


async def test_the_schemas_name_is_taken_letter_by_letter(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as admin:
        admin.execute('CREATE SCHEMA "Outbox_2"')
        apply(admin, schema="Outbox_2")
    async with database(empty_dsn, schema="Outbox_2") as db:
        assert await db.fetch(b"SELECT count(*) FROM outbox") == [(0,)]


async def test_no_temporary_table_can_stand_in_for_ours(dsn: str) -> None:
    async with database(dsn, pool_max=1) as db:
        await db.execute(b"CREATE TEMPORARY TABLE outbox (mine int)")
        [(schema,)] = await db.fetch(
            b"SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'outbox'::regclass"
        )
    assert schema == "public"


async def test_more_callers_than_connections_wait_their_turn(dsn: str) -> None:
    async with database(dsn, pool_max=1) as db:
        answers = await asyncio.gather(*(db.fetch(b"SELECT pg_sleep(0.001)") for _ in range(50)))
        assert len(answers) == 50
        assert db.stats()["pool_max"] == 1


async def test_a_database_that_was_never_reached_is_an_error_worth_a_retry(dsn: str) -> None:
    db = Database(DatabaseOptions(lambda: dsn))
    with pytest.raises(PoolTimeout, match="not been reached"):
        await db.fetch(b"SELECT 1")
    assert db.stats() == {}
    await db.close(0.1)


async def test_after_all_connections_were_cut_the_next_good_call_comes_within_seconds(
    dsn: str, conn: psycopg.Connection
) -> None:
    async with database(dsn, pool_max=3) as db:
        await asyncio.gather(*(db.fetch(b"SELECT pg_sleep(0.01)") for _ in range(6)))
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        failures = 0
        async with asyncio.timeout(5):
            while True:
                try:
                    assert await db.fetch(b"SELECT 1") == [(1,)]
                    break
                except DATABASE_ERRORS:
                    failures += 1
        # One call pays for all of them: the others are checked before they are handed out.
        assert failures <= 1


async def test_the_dsn_is_read_anew_for_every_connection(
    dsn: str, conn: psycopg.Connection
) -> None:
    names = iter(f"password {number}" for number in range(1000))
    read: list[str] = []

    def rotating() -> str:
        read.append(next(names))
        return make_conninfo(dsn, application_name=read[-1])

    db = Database(DatabaseOptions(rotating, pool_max=1))
    await db.open()
    try:
        assert await shown(db, "application_name") == read[-1]
        before = len(read)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'password%'"
        )
        async with asyncio.timeout(5):
            while len(read) == before:
                with suppress(*DATABASE_ERRORS):
                    await shown(db, "application_name")
            assert await shown(db, "application_name") == read[-1]
    finally:
        await db.close(1.0)


async def test_calls_that_are_cancelled_at_any_moment_leak_no_connection(dsn: str) -> None:
    async with database(dsn, pool_max=3) as db:
        rng = random.Random(7)

        async def cancelled_soon() -> None:
            with suppress(TimeoutError, *DATABASE_ERRORS):
                async with asyncio.timeout(rng.uniform(0.0, 0.02)):
                    await db.fetch(b"SELECT pg_sleep(0.005)")

        await asyncio.gather(*(cancelled_soon() for _ in range(300)))
        await eventually(lambda: db.stats()["pool_available"] == db.stats()["pool_size"])
        assert await asyncio.gather(*(db.fetch(b"SELECT 1") for _ in range(3))) == [[(1,)]] * 3


async def test_a_call_that_ignores_its_cancellation_does_not_hold_its_caller() -> None:
    release = asyncio.Event()

    async def stuck() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    began = time.monotonic()
    with pytest.raises(TimeoutError, match="did not answer within"):
        await bounded(stuck(), 0.02)
    assert time.monotonic() - began < 5
    release.set()
    await asyncio.sleep(0)


async def test_cancelling_the_caller_cancels_the_call() -> None:
    ended = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(bounded(call(), 60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await ended.wait()


@pytest.mark.parametrize("password", ["p@s:s/w%rd+ 'x\\", "space tab\tquote'\"", "%41"])
def test_any_password_and_the_users_own_options_survive(password: str) -> None:
    given = make_conninfo(
        "", host="db", password=password, options="-c lock_timeout=1s", connect_timeout="7"
    )
    options = DatabaseOptions(lambda: given)
    merged: dict[str, Any] = conninfo_to_dict(conninfo(options, session_settings=True))
    assert merged["password"] == password
    assert merged["options"].startswith("-c lock_timeout=1s -c search_path=")
    assert str(merged["connect_timeout"]) == "7"
    plain = conninfo_to_dict(conninfo(options, session_settings=False))
    assert plain["options"] == "-c lock_timeout=1s"


def test_a_peer_that_vanished_is_noticed_by_the_kernel_within_the_statement_timeout() -> None:
    options = DatabaseOptions(lambda: "host=db", statement_timeout=5.0)
    merged: dict[str, Any] = conninfo_to_dict(conninfo(options, session_settings=False))
    assert str(merged["tcp_user_timeout"]) == "5000"
    assert str(merged["connect_timeout"]) == "5"
