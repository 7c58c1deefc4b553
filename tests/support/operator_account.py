"""A service account of the operator on a real API server: what it may do, and its tokens."""

from __future__ import annotations

import base64
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pgoutbox_operator import rights

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.api_server import Object, Shop

ACCOUNT = "operator"
LEASED = (*rights.SCALERS, *rights.LEASES)
"""All that is documented, with those for two replicas."""


class Token(NamedTuple):
    """It is good for as long as a Secret is there."""

    text: str
    secret: str


class Account(NamedTuple):
    """In a shop, where the operator is at home as well."""

    place: Shop

    @classmethod
    async def allowed(cls, place: Shop, given: Iterable[rights.Right] = LEASED) -> Account:
        """One that may do this."""
        made = cls(place)
        await place.api.create(f"{place.core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        for manifest in made._manifests(given):
            await place.api.create(_path(manifest), manifest)
        return made

    async def may(self, given: Iterable[rights.Right]) -> None:
        """From now on this."""
        role, _ = self._manifests(given)
        path = f"{_path(role)}/{role['metadata']['name']}"
        await self.place.api.merge(path, {"rules": role["rules"]})

    async def token(self) -> Token:
        """One that can be revoked."""
        name = f"token-{uuid.uuid4().hex[:8]}"
        secret = await self.place.api.create(
            f"{self.place.core}/secrets", {"metadata": {"name": name}}
        )
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name}
        asked = {"boundObjectRef": bound | {"uid": secret["metadata"]["uid"]}}
        answer = await self.place.api.create(
            f"{self.place.core}/serviceaccounts/{ACCOUNT}/token", {"spec": asked}
        )
        return Token(answer["status"]["token"], name)

    async def revoke(self, token: Token) -> None:
        """The API server may let it pass for ten seconds more."""
        await self.place.api.delete(f"{self.place.core}/secrets/{token.secret}")

    def _manifests(self, given: Iterable[rights.Right]) -> list[Object]:
        namespace = self.place.namespace
        account = rights.Account(namespace, ACCOUNT)
        return rights.manifests(account, [namespace], tuple(given), lease=False)


def _path(manifest: Object) -> str:
    kind = "roles" if manifest["kind"] == "Role" else "rolebindings"
    namespace = manifest["metadata"]["namespace"]
    return f"/apis/{rights.RBAC}/v1/namespaces/{namespace}/{kind}"


def certificate() -> bytes:
    """Of the authority that has signed the API server's."""
    file = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    inline = cluster.get("certificate-authority-data")
    if inline is not None:
        return base64.b64decode(inline)
    return Path(cluster["certificate-authority"]).read_bytes()


def _named(listed: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [found] = [each for each in listed if each["name"] == name]
    return found
