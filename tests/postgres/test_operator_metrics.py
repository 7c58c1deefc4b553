"""What a real operator exports, of its scalers and of the tables, is what the catalogue says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pgoutbox.telemetry.catalogue import EXPORTER, OPERATOR
from tests.support.described import assert_as_described, families, scrape, value
from tests.support.horizons import held_snapshot
from tests.support.kube import NAMESPACE, SCALER, scaler
from tests.support.operating import eventually, running
from tests.support.outbox_rows import insert
from tests.support.waiting import until_vacuumed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg

    from tests.support.operating import Running

NAMED = frozenset({"namespace", "database"})
DATABASE = {"namespace": NAMESPACE, "database": "outbox-dsn"}
OBJECT = {"namespace": NAMESPACE, "name": SCALER}


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_ID", "test")
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)


@asynccontextmanager
async def operating(dsn: str, folder: Path, *, lease: bool = False) -> AsyncIterator[Running]:
    """With one scaler, which it has visited."""
    async with running(folder / "token", dsn=dsn, lease=lease) as run:
        await run.look_after(scaler(seedRatePerReplica="50"))
        yield run


async def test_what_the_operator_exports_is_the_catalogues(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    insert(conn, destination="bank")
    insert(conn, destination="bank", status="dead", pending_since=None)
    conn.execute("VACUUM outbox")
    until_vacuumed(conn)
    with held_snapshot(dsn):
        async with operating(dsn, tmp_path) as run:
            page = scrape(run.port)
    assert_as_described(page, (*EXPORTER, *OPERATOR), named=NAMED)
    ready = {**DATABASE, "destination": "bank", "state": "ready"}
    assert value(page, "outbox_pending_messages", **ready) == 1
    age = value(page, "outbox_scaler_oldest_ready_age_seconds", **OBJECT)
    assert age == value(page, "outbox_oldest_ready_age_seconds", **DATABASE, destination="bank")
    condition = {**OBJECT, "type": "Ready", "status": "True"}
    assert value(page, "outbox_scaler_condition", **condition) == 1


async def test_a_replica_that_does_not_lead_shows_neither_tables_nor_scalers(
    dsn: str, tmp_path: Path
) -> None:
    async with operating(dsn, tmp_path, lease=True) as run:
        assert run.operator is not None
        (lease,) = run.kube.leases.values()
        lease["spec"] |= {"holderIdentity": "another", "leaseDurationSeconds": 3600}
        lease["metadata"]["resourceVersion"] = "1000"
        gate = run.operator.supervisor.gate
        await eventually(lambda: not gate.held)
        shown = {name for name, family in families(scrape(run.port)).items() if family.samples}
        assert shown == {"outbox_build_info", "outbox_operator_permission_errors_total"}
