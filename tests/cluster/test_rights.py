"""The operator works with the rights that it documents, and says which one is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pgoutbox_operator import rights
from tests.support.api_server import Shop, kubeconfig
from tests.support.operator_process import operating
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.api_server import Object

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}"
ACCOUNT = "operator"
LEASED = (*rights.SCALERS, *rights.LEASES)
EVERY = [(right, verb) for right in LEASED for verb in right.verbs]


def path_of(manifest: Object) -> str:
    kind = "roles" if manifest["kind"] == "Role" else "rolebindings"
    return ROLES.format(manifest["metadata"]["namespace"], kind)


def without(verb: str, taken: rights.Right) -> list[rights.Right]:
    """All rights but this verb of one."""
    return [
        right._replace(verbs=tuple(each for each in right.verbs if each != verb))
        if right == taken
        else right
        for right in LEASED
    ]


class Allowed(NamedTuple):
    """A service account, a kubeconfig with its token, and what it may do."""

    place: Shop
    kubeconfig: Path

    @classmethod
    async def in_(cls, place: Shop, folder: Path, given: list[rights.Right]) -> Allowed:
        api, name = place.api, place.namespace
        await api.create(f"{place.core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        account = rights.Account(name, ACCOUNT)
        role, binding = rights.manifests(account, [name], given, lease=False)
        await api.create(path_of(role), role)
        await api.create(path_of(binding), binding)
        asked = f"{place.core}/serviceaccounts/{ACCOUNT}/token"
        answer = await api.create(asked, {"spec": {"expirationSeconds": 3600}})
        made = cls(place, folder / "kubeconfig")
        made.kubeconfig.write_text(kubeconfig(answer["status"]["token"]), encoding="utf-8")
        return made

    async def may(self, given: list[rights.Right]) -> None:
        """From now on this."""
        account = rights.Account(self.place.namespace, ACCOUNT)
        role, _ = rights.manifests(account, [self.place.namespace], given, lease=False)
        path = f"{path_of(role)}/{role['metadata']['name']}"
        await self.place.api.merge(path, {"rules": role["rules"]})

    def operating(self, logs: Path, *, complains: bool = False) -> Any:
        return operating(
            self.place.namespace,
            logs,
            "--lease",
            complains=complains,
            KUBECONFIG=str(self.kubeconfig),
            POD_NAME="o-1",
        )


async def scaler(place: Shop, **changes: Any) -> None:
    await place.add_scaler(
        seedRatePerReplica="50", scaleUp={"periodSeconds": 5}, maxReplicas=4, **changes
    )


async def test_with_exactly_these_rights_everything_works(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    allowed = await Allowed.in_(place, logs, list(LEASED))
    fill(conn, 20_000)
    async with allowed.operating(logs) as operator:
        await scaler(place)
        await place.until_replicas(4)
        await place.until_condition("Permitted", "True", "Permitted")
        await place.until_event("ScaledUp")
        metrics = await operator.metrics()
    assert not [line for line in operator.lines if line["event"] == "forbidden by the cluster"]
    refused = [name for name in metrics if name.startswith("outbox_operator_permission_errors")]
    assert refused
    assert not any(metrics[name] for name in refused)


@pytest.mark.parametrize(("right", "verb"), EVERY, ids=[f"{v} {r.resource}" for r, v in EVERY])
async def test_a_right_that_is_missing_is_named_and_missed_only_until_it_is_given(
    place: Shop, logs: Path, conn: psycopg.Connection, right: rights.Right, verb: str
) -> None:
    allowed = await Allowed.in_(place, logs, without(verb, right))
    fill(conn, 20_000)
    async with allowed.operating(logs, complains=True) as operator:
        await scaler(place)
        counted = (
            f'outbox_operator_permission_errors_total{{resource="{right.resource}",verb="{verb}"}}'
        )
        await operator.until_metrics(lambda found: found.get(counted))
        [line] = [line for line in operator.lines if line["event"] == "forbidden by the cluster"]
        assert (line["verb"], line["resource"]) == (verb, right.resource)
        if told(right):
            condition = await place.until_condition("Permitted", "False", "Forbidden")
            assert f"{verb} {right.resource}" in condition["message"]
        await allowed.may(list(LEASED))
        await place.until_replicas(4, within=40)
        # Something to post an Event about, should that be what was missing.
        await place.api.merge(place.scaler(), {"spec": {"maxReplicas": 6}})
        await place.until_condition("Permitted", "True", "Permitted", within=40)
        assert operator.alive


def told(right: rights.Right) -> bool:
    """Whether a condition can be written without it."""
    return right.resource not in {"outboxscalers", "outboxscalers/status", "leases"}
