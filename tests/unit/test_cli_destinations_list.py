"""``pgoutbox destinations list``: nobody needs a database for it, and nobody sees a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.cli.destinations import without_secrets
from pgoutbox.destinations import registry
from pgoutbox.wire.template import Template
from tests.support.fax import BASE, ORDERS, Fax, install, listed, run

if TYPE_CHECKING:
    from pathlib import Path

    from pgoutbox.publisher import PublisherOptions


@pytest.fixture
def fax(monkeypatch: pytest.MonkeyPatch) -> Fax:
    fax = Fax()
    install(monkeypatch, fax)
    return fax


def test_the_list_tells_what_was_chosen_for_each_destination() -> None:
    found = listed(
        **{
            f"{ORDERS}URL": "noop://",
            f"{ORDERS}FORMAT": "debezium",
            f"{ORDERS}TOPIC": "shop.{aggregate_type}",
            f"{ORDERS}CONCURRENCY": "7",
            f"{ORDERS}RATE": "2.5",
            f"{ORDERS}PUBLISH_TIMEOUT": "3",
            f"{ORDERS}MAX_ATTEMPTS": "4",
            f"{BASE}MAIL__URL": "stdout://",
        }
    )
    assert [one["name"] for one in found] == ["mail", "orders"]
    assert found[1] == {
        "name": "orders",
        "usable": True,
        "url": "noop://",
        "format": "debezium",
        "topic": "shop.{aggregate_type}",
        "concurrency": 7,
        "rate": 2.5,
        "publish_timeout": 3.0,
        "max_attempts": 4,
        "problems": [],
    }
    assert found[0]["topic"] is None


def test_people_get_a_line_for_each_destination() -> None:
    result = run("list", **{f"{ORDERS}URL": "noop://", f"{ORDERS}TOPIC": "shop"})
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("orders"))
    assert line.split() == ["orders", "yes", "noop://", "plain", "shop", "200", "-", "10", "12"]


def test_the_list_tells_where_messages_go_where_only_the_publisher_knows(fax: Fax) -> None:
    fax.topic = Template("outbox.event.{aggregate_type}")
    (found,) = listed(**{f"{ORDERS}URL": "noop://"})
    assert found["topic"] == "outbox.event.{aggregate_type}"
    assert fax.closed == 1


DEFAULT = "outbox.event.{aggregate_type}"


@pytest.mark.parametrize(
    ("url", "topic"),
    [
        ("kafka://host", DEFAULT),
        ("kafka://host/shop.{event_type}", "shop.{event_type}"),
        ("amqp://host/?exchange=events", DEFAULT),
        ("nats://host", DEFAULT),
        ("redis://host", DEFAULT),
        ("pubsub://project", DEFAULT),
        ("pubsub://project/shop", "shop"),
        ("sqs://eu-west-1/orders", "orders"),
        ("sns://eu-west-1/123456789012/orders", "orders"),
        ("https://host/", None),
        ("stdout://", None),
    ],
)
def test_the_list_tells_the_topic_that_the_url_or_nobody_chose(
    url: str, topic: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    (found,) = listed(**{f"{ORDERS}URL": url})
    assert found["problems"] == []
    assert found["topic"] == topic


def test_a_destination_that_cannot_be_opened_is_listed_with_what_is_wrong() -> None:
    environ = {f"{ORDERS}URL": "noop://?bath=1", f"{BASE}MAIL__URL": "noop://"}
    mail, orders = listed(**environ)
    assert (mail["usable"], mail["problems"]) == (True, [])
    assert orders["usable"] is False
    [problem] = orders["problems"]
    assert problem.startswith(f"{ORDERS}URL cannot be used: 'bath' is no option of noop://")
    for_people = run("list", **environ)
    assert for_people.exit_code == 0
    assert f"problem: {problem}" in for_people.stdout
    line = next(line for line in for_people.stdout.splitlines() if line.startswith("orders"))
    assert line.split()[1] == "no"


def test_a_publisher_with_a_bug_hides_no_other_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_fax(_url: str, /, *, options: PublisherOptions) -> Fax:
        if options.destination == "orders":
            raise KeyError("hunter2")
        return Fax()

    monkeypatch.setattr(registry, "_load", lambda _entry, _destination: open_fax)
    mail, orders = listed(**{f"{ORDERS}URL": "noop://", f"{BASE}MAIL__URL": "noop://"})
    assert (mail["usable"], orders["usable"]) == (True, False)
    assert "KeyError, which is a bug" in orders["problems"][0]
    assert "hunter2" not in str(orders)


BROKEN = {
    f"{ORDERS}URL": "https://host.example/",
    f"{ORDERS}SIGNING_SECRETS_FILE": "/no/such/file",
    f"{BASE}ORDERS__B__URL": "noop://",
}


def test_a_destination_with_a_missing_secret_keeps_nobody_from_the_others() -> None:
    orders, other = listed(**BROKEN)
    assert (orders["name"], orders["usable"], orders["url"]) == ("orders", False, None)
    assert "/no/such/file" in orders["problems"][0]
    assert (other["name"], other["usable"]) == ("orders__b", True)
    assert run("test", "orders__b", **BROKEN).exit_code == 0
    tried = run("test", "orders", **BROKEN)
    assert tried.exit_code == 78
    assert f"{ORDERS}SIGNING_SECRETS_FILE names a file that cannot be read" in tried.stderr
    unknown = run("test", "mail", **BROKEN)
    assert "there are: orders, orders__b" in unknown.stderr


def test_a_problem_names_the_key_in_the_file_that_it_comes_from(tmp_path: Path) -> None:
    file, secret = tmp_path / "pgoutbox.toml", tmp_path / "url"
    secret.write_text("noop://?bath=1")
    file.write_text(
        f'[destinations.mail]\nurl = "noop://?bath=1"\n'
        f'[destinations.orders]\nurl_file = "{secret}"\n'
    )
    result = run("list", PGOUTBOX_CONFIG=str(file))
    assert f"{BASE}MAIL__URL (destinations.mail.url in {file}) cannot be used" in result.stdout
    where = f"destinations.orders.url_file in {file}"
    assert f"{ORDERS}URL_FILE ({where}) cannot be used" in result.stdout
    tried = run("test", "mail", PGOUTBOX_CONFIG=str(file))
    assert tried.exit_code == 78
    assert f"(destinations.mail.url in {file})" in tried.stderr


def test_an_empty_list_says_how_to_begin() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert "PGOUTBOX_DESTINATIONS__DEFAULT__URL" in result.stdout


def test_a_destination_without_its_url_is_left_out_of_the_list() -> None:
    environ = {f"{BASE}DEFAULT__DEAD_HEAD": "skip", f"{ORDERS}URL": "noop://"}
    assert [one["name"] for one in listed(**environ)] == ["orders"]


def test_neither_a_missing_nor_a_wrong_dsn_keeps_anybody_from_the_list(tmp_path: Path) -> None:
    url = {f"{ORDERS}URL": "noop://"}
    for wrong in (
        {},
        {"PGOUTBOX_DSN": "host=db.example"},
        {"PGOUTBOX_DSN": "postgresql://u:p@ss/word@host/db"},
        {"PGOUTBOX_DSN_FILE": str(tmp_path / "none")},
        {"PGOUTBOX_LISTEN_DSN": "nonsense"},
    ):
        assert [one["name"] for one in listed(**url | wrong)] == ["orders"]


def test_all_else_that_is_wrong_with_the_settings_is_told() -> None:
    result = run("list", **{f"{ORDERS}URL": "noop://", "PGOUTBOX_LEASE__RENEW": "soon"})
    assert result.exit_code == 78
    assert "PGOUTBOX_LEASE__RENEW" in result.stderr
    assert "DSN" not in result.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host.example/hook", "https://host.example/hook"),
        ("https://user:hunter2@host.example:8443/a/b", "https://host.example:8443/a/b"),
        ("https://host.example/hook?token=hunter2#frag", "https://host.example/hook"),
        ("https://host.example?token=hunter2", "https://host.example"),
        ("redis://:hunter2@host:6379", "redis://host:6379"),
        ("amqp://user:hun@ter2@host/v", "amqp://host/v"),
        ("kafka://a:9092,b:9092/outbox.{aggregate_type}", "kafka://a:9092,b:9092/outbox."),
        ("jsonl:///var/out.jsonl?fsync=0", "jsonl:///var/out.jsonl"),
        ("noop://", "noop://"),
        # Where a password ends cannot be told.
        ("amqp://user:hun/ter2@host/v", "amqp://..."),
        ("amqp://user:hun?ter2@host/v", "amqp://..."),
        ("amqp://user:hun#ter2@host/v", "amqp://..."),
        # The path is the password.
        ("https://hooks.example/services/T1/xoxb0123456789abcdefhunter2", "/T1/xoxb..."),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    found = without_secrets(url)
    assert shown in found
    assert not any(secret in found for secret in ("hun", "ter2", "user", "token"))
