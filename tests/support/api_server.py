"""A real API server, as the tests marked `cluster` use it: by the kubeconfig, without a client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml

from pgoutbox_operator.session import find_server
from tests.support.scaler_cases import spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

Object = dict[str, Any]
API = "pgoutbox.io/v1alpha1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/outboxscalers.pgoutbox.io"
MANAGER = "pgoutbox-tests"
WORKERS, SCALER, SECRET = "workers", "orders", "outbox-dsn"
PATIENCE = 20.0
BEGINNING = "storage is (re)initializing"
STEP = 0.05
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Refused(Exception):  # noqa: N818 - what the API server did
    """It answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ApiServer:
    """Requests as the administrator that the kubeconfig names."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content: str = "application/json",
        **query: str,
    ) -> Object:
        """The answer as an object. Raises Refused."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await self._ask(method, path, body, content=content, query=query)
            except Refused as refused:
                # What a definition has just been changed for is not served for a moment.
                if BEGINNING not in refused.message or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(STEP)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Object | None,
        *,
        content: str,
        query: Mapping[str, str],
    ) -> Object:
        async with self._session.request(
            method,
            self.url + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content},
        ) as response:
            text = await response.text()
            if response.status >= 400:
                # Of a path that it does not serve it does not even say so in JSON.
                is_told = response.content_type == "application/json"
                raise Refused(response.status, json.loads(text)["message"] if is_told else text)
            answer: Object = json.loads(text)
            return answer

    async def get(self, path: str, **query: str) -> Object:
        return await self.ask("GET", path, None, **query)

    async def find(self, path: str) -> Object | None:
        """None where there is no such thing."""
        try:
            return await self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def create(self, path: str, body: Object, **query: str) -> Object:
        return await self.ask("POST", path, body, **query)

    async def merge(self, path: str, body: Object) -> Object:
        return await self.ask("PATCH", path, body, content=MERGE)

    async def apply(self, path: str, body: Object, *, manager: str, **query: str) -> Object:
        return await self.ask("PATCH", path, body, content=APPLY, fieldManager=manager, **query)

    async def columns(self, path: str) -> tuple[list[str], list[list[Any]]]:
        """What `kubectl get` shows: the names of the columns, and the rows."""
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        async with self._session.get(self.url + path, headers=table) as answer:
            found = await answer.json()
        shown = [i for i, each in enumerate(found["columnDefinitions"]) if not each["priority"]]
        names = [found["columnDefinitions"][i]["name"] for i in shown]
        return names, [[row["cells"][i] for i in shown] for row in found["rows"]]

    async def delete(self, path: str) -> None:
        await self.ask("DELETE", path)

    async def until(
        self, path: str, holds: Callable[[Object], object], *, within: float = PATIENCE
    ) -> Object:
        """The object, once ``holds``."""
        deadline = time.monotonic() + within
        while True:
            found = await self.find(path)
            if found is not None and holds(found):
                return found
            if time.monotonic() > deadline:
                shown = {key: (found or {}).get(key) for key in ("spec", "status", "items")}
                raise AssertionError(f"{path} is not so within {within:g} s: {shown}")
            await asyncio.sleep(STEP)

    async def until_gone(self, path: str, *, within: float) -> float:
        """Seconds until there is no such thing."""
        began = time.monotonic()
        while await self.find(path) is not None:
            if time.monotonic() - began > within:
                raise AssertionError(f"{path} is still there after {within:g} s")
            await asyncio.sleep(STEP)
        return time.monotonic() - began


def kubeconfig(token: str) -> str:
    """As KUBECONFIG, for whoever has this token."""
    given = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    config = yaml.safe_load(given.read_text(encoding="utf-8"))
    [context] = [each for each in config["contexts"] if each["name"] == config["current-context"]]
    context["context"]["user"] = "token"
    users = [{"name": "token", "user": {"token": token}}]
    return yaml.safe_dump(config | {"users": users})


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """By KUBECONFIG."""
    server = find_server()
    tls = server.tls if server.tls is not None else True
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), headers=server.headers()
    ) as session:
        yield ApiServer(session, server.url.rstrip("/"))


class Shop:
    """A namespace with a Deployment of workers, a Secret with the DSN, and scalers of it."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.scalers = f"/apis/{API}/namespaces/{namespace}/outboxscalers"
        self.deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.core = f"/api/v1/namespaces/{namespace}"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.autoscalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"

    def scaler(self, name: str = SCALER) -> str:
        return f"{self.scalers}/{name}"

    def deployment(self, name: str = WORKERS) -> str:
        return f"{self.deployments}/{name}"

    async def add_scaler(self, name: str = SCALER, **changes: Any) -> Object:
        body = {
            "apiVersion": API,
            "kind": "OutboxScaler",
            "metadata": {"name": name},
            "spec": spec(**changes),
        }
        return await self.api.create(self.scalers, body)

    async def add_secret(self, dsn: str) -> None:
        body = {"metadata": {"name": SECRET}, "data": {"dsn": encoded(dsn)}}
        await self.api.create(f"{self.core}/secrets", body)

    async def change_secret(self, dsn: str) -> None:
        await self.api.merge(f"{self.core}/secrets/{SECRET}", {"data": {"dsn": encoded(dsn)}})

    async def add_deployment(self, name: str = WORKERS, *, replicas: int = 1) -> None:
        """Of pods that no node takes: what is tested is who writes how many there shall be."""
        labels = {"app": name}
        pod = {
            "nodeSelector": {"pgoutbox.io/nowhere": "true"},
            "containers": [{"name": "worker", "image": "pgoutbox"}],
        }
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
        await self.api.create(self.deployments, body)

    async def scale(self, replicas: int) -> None:
        """As `kubectl scale` does."""
        await self.api.merge(f"{self.deployment()}/scale", {"spec": {"replicas": replicas}})

    async def replicas(self, name: str = WORKERS) -> int:
        found = await self.api.get(self.deployment(name))
        replicas: int = found["spec"]["replicas"]
        return replicas

    async def until_replicas(self, replicas: int, *, within: float = PATIENCE) -> None:
        await self.api.until(
            self.deployment(), lambda found: found["spec"]["replicas"] == replicas, within=within
        )

    async def until_more_replicas(self, than: int, *, within: float = PATIENCE) -> None:
        await self.api.until(
            self.deployment(), lambda found: found["spec"]["replicas"] > than, within=within
        )

    async def until_condition(
        self, kind: str, status: str, reason: str, *, name: str = SCALER, within: float = PATIENCE
    ) -> Object:
        """The condition, once it is so."""
        found = await self.api.until(
            self.scaler(name),
            lambda body: (
                conditions(body).get(kind, {}).get("status") == status
                and conditions(body)[kind]["reason"] == reason
            ),
            within=within,
        )
        return conditions(found)[kind]

    async def events(self, reason: str) -> list[str]:
        """The messages of those with this reason, oldest first."""
        listed = await self.described(reason=reason)
        return [each["message"] for each in sorted(listed, key=lambda each: each["lastTimestamp"])]

    async def described(self, **fields: str) -> list[Object]:
        """Events, as `kubectl describe` asks for them."""
        selector = ",".join(f"{name}={value}" for name, value in fields.items())
        found = await self.api.get(f"{self.core}/events", fieldSelector=selector)
        items: list[Object] = found["items"]
        return items

    async def until_event(self, reason: str, saying: str = "") -> str:
        """The message of the first one that says so."""
        deadline = time.monotonic() + PATIENCE
        while True:
            said = await self.events(reason)
            for message in said:
                if saying in message:
                    return message
            if time.monotonic() > deadline:
                raise AssertionError(f"there is no event {reason} of {saying!r}: {said}")
            await asyncio.sleep(STEP)


def conditions(body: Mapping[str, Any]) -> dict[str, Object]:
    """By type."""
    found = body.get("status", {}).get("conditions") or []
    return {each["type"]: each for each in found}


def is_established(definition: Mapping[str, Any]) -> bool:
    """Whether objects of it are served."""
    return conditions(definition).get("Established", {}).get("status") == "True"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@asynccontextmanager
async def shop(api: ApiServer) -> AsyncIterator[Shop]:
    """Deleted afterwards, without waiting for it."""
    name = f"pgoutbox-{uuid.uuid4().hex[:10]}"
    path = f"/api/v1/namespaces/{name}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield Shop(api, name)
    finally:
        if await api.find(path) is not None:
            await api.delete(path)
