"""The Django example, run as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psycopg

from pgoutbox.database import migrate
from tests.support.observing import eventually
from tests.support.receiver import Receiver
from tests.support.workers import WorkerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"


def manage(dsn: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=SHOP,
        env=os.environ | {"SHOP_DSN": dsn, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@contextmanager
def serving(dsn: str) -> Iterator[str]:
    """The shop's address, once it answers."""
    port = free_port()
    with manage(dsn, "runserver", "--noreload", str(port)) as server:
        try:
            url = f"http://127.0.0.1:{port}/orders"
            eventually(lambda: answers(url), "the shop answers")
            yield url
        finally:
            server.kill()


def answers(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


def test_an_order_is_placed_announced_and_delivered(empty_dsn: str) -> None:
    assert manage(empty_dsn, "migrate").wait(60) == 0
    with serving(empty_dsn) as url, Receiver() as receiver:
        placed = httpx.post(url, json={"total": 42}).raise_for_status().json()
        with WorkerProcess(empty_dsn, receiver.url).started():
            receiver.until_arrived(1)
    assert receiver.arrivals == {placed["message"]: 1}
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert migrate.pending(conn, schema="public") == []
        assert conn.execute("SELECT id, total FROM shop_order").fetchall() == [(1, 42)]
