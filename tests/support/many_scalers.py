"""An API server with many scalers, Deployments and Secrets in one namespace, over a real socket.

Leaner than kmock, and forgetful: it keeps no record of requests, so it may serve for days.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from tests.support.kube import DISCOVERY, GROUPS, IN_SHOP, NAMESPACE, TOO_OLD, refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Object = dict[str, Any]
REMEMBERED = 200
BOOKMARK_SECONDS = 60.0
WATCH_SECONDS = 1800.0
"""An API server ends each watch by itself some day."""
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets/"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
EMPTY = {
    f"/api/v1/namespaces/{NAMESPACE}/pods",
    f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers",
}


@dataclass
class Deployment:
    replicas: int
    version: int = 1


async def no_obstacle(_: web.BaseRequest) -> web.StreamResponse | None:
    return None


class ManyScalers:
    """What there is may be changed at any time."""

    def __init__(self) -> None:
        self.scalers: dict[str, Object] = {}
        self.statuses: dict[str, Object] = {}
        """By uid."""
        self.deployments: dict[str, Deployment] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.leases: dict[str, Object] = {}
        self.asked: Counter[str] = Counter()
        """Requests by method and the last part of the path."""
        self.events: Counter[str] = Counter()
        """Events by their reason."""
        self.obstacle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]] = (
            no_obstacle
        )
        self.on_scale: Callable[[str, int], None] = lambda _name, _replicas: None
        """Told which Deployment gets how many replicas, before it gets them."""
        self.port = 0
        self._version = 0
        self._history: deque[tuple[int, Object]] = deque(maxlen=REMEMBERED)
        self._watches: set[asyncio.Queue[Object | None]] = set()
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.tell(None)
        await self._runner.cleanup()

    @property
    def watches(self) -> int:
        return len(self._watches)

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        status = self.statuses.get(self.scalers[name]["metadata"]["uid"], {})
        found = status.get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def put(self, body: Object) -> None:
        """Add a scaler, or replace it."""
        kind = "MODIFIED" if body["metadata"]["name"] in self.scalers else "ADDED"
        self.scalers[body["metadata"]["name"]] = body
        self._happen(kind, body)

    def delete(self, name: str) -> None:
        """Take a scaler away."""
        body = self.scalers.pop(name)
        self.statuses.pop(body["metadata"]["uid"], None)
        self._happen("DELETED", body)

    def compact(self) -> None:
        """Forget what happened, and end the watches, so that they have to find out."""
        self._version += 1
        self._history.clear()
        self.tell(None)

    def tell(self, event: Object | None) -> None:
        """To all watches; None ends them."""
        for watch in self._watches:
            watch.put_nowait(event)

    def _happen(self, kind: str, body: Object) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        event = {"type": kind, "object": json.loads(json.dumps(body))}
        self._history.append((self._version, event))
        self.tell(event)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked[f"{request.method} {request.path.rpartition('/')[2]}"] += 1
        instead = await self.obstacle(request)
        if instead is not None:
            return instead
        if request.path == IN_SHOP and "watch" in request.query:
            return await self._watch(request)
        body = json.loads(await request.read() or b"null")
        try:
            found = self._of(request.method, request.path, body)
        except LookupError:
            return refuse(404)
        return found if isinstance(found, web.Response) else web.json_response(found)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        oldest = self._history[0][0] - 1 if self._history else self._version
        if since < oldest:
            await response.write(_line({"type": "ERROR", "object": TOO_OLD}))
            return response
        queue: asyncio.Queue[Object | None] = asyncio.Queue()
        for version, event in self._history:
            if version > since:
                queue.put_nowait(event)
        self._watches.add(queue)
        # Whoever watches may be gone.
        with contextlib.suppress(ConnectionError):
            try:
                await self._stream(queue, response)
            finally:
                self._watches.discard(queue)
        return response

    async def _stream(
        self, queue: asyncio.Queue[Object | None], response: web.StreamResponse
    ) -> None:
        for _ in range(int(WATCH_SECONDS / BOOKMARK_SECONDS)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BOOKMARK_SECONDS):
                    while (event := await queue.get()) is not None:
                        await response.write(_line(event))
                    return
            version = {"metadata": {"resourceVersion": str(self._version)}}
            await response.write(_line({"type": "BOOKMARK", "object": version}))

    def _of(self, method: str, path: str, body: Object | None) -> Object | web.Response:
        """Raises LookupError where there is nothing."""
        if path == IN_SHOP:
            meta = {"resourceVersion": str(self._version)}
            return {"kind": "List", "metadata": meta, "items": list(self.scalers.values())}
        if path.startswith(f"{IN_SHOP}/") and body is not None:
            return self._status(path.removeprefix(f"{IN_SHOP}/").removesuffix("/status"), body)
        if path.startswith(DEPLOYMENTS):
            return self._scale(path.removeprefix(DEPLOYMENTS).removesuffix("/scale"), body)
        if path.startswith(SECRETS):
            found = self.secrets[path.removeprefix(SECRETS)]
            encoded = {key: base64.b64encode(each.encode()).decode() for key, each in found.items()}
            return {"data": encoded}
        if path.startswith(LEASES):
            return self._lease(method, path.removeprefix(LEASES).strip("/"), body)
        return self._other(path, body)

    def _other(self, path: str, body: Object | None) -> Object:
        if path.endswith("/events") and body is not None:
            self.events[body["reason"]] += 1
            return body
        if path in EMPTY:
            return {"items": []}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "groups": GROUPS}
        return dict(DISCOVERY[path])

    def _status(self, name: str, patch: Object) -> Object | web.Response:
        if name not in self.scalers:
            return refuse(404, name=name)
        uid = self.scalers[name]["metadata"]["uid"]
        if patch["metadata"]["uid"] != uid:
            return refuse(409)
        status = self.statuses.setdefault(uid, {})
        before = dict(status)
        status |= {key: each for key, each in patch["status"].items() if each is not None}
        if status != before:
            # What the operator writes comes back to it.
            self._happen("MODIFIED", self.scalers[name] | {"status": status})
        return {"status": status}

    def _scale(self, name: str, patch: Object | None) -> Object | web.Response:
        found = self.deployments[name]
        if patch is not None:
            if patch["metadata"]["resourceVersion"] != str(found.version):
                return refuse(409)
            self.on_scale(name, patch["spec"]["replicas"])
            found.replicas = patch["spec"]["replicas"]
            found.version += 1
        return {
            "metadata": {"resourceVersion": str(found.version)},
            "spec": {"replicas": found.replicas} if found.replicas else {},
            "status": {"selector": f"app={name}"},
        }

    def _lease(self, method: str, name: str, body: Object | None) -> Object | web.Response:
        if body is None:
            return self.leases[name]
        name = body["metadata"]["name"]
        before = self.leases.get(name)
        if before is not None and (
            method == "POST"
            or body["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]
        ):
            return refuse(409)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.leases[name] = body
        return body


def _line(event: Object) -> bytes:
    return json.dumps(event).encode() + b"\n"
