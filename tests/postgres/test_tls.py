"""Who answers is proved before anything is sent: TLS to the database, as it is required."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgoutbox.cli.main import group
from tests.support.outbox_rows import insert
from tests.support.roles import as_worker
from tests.support.tls_front import Authority, TlsFront
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path / "company.pem")


@pytest.fixture
def target(server_dsn: str) -> str:
    """The socket of the test's server."""
    given = conninfo_to_dict(server_dsn)
    folder = Path(str(given.get("host", "")))
    socket = folder / f".s.PGSQL.{given.get('port', 5432)}"
    if not socket.exists():
        pytest.skip("the test's server has no Unix socket here")
    return str(socket)


@contextmanager
def leading_to(front: TlsFront, dsn: str, host: str, **options: str) -> Iterator[str]:
    """A DSN of the test's database, by ``host`` and through the front."""
    given: dict[str, Any] = conninfo_to_dict(as_worker(dsn)) | {"port": front.port, "host": host}
    with front:
        yield make_conninfo("", **given | {"port": front.port} | options)


def check(dsn: str) -> tuple[int, dict[str, Any]]:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": None}
    words = ["check", "--to", "noop://", "--json"]
    result = CliRunner().invoke(group, words, env=env, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def test_messages_are_delivered_over_a_connection_whose_server_has_proved_who_it_is(
    dsn: str, conn: psycopg.Connection, authority: Authority, target: str
) -> None:
    insert(conn)
    front = TlsFront(target, authority.context("localhost"))
    verified = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with leading_to(front, dsn, "localhost", **verified) as secure:
        assert check(secure)[0] == 0
        with WorkerProcess(secure, "noop://").started() as worker:
            worker.wait_for("delivered")
            assert worker.stop().code == 0


def test_a_server_of_another_authority_is_refused(
    dsn: str, authority: Authority, target: str, tmp_path: Path
) -> None:
    stranger = Authority.made(tmp_path / "stranger.pem")
    front = TlsFront(target, stranger.context("localhost"))
    options = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with leading_to(front, dsn, "localhost", **options) as secure:
        code, told = check(secure)
    assert code == 1
    assert "certificate verify failed" in str(told["problems"])


def test_a_server_of_another_name_is_refused(dsn: str, authority: Authority, target: str) -> None:
    front = TlsFront(target, authority.context("db.example"))
    options = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with leading_to(front, dsn, "localhost", **options) as secure:
        code, told = check(secure)
    assert code == 1
    assert "does not match host name" in str(told["problems"])


def test_a_server_without_tls_is_refused_where_it_is_asked_for(
    dsn: str, authority: Authority, target: str
) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with leading_to(TlsFront(target, None), dsn, "localhost", **options) as secure:
        code, told = check(secure)
    assert code == 1
    assert "server does not support SSL" in str(told["problems"])


def test_another_machine_is_not_even_called_without_verification(
    dsn: str, authority: Authority, target: str
) -> None:
    context = authority.context("db.example")
    for mode in ("disable", "prefer", "require", "verify-ca"):
        options = {"hostaddr": "127.0.0.1", "sslmode": mode}
        with leading_to(TlsFront(target, context), dsn, "db.example", **options) as loopback:
            # Where it is really on this machine nobody listens in.
            assert "nobody checks" not in str(check(loopback)[1])
    with leading_to(TlsFront(target, context), dsn, "db.example", sslmode="require") as remote:
        code, told = check(remote)
    assert code == 78
    assert "has sslmode=require, so that nobody checks which server answers" in str(told)
    assert "PGOUTBOX_DATABASE__INSECURE=true" in str(told)


def test_by_the_name_in_its_certificate_a_server_is_found_at_any_address(
    dsn: str, authority: Authority, target: str
) -> None:
    front = TlsFront(target, authority.context("db.example"))
    options = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with leading_to(front, dsn, "db.example", hostaddr="127.0.0.1", **options) as secure:
        assert check(secure)[0] == 0
