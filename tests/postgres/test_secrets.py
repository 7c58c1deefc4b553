"""Secrets come from files, are read again when they change, and are told to nobody."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgoutbox.cli.main import group
from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from pgoutbox.settings import load_settings
from tests.support.outbox_rows import insert
from tests.support.receiver import Receiver
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of the database before and after, of a broker, of webhooks, and of a URL's own query.
FIRST, SECOND = "first-Zebra-4711", "second-Zebra-4711"
BROKER, SIGNING = "broker-Zebra-4711", "whsec_emVicmEtNDcxMS16ZWJyYS00NzExLXplYnJhLTQ3MTE="
SECRETS = (FIRST, SECOND, BROKER, SIGNING, SIGNING.removeprefix("whsec_"))


class Guarded(NamedTuple):
    """A database whose worker needs a password, as a superuser sees it."""

    admin: str
    worker: str
    """Without the password."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    rules = tmp_path_factory.mktemp("hba") / "pg_hba.conf"
    rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
    for folder in (rules, *rules.parents[:3]):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    server = EmbeddedServer(settings={"fsync": "off", "hba_file": str(rules)})
    try:
        server.start()
        with psycopg.connect(server.dsn) as conn:
            apply(conn, schema="public", roles=True)
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("CREATE ROLE shop_worker LOGIN IN ROLE outbox_dispatcher")
        given = conninfo_to_dict(server.dsn) | {"user": "shop_worker"}
        yield Guarded(server.dsn, make_conninfo("", **given))
    finally:
        server.remove()


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[psycopg.Connection]:
    with psycopg.connect(guarded.admin, autocommit=True) as conn:
        give_password(conn, FIRST)
        yield conn
        conn.execute("TRUNCATE outbox, outbox_workers")


def give_password(conn: psycopg.Connection, password: str) -> None:
    conn.execute(f"ALTER ROLE shop_worker PASSWORD '{password}'".encode())


def throw_out(conn: psycopg.Connection) -> None:
    """End the worker's connections, so that it has to log in again."""
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop_worker'"
    )


def with_password(guarded: Guarded, password: str) -> str:
    return make_conninfo(guarded.worker, password=password)


def test_a_password_that_is_rotated_is_taken_up_with_the_next_connection(
    guarded: Guarded, admin: psycopg.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "dsn"
    file.write_text(with_password(guarded, FIRST))
    with (
        Receiver() as receiver,
        WorkerProcess("", receiver.url, DSN="", DSN_FILE=str(file)).started() as worker,
    ):
        insert(admin)
        receiver.until_arrived(1)
        give_password(admin, SECOND)
        file.write_text(with_password(guarded, SECOND))
        throw_out(admin)
        insert(admin)
        receiver.until_arrived(2)
        assert worker.stop().code == 0


def settings_with_secrets(guarded: Guarded, folder: Path) -> dict[str, str]:
    """Everything that has a secret, without ``PGOUTBOX_``."""
    file, signing = folder / "dsn", folder / "signing"
    file.write_text(with_password(guarded, FIRST))
    signing.write_text(SIGNING)
    return {
        "DSN": "",
        "DSN_FILE": str(file),
        "DESTINATIONS__DEFAULT__SIGNING_SECRETS_FILE": str(signing),
        "DESTINATIONS__BROKER__URL": f"amqp://shop:{BROKER}@127.0.0.1:1/",
        "DESTINATIONS__BROKER__PUBLISH_TIMEOUT": "1",
    }


def told_by_a_worker(admin: psycopg.Connection, url: str, settings: dict[str, str]) -> list[str]:
    """What a worker says while everything goes wrong: destinations, and then its own login."""
    with WorkerProcess("", url, **settings).started() as worker:
        insert(admin)
        insert(admin, destination="broker")
        worker.wait_for("publish failed")
        give_password(admin, SECOND)
        throw_out(admin)
        worker.wait_for("database failed")
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics") as answer:
            told = [answer.read().decode()]
        told.append(Path(f"/proc/{worker.pid}/cmdline").read_text())
        worker.stop()
        return told + [json.dumps(line) for line in worker.lines]


def told_by_commands(environ: dict[str, str], *commands: list[str]) -> list[str]:
    results = [CliRunner().invoke(group, words, env=environ) for words in commands]
    return [result.output + str(result.exception) for result in results]


def test_nothing_that_is_printed_logged_or_exported_holds_a_secret(
    guarded: Guarded, admin: psycopg.Connection, tmp_path: Path
) -> None:
    settings = settings_with_secrets(guarded, tmp_path)
    environ = {f"PGOUTBOX_{name}": value for name, value in settings.items() if value}
    commands = [[*["check", "--json"]], ["status"], ["doctor"], [*["dead", "list"]]]
    with Receiver(status=500) as receiver:
        told = told_by_a_worker(admin, receiver.url, settings)
        loaded = load_settings(environ, to=receiver.url)
    told += [repr(loaded), str(loaded), repr(loaded.destinations["broker"])]
    # Both where the password is wrong and where it is right.
    told += told_by_commands(environ, *commands, ["destinations", "list"])
    give_password(admin, FIRST)
    told += told_by_commands(environ, *commands)
    assert len(told) > 20
    assert not {secret for secret in SECRETS for text in told if secret in text}
