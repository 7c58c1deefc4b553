"""What a real operator exports makes the alerts fire that are about it, and no others."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.described import PLAIN, scrape
from tests.support.kube import NAMESPACE, PODS, SCALE, SCALER, scaler
from tests.support.operating import running
from tests.support.outbox_rows import fill
from tests.support.promtool import fires, series
from tests.support.scraped import held
from tests.support.visiting import counts, visits, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import psycopg

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TOLD = {"severity": "warn", "namespace": NAMESPACE, "name": SCALER}
OF_SCALERS = (
    "OutboxScalerAtMax",
    "OutboxScalerLimited",
    "OutboxScalerNotReady",
    "OutboxOperatorForbidden",
    "OutboxScalerStale",
)
OLD = dict.fromkeys(("pending_since", "available_at"), "now() - interval '10 minutes'")
READY = ("True", "Reconciled")


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_ID", "test")


@asynccontextmanager
async def operating(
    dsn: str, folder: Path, *, ready: tuple[str, str] = READY, **spec: Any
) -> AsyncIterator[Callable[[], str]]:
    """Leaves a way to scrape it once the scaler's condition Ready is ``ready``."""
    async with running(folder / "token", dsn=dsn) as run:
        if ready[1] == "TargetNotFound":
            run.kube.mock[f"get {SCALE}"] << 404
        if ready[1] == "Forbidden":
            run.kube.mock[f"get {PODS}"] << 403
        await run.look_after(scaler(seedRatePerReplica="50", **spec), ready=ready)
        yield lambda: scrape(run.port, PLAIN).text


def told(given: dict[str, str], at: str = "40m") -> set[str]:
    """Those about scalers and the operator that fire then, whatever their labels are."""
    return {alert for alert in OF_SCALERS if not _is_quiet(alert, given, at)}


def _is_quiet(alert: str, given: dict[str, str], at: str) -> bool:
    try:
        fires(alert, given, {at: []})
    except pytest.fail.Exception:
        return False
    return True


async def test_a_scaler_that_is_well_is_told_nothing_of(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    fill(conn, 10)
    async with operating(dsn, tmp_path) as scraped:
        assert told(held(scraped())) == set()


@pytest.mark.parametrize(
    "spec",
    [
        {"maxReplicas": 2},
        {"maxReplicas": 10, "connectionBudget": {"total": 10, "reserved": 4, "perReplica": 3}},
    ],
    ids=["maximum", "budget"],
)
async def test_an_operator_that_may_add_no_more_tells_by_its_own_series(
    dsn: str, conn: psycopg.Connection, tmp_path: Path, spec: dict[str, Any]
) -> None:
    fill(conn, 20_000, **OLD)
    async with operating(dsn, tmp_path, **spec) as scraped:
        given = held(scraped())
    assert told(given) == {"OutboxScalerAtMax"}
    fires("OutboxScalerAtMax", given, {"14m": [], "16m": [TOLD]})


async def test_an_operator_that_misses_its_target_tells_that_it_is_not_ready(
    dsn: str, tmp_path: Path
) -> None:
    async with operating(dsn, tmp_path, ready=("False", "TargetNotFound")) as scraped:
        given = held(scraped())
    assert told(given) == {"OutboxScalerNotReady"}
    fires("OutboxScalerNotReady", given, {"9m": [], "11m": [TOLD]})


async def test_an_operator_that_lacks_a_right_tells_which(dsn: str, tmp_path: Path) -> None:
    async with operating(dsn, tmp_path, ready=("False", "Forbidden")) as scraped:
        given = held(scraped())
    assert told(given, "12m") == {"OutboxScalerNotReady", "OutboxOperatorForbidden"}
    of = {"severity": "warn", "namespace": "pgoutbox", "verb": "list", "resource": "pods"}
    fires("OutboxOperatorForbidden", given, {"2m": [of], "12m": [of]})


async def test_an_operator_that_hangs_is_told(dsn: str, tmp_path: Path) -> None:
    async with operating(dsn, tmp_path) as scraped:
        given = held(scraped(), alive=False)
    assert told(given) == {"OutboxScalerStale"}
    fires("OutboxScalerStale", given, {"5m": [], "7m": [TOLD]})


async def test_a_scaler_whose_destinations_fail_tells_that_it_is_limited() -> None:
    async with visits(seedRatePerReplica="50", maxReplicas=40) as v:
        for done, failed in ((1000, 0), (1100, 900), (1200, 1800)):
            counters = {"published": done, "attempts": done + failed, "failed": failed}
            v.outbox.destinations = {"default": counts(ready=5000, oldest_ready_age=20.0)}
            v.outbox.workers = tuple(worker(name, counters=counters) for name in "ab")
            await v.visit()
        given = held(v.metrics())
    assert told(given) == {"OutboxScalerLimited"}
    limited = {**TOLD, "reason": "DownstreamLimited"}
    fires("OutboxScalerLimited", given, {"29m": [], "31m": [limited]})


async def test_what_the_operator_tells_of_tables_fits_what_workers_tell(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    fill(conn, 3, destination="'bank'", **OLD)
    async with operating(dsn, tmp_path) as scraped:
        given = held(scraped())
    a_worker = {"namespace": NAMESPACE, "job": "workers", "instance": "w"}
    given |= {
        series("outbox_worker_slots", **a_worker): "100x45",
        series("outbox_messages_claimed_total", **a_worker, destination="mail"): "0x45",
    }
    where = {"namespace": NAMESPACE, "database": "outbox-dsn"}
    unserved = {"severity": "warn", **where, "destination": "bank"}
    fires("OutboxDestinationUnserved", given, {"11m": [unserved]})
    fires("OutboxWorkersMissing", given, {"6m": [{"severity": "page", **where}]})
    late = {"severity": "page", **where, "destination": "bank"}
    fires("OutboxOldestPendingAge", given, {"2m": [late]})
    fires("OutboxCollectorDown", given, {"10m": []})
    fires("OutboxMetricsAbsent", given, {"20m": []})
