"""The token of the operator's service account is replaced while it runs, as the kubelet does."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import pytest
import structlog

from pgoutbox_operator.run import Operator, Options
from pgoutbox_operator.session import Server, find_server
from tests.support.operating import eventually
from tests.support.operator_account import Account, Token, certificate
from tests.support.operator_process import a_scaler
from tests.support.outbox_rows import fill
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    import psycopg

    from tests.support.api_server import ApiServer, Shop

CACHED = 10.0
"""Seconds for which an API server remembers that a token was good."""

MEASURED = 5.0
"""Seconds."""


class Inside:
    """An operator with the files of a pod, in a thread of its own."""

    def __init__(self, namespace: str, server: Server) -> None:
        self.requests = 0
        self._count = server.headers
        self._server = server._replace(headers=self._headers)
        self._options = Options(namespaces=(namespace,), port=0)
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="operator")

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop()

    def _headers(self) -> dict[str, str]:
        self.requests += 1
        return self._count()

    async def _run(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        operator = Operator(self._options, self._server)
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        await operator.run(stop)
        # aiohttp does not wait for the goodbyes of TLS.
        await asyncio.sleep(0.25)


class Files:
    """Of a pod's service account."""

    def __init__(self, folder: Path, token: Token) -> None:
        self.folder = folder
        (folder / "ca.crt").write_bytes(certificate())
        self.say(token)

    def say(self, token: Token) -> None:
        """At once, as the kubelet does it."""
        (self.folder / "new").write_text(token.text, encoding="utf-8")
        (self.folder / "new").replace(self.folder / "token")


@pytest.fixture
def door(api: ApiServer) -> Iterator[TcpProxy]:
    """To the API server; what is watched has to be asked for again where it was cut."""
    at = urlsplit(api.url)
    with TcpProxy((str(at.hostname), at.port or 443)) as made:
        yield made


@asynccontextmanager
async def inside(
    place: Shop, files: Files, door: TcpProxy, patch: pytest.MonkeyPatch
) -> AsyncIterator[Inside]:
    patch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    patch.setenv("KUBERNETES_SERVICE_PORT", str(door.port))
    made = Inside(place.namespace, find_server(files.folder))
    made.start()
    try:
        yield made
    finally:
        made.stop()
        await eventually(lambda: not made.alive)


async def until_refused(place: Shop, token: Token) -> None:
    bearer = {"Authorization": f"Bearer {token.text}"}
    # Without the administrator's certificate, which would do as well.
    tls = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=certificate().decode()))
    deadline = time.monotonic() + 2 * CACHED
    async with aiohttp.ClientSession(connector=tls, headers=bearer) as session:
        while True:
            async with session.get(place.api.url + place.scalers) as answer:
                if answer.status == HTTPStatus.UNAUTHORIZED:
                    return
            assert time.monotonic() < deadline, "the token is still good"
            await asyncio.sleep(0.2)


async def test_a_token_that_was_replaced_in_time_is_never_missed(
    place: Shop,
    logs: Path,
    conn: psycopg.Connection,
    door: TcpProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = await Account.allowed(place)
    first = await account.token()
    files = Files(logs, first)
    with structlog.testing.capture_logs() as said:
        async with inside(place, files, door, monkeypatch):
            await a_scaler(place)
            await place.until_condition("Ready", "True", "Reconciled")
            files.say(await account.token())
            await account.revoke(first)
            await until_refused(place, first)
            door.cut()
            fill(conn, 20_000)
            await place.until_replicas(7)
            await a_scaler(place, "second", scaleTargetRef={"name": "others"})
            await place.until_condition("Ready", "False", "TargetNotFound", name="second")
    assert [each for each in said if each["log_level"] != "info"] == []


async def test_a_token_that_expired_is_asked_with_now_and_then_until_there_is_a_good_one(
    place: Shop,
    logs: Path,
    conn: psycopg.Connection,
    door: TcpProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = await Account.allowed(place)
    first = await account.token()
    files = Files(logs, first)
    async with inside(place, files, door, monkeypatch) as operator:
        await a_scaler(place)
        await place.until_condition("Ready", "True", "Reconciled")
        await account.revoke(first)
        await until_refused(place, first)
        door.cut()
        fill(conn, 20_000)
        before = operator.requests
        await asyncio.sleep(MEASURED)
        # To watch is tried with longer and longer pauses, and there was a tick.
        assert 2 <= operator.requests - before <= 15
        assert await place.replicas() == 1
        files.say(await account.token())
        await place.until_replicas(7)
        await a_scaler(place, "second", scaleTargetRef={"name": "others"})
        await place.until_condition("Ready", "False", "TargetNotFound", name="second")
