from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.receiver import Receiver
from tests.support.roles import DATABASE
from tests.support.workers import stubborn_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def new_database(server_dsn: str, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated, empty databases that live as long as the module's tests."""
    names: list[str] = []

    def make() -> str:
        names.append(f"{DATABASE}{uuid.uuid4().hex[:12]}")
        execute(server_dsn, f"CREATE DATABASE {names[-1]} TEMPLATE {template}")
        return make_conninfo(server_dsn, dbname=names[-1])

    yield make
    for name in names:
        execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiving:
        yield receiving


@pytest.fixture(scope="session")
def publishers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that makes ``stubborn://`` known to a worker with it on its path."""
    return stubborn_package(tmp_path_factory.mktemp("publishers"))


def execute(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(statement.encode())
