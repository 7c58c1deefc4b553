"""Two replicas of the operator, of which one writes."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox_operator.gate import DURATION, RETRY
from pgoutbox_operator.supervisor import WAITING_SECONDS
from tests.support.operator_process import OperatorProcess, a_scaler, operating
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


async def test_one_writes_and_the_other_takes_over_when_it_ends(
    place: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    fill(conn, 20_000)
    await take_over(place, logs, SIGTERM, record_property)


async def test_one_that_was_killed_or_hung_is_replaced_when_its_lease_is_over(
    place: Shop, beside: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    fill(conn, 20_000)
    await asyncio.gather(
        take_over(place, logs, SIGKILL, record_property), hang(beside, logs, record_property)
    )


class Pair(NamedTuple):
    """Two replicas, and who leads."""

    leader: OperatorProcess
    other: OperatorProcess
    names: tuple[str, str]


@asynccontextmanager
async def pair(place: Shop, logs: Path, number: Signals) -> AsyncIterator[Pair]:
    """They have scaled to four replicas."""
    names = f"a-{number.name}", f"b-{number.name}"
    async with (
        operating(place.namespace, logs, "--lease", name=names[0]) as a,
        operating(place.namespace, logs, "--lease", name=names[1]) as b,
    ):
        await a_scaler(place, maxReplicas=4)
        await place.until_replicas(4)
        if await holder(place) == names[0]:
            yield Pair(a, b, names)
        else:
            yield Pair(b, a, (names[1], names[0]))


async def take_over(place: Shop, logs: Path, number: Signals, record: Any) -> None:
    async with pair(place, logs, number) as (leader, other, names):
        written = await changes_by(leader, place)
        began = time.monotonic()
        await leader.end(number)
        await until_held(place, names[1])
        held = time.monotonic() - began
        await place.api.merge(place.scaler(), {"spec": {"maxReplicas": 9}})
        await place.until_replicas(9)
        took = time.monotonic() - began
        await until_counted(other, place, but=written)
    record(f"seconds from {number.name} to the next holder", held)
    record(f"seconds from {number.name} to its first write", took)
    # It looks every two seconds. The lease of one that was killed lasts from such a look on.
    assert held <= RETRY + 0.5 + (0 if number == SIGTERM else DURATION)
    assert took <= held + WAITING_SECONDS + 1


async def hang(place: Shop, logs: Path, record: Any) -> None:
    async with pair(place, logs, SIGSTOP) as (leader, other, names):
        written = await changes_by(leader, place)
        began = time.monotonic()
        leader.process.send_signal(SIGSTOP)
        try:
            await until_held(place, names[1])
            record("seconds from SIGSTOP to the next holder", time.monotonic() - began)
        finally:
            leader.process.send_signal(SIGCONT)
        # It goes on in the middle of what it did, with a gate that was open when it stopped.
        await leader.until(lambda: any(line["event"] == "not leading" for line in leader.lines))
        await place.api.merge(place.scaler(), {"spec": {"maxReplicas": 9}})
        await place.until_replicas(9)
        await until_counted(other, place, but=written)
        assert await holder(place) == names[1]


async def changes(place: Shop) -> int:
    """How often somebody wrote replicas: nobody changes anything else of its spec."""
    generation: int = (await place.api.get(place.deployment()))["metadata"]["generation"]
    return generation - 1


async def changes_by(leader: OperatorProcess, place: Shop) -> int:
    """So many until now, all of them the leader's."""
    written = await changes(place)
    await leader.until_metrics(lambda found: actions(found) == written)
    return written


async def until_counted(other: OperatorProcess, place: Shop, *, but: int) -> None:
    """Return once the other one has counted all changes ``but`` so many: nobody else made any."""
    theirs = await changes(place) - but
    await other.until_metrics(lambda found: actions(found) == theirs)


async def until_held(place: Shop, name: str) -> None:
    await place.api.until(
        f"{place.leases}/{LEASE}",
        lambda found: found["spec"]["holderIdentity"] == name,
        within=DURATION + 10,
    )
