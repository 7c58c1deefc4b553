"""The operator works with the rights that it documents, and says which one is missing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from tests.support.api_server import kubeconfig, shop
from tests.support.operator_account import LEASED, Account
from tests.support.operator_process import OperatorProcess, a_scaler, operating
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg

    from pgoutbox_operator import rights
    from tests.support.api_server import ApiServer, Shop

A_MINUTE = 62.0
"""With settings of its own, kopf gives up after 55 seconds of refusals."""
FEW, MANY = 1, 4
"""Replicas that there are, and that the backlog calls for."""
TOLD = {
    "deployments/scale": "Ready",
    "pods": "Ready",
    "horizontalpodautoscalers": "Ready",
    "secrets": "MetricsAvailable",
    "events": "Permitted",
}
"""Which condition says what is forbidden, beside `Permitted`. Without the others none can be."""
SCALED = {
    "patch outboxscalers/status": {MANY},
    "create events": {MANY},
    # The list has told of the scaler.
    "watch outboxscalers": {MANY},
    # It has been created, and so it is held for some seconds.
    "update leases": {FEW, MANY},
}
"""What is written without these. Without the others nothing is."""


class Lack(NamedTuple):
    """Of one verb."""

    verb: str
    right: rights.Right

    def __str__(self) -> str:
        return f"{self.verb} {self.right.resource}"

    @property
    def given(self) -> list[rights.Right]:
        """All the others."""
        left = tuple(each for each in self.right.verbs if each != self.verb)
        return [each._replace(verbs=left) if each == self.right else each for each in LEASED]

    @property
    def counter(self) -> str:
        labels = f'resource="{self.right.resource}",verb="{self.verb}"'
        return f"outbox_operator_permission_errors_total{{{labels}}}"


LACKS = [Lack(verb, right) for right in LEASED for verb in right.verbs]


@asynccontextmanager
async def started(
    account: Account, logs: Path, *, name: str = "operator", complains: bool = False
) -> AsyncIterator[OperatorProcess]:
    """An operator with this account, and a scaler that was there before it."""
    token = await account.token()
    file = logs / f"{name}.kubeconfig"
    file.write_text(kubeconfig(token.text), encoding="utf-8")
    place, said = account.place, {"KUBECONFIG": str(file)}
    await a_scaler(place, maxReplicas=MANY)
    async with operating(
        place.namespace, logs, "--lease", name=name, complains=complains, **said
    ) as made:
        yield made


async def test_with_exactly_these_rights_everything_works(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    account = await Account.allowed(place)
    fill(conn, 20_000)
    async with started(account, logs) as operator:
        await place.until_replicas(MANY)
        await place.until_condition("Permitted", "True", "Permitted")
        await place.until_event("ScaledUp")
        metrics = await operator.metrics()
    refused = [name for name in metrics if name.startswith("outbox_operator_permission_errors")]
    assert refused
    assert not any(metrics[name] for name in refused)


async def test_a_right_that_is_missing_is_named_and_missed_only_until_it_is_given(
    api: ApiServer, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    turns = asyncio.Semaphore(3)

    async def lived_through(lack: Lack) -> None:
        async with shop(api) as place:
            await place.add_secret(dsn)
            await place.add_deployment(replicas=FEW)
            account = await Account.allowed(place, lack.given)
            name = str(lack).replace("/", "-").replace(" ", "-")
            async with AsyncExitStack() as stack:
                async with turns:
                    starting = started(account, logs, name=name, complains=True)
                    operator = await stack.enter_async_context(starting)
                await missed(lack, place, operator)
                await account.may(LEASED)
                await all_is_well(place)
                assert operator.alive

    # Each of them takes more than a minute.
    ends = await asyncio.gather(*map(lived_through, LACKS), return_exceptions=True)
    failed = {str(lack): end for lack, end in zip(LACKS, ends, strict=True) if end is not None}
    assert failed == {}


async def missed(lack: Lack, place: Shop, operator: OperatorProcess) -> None:
    """Named at once, asked for again and again, and no reason to end or to scale otherwise."""
    await operator.until_metrics(lambda found: found.get(lack.counter))
    first = (await operator.metrics())[lack.counter]
    if lack.right.resource in TOLD:
        await told(lack, place)
    await asyncio.sleep(A_MINUTE)
    assert operator.alive
    assert await place.replicas() in SCALED.get(str(lack), {FEW})
    again = (await operator.metrics())[lack.counter]
    # An Event is posted where something has happened, and nothing has.
    assert again > first or lack.right.resource == "events"
    lines = [line for line in operator.lines if line["event"] == "forbidden by the cluster"]
    assert [(each["verb"], each["resource"]) for each in lines] == [
        (lack.verb, lack.right.resource)
    ]


async def told(lack: Lack, place: Shop) -> None:
    kind = TOLD[lack.right.resource]
    permitted = await place.until_condition("Permitted", "False", "Forbidden")
    assert str(lack) in permitted["message"]
    if kind != "Permitted":
        condition = await place.until_condition(kind, "False", "Forbidden")
        assert f'cannot {lack.verb} resource "{lack.right.resource}"' in condition["message"]


async def all_is_well(place: Shop) -> None:
    """What has changed meanwhile is done, and told."""
    more = MANY + 2
    await place.api.merge(place.scaler(), {"spec": {"maxReplicas": more}})
    await place.until_replicas(more, within=60)
    await place.until_condition("Permitted", "True", "Permitted")
    await place.until_condition("Ready", "True", "Reconciled")
