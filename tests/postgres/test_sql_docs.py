"""The queries below docs/sql: each runs, says something, and costs what its first lines say."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tests.support.outbox_rows import fill, insert
from tests.support.plans import Plan
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("sql/*.sql"))}
ONLY = "Index Only Scan using"
INDEX = "Index Scan using"
BITMAP = "Bitmap Index Scan using"
PENDING = {f"{ONLY} outbox_pending", f"{INDEX} outbox_pending"}
DEAD = {f"{ONLY} outbox_dead", f"{INDEX} outbox_dead"}
PLANS: dict[str, tuple[set[str], int]] = {
    "oldest_pending": (PENDING, 60),
    "attempts": (PENDING, 1_500),
    "dead_letters": (DEAD, 120),
    "dead_by_error": (DEAD, 2_000),
    "blocked_lanes": (
        {f"{ONLY} outbox_dead", f"{INDEX} outbox_blocked", f"{ONLY} outbox_lane"},
        8_000,
    ),
    "leases": ({f"{ONLY} outbox_leased", f"{INDEX} outbox_leased"}, 2_000),
    "throughput": ({f"{ONLY} outbox_done"}, 2_500),
    "latency": ({f"{INDEX} outbox_done"}, 800),
}
"""How the outbox may be read, and how many blocks of it at most."""
FUNCTIONS = {"backlog": "outbox_stats(integer)", "workers": "outbox_stats(integer)"}
FUNCTIONS |= {"horizon": "outbox_horizon()"}
NOTHING = {"vacuum", "locks"}
"""Those that read the server's own tables only."""


class Large(NamedTuple):
    """An outbox of half a million messages."""

    dsn: str
    analyzed: bool
    """Else only while it was empty."""


@pytest.fixture(scope="module", params=[False, True], ids=["never", "fresh"])
def large(server_dsn: str, template: str, request: pytest.FixtureRequest) -> Iterator[Large]:
    name = f"pgoutbox_sql_docs_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        dsn = make_conninfo(server_dsn, dbname=name)
        try:
            with psycopg.connect(
                dsn, autocommit=True, options="-c session_replication_role=replica"
            ) as conn:
                conn.execute("ALTER TABLE outbox SET (autovacuum_enabled = false)")
                conn.execute("ANALYZE outbox")
                _fill(conn)
                if request.param:
                    conn.execute("ANALYZE outbox")
            yield Large(dsn, request.param)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _fill(conn: psycopg.Connection) -> None:
    names = ("bank", "mail", "shop")
    kept = {"status": "'done'", "pending_since": "NULL"}
    fill(conn, 300_000, **kept, done_at="now() - g * interval '100 ms'", destination="'bank'")
    for name in names:
        here = {"destination": f"'{name}'"}
        fill(conn, 25_000, **here, attempts="g % 5")
        dead = {"status": "'dead'", "pending_since": "NULL", "last_error": "'answered ' || g % 600"}
        fill(conn, 30_000, **here, **dead, ordering_key="'k' || g % 500")
        fill(conn, 2_000, **here, ordering_key="'k' || g % 2")
        held = {"status": "'processing'", "lease_owner": "'pod-' || g % 3"}
        fill(conn, 12_000, **here, **held, lease_until="now() + (g - 100) * interval '1 s'")


def rows(conn: psycopg.Connection[Any], name: str) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(FILES[name].encode()).fetchall()


def explained(conn: psycopg.Connection[Any], name: str) -> Plan:
    question = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {FILES[name]}"
    row = conn.execute(question.encode()).fetchone()
    assert row is not None
    return Plan(row[0][0]["Plan"])


def test_each_file_is_one_query_that_says_what_it_tells_costs_and_needs() -> None:
    assert set(FILES) == PLANS.keys() | FUNCTIONS.keys() | NOTHING
    for text in FILES.values():
        header, _, query = text.partition("\n\n")
        assert all(line.startswith("--") for line in header.splitlines())
        assert re.search(r"^-- Cost: .+", header, re.MULTILINE)
        assert re.search(r"Needs: .+\.$", header, re.MULTILINE)
        assert query.startswith(("SELECT ", "WITH "))
        assert query.count(";") == 1
        assert query.endswith(";\n")
        assert max(map(len, text.splitlines())) <= 120


def test_the_page_names_each_file() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(sql/(\w+)\.sql\)", page)) == set(FILES)


@pytest.mark.parametrize("name", PLANS)
def test_a_query_reads_a_large_outbox_by_its_indexes_and_only_so_much_of_it(
    large: Large, name: str
) -> None:
    wanted, blocks = PLANS[name]
    with psycopg.connect(large.dsn) as conn:
        plan = explained(conn, name)
        assert rows(conn, name)
    if large.analyzed:
        assert plan.scans == wanted
        assert plan.blocks <= blocks
    else:
        # Of a table that nobody has analyzed all that is in an index may be read, but no more.
        assert plan.scans <= wanted | {f"{BITMAP} {scan.split()[-1]}" for scan in wanted}


@pytest.mark.parametrize("name", [*FUNCTIONS, *NOTHING])
def test_a_query_that_reads_no_rows_itself_names_no_table_of_messages(
    large: Large, name: str
) -> None:
    with psycopg.connect(large.dsn) as conn:
        assert not explained(conn, name).scans
    assert not re.search(r"\b(FROM|JOIN) outbox\b", FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_a_query_on_an_empty_outbox_fails_for_nothing(conn: psycopg.Connection, name: str) -> None:
    assert bool(rows(conn, name)) == (name == "vacuum")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_query_needs_no_more_than_it_says(dsn: str, conn: psycopg.Connection, name: str) -> None:
    insert(conn)
    function = FUNCTIONS[name]
    assert f"EXECUTE on {function.partition('(')[0]}" in FILES[name]
    with (
        login_role(dsn, f"EXECUTE ON FUNCTION {function}") as role,
        psycopg.connect(role.dsn) as theirs,
    ):
        rows(theirs, name)
        with pytest.raises(errors.InsufficientPrivilege):
            rows(theirs, "dead_letters")
