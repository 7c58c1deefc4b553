"""Whether a pooler is in between, and what it lets through."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgoutbox.database import probes
from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.database.pool import Database
from pgoutbox.database.probes import hears_notifications, keeps_options, notification_arrives

connect = AsyncConnection.connect


async def refusing(conninfo: str, **more: Any) -> AsyncConnection[Any]:
    if "options" in conninfo_to_dict(conninfo):
        raise psycopg.OperationalError("FATAL:  unsupported startup parameter: options")
    return await connect(conninfo, **more)


async def dropping(conninfo: str, **more: Any) -> AsyncConnection[Any]:
    given = conninfo_to_dict(conninfo)
    given.pop("options", None)
    return await connect(make_conninfo("", **given), **more)


async def check_nothing(_conn: AsyncConnection[object]) -> None:
    """Any schema will do."""


async def test_start_up_options_reach_the_server_beside_those_of_the_dsn(dsn: str) -> None:
    assert await keeps_options(make_conninfo(dsn, options="-c search_path=public"))


@pytest.mark.parametrize("pooler", [refusing, dropping])
async def test_a_pooler_that_refuses_or_drops_options_is_noticed_by_check_and_by_workers(
    dsn: str, monkeypatch: pytest.MonkeyPatch, pooler: Any
) -> None:
    monkeypatch.setattr(AsyncConnection, "connect", pooler)
    assert not await keeps_options(dsn)
    db = Database(DatabaseOptions(lambda: dsn))
    await db.probe(check_nothing)
    assert db.behind_pooler


async def test_a_role_whose_default_is_the_same_does_not_hide_a_pooler(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncConnection, "connect", dropping)
    conn.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_custom_plan',"
        " current_database()); END $$"
    )
    assert not await keeps_options(dsn)


async def test_without_a_pooler_a_worker_relies_on_options(dsn: str) -> None:
    db = Database(DatabaseOptions(lambda: dsn))
    await db.probe(check_nothing)
    assert not db.behind_pooler


async def test_nobody_to_ask_is_an_error() -> None:
    with pytest.raises(psycopg.OperationalError):
        await keeps_options("host=127.0.0.1 port=1")


async def test_a_notification_arrives_on_a_direct_connection(dsn: str) -> None:
    assert await notification_arrives(dsn)


async def test_a_notification_that_only_the_sender_would_receive_does_not_count(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As behind a pooler: the server connection that LISTEN went to belongs to another client
    # when the notification comes, so the one who listens has it no longer.
    monkeypatch.setattr(probes, "LISTEN", b"SELECT 1")
    execute = AsyncConnection.execute

    async def pooled(conn: AsyncConnection[Any], query: bytes, *more: Any) -> object:
        if query == probes.NOTIFY_SELF:
            await execute(conn, b"LISTEN outbox")
        return await execute(conn, query, *more)

    monkeypatch.setattr(AsyncConnection, "execute", pooled)
    assert not await notification_arrives(dsn, seconds=0.2)


@pytest.mark.parametrize("heard", [True, False])
async def test_only_a_connection_that_hears_keeps_listening(
    dsn: str, monkeypatch: pytest.MonkeyPatch, *, heard: bool
) -> None:
    if not heard:
        monkeypatch.setattr(probes, "NOTIFY_SELF", b"SELECT %(payload)s::text")
    async with await connect(dsn, autocommit=True) as conn:
        assert await hears_notifications(conn, dsn, seconds=0.2 if not heard else 2.0) is heard
        cursor = await conn.execute("SELECT count(*) FROM pg_listening_channels()")
        assert await cursor.fetchone() == (int(heard),)
