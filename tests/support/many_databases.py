"""Databases beside the test's own."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def databases(server: str, template: str, count: int) -> Iterator[list[str]]:
    """Migrated and empty; their DSNs."""
    run = uuid.uuid4().hex[:8]
    names = [f"pgoutbox_many_{run}_{number}" for number in range(count)]
    with psycopg.connect(server, autocommit=True) as admin:
        try:
            for name in names:
                admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
            yield [make_conninfo(server, dbname=name) for name in names]
        finally:
            for name in names:
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
