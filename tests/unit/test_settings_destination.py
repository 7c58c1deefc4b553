"""Settings of one destination: what depends on its kind, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pgoutbox.settings import Destination, Problem, SettingsError, load_settings
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = {"PGOUTBOX_DSN": "host=/run/postgresql dbname=shop"}
X = "PGOUTBOX_DESTINATIONS__X__"


def destination(**given: str) -> Destination:
    environ = LOCAL | {f"{X}{name}": value for name, value in given.items()}
    return load_settings(environ).destinations["x"]


def refused(**given: str) -> Problem:
    with pytest.raises(SettingsError) as error:
        destination(**given)
    [problem] = error.value.problems
    return problem


@pytest.mark.parametrize("how", ["binary", "structured"])
def test_the_source_of_events_begins_as_the_settings_say(how: str) -> None:
    given = {"FORMAT": f"cloudevents_{how}", "SOURCE": "urn:example:shop:"}
    chosen = destination(URL="kafka://broker", **given)
    envelope = chosen.publisher_options("shop").wire.encode(make_message(aggregate_type="an order"))
    source = dict(envelope.headers).get("ce-source") or json.loads(envelope.body)["source"]
    assert source == "urn:example:shop:an%20order"


@pytest.mark.parametrize("source", ["two words", 'quoted"', "umlaut-\u00e4", "line\n"])
def test_a_source_that_is_no_uri_is_refused(source: str) -> None:
    problem = refused(URL="kafka://broker", FORMAT="cloudevents_binary", SOURCE=source)
    assert problem.field == "PGOUTBOX_DESTINATIONS__X__SOURCE"


def test_a_source_without_a_format_that_has_one_is_refused() -> None:
    problem = refused(URL="kafka://broker", SOURCE="/shop/")
    assert "cloudevents_binary" in problem.rule


def test_webhooks_are_retried_for_days_where_nobody_says_otherwise() -> None:
    webhook = destination(URL="https://example.com/hook")
    assert (webhook.retry.base, webhook.retry.cap, webhook.max_attempts) == (5, 86400, 18)
    # Full jitter waits for half of each step on average.
    mean = sum(min(86400, 5 * 2**attempt) / 2 for attempt in range(1, 18))
    assert 2 < mean / 86400 < 3.5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"RETRY__CAP": "2"}, (2, 2)),
        ({"RETRY__CAP": "60"}, (5, 60)),
        ({"RETRY__BASE": "100000"}, (100000, 100000)),
        ({"RETRY__BASE": "1"}, (1, 86400)),
        ({"RETRY__BASE": "1", "RETRY__CAP": "300"}, (1, 300)),
    ],
)
def test_what_is_said_of_a_webhooks_retries_goes_before_the_defaults(
    given: dict[str, str], expected: tuple[float, float]
) -> None:
    retry = destination(URL="https://example.com/hook", **given).retry
    assert (retry.base, retry.cap) == expected


@pytest.mark.parametrize(
    ("url", "concurrency"),
    [
        ("kafka://broker", 200),
        ("nats://broker", 200),
        ("amqp://broker", 200),
        ("http://host", 50),
        ("noop://", 200),
    ],
)
def test_what_goes_in_batches_may_take_all_that_the_worker_holds(
    url: str, concurrency: int
) -> None:
    assert destination(URL=url).concurrency == concurrency


def test_a_publisher_is_told_its_topic_format_and_secrets() -> None:
    options = destination(
        URL="https://example.com",
        TOPIC="shop.{event_type}",
        FORMAT="cloudevents_binary",
        SIGNING_SECRETS="whsec_new, whsec_old",
        ALLOWED_HOSTS="a.example b.example",
    ).publisher_options("x")
    assert options.topic is not None
    assert options.topic.render(make_message(event_type="paid")) == "shop.paid"
    assert options.wire.name == "cloudevents_binary"
    assert list(options.signing_secrets()) == ["whsec_new", "whsec_old"]
    assert options.allowed_hosts == ("a.example", "b.example")


def test_a_destination_without_secrets_signs_nothing() -> None:
    assert not destination(URL="https://example.com").publisher_options("x").signing_secrets()


def test_signing_secrets_in_a_file_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgoutbox.settings.destination.REREAD_SECONDS", 0.0)
    path = tmp_path / "secrets"
    path.write_text("whsec_old\n")
    secrets = (
        destination(URL="https://example.com", SIGNING_SECRETS_FILE=str(path))
        .publisher_options("x")
        .signing_secrets
    )
    assert list(secrets()) == ["whsec_old"]
    path.write_text("whsec_new\nwhsec_old\n")
    assert list(secrets()) == ["whsec_new", "whsec_old"]


@pytest.mark.parametrize("text", [" ", ",", " , \t"])
def test_secrets_that_are_none_are_refused_rather_than_nothing_signed(
    tmp_path: Path, text: str
) -> None:
    assert refused(URL="https://example.com", SIGNING_SECRETS=text).field == f"{X}SIGNING_SECRETS"
    path = tmp_path / "secrets"
    path.write_text(text)
    problem = refused(URL="https://example.com", SIGNING_SECRETS_FILE=str(path))
    assert problem.field == f"{X}SIGNING_SECRETS_FILE"


def test_a_url_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("amqp://user:password@broker.example/\n")
    assert destination(URL_FILE=str(path)).scheme == "amqp"


def test_a_file_that_cannot_be_read_is_named_with_its_setting() -> None:
    problem = refused(URL_FILE="/nowhere/url")
    assert problem.field == f"{X}URL_FILE"
    assert "No such file" in problem.rule


def test_a_secret_and_its_file_are_not_given_together(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("noop://")
    problem = refused(URL="noop://", URL_FILE=str(path))
    assert (problem.field, problem.rule) == (f"{X}URL", f"and {X}URL_FILE are both given")


def test_the_environments_secret_wins_over_the_file_that_the_settings_name(
    tmp_path: Path,
) -> None:
    config = tmp_path / "pgoutbox.toml"
    config.write_text('[destinations.x]\nurl_file = "/nowhere"\nformat = "debezium"\n')
    settings = load_settings(LOCAL | {"PGOUTBOX_CONFIG": str(config), f"{X}URL": "noop://"})
    assert settings.destinations["x"].scheme == "noop"
    assert settings.destinations["x"].format == "debezium"


@pytest.mark.parametrize(
    "topic", ["{total}", "{", "a}", "{headers[a b]}", "{aggregate_type!r}", "{0}", "{}"]
)
def test_a_topic_takes_only_known_fields(topic: str) -> None:
    problem = refused(URL="kafka://broker", TOPIC=topic)
    assert problem.field == f"{X}TOPIC"


@pytest.mark.parametrize(
    ("name", "value"), [("SIGNING_SECRETS", "whsec_secret"), ("ALLOWED_HOSTS", "a.example")]
)
def test_what_only_webhooks_have_is_refused_elsewhere(name: str, value: str) -> None:
    problem = refused(URL="kafka://broker", **{name: value})
    assert problem.field == f"{X}{name}"
    assert value not in str(problem)


def test_a_breakers_longest_pause_is_not_shorter_than_its_first() -> None:
    problem = refused(URL="noop://", BREAKER__PAUSE="5", BREAKER__MAX_PAUSE="1")
    assert problem.field == f"{X}BREAKER__MAX_PAUSE"
    assert f"{X}BREAKER__PAUSE (5)" in problem.rule


@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
def test_a_rate_is_positive(rate: str) -> None:
    assert refused(URL="noop://", RATE=rate).field == f"{X}RATE"


def test_a_secret_that_is_no_text_is_not_shown() -> None:
    problem = refused(URL="noop://", URLS="https://user:hunter2@example.com")
    assert "hunter2" not in str(problem)
