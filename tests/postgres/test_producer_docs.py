"""What the pages about SQLAlchemy, asyncpg and FastAPI show is run as it stands there."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import httpx
import pytest
import sqlalchemy as sa
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.support.producing import asyncpg_options, url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

DOCS = Path(__file__).parents[2] / "docs"
ID = UUID(int=1)


def python_of(page: str) -> dict[str, Any]:
    """The names that the page's blocks define, one after the other."""
    text = (DOCS / page).read_text(encoding="utf-8")
    # Its classes and its endpoints ask for their module.
    names: dict[str, Any] = {"__name__": __name__}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, page, "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    return names


@pytest.fixture
def business(conn: psycopg.Connection) -> psycopg.Connection:
    conn.execute("CREATE TABLE orders (id serial PRIMARY KEY, item text, paid bool DEFAULT false)")
    conn.execute("CREATE TABLE shipments (order_id int)")
    conn.execute("INSERT INTO orders DEFAULT VALUES")
    return conn


def sent(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT event_type, payload FROM outbox ORDER BY id").fetchall()


def shipped(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT order_id FROM shipments").fetchall()


async def test_the_blocks_about_sqlalchemy_run(business: psycopg.Connection, dsn: str) -> None:
    names = python_of("producers-sqlalchemy.md")
    with Session(sa.create_engine(url(dsn, "psycopg"), poolclass=NullPool)) as session:
        names["pay"](session, 1)
        names["place"](session)
        for _ in range(2):
            names["on_message"](session, ID, 1)
    async_engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(async_engine) as async_session:
        await names["pay_async"](async_session, 1)
    assert sent(business) == [("OrderPaid", {"order": 1}), ("OrderPaid", {"order": 2})]
    assert shipped(business) == [(1,)]


async def test_the_blocks_about_asyncpg_run(business: psycopg.Connection, dsn: str) -> None:
    names = python_of("producers-asyncpg.md")
    async with asyncpg.create_pool(**asyncpg_options(dsn), min_size=1) as pool:
        await names["pay"](pool, 1)
        async with pool.acquire() as conn:
            for _ in range(2):
                await names["on_message"](conn, ID, 1)
    assert sent(business) == [("OrderPaid", {"order": 1})]
    assert business.execute("SELECT paid FROM orders").fetchall() == [(True,)]
    assert shipped(business) == [(1,)]


@asynccontextmanager
async def served(dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    """The application of the page."""
    names = python_of("producers-fastapi.md")
    engine = create_async_engine(url(dsn, "psycopg"), poolclass=NullPool)
    names["new_session"].configure(bind=engine)
    transport = httpx.ASGITransport(names["app"], raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
        yield client


@pytest.mark.parametrize("path", ["/orders", "/orders/by-dependency"])
async def test_the_endpoints_for_fastapi_answer_after_the_commit(
    business: psycopg.Connection, dsn: str, path: str
) -> None:
    business.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'at the commit'; END $$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.item = 'coffee') EXECUTE FUNCTION refuse();
        """
    )
    async with served(dsn) as client:
        refused = await client.post(path, json={"item": "coffee"})
        placed = await client.post(path, json={"item": "tea"})
    assert (refused.status_code, placed.status_code, placed.json()) == (500, 201, {"id": 3})
    assert sent(business) == [("OrderPlaced", {"order": 3, "item": "tea"})]


async def test_the_consumer_for_fastapi_ships_once(business: psycopg.Connection, dsn: str) -> None:
    placed = {"order": 1, "item": "tea"}
    async with served(dsn) as client:
        for _ in range(2):
            answer = await client.post(
                "/shipping/events", json=placed, headers={"webhook-id": str(ID)}
            )
            assert answer.status_code == 204
    assert shipped(business) == [(1,)]


async def test_the_block_about_psycopgs_pool_runs(business: psycopg.Connection, dsn: str) -> None:
    async with AsyncConnectionPool(dsn, min_size=1, open=False) as pool:
        await python_of("producers-fastapi.md")["pay"](pool, 1)
    assert sent(business) == [("OrderPaid", {"order": 1})]
