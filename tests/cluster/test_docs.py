"""What docs/operator.md shows is taken by a real API server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox_operator import rights
from tests.support.api_server import SECRET, shop
from tests.unit.operator.test_docs import blocks, manifest

if TYPE_CHECKING:
    from tests.support.api_server import ApiServer, Shop


async def test_the_scaler_is_accepted(bare: Shop) -> None:
    body = manifest("OutboxScaler")
    del body["metadata"]["namespace"]
    await bare.api.create(bare.scalers, body, dryRun="All", fieldValidation="Strict")


async def test_the_operators_pods_are_allowed_where_security_is_restricted(bare: Shop) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await bare.api.merge(f"/api/v1/namespaces/{bare.namespace}", enforced)
    account = {"metadata": {"name": "pgoutbox-operator"}}
    await bare.api.create(f"{bare.core}/serviceaccounts", account)
    deployment = manifest("Deployment")
    del deployment["metadata"]["namespace"]
    await bare.api.create(bare.deployments, deployment, dryRun="All", fieldValidation="Strict")
    pod = {"metadata": {"name": "one"}, "spec": deployment["spec"]["template"]["spec"]}
    await bare.api.create(f"{bare.core}/pods", pod, dryRun="All", fieldValidation="Strict")


def run(commands: str) -> str:
    """As in a shell where the package is installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", commands],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def elsewhere(commands: str, *, home: str, scaled: str) -> str:
    """The same for two other namespaces."""
    moved = re.sub(r"(namespace|-n|--service-account) pgoutbox\b", rf"\1 {home}", commands)
    return re.sub(r"(namespace|-n) shop\b", rf"\1 {scaled}", moved)


async def test_the_commands_give_the_operator_its_rights_and_the_dsn(
    bare: Shop, api: ApiServer
) -> None:
    async with shop(api) as home:
        names = {"home": home.namespace, "scaled": bare.namespace}
        commands = "".join(block for block in blocks("sh") if " create " in block)
        without = re.sub(r"kubectl create namespace \w+\n", "", commands)
        assert without != commands
        await asyncio.to_thread(run, elsewhere(without, **names))
        secret = await api.get(f"{bare.core}/secrets/{SECRET}")
        assert list(secret["data"]) == ["dsn"]
        account = f"system:serviceaccount:{home.namespace}:{rights.NAME}"
        for namespace, given in ((bare.namespace, rights.SCALERS), (home.namespace, rights.LEASES)):
            asked = "; ".join(
                f"kubectl auth can-i --as {account} -n {namespace} {verb} {asked_about(right)}"
                for right in given
                for verb in right.verbs
            )
            assert set((await asyncio.to_thread(run, asked)).split()) == {"yes"}


def asked_about(right: rights.Right) -> str:
    resource, _, subresource = right.resource.partition("/")
    told = f"{resource}.{right.group}" if right.group else resource
    if right.names:
        told += f"/{right.names[0]}"
    return f"{told} --subresource={subresource}" if subresource else told


async def test_the_rights_to_a_whole_cluster_are_accepted(api: ApiServer) -> None:
    account = rights.Account("default", rights.NAME)
    for each in rights.manifests(account, [], rights.SCALERS, lease=False):
        path = f"/apis/{rights.RBAC}/v1/{each['kind'].lower()}s"
        await api.create(path, each, dryRun="All", fieldValidation="Strict")
