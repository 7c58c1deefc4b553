"""``pgoutbox destinations``: nobody needs a database for it, and nobody sees a secret."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from pgoutbox.cli.destinations import without_secrets
from pgoutbox.cli.main import group
from pgoutbox.destinations import registry
from pgoutbox.errors import (
    Defer,
    DestinationGone,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from click.testing import Result

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

BASE = "PGOUTBOX_DESTINATIONS__"
ORDERS = f"{BASE}ORDERS__"
NOTHING: dict[str, str | None] = {"PGOUTBOX_DSN": None, "PGOUTBOX_DSN_FILE": None}


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(group, ["destinations", *arguments], env=NOTHING | environ)


def listed(**environ: str) -> list[dict[str, Any]]:
    result = run("list", "--json", **environ)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["destinations"]
    return found


class Fax:
    """A publisher of somebody else, which answers as it is told."""

    def __init__(self, answer: BaseException | None = None) -> None:
        self.answer = answer
        self.seen: list[ClaimedMessage] = []
        self.options: PublisherOptions | None = None
        self.closed = 0

    async def publish(self, message: ClaimedMessage) -> None:
        self.seen.append(message)
        if self.answer is not None:
            raise self.answer

    async def close(self) -> None:
        self.closed += 1


class BatchFax(Fax):
    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        self.seen += messages
        return [self.answer if isinstance(self.answer, PublishError) else None]


class SilentFax(Fax):
    async def publish(self, message: ClaimedMessage) -> None:
        self.seen.append(message)
        await asyncio.Event().wait()


def install(monkeypatch: pytest.MonkeyPatch, fax: Fax) -> None:
    async def open_fax(_url: str, /, *, options: PublisherOptions) -> Fax:
        fax.options = options
        return fax

    monkeypatch.setattr(registry, "_load", lambda _entry, _destination: open_fax)


@pytest.fixture
def fax(monkeypatch: pytest.MonkeyPatch) -> Fax:
    fax = Fax()
    install(monkeypatch, fax)
    return fax


def probe(*arguments: str, **environ: str) -> Result:
    return run("test", "orders", *arguments, **{f"{ORDERS}URL": "noop://"} | environ)


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
        "url": "noop://",
        "format": "debezium",
        "topic": "shop.{aggregate_type}",
        "concurrency": 7,
        "rate": 2.5,
        "publish_timeout": 3.0,
        "max_attempts": 4,
    }
    assert found[0]["topic"] is None


def test_people_get_a_line_for_each_destination() -> None:
    result = run("list", **{f"{ORDERS}URL": "noop://", f"{ORDERS}TOPIC": "shop"})
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("orders"))
    assert line.split() == ["orders", "noop://", "plain", "shop", "200", "-", "10", "12"]


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


def test_a_destination_that_takes_the_probe_gets_one_message_that_says_what_it_is(
    fax: Fax,
) -> None:
    result = probe()
    assert result.exit_code == 0
    [message] = fax.seen
    assert message[5:11] == ("orders", None, "pgoutbox", "orders", "probe", "application/json")
    assert "pgoutbox destinations test" in json.loads(message.body)["probe"]
    assert message.headers == {}
    assert isinstance(message.message_id, UUID)
    first, second = result.stdout.splitlines()
    assert first.startswith("orders took the probe in ")
    assert first.endswith(" ms")
    assert str(message.message_id) in second
    assert fax.closed == 1


def test_each_probe_has_an_id_of_its_own(fax: Fax) -> None:
    probe()
    probe()
    assert fax.seen[0].message_id != fax.seen[1].message_id


def test_the_publisher_is_told_what_a_worker_tells_it(fax: Fax) -> None:
    probe(**{f"{ORDERS}FORMAT": "debezium", f"{ORDERS}TOPIC": "t", f"{ORDERS}CONCURRENCY": "7"})
    assert fax.options is not None
    assert fax.options.wire.name == "debezium"
    assert fax.options.topic is not None
    assert (fax.options.destination, fax.options.concurrency) == ("orders", 7)
    assert fax.options.publish_timeout == 10


def test_a_probe_may_go_where_other_messages_go(fax: Fax) -> None:
    probe("--aggregate-type", "order")
    assert fax.seen[0].aggregate_type == "order"


def test_a_batch_publisher_gets_a_batch_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, code in ((None, 0), (PermanentError("no"), 1)):
        fax = BatchFax(answer)
        install(monkeypatch, fax)
        assert probe().exit_code == code
        assert len(fax.seen) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (DestinationUnavailable("no dial tone"), ["not be reached", "no dial tone", "check the"]),
        (RetryableError("busy"), ["did not take", "busy", "try again"]),
        (RetryableError("busy", retry_after=60), ["asks to wait for 60 s"]),
        (PermanentError("not a number"), ["refuses", "not a number", "change the settings"]),
        (DestinationGone("moved away"), ["refuses", "moved away", "remove the destination"]),
        (Defer(timedelta(minutes=2), "at night"), ["again in 120 s", "at night", "try again then"]),
    ],
)
def test_each_of_the_answers_is_told_with_what_to_do_about_it(
    answer: PublishError, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fax = Fax(answer)
    install(monkeypatch, fax)
    result = probe()
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "orders " in result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert fax.closed == 1


def test_an_exception_that_nobody_classified_is_called_a_bug_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fax = Fax(RuntimeError("amqp://user:hunter2@host"))
    install(monkeypatch, fax)
    result = probe()
    assert result.exit_code == 1
    assert "answered with RuntimeError" in result.stderr
    assert "report this bug" in result.stderr
    assert "hunter2" not in result.output
    assert fax.closed == 1


def test_no_answer_in_time_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    fax = SilentFax()
    install(monkeypatch, fax)
    result = probe("--timeout", "0.05")
    assert result.exit_code == 1
    assert "orders gave no answer within 0.05 s" in result.stderr
    assert fax.options is not None
    assert fax.options.publish_timeout == 0.05
    assert fax.closed == 1


def test_a_publisher_that_cannot_close_changes_nothing_about_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Fax):
        async def close(self) -> None:
            raise OSError("hunter2")

    install(monkeypatch, Stuck())
    result = probe()
    assert result.exit_code == 0
    assert "failed to close, with OSError" in result.stdout
    assert "hunter2" not in result.output


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    result = run("test", "oders", **{f"{ORDERS}URL": "noop://", f"{BASE}MAIL__URL": "noop://"})
    assert result.exit_code == 1
    assert "no destination 'oders' in the settings; there are: mail, orders" in result.stderr


def test_a_url_that_no_worker_would_open_is_a_problem_with_the_settings() -> None:
    result = run("test", "default", "--to", "https://")
    assert result.exit_code == 78
    assert "PGOUTBOX_DESTINATIONS__DEFAULT__URL cannot be used" in result.stderr


def test_the_built_in_publishers_take_a_probe(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    assert run("test", "default", "--to", "noop://?batch=1").exit_code == 0
    assert run("test", "default", "--to", f"jsonl://{file}").exit_code == 0
    assert json.loads(file.read_text())["event_type"] == "probe"
