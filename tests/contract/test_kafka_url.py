"""URLs that make sense and URLs that do not. No broker is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.kafka.publisher import open_kafka
from pgoutbox.brokers.kafka.url import REFUSED, read_url
from pgoutbox.errors import InvalidDestination
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from pgoutbox.brokers.kafka.url import Config

OPTIONS = PublisherOptions(destination="events", publish_timeout=10.0)


def config_of(url: str) -> Config:
    return read_url(url, OPTIONS).config


@pytest.mark.parametrize(
    ("url", "brokers", "where"),
    [
        ("kafka://one", "one:9092", "one:9092"),
        ("KAFKA://one:9092/", "one:9092", "one:9092"),
        ("kafka://one:9092,two:9093/topic", "one:9092,two:9093", "one:9092 and 1 more"),
        ("kafka://10.0.0.1,[::1]:9093", "10.0.0.1:9092,[::1]:9093", "10.0.0.1:9092 and 1 more"),
    ],
)
def test_brokers_stand_in_the_place_of_the_host(url: str, brokers: str, where: str) -> None:
    target = read_url(url, OPTIONS)
    assert target.config["bootstrap.servers"] == brokers
    assert target.where == where


@pytest.mark.parametrize(
    ("url", "topic"),
    [
        ("kafka://one", "outbox.event.order"),
        ("kafka://one/", "outbox.event.order"),
        ("kafka://one/orders", "orders"),
        ("kafka://one/e.{event_type}?linger.ms=5", "e.order_placed"),
        ("kafka://one/e.%7Bevent_type%7D", "e.order_placed"),
    ],
)
def test_the_topic_is_the_path_or_the_usual_one(url: str, topic: str) -> None:
    assert read_url(url, OPTIONS).topic.render(make_message()) == topic


def test_the_topic_may_come_from_the_settings_instead() -> None:
    options = replace(OPTIONS, topic=Template("orders"))
    assert read_url("kafka://one", options).topic.text == "orders"
    with pytest.raises(InvalidDestination, match="keep one"):
        read_url("kafka://one/orders", options)
    with pytest.raises(InvalidDestination, match="no name that Kafka takes"):
        read_url("kafka://one", replace(OPTIONS, topic=Template("a b")))


def test_a_password_needs_tls_unless_the_url_says_otherwise() -> None:
    config = config_of("kafka://us%40er:p%2Fw%C3%BC@one:9093")
    assert config["security.protocol"] == "sasl_ssl"
    assert config["sasl.mechanism"] == "PLAIN"
    assert config["sasl.username"] == "us@er"
    assert config["sasl.password"] == "p/wü"
    config = config_of(
        "kafka://u:p@one?security.protocol=SASL_PLAINTEXT&sasl.mechanisms=SCRAM-SHA-256"
    )
    assert config["security.protocol"] == "SASL_PLAINTEXT"
    assert "sasl.mechanism" not in config


@pytest.mark.parametrize("publish_timeout", [2.0, 3.0, 10.0, 600.0])
def test_the_client_gives_up_well_before_the_worker(publish_timeout: float) -> None:
    config = read_url("kafka://one", replace(OPTIONS, publish_timeout=publish_timeout)).config
    delivery, unknown = config["delivery.timeout.ms"], config["topic.metadata.propagation.max.ms"]
    assert isinstance(delivery, int)
    counting = config["statistics.interval.ms"]
    assert isinstance(unknown, int)
    assert isinstance(counting, int)
    assert delivery >= 500
    assert unknown <= delivery <= publish_timeout * 500
    # It looks once a second for what is late, and the count after that has to be there in time.
    assert delivery + 1000 + counting < publish_timeout * 900


def test_a_time_in_which_it_cannot_be_told_what_became_of_a_message_is_refused() -> None:
    with pytest.raises(InvalidDestination, match="publish_timeout of 2 seconds or more"):
        read_url("kafka://one", replace(OPTIONS, publish_timeout=1.9))


async def test_properties_of_librdkafka_are_passed_on() -> None:
    url = "kafka://127.0.0.1:1?compression.type=zstd&linger.ms=20&client.id=me&batch.size=100000"
    config = config_of(url)
    assert {
        "linger.ms": "20",
        "client.id": "me",
        "compression.type": "zstd",
    }.items() <= config.items()
    assert (config["acks"], config["enable.idempotence"]) == ("all", True)
    await (await open_kafka(url, options=OPTIONS)).close()


@pytest.mark.parametrize("name", [*REFUSED, "error_cb", "oauth_cb", "test.mock.num.brokers"])
def test_a_property_that_is_not_the_urls_to_choose_is_refused(name: str) -> None:
    with pytest.raises(InvalidDestination, match=f"the property '{name}' ") as caught:
        read_url(f"kafka://one?{name}=hunter2", OPTIONS)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("kafka://", "names no host"),
        ("kafka:///orders", "names no host"),
        ("kafka://one,,two", "hosts are not well-formed"),
        ("kafka://one:hunter2", "hosts are not well-formed"),
        ("kafka://one two", "percent-encode them"),
        ("kafka://one/orders#hunter2", "has a fragment"),
        ("kafka:hunter2", "not of the form"),
        ("kafka://hunter2@one", "needs user and password"),
        ("kafka://:hunter2@one", "needs user and password"),
        ("kafka://u:hunter2@one?security.protocol=ssl", "only the security.protocol sasl_ssl"),
        ("kafka://one/a/b", "no name that Kafka takes"),
        ("kafka://one/..", "no name that Kafka takes"),
        ("kafka://one/" + "x" * 250, "no name that Kafka takes"),
        ("kafka://one/{kind}", "the URL's topic knows no field"),
        ("kafka://one/a}b", "the URL's topic has a '}'"),
        ("kafka://one?linger.ms=1&linger.ms=hunter2", "'linger.ms' is given twice"),
        ("kafka://one?partitioner=random", "must not be random"),
        ("kafka://one?no.such=hunter2", "has no property 'no.such'"),
        ("kafka://one?Hunter2=hunter2", "spelled like no property"),
        ("kafka://one?linger.ms=hunter2", "does not take the value of 'linger.ms'"),
        ("kafka://one?debug=hunter2", "does not take the value of 'debug'"),
        ("kafka://one?linger.ms=60000", "does not take the value of 'linger.ms'"),
        (
            "kafka://one?security.protocol=ssl&ssl.ca.location=/hunter2",
            "the file that 'ssl.ca.location' names cannot be read: No such file",
        ),
        (
            "kafka://u:hunter2@one?sasl.mechanism=NONE",
            "does not take the value of 'sasl.mechanism'",
        ),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination) as caught:
        await open_kafka(url, options=OPTIONS)
    assert problem in str(caught.value)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
