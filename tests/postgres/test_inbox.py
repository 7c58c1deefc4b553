"""A consumer's receipt and its effects are one transaction."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import class_row

from pgoutbox import PgOutboxError, inbox
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = UUID("0190b9c0-0000-7000-8000-00000000abcd")


class HandlerError(Exception):
    pass


@pytest.fixture(params=[True, False], ids=["autocommit", "transactions"])
def consumer(dsn: str, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=request.param) as connection:
        yield connection


def receipts(conn: psycopg.Connection[Any]) -> list[tuple[str, UUID]]:
    return conn.execute("SELECT consumer, message_id FROM outbox_inbox").fetchall()


def seed_receipts(conn: psycopg.Connection[Any], *ages_in_days: float) -> None:
    for age in ages_in_days:
        conn.execute(
            "INSERT INTO outbox_inbox VALUES "
            "('mailer', gen_random_uuid(), now() - %s * interval '1 day')",
            [age],
        )


def ages_left(conn: psycopg.Connection[Any]) -> list[int]:
    return [
        age
        for (age,) in conn.execute(
            "SELECT extract(day FROM now() - received_at)::int FROM outbox_inbox ORDER BY 1"
        )
    ]


def test_the_first_delivery_is_fresh_and_leaves_a_receipt(
    consumer: psycopg.Connection, conn: psycopg.Connection
) -> None:
    with inbox.first_time(consumer, "mailer", ID) as fresh:
        assert assert_type(fresh, bool)
        assert receipts(conn) == []
    assert receipts(conn) == [("mailer", ID)]


def test_a_second_delivery_is_not_fresh(consumer: psycopg.Connection) -> None:
    with inbox.first_time(consumer, "mailer", ID):
        pass
    with inbox.first_time(consumer, "mailer", str(ID)) as fresh:
        assert not fresh


def test_a_failed_handler_leaves_no_receipt_and_its_error_comes_through(
    consumer: psycopg.Connection, conn: psycopg.Connection
) -> None:
    with pytest.raises(HandlerError), inbox.first_time(consumer, "mailer", ID):
        raise HandlerError
    assert receipts(conn) == []
    with inbox.first_time(consumer, "mailer", ID) as fresh:
        assert fresh


def test_a_handler_may_roll_back_on_purpose(consumer: psycopg.Connection) -> None:
    with inbox.first_time(consumer, "mailer", ID):
        raise psycopg.Rollback
    assert receipts(consumer) == []


def test_each_consumer_has_receipts_of_its_own(consumer: psycopg.Connection) -> None:
    for name in ("mailer", "printer", "é"):
        with inbox.first_time(consumer, name, ID) as fresh:
            assert fresh


def test_inside_a_transaction_of_the_caller_it_is_a_savepoint(
    consumer: psycopg.Connection, conn: psycopg.Connection
) -> None:
    with suppress(psycopg.Rollback), consumer.transaction():
        with inbox.first_time(consumer, "mailer", ID) as fresh:
            assert fresh
        with suppress(HandlerError), inbox.first_time(consumer, "mailer", UUID(int=1)):
            raise HandlerError
        assert receipts(consumer) == [("mailer", ID)]
        raise psycopg.Rollback
    assert receipts(conn) == []


async def test_async_connections_have_the_same_function(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection
) -> None:
    with suppress(HandlerError):
        async with inbox.first_time(aconn, "mailer", ID) as fresh:
            assert assert_type(fresh, bool)
            raise HandlerError
    seen = []
    for _ in range(2):
        async with inbox.first_time(aconn, "mailer", ID) as fresh:
            seen.append(fresh)
    assert seen == [True, False]
    assert receipts(conn) == [("mailer", ID)]


def test_the_right_to_insert_is_enough(dsn: str) -> None:
    with (
        login_role(dsn, "INSERT (consumer, message_id) ON outbox_inbox") as role,
        psycopg.connect(role.dsn) as consumer,
    ):
        seen = []
        for _ in range(2):
            with inbox.first_time(consumer, "mailer", ID) as fresh:
                seen.append(fresh)
    assert seen == [True, False]


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_the_connections_own_cursor_and_row_factories_do_not_matter(
    dsn: str, factory: type[psycopg.Cursor[Any]]
) -> None:
    with psycopg.connect(dsn, cursor_factory=factory, row_factory=class_row(dict)) as consumer:
        with inbox.first_time(consumer, "mailer", ID) as fresh:
            assert fresh
        assert inbox.prune_receipts(consumer, timedelta(days=1)) == 0


def test_a_pipeline_is_refused_since_its_answers_come_too_late(
    consumer: psycopg.Connection,
) -> None:
    with consumer.pipeline(), pytest.raises(PgOutboxError, match="leave the pipeline"):
        inbox.first_time(consumer, "mailer", ID)
    assert receipts(consumer) == []


@pytest.mark.parametrize("name", ["", "c" * 256, "é" * 128, "a\0b", "\ud800"])
def test_a_consumers_name_that_cannot_be_stored_is_refused_before_any_sql(
    consumer: psycopg.Connection, name: str
) -> None:
    with pytest.raises(ValueError, match="consumer"):
        inbox.first_time(consumer, name, ID)


def test_wrong_types_are_named(consumer: psycopg.Connection) -> None:
    anything: Any = 5
    with pytest.raises(ValueError, match="message_id must be a UUID, not 'nonsense'"):
        inbox.first_time(consumer, "mailer", "nonsense")
    with pytest.raises(ValueError, match="message_id must be a UUID, not 5"):
        inbox.first_time(consumer, "mailer", anything)
    with pytest.raises(TypeError, match="consumer must be a str"):
        inbox.first_time(consumer, anything, ID)
    with pytest.raises(TypeError, match="first_time needs a psycopg Connection"):
        inbox.first_time(anything, "mailer", ID)
    with pytest.raises(TypeError, match="prune_receipts needs a psycopg Connection"):
        inbox.prune_receipts(anything, timedelta(days=1))


def test_pruning_deletes_the_oldest_first_and_stops_at_the_limit(
    conn: psycopg.Connection,
) -> None:
    seed_receipts(conn, 0, 5, 11, 14, 12, 13)
    deleted: list[int] = []
    while not deleted or deleted[-1] == 2:
        deleted.append(assert_type(inbox.prune_receipts(conn, timedelta(days=10), limit=2), int))
        if len(deleted) == 1:
            assert ages_left(conn) == [0, 5, 11, 12]
    assert deleted == [2, 2, 0]
    assert ages_left(conn) == [0, 5]


def test_pruning_needs_no_right_but_those_on_its_table(dsn: str, conn: psycopg.Connection) -> None:
    seed_receipts(conn, 5)
    with (
        login_role(dsn, "SELECT, UPDATE, DELETE ON outbox_inbox") as role,
        psycopg.connect(role.dsn) as consumer,
    ):
        assert inbox.prune_receipts(consumer, timedelta(days=1)) == 1


def test_pruning_belongs_to_the_callers_transaction(dsn: str, conn: psycopg.Connection) -> None:
    seed_receipts(conn, 5)
    with psycopg.connect(dsn) as consumer:
        assert inbox.prune_receipts(consumer, timedelta(days=1)) == 1
        consumer.rollback()
    assert ages_left(conn) == [5]


async def test_async_connections_prune_too(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection
) -> None:
    seed_receipts(conn, 1, 5)
    assert assert_type(await inbox.prune_receipts(aconn, timedelta(days=4)), int) == 1
    assert ages_left(conn) == [1]


@pytest.mark.parametrize("age", [timedelta(), timedelta(days=-1), timedelta.max])
def test_an_age_that_makes_no_sense_prunes_nothing(
    conn: psycopg.Connection, age: timedelta
) -> None:
    seed_receipts(conn, 5)
    with pytest.raises(ValueError, match="older_than"):
        inbox.prune_receipts(conn, age)
    with pytest.raises(ValueError, match="limit"):
        inbox.prune_receipts(conn, timedelta(days=1), limit=0)
    assert ages_left(conn) == [5]
