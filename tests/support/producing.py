"""The stacks that applications enqueue with, behind one protocol: what one promises, all do.

Another stack is another class like these and its line in `STACKS`.
"""

from __future__ import annotations

import asyncio
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    nullcontext,
)
from contextvars import copy_context
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import asyncpg
import psycopg
import sqlalchemy as sa
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import pgoutbox
from pgoutbox.producer import (
    asyncpg as with_asyncpg,
    django as with_django,
    sqlalchemy as with_sqlalchemy,
)
from tests.support.django_project import databases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from uuid import UUID

    from pgoutbox import Message

T = TypeVar("T")


class Producing(Protocol):
    """One connection or session of an application."""

    def run(self, statement: str) -> None:
        """Run a statement without parameters, as business code would."""

    def enqueue(self, message: Message, **options: Any) -> UUID:
        """Call the stack's own ``enqueue``."""

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        """Call the stack's own ``enqueue_many``."""

    def savepoint(self) -> AbstractContextManager[object]:
        """Released at its end; an exception rolls back to it and goes on."""


class Stack(Protocol):
    """A library, as in `STACKS`."""

    def __call__(self, dsn: str, *, autocommit: bool) -> AbstractContextManager[Producing]:
        """Open a connection. Its block is a transaction: committed at the end, rolled back by an
        exception, which goes on. Under ``autocommit`` each statement is committed on its own.
        """


class Psycopg:
    """A psycopg ``Connection``."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool) -> Iterator[Producing]:
        with psycopg.connect(dsn, autocommit=autocommit) as conn:
            yield cls(conn)

    def run(self, statement: str) -> None:
        self._conn.execute(statement.encode())

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return pgoutbox.enqueue(self._conn, message, **options)

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return pgoutbox.enqueue_many(self._conn, messages, **options)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._conn.transaction()


class SQLAlchemy:
    """A sync ``Session``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool, driver: str = "psycopg") -> Iterator[Producing]:
        engine = sa.create_engine(url(dsn, driver), **engine_options(autocommit=autocommit))
        with Session(engine) as session, session.begin():
            yield cls(session)

    def run(self, statement: str) -> None:
        self._session.execute(sa.text(statement))

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return with_sqlalchemy.enqueue(self._session, message, **options)

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return with_sqlalchemy.enqueue_many(self._session, messages, **options)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._session.begin_nested()


class Loop:
    """An event loop for a test that has none."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Its result, with the context variables of the caller."""

        async def result() -> T:
            return await awaitable

        return self._runner.run(result(), context=copy_context())

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """As ``async with``."""
        value = self.wait(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))


class AsyncPsycopg:
    """A psycopg ``AsyncConnection``."""

    def __init__(self, loop: Loop, conn: psycopg.AsyncConnection[Any]) -> None:
        self._loop = loop
        self._conn = conn

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool) -> Iterator[Producing]:
        with asyncio.Runner() as runner:
            loop = Loop(runner)
            conn = loop.wait(psycopg.AsyncConnection.connect(dsn, autocommit=autocommit))
            with loop.inside(conn):
                yield cls(loop, conn)

    def run(self, statement: str) -> None:
        self._loop.wait(self._conn.execute(statement.encode()))

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return self._loop.wait(pgoutbox.enqueue(self._conn, message, **options))

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return self._loop.wait(pgoutbox.enqueue_many(self._conn, messages, **options))

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._conn.transaction())


class AsyncSQLAlchemy:
    """An ``AsyncSession``."""

    def __init__(self, loop: Loop, session: AsyncSession) -> None:
        self._loop = loop
        self._session = session

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool, driver: str = "psycopg") -> Iterator[Producing]:
        engine = create_async_engine(url(dsn, driver), **engine_options(autocommit=autocommit))
        with asyncio.Runner() as runner:
            loop = Loop(runner)
            with loop.inside(AsyncSession(engine)) as session, loop.inside(session.begin()):
                yield cls(loop, session)

    def run(self, statement: str) -> None:
        self._loop.wait(self._session.execute(sa.text(statement)))

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return self._loop.wait(with_sqlalchemy.enqueue(self._session, message, **options))

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return self._loop.wait(with_sqlalchemy.enqueue_many(self._session, messages, **options))

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._session.begin_nested())


class Asyncpg:
    """An asyncpg ``Connection``."""

    def __init__(self, loop: Loop, conn: Any) -> None:
        self._loop = loop
        self._conn = conn

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool) -> Iterator[Producing]:
        with asyncio.Runner() as runner:
            loop = Loop(runner)
            conn = loop.wait(asyncpg.connect(**asyncpg_options(dsn)))
            try:
                unit = cls(loop, conn)
                if autocommit:
                    yield unit
                else:
                    with unit.savepoint():
                        yield unit
            finally:
                loop.wait(conn.close())

    def run(self, statement: str) -> None:
        self._loop.wait(self._conn.execute(statement))

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return self._loop.wait(with_asyncpg.enqueue(self._conn, message, **options))

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return self._loop.wait(with_asyncpg.enqueue_many(self._conn, messages, **options))

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._conn.transaction())


class Django:
    """A Django database."""

    @classmethod
    @contextmanager
    def opened(cls, dsn: str, *, autocommit: bool) -> Iterator[Producing]:
        with databases(default=dsn), nullcontext() if autocommit else transaction.atomic():
            yield cls()

    def run(self, statement: str) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute(statement)

    def enqueue(self, message: Message, **options: Any) -> UUID:
        return with_django.enqueue(message, **options)

    def enqueue_many(self, messages: Iterable[Message], **options: Any) -> Sequence[UUID]:
        return with_django.enqueue_many(messages, **options)

    def savepoint(self) -> AbstractContextManager[object]:
        block: AbstractContextManager[object] = transaction.atomic()
        return block


def with_driver(opened: Callable[..., AbstractContextManager[Producing]], driver: str) -> Stack:
    """The same through another of SQLAlchemy's drivers."""

    def open_it(dsn: str, *, autocommit: bool) -> AbstractContextManager[Producing]:
        return opened(dsn, autocommit=autocommit, driver=driver)

    return open_it


STACKS: dict[str, Stack] = {
    "psycopg": Psycopg.opened,
    "psycopg-async": AsyncPsycopg.opened,
    "sqlalchemy-psycopg": SQLAlchemy.opened,
    "sqlalchemy-async-psycopg": AsyncSQLAlchemy.opened,
    "sqlalchemy-async-asyncpg": with_driver(AsyncSQLAlchemy.opened, "asyncpg"),
    "asyncpg": Asyncpg.opened,
    "django": Django.opened,
}
if find_spec("psycopg2"):
    STACKS["sqlalchemy-psycopg2"] = with_driver(SQLAlchemy.opened, "psycopg2")


def url(dsn: str, driver: str) -> sa.URL:
    """The same database for SQLAlchemy."""
    given = conninfo_to_dict(dsn)
    return sa.URL.create(
        f"postgresql+{driver}",
        username=_text(given.get("user")),
        password=_text(given.get("password")),
        database=_text(given.get("dbname")),
        # Not as the URL's host: it may be the folder of a socket.
        query={name: str(given[name]) for name in ("host", "port") if given.get(name)},
    )


def engine_options(*, autocommit: bool) -> dict[str, Any]:
    """No pool, so that nothing stays open when the test is over."""
    options: dict[str, Any] = {"poolclass": NullPool}
    return options | ({"isolation_level": "AUTOCOMMIT"} if autocommit else {})


def asyncpg_options(dsn: str) -> dict[str, Any]:
    """The same database for asyncpg."""
    given = conninfo_to_dict(dsn)
    names = {"host": "host", "user": "user", "password": "password", "dbname": "database"}
    chosen: dict[str, Any] = {names[name]: given[name] for name in names if given.get(name)}
    return chosen | {"port": int(given.get("port") or 5432)}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
