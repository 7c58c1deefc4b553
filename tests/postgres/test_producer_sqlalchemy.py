"""What is SQLAlchemy's own: sessions, flushes, isolation levels, engines and two-phase commits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_type
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, ProgrammingError, UnboundExecutionError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from sqlalchemy.pool import NullPool

from pgoutbox import InvalidMessage, Message, NotInTransaction
from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from pgoutbox.producer.sqlalchemy import enqueue, enqueue_many
from tests.support.postgres import FAST
from tests.support.producing import url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.ext.asyncio import AsyncEngine

GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload={"n": 1})
SCHEMA = "Shop_"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(dsn: str) -> sa.Engine:
    engine = sa.create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    Base.metadata.create_all(engine)
    return engine


@pytest.fixture
def async_engine(dsn: str) -> AsyncEngine:
    return create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)


def payloads(conn: psycopg.Connection[Any], table: str = "outbox") -> list[Any]:
    found = conn.execute(f"SELECT payload FROM {table} ORDER BY id".encode())  # noqa: S608 - ours
    return [payload for (payload,) in found]


def test_a_connection_is_begun_by_the_message_and_commits_when_it_is_told_to(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    with engine.connect() as connection:
        assert_type(enqueue(connection, replace(GOOD, payload=1)), UUID)
        connection.commit()
        assert_type(enqueue_many(connection, [replace(GOOD, payload=2)]), list[UUID])
    with engine.begin() as connection:
        enqueue(connection, replace(GOOD, payload=3))
    assert payloads(conn) == [1, 3]


def test_a_session_is_begun_by_the_message_and_closing_it_takes_the_message_back(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    with Session(engine) as session:
        assert not session.in_transaction()
        enqueue(session, replace(GOOD, payload=1))
        assert session.in_transaction()
        session.commit()
        enqueue(session, replace(GOOD, payload=2))
    assert payloads(conn) == [1]


def test_a_scoped_session_is_the_session_of_its_scope(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    scoped = scoped_session(sessionmaker(engine))
    scoped.add(Order(id=1))
    enqueue(scoped, GOOD)
    scoped.commit()
    scoped.remove()
    assert payloads(conn) == [{"n": 1}]
    assert conn.execute("SELECT id FROM orders").fetchall() == [(1,)]


async def test_async_connections_and_scoped_sessions_are_taken_as_well(
    conn: psycopg.Connection, async_engine: AsyncEngine
) -> None:
    async with async_engine.begin() as connection:
        assert_type(await enqueue(connection, replace(GOOD, payload=1)), UUID)
    scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: 1)
    assert_type(await enqueue_many(scoped, [replace(GOOD, payload=2)]), list[UUID])
    await scoped.commit()
    await scoped.remove()
    assert payloads(conn) == [1, 2]


async def test_an_async_session_checks_at_once_and_inserts_when_awaited(
    conn: psycopg.Connection, async_engine: AsyncEngine
) -> None:
    async with AsyncSession(async_engine) as session:
        with pytest.raises(InvalidMessage):
            _ = enqueue(session, replace(GOOD, event_type=""))
        payload = {"n": 1}
        pending = enqueue(session, replace(GOOD, payload=payload))
        payload["n"] = 2
        assert not session.in_transaction()
        await pending
        await session.commit()
    assert payloads(conn) == [{"n": 1}]


def test_nothing_is_flushed_and_what_fails_to_be_flushed_later_takes_the_message_along(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    with Session(engine) as session:
        for number in (1, 2):
            session.add(order := Order(id=number))
            enqueue(session, GOOD)
            assert order in session.new
            if number == 1:
                with pytest.raises(IntegrityError):
                    session.commit()
                session.rollback()
        session.commit()
    assert payloads(conn) == [{"n": 1}]
    assert conn.execute("SELECT id FROM orders").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("where", ["engine", "engine option", "connection", "session"])
def test_the_isolation_level_autocommit_is_refused_wherever_it_comes_from(
    conn: psycopg.Connection, engine: sa.Engine, where: str
) -> None:
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    if where == "engine":
        engine = sa.create_engine(engine.url, poolclass=NullPool, **options)
    elif where == "engine option":
        engine = engine.execution_options(**options)
    with Session(engine) as session:
        chosen: dict[str, Any] = options if where in {"connection", "session"} else {}
        connection = session.connection(execution_options=chosen)
        with pytest.raises(NotInTransaction, match="isolation level AUTOCOMMIT"):
            enqueue(session if where == "session" else connection, GOOD)
    assert payloads(conn) == []


async def test_autocommit_is_refused_by_async_drivers_too(
    conn: psycopg.Connection, async_engine: AsyncEngine
) -> None:
    async with async_engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(NotInTransaction, match="isolation level AUTOCOMMIT"):
            await enqueue_many(connection, [GOOD])
    assert payloads(conn) == []


def test_the_outbox_may_be_in_a_schema_that_the_search_path_does_not_lead_to(
    empty_dsn: str,
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        apply(conn, schema=SCHEMA)
    engine = sa.create_engine(
        url(empty_dsn, "psycopg"),
        poolclass=NullPool,
        execution_options={"schema_translate_map": {None: "tenant", SCHEMA: "tenant"}},
    )
    with Session(engine) as session, session.begin():
        enqueue(session, replace(GOOD, payload=1), schema=SCHEMA)
        first = enqueue(session, replace(GOOD, payload=2, dedup_key="d"), schema=SCHEMA)
        again = enqueue_many(session, [replace(GOOD, dedup_key="d")], schema=SCHEMA)
    assert again == [first]
    with Session(engine) as session, pytest.raises(ProgrammingError, match='"outbox" does not'):
        enqueue(session, GOOD)
    with psycopg.connect(empty_dsn) as conn:
        assert payloads(conn, '"Shop_".outbox') == [1, 2]


def test_a_map_of_schemas_for_the_business_tables_leaves_the_outbox_where_it_is(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    conn.execute("CREATE SCHEMA tenant CREATE TABLE orders (id int)")
    mapped = engine.execution_options(schema_translate_map={None: "tenant"})
    with Session(mapped) as session:
        session.add(Order(id=7))
        enqueue(session, GOOD)
        session.commit()
    assert payloads(conn) == [{"n": 1}]
    assert conn.execute("SELECT id FROM tenant.orders").fetchall() == [(7,)]


def test_a_session_of_several_engines_is_told_to_name_the_one_of_the_business_rows(
    conn: psycopg.Connection, engine: sa.Engine
) -> None:
    with Session(binds={Order: engine}) as session:
        session.add(Order(id=1))
        with pytest.raises(UnboundExecutionError) as refused:
            enqueue(session, GOOD)
        assert "bind_arguments={'mapper': Order}" in refused.value.__notes__[0]
        enqueue(session.connection(bind_arguments={"mapper": Order}), GOOD)
        session.commit()
    assert payloads(conn) == [{"n": 1}]
    assert conn.execute("SELECT id FROM orders").fetchall() == [(1,)]


def test_another_database_is_a_type_error() -> None:
    engine = sa.create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(TypeError, match="PostgreSQL, not to sqlite"):
        enqueue(session, GOOD)
    engine.dispose()


def test_something_else_than_a_session_or_connection_is_a_type_error(engine: sa.Engine) -> None:
    wrong: list[Any] = [engine, None, Session]
    for value in wrong:
        with pytest.raises(TypeError, match="enqueue_many needs a Session, Connection"):
            enqueue_many(value, [GOOD])


@pytest.fixture
def server() -> Iterator[str]:
    server = EmbeddedServer(settings=FAST | {"max_prepared_transactions": "2"})
    try:
        server.start()
        yield server.dsn
    finally:
        server.remove()


def test_a_two_phase_commit_takes_the_message_along_where_the_trigger_is_disabled(
    server: str,
) -> None:
    with psycopg.connect(server, autocommit=True) as conn:
        apply(conn, schema="public")
        conn.execute("UPDATE outbox_wakeup SET wanted = true")
        engine = sa.create_engine(url(server, "psycopg"), poolclass=NullPool)
        with Session(engine, twophase=True) as session:
            enqueue(session, replace(GOOD, payload="lost"))
            with pytest.raises(sa.exc.SQLAlchemyError):
                session.commit()
        conn.execute("ALTER TABLE outbox DISABLE TRIGGER outbox_notify")
        with Session(engine, twophase=True) as session:
            enqueue(session, replace(GOOD, payload="prepared"))
            session.prepare()
            assert payloads(conn) == []
            session.commit()
        assert payloads(conn) == ["prepared"]
