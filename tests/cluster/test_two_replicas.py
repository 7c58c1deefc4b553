"""Two replicas of the operator, of which one writes."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from pgoutbox_operator.gate import DURATION, RETRY
from tests.support.operator_process import operating
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.api_server import Shop

LEASE = "pgoutbox-operator"


async def holder(place: Shop) -> str:
    found = await place.api.get(f"{place.leases}/{LEASE}")
    name: str = found["spec"]["holderIdentity"]
    return name


def actions(found: dict[str, float]) -> float:
    name = "outbox_scaler_scale_actions_total"
    return sum(value for key, value in found.items() if key.startswith(name))


@pytest.mark.parametrize(
    ("number", "within"),
    [(signal.SIGTERM, RETRY * 2 + 2), (signal.SIGKILL, DURATION + RETRY + 2)],
)
async def test_one_writes_and_the_other_takes_over(
    place: Shop,
    logs: Path,
    conn: psycopg.Connection,
    number: signal.Signals,
    within: float,
) -> None:
    async with (
        operating(place.namespace, logs, "--lease", name="a") as a,
        operating(place.namespace, logs, "--lease", name="b") as b,
    ):
        named = {"a": a, "b": b}
        fill(conn, 20_000)
        await place.add_scaler(seedRatePerReplica="50", scaleUp={"periodSeconds": 5}, maxReplicas=4)
        await place.until_replicas(4)
        first = await holder(place)
        [second] = named.keys() - {first}
        await named[first].until_metrics(actions)
        assert actions(await named[second].metrics()) == 0

        await named[first].end(number)
        began = time.monotonic()
        await place.api.merge(place.scaler(), {"spec": {"maxReplicas": 9}})
        await place.until_more_replicas(4, within=within + 10)
        took = time.monotonic() - began
        assert await holder(place) == second
        await named[second].until_metrics(actions)
    # The holder's time runs out; then the first visit comes at once.
    assert took <= within


async def test_a_holder_that_was_stopped_for_longer_than_its_lease_writes_nothing_when_it_goes_on(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    async with (
        operating(place.namespace, logs, "--lease", name="a") as a,
        operating(place.namespace, logs, "--lease", name="b") as b,
    ):
        named = {"a": a, "b": b}
        await place.add_scaler(seedRatePerReplica="50", scaleUp={"periodSeconds": 5}, maxReplicas=4)
        await place.until_condition("Ready", "True", "Reconciled")
        first = await holder(place)
        [second] = named.keys() - {first}
        named[first].process.send_signal(signal.SIGSTOP)
        try:
            fill(conn, 20_000)
            await place.until_replicas(4, within=DURATION + RETRY + 8)
            assert await holder(place) == second
            generation = (await place.api.get(place.deployment()))["metadata"]["generation"]
        finally:
            named[first].process.send_signal(signal.SIGCONT)
        conn.execute("TRUNCATE outbox")
        # It goes on in the middle of what it did, with a gate that was open when it stopped.
        await asyncio.sleep(3 * RETRY)  # the time in which it would write
        assert actions(await named[first].metrics()) == 0
        assert (await place.api.get(place.deployment()))["metadata"]["generation"] == generation
        assert await holder(place) == second
