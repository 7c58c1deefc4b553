"""One connection and one question a tick, whatever becomes of the database and of its password."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kmock
import pytest
from prometheus_client import generate_latest
from psycopg.conninfo import make_conninfo

from pgoutbox.telemetry.exporter import Exporter
from pgoutbox_operator.cluster import Cluster
from pgoutbox_operator.connections import Connection, Place
from pgoutbox_operator.crd import ConditionReason
from pgoutbox_operator.database import UPKEEP_SECONDS, Database
from tests.support.kube import NAMESPACE, SECRET, FakeKube
from tests.support.outbox_rows import fill
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg

PLACE = Place(NAMESPACE, "outbox-dsn", "dsn", "public")
RIGHTS = ("EXECUTE ON FUNCTION outbox_stats(integer)",)


class Watched:
    """A database as the operator looks at it, and the clock that it goes by."""

    def __init__(self, kube: FakeKube, place: Place, folder: Path) -> None:
        self.kube = kube
        self.time = 1000.0
        self.link = kube.link()
        connection = Connection(
            place, Cluster(self.link), folder=folder, insecure=False, clock=lambda: self.time
        )
        self.database = Database(place, connection, clock=lambda: self.time)

    async def tick(self, *, after: float = 15.0) -> None:
        self.time += after
        await self.database.tick()


@asynccontextmanager
async def watched(dsn: str, folder: Path, place: Place = PLACE) -> AsyncIterator[Watched]:
    kube = FakeKube()
    kube.secret = {"dsn": dsn + "\n"}
    async with kube.mock, kmock.Server(kube.mock):
        made = Watched(kube, place, folder)
        try:
            yield made
        finally:
            await made.database.close()
            await made.link.close()


def connections(conn: psycopg.Connection[Any]) -> list[int]:
    found = conn.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE application_name = 'pgoutbox-operator' AND datname = current_database()"
    )
    return [pid for (pid,) in found]


async def test_looks_share_one_connection_and_one_reading_of_the_secret(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    fill(conn, 3)
    with login_role(dsn, *RIGHTS) as role:
        async with watched(role.dsn, tmp_path) as w:
            await w.tick()
            first = connections(conn)
            for _ in range(3):
                await w.tick()
            assert connections(conn) == first
            assert len(first) == 1
            look = w.database.look
            assert look is not None
            assert look.statistics is not None
            assert look.statistics.destinations["default"].ready == 3
            assert len(w.kube.mock[f"get {SECRET}"]) == 1


async def test_whoever_wants_to_know_seldom_is_not_rung_for_by_those_who_want_it_often(
    dsn: str, tmp_path: Path
) -> None:
    often, seldom = asyncio.Event(), asyncio.Event()
    rung = {often: 0, seldom: 0}
    async with watched(dsn, tmp_path) as w:
        w.database.subscribe(often, 5.0)
        w.database.subscribe(seldom, 15.0)
        for _ in range(12):
            await w.tick(after=5.0)
            await w.database.pause(w.time - 5.0)
            for bell in rung:
                rung[bell] += bell.is_set()
                bell.clear()
    assert (rung[often], rung[seldom]) == (12, 4)


async def test_what_the_exporter_shows_is_shown(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    fill(conn, 3)
    async with watched(dsn, tmp_path) as w:
        await w.tick()
        page = generate_latest(Exporter([w.database]).registry).decode()
        ready = 'outbox_pending_messages{database="outbox-dsn",destination="default",'
        assert ready + 'namespace="shop",state="ready"} 3.0' in page
        assert 'outbox_collector_up{database="outbox-dsn",namespace="shop"} 1.0' in page
        assert "outbox_table_live_tuples{" in page
        assert "outbox_xmin_age_seconds{" in page
        # These cost statements of their own, and are kept for a while.
        await w.tick()
        assert w.database.look is not None
        assert w.database.look.upkeep is not None
        await w.tick(after=UPKEEP_SECONDS)
        assert w.database.look.upkeep is not None


async def test_a_right_that_is_taken_away_costs_no_connection_and_comes_back(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with login_role(dsn, *RIGHTS) as role:
        async with watched(role.dsn, tmp_path) as w:
            await w.tick()
            (pid,) = connections(conn)
            conn.execute(f"REVOKE {RIGHTS[0]} FROM {role.name}".encode())
            for _ in range(5):
                await w.tick()
            assert connections(conn) == [pid]
            assert w.database.misses == 5
            reason, message = w.database.why_unknown()
            assert reason == ConditionReason.DATABASE_REFUSED
            assert "permission denied" in message
            conn.execute(f"GRANT {RIGHTS[0]} TO {role.name}".encode())
            await w.tick()
            assert (w.database.misses, connections(conn)) == (0, [pid])


async def test_a_connection_that_broke_is_replaced(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    async with watched(dsn, tmp_path) as w:
        await w.tick()
        (pid,) = connections(conn)
        conn.execute("SELECT pg_terminate_backend(%s)", [pid])
        await w.tick()
        await w.tick()
        assert w.database.misses == 0
        (new,) = connections(conn)
        assert new != pid


@pytest.mark.parametrize("password", ["a b", "tab\there", "qu'ote", 'dou"ble', "back\\slash"])
async def test_a_rotated_password_is_taken_up_whatever_is_in_it(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path, password: str
) -> None:
    with login_role(dsn, *RIGHTS) as role:
        async with watched(role.dsn, tmp_path) as w:
            await w.tick()
            (pid,) = connections(conn)
            quoted = password.replace("'", "''")
            conn.execute(f"ALTER ROLE {role.name} PASSWORD '{quoted}'".encode())
            w.kube.secret = {"dsn": make_conninfo(role.dsn, password=password)}
            await w.tick(after=61)
            assert w.database.misses == 0
            (new,) = connections(conn)
            assert new != pid


async def test_a_lock_on_the_table_is_given_up_in_time_and_outlived(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    async with watched(dsn, tmp_path) as w:
        await w.tick()
        with conn.transaction():
            conn.execute("LOCK TABLE outbox")
            async with asyncio.timeout(6):
                await w.tick()
            assert w.database.look is None or w.database.look.statistics is None
            assert w.database.misses == 1
        await w.tick()
        assert w.database.misses == 0
        assert len(connections(conn)) == 1


async def test_a_secret_that_is_not_there_is_told_and_waited_for(dsn: str, tmp_path: Path) -> None:
    async with watched(dsn, tmp_path) as w:
        w.kube.secret = {}
        await w.tick()
        assert w.database.why_unknown()[0] == ConditionReason.SECRET_NOT_FOUND
        w.kube.secret = {"dsn": dsn}
        await w.tick()
        assert w.database.misses == 0


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, ConditionReason.FORBIDDEN),
        (404, ConditionReason.SECRET_NOT_FOUND),
        (500, ConditionReason.CLUSTER_ERROR),
    ],
)
async def test_a_secret_that_cannot_be_read_is_told(
    tmp_path: Path, status: int, reason: ConditionReason
) -> None:
    async with watched("", tmp_path) as w:
        w.kube.mock[f"get {SECRET}"] << status
        await w.tick()
        assert w.database.why_unknown()[0] == reason


async def test_an_api_server_that_is_away_is_no_reason_to_leave_the_database(
    dsn: str, tmp_path: Path
) -> None:
    async with watched(dsn, tmp_path) as w:
        await w.tick()
        w.link.url = "http://127.0.0.1:9"
        await w.tick(after=300)
        assert w.database.misses == 0


async def test_a_server_that_nobody_verifies_is_not_connected_to(tmp_path: Path) -> None:
    async with watched("postgresql://u:hidden@db.example/shop", tmp_path) as w:
        await w.tick()
        reason, message = w.database.why_unknown()
        assert reason == ConditionReason.DATABASE_INSECURE
        assert "hidden" not in message


async def test_a_file_of_the_operators_is_read_for_each_look(dsn: str, tmp_path: Path) -> None:
    async with watched("", tmp_path, Place("", "orders", "", "public")) as w:
        await w.tick()
        assert w.database.why_unknown()[0] == ConditionReason.SECRET_NOT_FOUND
        (tmp_path / "orders").write_text(dsn + "\n", encoding="utf-8")
        await w.tick()
        assert w.database.misses == 0
        assert len(w.kube.mock) == 0


@pytest.mark.parametrize(
    ("place", "labels"),
    [
        (PLACE, ("shop", "outbox-dsn")),
        (PLACE._replace(key="url"), ("shop", "outbox-dsn:url")),
        (PLACE._replace(schema="events"), ("shop", "outbox-dsn/events")),
        (Place("", "orders", "", "public"), ("", "orders")),
    ],
)
async def test_series_are_told_apart_wherever_a_dsn_is_from(
    tmp_path: Path, place: Place, labels: tuple[str, str]
) -> None:
    async with watched("", tmp_path, place) as w:
        assert w.database.where == dict(zip(("namespace", "database"), labels, strict=True))
