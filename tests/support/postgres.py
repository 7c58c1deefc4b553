"""A server per run, a database per test, copied from a template that is migrated once."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.database.migrate import apply
from tests.support.roles import DATABASE, make_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from testcontainers.community.postgres import PostgresContainer

# Tests neither survive a crash of the machine nor wait for its disk.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# What order transactions committed in, for those who judge lanes by it.
COMMIT_ORDER = {"track_commit_timestamp": "on"}
ROOM = 4 * 1024**3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "server_dsn" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """A server: PGOUTBOX_TEST_DSN, else a container where Docker answers, else the embedded one."""
    if given := os.environ.get("PGOUTBOX_TEST_DSN"):
        yield given
        return
    container = _container()
    if container is not None:
        yield container.get_connection_url()
        container.stop()
        return
    from pgoutbox.demo.embedded import EmbeddedServer  # noqa: PLC0415 - imports an extra

    server = EmbeddedServer(settings=FAST | COMMIT_ORDER, data_in=_memory())
    try:
        server.start()
        yield server.dsn
    finally:
        server.remove()


def _memory() -> Path | None:
    """A folder in memory with enough room: a database per test is a thousand files per test."""
    folder = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM:
        return folder
    return None


def _container() -> PostgresContainer | None:
    """A running container, or None where Docker or the image is out of reach."""
    if not (Path("/var/run/docker.sock").exists() or "DOCKER_HOST" in os.environ):
        return None
    from docker.errors import DockerException  # noqa: PLC0415 - slow, and mostly not needed
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415

    with contextlib.suppress(DockerException, OSError):
        return PostgresContainer("postgres:17", driver=None).start()
    # Its client leaves the socket of an engine that does not answer to the garbage collector.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
    return None


@pytest.fixture(scope="session")
def template(server_dsn: str) -> Iterator[str]:
    """The name of a migrated database that tests are copied from."""
    name = f"pgoutbox_template_{uuid.uuid4().hex[:8]}"
    _execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    with psycopg.connect(make_conninfo(server_dsn, dbname=name)) as conn:
        apply(conn, schema="public", roles=True)
        make_worker(conn)
    yield name
    _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def dsn(server_dsn: str, template: str) -> Iterator[str]:
    """A migrated, empty database of the test's own."""
    name = f"{DATABASE}{uuid.uuid4().hex[:12]}"
    _execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield make_conninfo(server_dsn, dbname=name)
    _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_dsn(server_dsn: str) -> Iterator[str]:
    """A database without the schema."""
    name = f"pgoutbox_empty_{uuid.uuid4().hex[:12]}"
    _execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    yield make_conninfo(server_dsn, dbname=name)
    _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def aconn(dsn: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """An autocommit async connection to the test's database."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


def _execute(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(statement.encode())
