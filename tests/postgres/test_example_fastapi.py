"""The example for FastAPI, run as it is: its own tables, a worker's process, deliveries by HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from aiohttp import web

from examples.fastapi_shop.main import app
from tests.support.dispatching import until_true
from tests.support.producing import url
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

DONE = b"SELECT count(*) = %s FROM outbox WHERE status = 'done'"
ORDER: dict[str, Any] = {"item": "tea", "quantity": 2}


@pytest.fixture(params=["asyncpg", "psycopg"])
async def shop(
    request: pytest.FixtureRequest, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """The example on the test's database, by either driver."""
    address = url(dsn, request.param).render_as_string(hide_password=False)
    monkeypatch.setenv("SHOP_DATABASE_URL", address)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client,
    ):
        yield client


@asynccontextmanager
async def served(client: httpx.AsyncClient, deliveries: list[str]) -> AsyncIterator[str]:
    """The application behind a port, for want of an ASGI server; what it is sent is noted."""

    async def forward(request: web.Request) -> web.Response:
        body = await request.read()
        answer = await client.post(request.path, content=body, headers=dict(request.headers))
        deliveries.append(request.headers["webhook-id"])
        return web.Response(status=answer.status_code, body=answer.content)

    server = web.Application()
    server.router.add_post("/{path:.*}", forward)
    runner = web.AppRunner(server, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def shipments(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT order_id, item, quantity FROM shipments").fetchall()


async def test_an_order_is_shipped_by_a_worker_and_once_however_often_it_hears_of_it(
    shop: httpx.AsyncClient, dsn: str, conn: psycopg.Connection
) -> None:
    answer = await shop.post("/orders", json=ORDER)
    assert (answer.status_code, answer.json()) == (201, {"id": 1})
    deliveries: list[str] = []
    async with served(shop, deliveries) as address:
        worker = WorkerProcess(dsn, f"{address}/shipping/events", DATABASE__INSECURE="true")
        with worker.start():
            await until_true(conn, DONE, 1)
            assert shipments(conn) == [(1, "tea", 2)]
            conn.execute(
                "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, message_id)"
                " SELECT aggregate_type, aggregate_id, event_type, payload, message_id FROM outbox"
            )
            await until_true(conn, DONE, 2)
    assert len(deliveries) == 2
    assert len(set(deliveries)) == 1
    assert shipments(conn) == [(1, "tea", 2)]


async def test_an_order_that_is_not_taken_leaves_no_message(
    shop: httpx.AsyncClient, conn: psycopg.Connection
) -> None:
    assert (await shop.post("/orders", json=ORDER | {"quantity": 0})).status_code == 422
    conn.execute("ALTER TABLE orders ADD CHECK (item <> 'coffee')")
    assert (await shop.post("/orders", json=ORDER | {"item": "coffee"})).status_code == 500
    assert (await shop.post("/orders", json=ORDER)).status_code == 201
    assert conn.execute("SELECT payload->>'item' FROM outbox").fetchall() == [("tea",)]


async def test_a_message_that_is_not_taken_leaves_no_order(
    shop: httpx.AsyncClient, conn: psycopg.Connection
) -> None:
    conn.execute("ALTER TABLE outbox ADD CHECK (payload->>'item' <> 'coffee')")
    assert (await shop.post("/orders", json=ORDER | {"item": "coffee"})).status_code == 500
    assert (await shop.post("/orders", json=ORDER)).status_code == 201
    assert conn.execute("SELECT item FROM orders").fetchall() == [("tea",)]


async def test_a_shipment_that_fails_leaves_no_receipt(
    shop: httpx.AsyncClient, conn: psycopg.Connection
) -> None:
    headers = {"webhook-id": "01890000-0000-7000-8000-000000000001"}
    placed = {"order_id": 7, "item": "tea", "quantity": 2}
    conn.execute("ALTER TABLE shipments ADD CONSTRAINT none CHECK (item <> 'tea')")
    failed = await shop.post("/shipping/events", json=placed, headers=headers)
    conn.execute("ALTER TABLE shipments DROP CONSTRAINT none")
    taken = await shop.post("/shipping/events", json=placed, headers=headers)
    assert (failed.status_code, taken.status_code) == (500, 204)
    assert shipments(conn) == [(7, "tea", 2)]
