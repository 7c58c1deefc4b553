"""Django: messages in atomic blocks, several databases, and migrations."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connections, router, transaction
from django.test import Client

from pgoutbox import NotInTransaction
from pgoutbox.database import migrate
from pgoutbox.database.migrations import available
from pgoutbox.django.apps import databases_with_an_outbox
from pgoutbox.errors import InvalidMessage
from pgoutbox.producer.django import enqueue, enqueue_many
from tests.support.django_project import PLACED, Order, databases, make_tables
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def project(dsn: str) -> Iterator[psycopg.Connection]:
    """The project on the test's database, and a look at it from outside."""
    with databases(default=dsn), psycopg.connect(dsn, autocommit=True) as conn:
        make_tables("default")
        yield conn


def counts(conn: psycopg.Connection) -> tuple[int, int]:
    """Orders and messages that were committed."""
    [row] = conn.execute(
        "SELECT (SELECT count(*) FROM shop_order), (SELECT count(*) FROM outbox)"
    ).fetchall()
    return (row[0], row[1])


def test_row_and_message_are_committed_together(project: psycopg.Connection) -> None:
    with transaction.atomic():
        order = Order.objects.create(total=42)
        message_id = enqueue(PLACED, beside=order)
        assert counts(project) == (0, 0)
    assert counts(project) == (1, 1)
    assert project.execute("SELECT message_id, event_type FROM outbox").fetchall() == [
        (message_id, "OrderPlaced")
    ]


@contextmanager
def undone() -> Iterator[None]:
    """An atomic block that fails at its end."""
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


def test_what_is_rolled_back_takes_its_message_with_it(project: psycopg.Connection) -> None:
    with undone():
        Order.objects.create(total=42)
        enqueue(PLACED)
    assert counts(project) == (0, 0)


def test_an_inner_block_is_a_savepoint(project: psycopg.Connection) -> None:
    with transaction.atomic():
        enqueue(PLACED)
        with undone():
            enqueue_many([PLACED, PLACED])
        ids = enqueue_many([PLACED, PLACED])
    found = {message_id for (message_id,) in project.execute("SELECT message_id FROM outbox")}
    assert len(found) == 3
    assert set(ids) < found


@pytest.mark.parametrize("failing", [False, True])
def test_a_view_announces_what_it_did_and_nothing_when_it_fails(
    project: psycopg.Connection, *, failing: bool
) -> None:
    client = Client(raise_request_exception=False)
    answer = client.post("/orders/?fail" if failing else "/orders/")
    assert answer.status_code == (500 if failing else 201)
    assert counts(project) == ((0, 0) if failing else (1, 1))


def test_outside_an_atomic_block_it_is_refused_with_what_to_do(
    project: psycopg.Connection,
) -> None:
    with pytest.raises(NotInTransaction, match=r"`with transaction.atomic\(\):` block"):
        enqueue(PLACED)
    assert counts(project) == (0, 0)


def test_a_transaction_that_is_ended_by_hand_will_do(project: psycopg.Connection) -> None:
    transaction.set_autocommit(autocommit=False)
    try:
        Order.objects.create(total=42)
        enqueue(PLACED)
        assert counts(project) == (0, 0)
        transaction.commit()
    finally:
        transaction.set_autocommit(autocommit=True)
    assert counts(project) == (1, 1)


def test_a_bad_message_is_refused_before_the_block_is_broken(project: psycopg.Connection) -> None:
    with transaction.atomic():
        Order.objects.create(total=1)
        with pytest.raises(InvalidMessage):
            enqueue_many([PLACED, replace(PLACED, destination="No Name")])
    assert counts(project) == (1, 0)


def test_an_error_of_the_database_is_one_of_djangos_and_ends_the_block(
    project: psycopg.Connection,
) -> None:
    project.execute("ALTER TABLE outbox ADD CHECK (aggregate_id <> '7')")
    with suppress(DatabaseError), transaction.atomic():
        Order.objects.create(total=1)
        with pytest.raises(IntegrityError):
            enqueue(PLACED)
        Order.objects.create(total=2)
    assert counts(project) == (0, 0)


def test_a_producers_rights_suffice(project: psycopg.Connection, dsn: str) -> None:
    with (
        login_role(dsn, "outbox_producer") as role,
        databases(default=role.dsn),
        transaction.atomic(),
    ):
        enqueue(PLACED)
    assert counts(project) == (0, 1)


def test_the_block_has_to_be_of_the_same_database(dsn: str, empty_dsn: str) -> None:
    with databases(default=empty_dsn, orders=dsn):
        make_tables("default", "orders")
        with (
            transaction.atomic("orders"),
            pytest.raises(NotInTransaction, match=r"there is one of 'orders'"),
        ):
            enqueue(PLACED)
        with transaction.atomic("orders"):
            order = Order.objects.using("orders").create(total=1)
            enqueue(PLACED, using="orders", beside=order)


def test_a_message_is_not_sent_beside_a_row_of_another_database(dsn: str, empty_dsn: str) -> None:
    with databases(default=empty_dsn, orders=dsn):
        make_tables("default", "orders")
        with transaction.atomic("orders"), transaction.atomic():
            order = Order.objects.create(total=1)
            with pytest.raises(ValueError, match="was saved to 'default'"):
                enqueue(PLACED, using="orders", beside=order)
            with pytest.raises(ValueError, match="was not saved yet"):
                enqueue_many([PLACED], using="orders", beside=[Order(total=1)])


@pytest.mark.usefixtures("project")
def test_another_kind_of_database_is_refused() -> None:
    with transaction.atomic("lite"), pytest.raises(TypeError, match="'lite' is not PostgreSQL"):
        enqueue(PLACED, using="lite")


def migrated(alias: str = "default") -> str:
    told = StringIO()
    call_command("migrate", database=alias, stdout=told, verbosity=1)
    return told.getvalue()


def test_djangos_migrate_makes_the_outbox_as_pgoutbox_would(empty_dsn: str) -> None:
    with databases(default=empty_dsn):
        assert "Applying pgoutbox.0001_outbox... OK" in migrated()
        assert "No migrations to apply" in migrated()
        make_tables("default")
        with transaction.atomic():
            enqueue(PLACED)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert migrate.pending(conn, schema="public") == []
        assert counts(conn) == (0, 1)


def test_what_pgoutbox_has_migrated_already_is_taken_as_it_is(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        migrate.apply(conn, schema="public", roles=True)
        before = conn.execute("SELECT * FROM outbox_migrations").fetchall()
        with databases(default=empty_dsn):
            migrated()
        assert conn.execute("SELECT * FROM outbox_migrations").fetchall() == before


class OrdersOnly:
    """A router that keeps the outbox to one database."""

    def allow_migrate(self, db: str, app_label: str, **_hints: Any) -> bool | None:
        return db == "orders" if app_label == "pgoutbox" else None


def test_databases_that_have_no_outbox_are_left_alone(
    dsn: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "routers", [OrdersOnly()])
    with databases(default=empty_dsn, orders=dsn):
        migrated("lite")
        migrated()
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT to_regclass('outbox')")
            assert cursor.fetchone() == (None,)


def test_every_migration_of_the_product_has_one_of_django() -> None:
    import pgoutbox.django.migrations as folder  # noqa: PLC0415 - only its place

    [place] = folder.__path__
    files = sorted(path.stem for path in Path(place).glob("0*.py"))
    assert files == [f"{one.version:04}_{one.name}" for one in available()]


@pytest.mark.usefixtures("project")
def test_manage_py_check_finds_that_no_database_can_have_an_outbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert databases_with_an_outbox() == []
    monkeypatch.setattr(type(connections), "all", lambda _self, **_: [connections["lite"]])
    assert [error.id for error in databases_with_an_outbox()] == ["pgoutbox.E001"]
