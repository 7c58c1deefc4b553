"""Being woken, and finding what nobody woke us for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgoutbox.database import probes
from pgoutbox.database.migrate import apply
from pgoutbox.dispatch import listen, loudness, wakeup
from pgoutbox.dispatch.wakeup import Wakeup
from pgoutbox.events import WakeupModeChanged
from tests.support.dispatching import Events, Scripted, dispatching, eventually, to, until_true
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER = 60.0
WANTED = b"SELECT wanted FROM outbox_wakeup"
NOT_WANTED = b"SELECT NOT wanted FROM outbox_wakeup"
NOTIFY = b"SELECT pg_notify('outbox', %s)"


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not woken sleeps for longer than any test."""
    monkeypatch.setattr(wakeup, "FIRST_INTERVAL", NEVER)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr(listen, "RECONNECT_SECONDS", 0.05)
    monkeypatch.setattr(listen, "SELF_TEST_SECONDS", 0.3)


@pytest.fixture
def ear(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Hears what producers notify."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("LISTEN outbox")
        yield connection


def heard(ear: psycopg.Connection[Any], conn: psycopg.Connection[Any]) -> list[str]:
    """The destinations that were notified until now; a marker follows them."""
    conn.execute("NOTIFY outbox, 'marker'")
    payloads: list[str] = []
    for notification in ear.notifies(timeout=10):
        if notification.payload == "marker":
            return payloads
        if not notification.payload.startswith("self-test"):
            payloads.append(notification.payload)
    raise AssertionError("the marker never came")


@pytest.mark.usefixtures("no_polling")
async def test_a_worker_without_work_asks_to_be_woken_and_then_is(
    dsn: str, conn: psycopg.Connection, ear: psycopg.Connection[Any]
) -> None:
    async with dispatching(dsn, to(Scripted()), listen=True, max_interval=NEVER) as running:
        [mode] = await running.events.seen(WakeupModeChanged)
        assert mode.mode == "notify"
        await until_true(conn, WANTED)
        insert(conn)
        await running.events.finished(1)
        assert heard(ear, conn) == ["default"]


@pytest.mark.usefixtures("no_polling")
async def test_a_message_that_is_committed_while_the_worker_asks_is_not_slept_through(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Wakeup.switch

    async def slip_in_before(self: Wakeup, db: Any) -> bool:
        if self._wanted is not True and self._listening and not slipped:
            slipped.append(insert(conn))
            self._rung.clear()
        return await switch(self, db)

    slipped: list[int] = []
    monkeypatch.setattr(Wakeup, "switch", slip_in_before)
    async with dispatching(dsn, to(Scripted()), listen=True, max_interval=NEVER) as running:
        [settled] = await running.events.finished(1)
    assert [settled.message.id] == slipped


async def test_notifications_that_come_too_often_are_switched_off_and_work_goes_on(
    dsn: str,
    conn: psycopg.Connection,
    ear: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loudness, "RATE_WINDOW", 0.1)
    monkeypatch.setattr(loudness, "CALM_AFTER", 60.0)
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        await until_true(conn, WANTED)
        for number in range(100):
            conn.execute(NOTIFY, [f"whoever {number}"])
        await until_true(conn, NOT_WANTED)
        heard(ear, conn)
        insert(conn)
        await running.events.finished(1)
        assert heard(ear, conn) == []
        monkeypatch.setattr(loudness, "CALM_AFTER", 0.1)
        await until_true(conn, WANTED)


@pytest.mark.usefixtures("no_polling", "impatient")
async def test_behind_a_pooler_a_direct_connection_keeps_listening_whatever_the_schema(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_alive: list[None] = []
    receive = listen.Listener._receive

    async def counting(self: listen.Listener, conn: psycopg.AsyncConnection[Any]) -> None:
        kept_alive.append(None)
        await receive(self, conn)

    monkeypatch.setattr(listen.Listener, "_receive", counting)
    with psycopg.connect(empty_dsn, autocommit=True) as admin:
        apply(admin, schema="app")
        admin.execute("SET search_path = app")
        pooled: dict[str, Any] = {"pooler": "transaction", "schema": "app"}
        async with dispatching(
            empty_dsn, to(Scripted()), listen=True, max_interval=NEVER, **pooled
        ) as running:
            await until_true(admin, WANTED)
            await eventually(lambda: len(kept_alive) > 3)
            insert(admin)
            await running.events.finished(1)
            assert [one.mode for one in running.events.of(WakeupModeChanged)] == ["notify"]


async def test_polling_finds_what_no_notification_told_of(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("DROP TRIGGER outbox_notify ON outbox")
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        await until_true(conn, WANTED)
        insert(conn)
        await running.events.finished(1)


async def test_a_worker_that_polls_neither_listens_nor_asks_for_anything(
    dsn: str, conn: psycopg.Connection, ear: psycopg.Connection[Any]
) -> None:
    async with dispatching(dsn, to(Scripted()), listen=False) as running:
        insert(conn)
        await running.events.finished(1)
        assert heard(ear, conn) == []
        changed = conn.execute("SELECT wanted FROM outbox_wakeup").fetchone()
        assert changed == (False,)
        assert running.events.of(WakeupModeChanged) == []


@pytest.mark.usefixtures("no_polling")
async def test_notifications_for_destinations_of_others_wake_nobody(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[None] = []
    notified = Wakeup.notified

    def counting(self: Wakeup) -> None:
        woken.append(None)
        notified(self)

    monkeypatch.setattr(Wakeup, "notified", counting)
    mine = to(Scripted(), "mine")
    async with dispatching(dsn, mine, listen=True, max_interval=NEVER) as running:
        await until_true(conn, WANTED)
        for destination in ("theirs", "theirs", "mine"):
            insert(conn, destination=destination)
        await running.events.finished(1)
    assert len(woken) == 1


@pytest.mark.usefixtures("no_polling", "impatient")
async def test_a_listening_connection_that_was_cut_is_missed_at_once_and_replaced(
    dsn: str, conn: psycopg.Connection
) -> None:
    async with dispatching(dsn, to(Scripted()), listen=True, max_interval=NEVER) as running:
        await until_true(conn, WANTED)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        modes = await running.events.seen(WakeupModeChanged, count=3)
        assert [event.mode for event in modes] == ["notify", "poll", "notify"]
        assert "the listening connection failed" in modes[1].reason
        insert(conn)
        await running.events.finished(1)


async def test_a_connection_that_comes_about_as_its_listener_is_cancelled_is_closed(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.AsyncConnection.connect
    opened: list[psycopg.AsyncConnection[Any]] = []

    async def too_late(*args: Any, **kwargs: Any) -> psycopg.AsyncConnection[Any]:
        opened.append(await connect(*args, **kwargs))
        listening.cancel()
        return opened[0]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", too_late)
    clock = Wakeup(max_interval=NEVER, notify_possible=True)
    listener = listen.Listener(lambda: dsn, clock, ["default"], Events())
    listening = asyncio.create_task(listener.run())
    with pytest.raises(asyncio.CancelledError):
        await listening
    await eventually(lambda: opened[0].closed)


@pytest.mark.usefixtures("impatient")
async def test_a_connection_on_which_nothing_arrives_is_found_out_and_polled_instead(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "LISTEN", b"SELECT 1")
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        [mode] = await running.events.seen(WakeupModeChanged)
        insert(conn)
        await running.events.finished(1)
    assert mode.mode == "poll"
    assert "PGOUTBOX_LISTEN_DSN" in mode.reason


@pytest.mark.parametrize(("insist", "told"), [(False, 1), (True, 3)])
@pytest.mark.usefixtures("impatient")
async def test_whoever_insists_on_notifications_is_told_at_each_test_that_there_are_none(
    dsn: str, monkeypatch: pytest.MonkeyPatch, *, insist: bool, told: int
) -> None:
    tests: list[None] = []

    async def deaf(*_args: Any, **_more: Any) -> bool:
        tests.append(None)
        return False

    monkeypatch.setattr(listen, "hears_notifications", deaf)
    monkeypatch.setattr(listen, "KEEPALIVE_SECONDS", 0.001)
    events = Events()
    clock = Wakeup(max_interval=NEVER, notify_possible=True)
    listener = listen.Listener(lambda: dsn, clock, ["default"], events, insist=insist)
    listening = asyncio.create_task(listener.run())
    await eventually(lambda: len(tests) > 3)
    listening.cancel()
    # Its connection closes with it.
    await asyncio.wait([listening])
    changes = events.of(WakeupModeChanged)
    assert {(one.mode, one.insisted) for one in changes} == {("poll", insist)}
    assert len(changes) >= told
    assert insist or len(changes) == 1


async def test_a_switch_that_somebody_left_off_is_mended_by_whoever_sleeps(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "MEND_SECONDS", 0.05)
    async with dispatching(dsn, to(Scripted()), listen=True):
        await until_true(conn, WANTED)
        conn.execute("UPDATE outbox_wakeup SET wanted = false")
        await until_true(conn, WANTED)


async def test_an_idle_worker_writes_nothing_while_nothing_changes(
    dsn: str, conn: psycopg.Connection
) -> None:
    async with dispatching(dsn, to(Scripted()), listen=True, max_interval=0.01) as running:
        await until_true(conn, WANTED)
        before = conn.execute("SELECT xmin::text FROM outbox_wakeup").fetchone()
        insert(conn)
        await running.events.finished(1)
        insert(conn)
        await running.events.finished(2)
        assert conn.execute("SELECT xmin::text FROM outbox_wakeup").fetchone() == before
