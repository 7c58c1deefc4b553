"""What docs/operator.md shows is taken by a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.operator.test_docs import manifest

if TYPE_CHECKING:
    from tests.support.api_server import Shop


async def test_the_scaler_is_accepted(bare: Shop) -> None:
    body = manifest("OutboxScaler")
    del body["metadata"]["namespace"]
    await bare.api.create(bare.scalers, body, dryRun="All", fieldValidation="Strict")


async def test_the_operators_pods_are_allowed_where_security_is_restricted(bare: Shop) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await bare.api.merge(f"/api/v1/namespaces/{bare.namespace}", enforced)
    account = {"metadata": {"name": "pgoutbox-operator"}}
    await bare.api.create(f"{bare.core}/serviceaccounts", account)
    template = manifest("Deployment")["spec"]["template"]
    pod = {"metadata": {"name": "one"}, "spec": template["spec"]}
    await bare.api.create(f"{bare.core}/pods", pod, dryRun="All", fieldValidation="Strict")
