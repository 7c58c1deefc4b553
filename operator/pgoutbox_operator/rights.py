"""What the operator asks the cluster for, and the Role that allows exactly that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pgoutbox_operator.crd.names import GROUP, PLURAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Manifest = dict[str, Any]
NAME = "pgoutbox-operator"
LEASE = NAME
"""Of the Lease that replicas of the operator take turns by."""
RBAC = "rbac.authorization.k8s.io"


class Right(NamedTuple):
    """Verbs on one resource."""

    group: str
    """Empty for the core group."""
    resource: str
    """With its subresource."""
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()
    """Of objects; none: all of the namespace."""


SCALERS = (
    Right(GROUP, PLURAL, ("list", "watch"), "to know what to scale"),
    Right(GROUP, f"{PLURAL}/status", ("patch",), "to say what was done, and why"),
    Right("apps", "deployments/scale", ("get", "patch"), "to read and write replicas"),
    Right("", "pods", ("list",), "to see which pods start, are ready, or terminate"),
    Right(
        "autoscaling",
        "horizontalpodautoscalers",
        ("list",),
        "not to fight over a Deployment that something else scales",
    ),
    Right("", "secrets", ("get",), "to read DSNs"),
    Right("", "events", ("create",), "to tell about what was scaled"),
)
"""In each namespace with scalers."""
LEASES = (
    Right("coordination.k8s.io", "leases", ("create",), "to take turns: a name cannot be demanded"),
    Right("coordination.k8s.io", "leases", ("get", "update"), "to take turns", (LEASE,)),
)
"""In the operator's own namespace, where there are several replicas of it."""


class Account(NamedTuple):
    """A ServiceAccount."""

    namespace: str
    name: str


def narrowed(
    rights: Iterable[Right], *, deployments: Sequence[str] = (), secrets: Sequence[str] = ()
) -> tuple[Right, ...]:
    """Only for these Deployments and Secrets, where some are named."""
    names = {"deployments/scale": tuple(deployments), "secrets": tuple(secrets)}
    return tuple(
        right._replace(names=names[right.resource]) if names.get(right.resource) else right
        for right in rights
    )


def manifests(
    account: Account,
    namespaces: Sequence[str],
    rights: Sequence[Right],
    *,
    lease: bool,
) -> list[Manifest]:
    """Roles and their bindings; without ``namespaces`` for the whole cluster."""
    places: Sequence[str | None] = namespaces or [None]
    found = [each for place in places for each in _allowed(account, NAME, place, rights)]
    if lease:
        found += _allowed(account, f"{NAME}-lease", account.namespace, LEASES)
    return found


def render(found: Iterable[Manifest]) -> str:
    """YAML documents."""
    return "---\n".join(yaml.safe_dump(each, sort_keys=False) for each in found)


def _allowed(
    account: Account, name: str, namespace: str | None, rights: Sequence[Right]
) -> list[Manifest]:
    prefix = "" if namespace else "Cluster"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{prefix}Role",
        "metadata": metadata,
        "rules": [_rule(right) for right in rights if right.verbs],
    }
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": name},
        "subjects": [subject],
    }
    return [role, binding]


def _rule(right: Right) -> Manifest:
    rule: Manifest = {
        "apiGroups": [right.group],
        "resources": [right.resource],
        "verbs": list(right.verbs),
    }
    return rule | ({"resourceNames": list(right.names)} if right.names else {})
