"""The days of the archive: made ahead, in UTC, by whoever may call the functions, and dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from psycopg import errors

from pgoutbox.database.migrate import apply
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (
    "EXECUTE ON FUNCTION outbox_archive_prepare(integer)",
    "EXECUTE ON FUNCTION outbox_archive_expire(interval)",
)
DAY = timedelta(days=1)


class Partition(NamedTuple):
    """One day of the archive."""

    name: str
    since: datetime
    until: datetime


@pytest.fixture
def keeper(dsn: str) -> Iterator[psycopg.Connection]:
    """A role that owns nothing and may call the functions."""
    with (
        login_role(dsn, *FUNCTIONS) as role,
        psycopg.connect(role.dsn, autocommit=True) as connection,
    ):
        yield connection


def one(conn: psycopg.Connection[Any], question: bytes, *values: object) -> Any:
    row = conn.execute(question, values or None).fetchone()
    assert row is not None
    return row[0]


def today(conn: psycopg.Connection[Any]) -> datetime:
    """When the server's day began, in UTC."""
    now = datetime.fromtimestamp(one(conn, b"SELECT extract(epoch FROM now())::float8"), UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def partitions(conn: psycopg.Connection[Any]) -> list[Partition]:
    rows = conn.execute("SELECT name, since, until FROM outbox_archive_partitions()").fetchall()
    return [Partition(*row) for row in rows]


def put(conn: psycopg.Connection[Any], done_at: datetime, number: int = 1) -> None:
    """Archive a message that was delivered then."""
    conn.execute(
        "INSERT INTO outbox_archive SELECT %s, %s, %s, %s, 1, gen_random_uuid(), 'default', NULL,"
        " 'order', 'o-1', 'paid', 'application/json', NULL, '{}', '{}', NULL",
        [number, done_at, done_at, done_at],
    )


def add_day(conn: psycopg.Connection[Any], since: datetime, *, days: int = 1) -> str:
    """A partition that somebody made by hand."""
    name = f"by_hand_{since:%Y%m%d}"
    until = since + days * DAY
    conn.execute(
        f"CREATE TABLE {name} PARTITION OF outbox_archive"
        f" FOR VALUES FROM ('{since.isoformat()}') TO ('{until.isoformat()}')".encode()
    )
    conn.execute(f"ALTER TABLE {name} OWNER TO outbox_owner".encode())
    return name


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Tehran"])
@pytest.mark.parametrize("style", ["ISO, MDY", "German", "SQL, DMY", "Postgres, YMD"])
def test_days_are_those_of_utc_whatever_the_session_says(
    conn: psycopg.Connection, zone: str, style: str
) -> None:
    conn.execute("SELECT set_config('timezone', %s, false)", [zone])
    conn.execute("SELECT set_config('datestyle', %s, false)", [style])
    begin = today(conn)
    assert one(conn, b"SELECT outbox_archive_prepare()") == 4
    days = [begin + number * DAY for number in range(4)]
    conn.execute("SET datestyle = 'ISO'")
    assert partitions(conn) == [(f"outbox_archive_{day:%Y%m%d}", day, day + DAY) for day in days]


def test_what_is_there_is_not_made_again(conn: psycopg.Connection) -> None:
    assert one(conn, b"SELECT outbox_archive_prepare(1)") == 2
    assert one(conn, b"SELECT outbox_archive_prepare(2)") == 1
    assert one(conn, b"SELECT outbox_archive_prepare(2)") == 0
    assert len(partitions(conn)) == 3


def test_days_that_somebody_else_provided_for_are_left_to_them(conn: psycopg.Connection) -> None:
    name = add_day(conn, today(conn) - DAY, days=3)
    assert one(conn, b"SELECT outbox_archive_prepare(3)") == 2
    assert partitions(conn)[0].name == name


def test_a_default_partition_is_none_of_the_days(conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE rest PARTITION OF outbox_archive DEFAULT")
    assert partitions(conn) == []
    assert one(conn, b"SELECT outbox_archive_prepare()") == 4


def test_a_partition_has_what_its_table_has(conn: psycopg.Connection) -> None:
    conn.execute("ALTER TABLE outbox_archive ADD COLUMN note text NOT NULL DEFAULT 'none'")
    conn.execute("ALTER TABLE outbox_archive ADD CHECK (attempts >= 0)")
    conn.execute("CREATE INDEX ON outbox_archive (message_id)")
    assert one(conn, b"SELECT outbox_archive_prepare(0)") == 1
    put(conn, today(conn))
    assert one(conn, b"SELECT note FROM outbox_archive") == "none"
    [day] = partitions(conn)
    indexes = one(conn, b"SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass", day.name)
    assert indexes == 2


@pytest.mark.parametrize("ahead", [-1, 31])
def test_nobody_makes_partitions_for_a_century(conn: psycopg.Connection, ahead: int) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="between 0 and 30"):
        conn.execute("SELECT outbox_archive_prepare(%s)", [ahead])


def test_the_oldest_day_goes_first_and_only_once_all_of_it_is_old(
    conn: psycopg.Connection,
) -> None:
    begin = today(conn)
    names = [add_day(conn, begin - number * DAY) for number in (9, 8, 7, 6)]
    for number in (9, 8, 7, 6):
        put(conn, begin - number * DAY, number)
    # Of the day that began seven days ago some hours are still younger than that.
    dropped = [one(conn, b"SELECT outbox_archive_expire('7 days')") for _ in range(3)]
    assert dropped == [*names[:2], None]
    assert conn.execute("SELECT id FROM outbox_archive ORDER BY id").fetchall() == [(6,), (7,)]
    assert one(conn, b"SELECT to_regclass(%s)", names[0]) is None


def test_today_is_never_dropped(conn: psycopg.Connection) -> None:
    conn.execute("SELECT outbox_archive_prepare(0)")
    assert one(conn, b"SELECT outbox_archive_expire('0')") is None
    for value in ("-1 second", None):
        with pytest.raises(errors.InvalidParameterValue, match="must not be negative"):
            conn.execute("SELECT outbox_archive_expire(%s)", [value])
    assert len(partitions(conn)) == 1


def test_one_session_tends_the_archive_at_a_time(dsn: str, conn: psycopg.Connection) -> None:
    add_day(conn, today(conn) - 9 * DAY)
    with psycopg.connect(dsn) as other:
        assert one(other, b"SELECT outbox_archive_prepare()") == 4
        assert one(conn, b"SELECT outbox_archive_prepare()") is None
        assert one(conn, b"SELECT outbox_archive_expire('1 day')") is None
    assert one(conn, b"SELECT outbox_archive_prepare()") == 0
    assert one(conn, b"SELECT outbox_archive_expire('1 day')") is not None


def test_a_report_that_reads_the_archive_delays_no_new_day(
    dsn: str, conn: psycopg.Connection
) -> None:
    with psycopg.connect(dsn) as report:
        report.execute("SELECT count(*) FROM outbox_archive")
        assert one(conn, b"SELECT outbox_archive_prepare()") == 4


def test_a_day_that_is_being_read_is_not_waited_for_but_dropped_later(
    dsn: str, conn: psycopg.Connection
) -> None:
    add_day(conn, today(conn) - 9 * DAY)
    with psycopg.connect(dsn) as report:
        report.execute("SELECT count(*) FROM outbox_archive")
        with pytest.raises(errors.LockNotAvailable):
            conn.execute("SELECT outbox_archive_expire('1 day')")
    assert one(conn, b"SELECT outbox_archive_expire('1 day')") is not None


def test_a_role_that_owns_nothing_can_tend_the_archive_with_two_grants(
    conn: psycopg.Connection, keeper: psycopg.Connection
) -> None:
    add_day(conn, today(conn) - 9 * DAY)
    assert one(keeper, b"SELECT outbox_archive_prepare()") == 4
    assert one(keeper, b"SELECT outbox_archive_expire('1 day')") is not None
    assert one(
        conn,
        b"SELECT bool_and(tableowner = 'outbox_owner') FROM pg_tables"
        b" WHERE tablename LIKE 'outbox_archive%'",
    )
    with pytest.raises(errors.InsufficientPrivilege):
        keeper.execute("SELECT FROM outbox_archive")


@pytest.mark.parametrize("call", [b"outbox_archive_prepare()", b"outbox_archive_expire('1 day')"])
def test_nobody_tends_the_archive_without_the_grant(dsn: str, call: bytes) -> None:
    with (
        login_role(dsn, "SELECT ON outbox") as role,
        psycopg.connect(role.dsn) as stranger,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        stranger.execute(b"SELECT " + call)


def test_no_table_of_the_caller_can_stand_in_for_the_archive(
    conn: psycopg.Connection, keeper: psycopg.Connection
) -> None:
    keeper.execute("CREATE TEMP TABLE outbox_archive (done_at timestamptz)")
    assert one(keeper, b"SELECT outbox_archive_prepare()") == 4
    assert len(partitions(conn)) == 4


def test_each_schema_has_an_archive_of_its_own(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        for schema in ("one", "two"):
            apply(conn, schema=schema)
        conn.execute("SET search_path = two")
        assert one(conn, b"SELECT one.outbox_archive_prepare()") == 4
        assert one(conn, b"SELECT count(*) FROM one.outbox_archive_partitions()") == 4
        assert partitions(conn) == []
