"""``pgoutbox destinations test``: one message, and in words what became of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from click.testing import CliRunner

from pgoutbox.cli.destinations import without_secrets
from pgoutbox.cli.main import group
from pgoutbox.errors import (
    Defer,
    DestinationGone,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from tests.support.fax import BASE, ORDERS, BatchFax, Fax, SilentFax, install, run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def fax(monkeypatch: pytest.MonkeyPatch) -> Fax:
    fax = Fax()
    install(monkeypatch, fax)
    return fax


def probe(*arguments: str, **environ: str) -> Result:
    return run("test", "orders", *arguments, **{f"{ORDERS}URL": "noop://"} | environ)


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


def test_a_probe_may_look_like_the_messages_that_a_topic_or_a_url_is_made_of(fax: Fax) -> None:
    result = probe("--event-type", "Placed", "--header", "tenant=a=b", "--header", "x=")
    assert result.exit_code == 0
    assert fax.seen[0].event_type == "Placed"
    assert fax.seen[0].headers == {"tenant": "a=b", "x": ""}
    assert "its event type `Placed`" in result.stdout


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [("tenant", 2, "'tenant' is not NAME=VALUE"), ("a b=1", 1, "the name must be of letters")],
)
def test_a_header_that_no_message_can_have_is_refused(
    fax: Fax, header: str, code: int, words: str
) -> None:
    result = probe("--header", header)
    assert result.exit_code == code
    assert words in result.stderr
    assert fax.seen == []


def test_a_header_that_the_url_needs_is_asked_for_by_its_name() -> None:
    url = "http://127.0.0.1:1/{headers[tenant]}"
    result = run("test", "default", "--to", url)
    assert result.exit_code == 1
    first, advice = result.stderr.splitlines()
    assert "no header 'tenant', which the destination's URL or topic is made of" in first
    assert "--header" in advice


def test_a_batch_publisher_gets_a_batch_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, code in ((None, 0), (PermanentError("no"), 1)):
        fax = BatchFax(answer)
        install(monkeypatch, fax)
        assert probe().exit_code == code
        assert len(fax.seen) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (DestinationUnavailable("no dial tone"), ["is not available", "no dial tone", "check the"]),
        (RetryableError("busy"), ["did not confirm", "busy", "against what passes by itself"]),
        (RetryableError("busy", retry_after=60), ["asks to wait for 60 s"]),
        (RetryableError("busy", throttled=True), ["did not confirm", "wants fewer messages"]),
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


def test_what_only_a_change_helps_against_is_not_answered_with_trying_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for answer in (DestinationUnavailable("the password is wrong"), RetryableError("no stream")):
        install(monkeypatch, Fax(answer))
        told = probe().stderr
        assert "try again" not in told
        assert "reached" not in told


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


@pytest.mark.parametrize(
    "url", ["redis://:hunter2", "nats://u:hunter2", "kafka://a:1,b:hunter2", "amqp://x y:hunter2/"]
)
def test_what_stands_where_a_port_should_be_is_not_shown(url: str) -> None:
    assert "hunter2" not in without_secrets(url)


@pytest.mark.parametrize(
    "url",
    ["kafka://a.example:9092,b.example:9092/t", "redis://[::1]:6379/0", "sqs://eu-west-1/orders"],
)
def test_hosts_and_ports_are_shown(url: str) -> None:
    assert without_secrets(url) == url


def test_no_timeout_is_not_a_number_of_seconds() -> None:
    ended = CliRunner().invoke(
        group, ["destinations", "test", "default", "--to", "noop://", "--timeout", "nan"]
    )
    assert ended.exit_code == 2
    assert "nan is no number of seconds" in ended.output
