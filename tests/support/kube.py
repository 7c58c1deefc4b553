"""The few objects that the operator touches, behind a kmock server: versions, status and watches.

Faults are kmock's own: ``kube.mock["patch", SCALE][:1] << 409`` comes before what is answered here.
"""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import kmock
from aiohttp import web

from pgoutbox_operator.permissions import Permissions
from pgoutbox_operator.session import Link, Server
from tests.support.scaler_cases import spec
from tests.support.structural import with_defaults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Object = dict[str, Any]
NAMESPACE, WORKERS, SCALER = "shop", "workers", "orders"
IN_SHOP = f"/apis/pgoutbox.io/v1alpha1/namespaces/{NAMESPACE}/outboxscalers"
STATUS = f"{IN_SHOP}/{SCALER}/status"
SCALE = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{WORKERS}/scale"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/outbox-dsn"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
TOO_OLD = {"kind": "Status", "code": 410, "message": "too old", "metadata": {}}
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def scaler(name: str = SCALER, *, uid: str = "1", **changes: Any) -> Object:
    """As the API server gives it: with the defaults of the definition."""
    from pgoutbox_operator.crd.definition import definition  # noqa: PLC0415 - slow to make

    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {
        "apiVersion": "pgoutbox.io/v1alpha1",
        "kind": "OutboxScaler",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "generation": 1,
            "creationTimestamp": f"2026-01-0{uid}T00:00:00Z",
            "resourceVersion": "1",
        },
        "spec": with_defaults(schema["properties"]["spec"], spec(**changes)),
    }


class Hindered(kmock.KubernetesScaffold):
    """Answers where there is no obstacle. Nothing is recorded of what there was one to.

    Unlike kmock's own faults it can be changed at any time, and may say anything.
    """

    hindered = 0

    def __init__(self) -> None:
        super().__init__()
        self.obstacle: Callable[[web.BaseRequest], web.Response | None] = lambda _: None

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        instead = self.obstacle(request)
        if instead is None:
            return await super().__call__(request)
        self.hindered += 1
        await request.read()
        return instead


def refuse(status: int, *, name: str = "", **headers: str) -> web.Response:
    """As an API server does it; ``name``: of an object that it knows better."""
    reason = HTTPStatus(status).phrase
    body = {"kind": "Status", "code": status, "message": reason, "metadata": {}}
    if name:
        body["details"] = {"name": name}
    return web.json_response(body, status=status, headers=headers)


class FakeKube:
    """The state, and the answers out of it."""

    def __init__(self) -> None:
        self.mock = Hindered()
        # Before what kmock would say by itself, and after what a test says.
        self.mock.fallback**1 << self._answer
        self.replicas = 2
        self.version = 1
        self.pods: list[Object] = []
        self.autoscalers: list[Object] = []
        self.secret: dict[str, str] = {"dsn": "postgresql://localhost/shop"}
        self.leases: dict[str, Object] = {}
        self.scalers: dict[str, Object] = {}
        self.deleted: set[str] = set()
        """The uids of scalers that there were."""
        self.statuses: dict[str, Object] = {}
        """Of scalers, by name."""
        self.events: list[Object] = []
        self.history: list[Object] = []
        """What watches are told; its length is the version of everything."""
        self.compacted = 0
        """Before this version nothing is known."""
        self.watches: list[asyncio.Queue[Object | None]] = []
        self.tokens: list[str | None] = []
        self.asked: list[tuple[str, str]] = []
        """Method and path of each request."""

    @property
    def status(self) -> Object:
        """Of the scaler that all tests know."""
        return self.statuses.setdefault(SCALER, {})

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return {
            each["type"]: (each["status"], each["reason"])
            for each in self.status.get("conditions", [])
        }

    @property
    def said(self) -> list[str]:
        """The reasons of the Events."""
        return [event["reason"] for event in self.events]

    def link(self, permissions: Permissions | None = None) -> Link:
        """As the operator connects."""
        url = str(self.mock.url).rstrip("/")
        headers: Callable[[], dict[str, str]] = dict
        return Link(Server(url, headers, None), permissions or Permissions())

    def put(self, body: Object) -> None:
        """Add a scaler, or replace it, and tell the watches."""
        kind = "MODIFIED" if body["metadata"]["name"] in self.scalers else "ADDED"
        self.scalers[body["metadata"]["name"]] = body
        self._happen(kind, body)

    def delete(self, name: str) -> None:
        """Take a scaler away, and tell the watches."""
        body = self.scalers.pop(name)
        self.deleted.add(body["metadata"]["uid"])
        self.statuses.pop(name, None)
        self._happen("DELETED", body)

    def _happen(self, kind: str, body: Object) -> None:
        event = {"type": kind, "object": body}
        self.history.append(event)
        body["metadata"]["resourceVersion"] = str(len(self.history))
        self.tell(event)

    def tell(self, event: Object | None) -> None:
        """To all watches; None ends them."""
        for watch in self.watches:
            watch.put_nowait(event)

    async def _answer(self, request: kmock.Request) -> Any:
        self.tokens.append(request.headers.get("Authorization"))
        path, method = request.url.path, request.method.value.upper()
        self.asked.append((method, path))
        watching = "watch" in (request.params or {})
        body = json.loads(request.body) if request.body else None
        if path == IN_SHOP:
            since = int((request.params or {}).get("resourceVersion") or 0)
            return self._watch(since) if watching else self._list()
        if path.startswith(f"{IN_SHOP}/") and path.endswith("/status"):
            return self._store(path.split("/")[-2], body or {})
        return self._of(method, path, body)

    def _list(self) -> Object:
        items = list(self.scalers.values())
        version = str(len(self.history))
        return {"kind": "List", "metadata": {"resourceVersion": version}, "items": items}

    async def _watch(self, since: int) -> AsyncIterator[Any]:
        if since < self.compacted:
            yield {"type": "ERROR", "object": TOO_OLD}
            return
        queue: asyncio.Queue[Object | None] = asyncio.Queue()
        for missed in self.history[since:]:
            queue.put_nowait(missed)
        self.watches.append(queue)
        try:
            yield b""
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self.watches.remove(queue)

    def _of(self, method: str, path: str, body: Object | None) -> Object:
        if path.startswith(LEASES):
            return self._lease(method, path.removeprefix(LEASES).strip("/"), body)
        answers: dict[str, Callable[[], Object]] = {
            "/api": lambda: {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": lambda: {"kind": "APIGroupList", "groups": GROUPS},
            **{path: partial(dict, found) for path, found in DISCOVERY.items()},
            SCALE: lambda: self._scale(body),
            PODS: lambda: {"items": self.pods},
            AUTOSCALERS: lambda: {"items": self.autoscalers},
            SECRET: lambda: {"data": {key: _encoded(each) for key, each in self.secret.items()}},
            EVENTS: lambda: self._event(body or {}),
        }
        if path not in answers:
            raise _refusal(HTTPStatus.NOT_FOUND)
        return answers[path]()

    def _store(self, name: str, patch: Object) -> Object:
        if patch["metadata"]["uid"] in self.deleted:
            again = name in self.scalers
            raise _refusal(HTTPStatus.CONFLICT if again else HTTPStatus.NOT_FOUND, name=name)
        # As a merge patch does: null takes away.
        merged = self.statuses.get(name, {}) | patch["status"]
        status = {key: each for key, each in merged.items() if each is not None}
        self.statuses[name] = status
        return self.scalers.get(name, {}) | {"status": status}

    def _event(self, event: Object) -> Object:
        self.events.append(event)
        return event

    def _scale(self, patch: Object | None) -> Object:
        if patch is not None:
            if patch["metadata"]["resourceVersion"] != str(self.version):
                raise _refusal(HTTPStatus.CONFLICT)
            self.replicas = patch["spec"]["replicas"]
            self.version += 1
        return {
            "metadata": {"resourceVersion": str(self.version)},
            "spec": {"replicas": self.replicas} if self.replicas else {},
            "status": {"selector": "app=workers"},
        }

    def _lease(self, method: str, name: str, body: Object | None) -> Object:
        if method == "GET":
            found = self.leases.get(name)
            if found is None:
                raise _refusal(HTTPStatus.NOT_FOUND)
            return found
        if body is None:
            raise AssertionError("a lease is written with a body")
        name = body["metadata"]["name"]
        before = self.leases.get(name)
        if before and method == "POST":
            raise _refusal(HTTPStatus.CONFLICT)
        version = body["metadata"].get("resourceVersion")
        if before and version != before["metadata"]["resourceVersion"]:
            raise _refusal(HTTPStatus.CONFLICT)
        body["metadata"]["resourceVersion"] = str(int(version or 0) + 1)
        self.leases[name] = body
        return body


def _refusal(status: HTTPStatus, **details: str) -> kmock.KubernetesError:
    said = status.phrase
    return kmock.KubernetesError(status=int(status), reason=said, message=said, details=details)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _group(name: str, version: str) -> Object:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resources(version: str, *found: tuple[str, str, bool]) -> Object:
    return {
        "kind": "APIResourceList",
        "groupVersion": version,
        "resources": [
            {
                "name": name,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": namespaced,
                "verbs": ["get", "list", "watch", "patch"],
            }
            for name, kind, namespaced in found
        ],
    }


GROUPS = [_group("pgoutbox.io", "v1alpha1"), _group("apiextensions.k8s.io", "v1")]
DISCOVERY = {
    "/api/v1": _resources("v1", ("namespaces", "Namespace", False), ("events", "Event", True)),
    "/apis/apiextensions.k8s.io/v1": _resources(
        "apiextensions.k8s.io/v1", ("customresourcedefinitions", "CustomResourceDefinition", False)
    ),
    "/apis/pgoutbox.io/v1alpha1": _resources(
        "pgoutbox.io/v1alpha1",
        ("outboxscalers", "OutboxScaler", True),
        ("outboxscalers/status", "OutboxScaler", True),
    ),
}
