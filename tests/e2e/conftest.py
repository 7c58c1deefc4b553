"""The image, the database and the host of these tests; all of them are marked `e2e`."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.receiver import Receiver
from tests.support.release import Release

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = os.path.dirname(__file__)  # noqa: PTH120 - compared with what pytest tells


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300))


def needed(name: str, what: str) -> str:
    """An environment variable. Fails where it is missing: who asks for these tests wants them."""
    found = os.environ.get(name)
    assert found, f"{name} is not set: {what}"
    return found


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A database of the module's own, by an address that pods can reach too."""
    server = needed("PGOUTBOX_E2E_DSN", "a superuser's DSN of a server that pods can reach")
    name = f"e2e_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield make_conninfo(server, dbname=name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    host = needed("PGOUTBOX_E2E_HOST", "this machine's address, as pods reach it")
    with Receiver(host=host) as found:
        yield found


@pytest.fixture
def release(database: str) -> Iterator[Release]:
    image = needed("PGOUTBOX_E2E_IMAGE", "the image, as the cluster's nodes have it")
    with Release(image, database) as found:
        yield found
