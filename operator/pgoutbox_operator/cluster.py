"""All that is asked of the API server. No retries: the next tick asks again."""

from __future__ import annotations

import base64
import binascii
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from pgoutbox.errors import PgOutboxError
from pgoutbox_operator.crd.names import API_VERSION, PLURAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox_operator.session import Link

REQUEST_SECONDS = 10.0
CONNECT_SECONDS = 5.0
MERGE_PATCH = "application/merge-patch+json"
LONGEST_ANSWER = 300
Object = dict[str, Any]


class ClusterError(PgOutboxError):
    """A request failed: refused, or not answered."""

    def __init__(self, message: str, *, status: int | None = None, named: bool = False) -> None:
        """``status``: of HTTP; None where there was no answer. ``named``: it tells of an object."""
        super().__init__(message)
        self.status = status
        self._named = named

    @property
    def is_not_found(self) -> bool:
        """There is no such object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_gone(self) -> bool:
        """There is no such object, while there might be.

        Whoever knows no such path says 404, too: an API server without the definition, or a proxy.
        """
        return self.is_not_found and self._named

    @property
    def is_conflict(self) -> bool:
        """Somebody else was faster, or the object is another one by now."""
        return self.status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def is_forbidden(self) -> bool:
        """A right is missing."""
        return self.status == HTTPStatus.FORBIDDEN


class Scale(NamedTuple):
    """A Deployment's scale."""

    replicas: int
    selector: str
    version: str


class Cluster:
    """A thin client over a session that kopf uses too."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def has_definition(self) -> bool:
        """Whether the cluster knows the custom resource."""
        try:
            found = await self._request("GET", f"/apis/{API_VERSION}")
        except ClusterError as error:
            if error.is_not_found:
                return False
            raise
        return any(each["name"] == PLURAL for each in found["resources"])

    async def scaler(self, namespace: str, name: str) -> Object:
        """One OutboxScaler."""
        return await self._request("GET", _scaler(namespace, name))

    async def write_status(self, body: Object, status: Object) -> Object:
        """Merge ``status`` into that of the object, unless it is another one by now.

        Returns what was stored.
        """
        of = body["metadata"]
        patch = {"metadata": {"uid": of["uid"]}, "status": status}
        path = f"{_scaler(of['namespace'], of['name'])}/status"
        return await self._request("PATCH", path, patch)

    async def scale(self, namespace: str, deployment: str) -> Scale:
        """Of a Deployment."""
        return _scale(await self._request("GET", _deployment(namespace, deployment)))

    async def set_scale(
        self, namespace: str, deployment: str, replicas: int, *, version: str
    ) -> Scale:
        """A conflict where anything about the Deployment has changed since ``version``.

        A merge patch: a server-side apply would own the field, and Helm could not manage it.
        """
        patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        path = _deployment(namespace, deployment)
        return _scale(await self._request("PATCH", path, patch))

    async def pods(self, namespace: str, selector: str) -> list[Object]:
        """Those that a label selector matches, as the API server has them in memory."""
        query = {"labelSelector": selector, "resourceVersion": "0"}
        found = await self._request("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
        return _items(found)

    async def autoscalers(self, namespace: str) -> list[Object]:
        """The HorizontalPodAutoscalers."""
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        return _items(await self._request("GET", path, query={"resourceVersion": "0"}))

    async def secret(
        self, namespace: str, name: str, key: str, *, seconds: float = REQUEST_SECONDS
    ) -> str | None:
        """One value of a Secret; None where it lacks the key, or where it is no text."""
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        found = await self._request("GET", path, seconds=seconds)
        encoded = (found.get("data") or {}).get(key)
        try:
            return None if encoded is None else base64.b64decode(encoded).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None

    async def post_event(self, namespace: str, event: Object) -> None:
        """Create an Event."""
        await self._request("POST", f"/api/v1/namespaces/{namespace}/events", event)

    async def lease(self, namespace: str, name: str) -> Object | None:
        """None where there is none yet."""
        try:
            return await self._request("GET", f"{_leases(namespace)}/{name}")
        except ClusterError as error:
            if error.is_not_found:
                return None
            raise

    async def create_lease(self, namespace: str, lease: Object) -> Object:
        """A conflict where somebody else was faster."""
        return await self._request("POST", _leases(namespace), lease)

    async def update_lease(self, namespace: str, lease: Object) -> Object:
        """As a whole; a conflict where it has changed since it was read."""
        path = f"{_leases(namespace)}/{lease['metadata']['name']}"
        return await self._request("PUT", path, lease)

    async def _request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        content = MERGE_PATCH if method == "PATCH" else "application/json"
        try:
            async with self._link.session.request(
                method,
                self._link.url + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content, "Accept": "application/json"},
                timeout=timeout,
            ) as response:
                text = await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ClusterError(f"the API server does not answer {method} {path}: {said}") from error
        return _answer(response.status, text, f"{method} {path}")


def _answer(status: int, text: str, asked: str) -> Object:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if status >= HTTPStatus.BAD_REQUEST:
        # Only a Status is for people; anything else might quote what is not theirs.
        said = answer.get("message") if isinstance(answer, dict) else None
        shown = f": {said[:LONGEST_ANSWER]}" if isinstance(said, str) else ""
        details = answer.get("details") if isinstance(answer, dict) else None
        named = isinstance(details, dict) and bool(details.get("name"))
        message = f"{asked} was answered with {status}{shown}"
        raise ClusterError(message, status=status, named=named)
    if not isinstance(answer, dict):
        raise ClusterError(f"{asked} was answered with something that is no object", status=status)
    return answer


def _items(found: Object) -> list[Object]:
    items: list[Object] = found.get("items") or []
    return items


def _scale(found: Object) -> Scale:
    try:
        return Scale(
            replicas=found.get("spec", {}).get("replicas", 0),
            selector=found.get("status", {}).get("selector", ""),
            version=found["metadata"]["resourceVersion"],
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ClusterError(f"the scale of a Deployment has no {error}") from error


def _scaler(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"


def _deployment(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
