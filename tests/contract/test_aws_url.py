"""What URLs of SQS and SNS may say."""

from __future__ import annotations

import pytest

from pgoutbox.brokers.aws.url import Place, parse
from pgoutbox.brokers.sns import SNS, open_sns
from pgoutbox.brokers.sqs import SQS
from pgoutbox.errors import InvalidDestination, PermanentError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.template import Template
from tests.support.brokers.aws import standing_in

OPTIONS = PublisherOptions(destination="queues")
ACCOUNT = "123456789012"


def place(url: str, topic: str | None = None) -> Place:
    template = None if topic is None else Template(topic)
    options = PublisherOptions(destination="queues", topic=template)
    return parse(url, SNS if url.startswith("sns") else SQS, options)


@pytest.mark.parametrize(
    ("url", "topic", "account", "name"),
    [
        ("sqs://eu-west-1/orders", None, None, "orders"),
        (f"sqs://eu-west-1/{ACCOUNT}/orders.fifo", None, ACCOUNT, "orders.fifo"),
        (f"sqs://eu-west-1/{ACCOUNT}", None, None, ACCOUNT),
        ("sqs://us-gov-west-1/q-{aggregate_type}.fifo", None, None, "q-{aggregate_type}.fifo"),
        ("sqs://eu-west-1/%7Bheaders[a%23b]%7D", None, None, "{headers[a#b]}"),
        ("sqs://eu-west-1", "orders", None, "orders"),
        (f"sqs://eu-west-1/{ACCOUNT}/", "orders", ACCOUNT, "orders"),
        (f"sns://eu-west-1/{ACCOUNT}/orders", None, ACCOUNT, "orders"),
        (f"sns://eu-west-1/{ACCOUNT}/", "{event_type}", ACCOUNT, "{event_type}"),
    ],
)
def test_a_url_names_region_account_and_queue_or_topic(
    url: str, topic: str | None, account: str | None, name: str
) -> None:
    found = place(url, topic)
    assert found.region == url.split("/")[2]
    assert (found.account, found.name.text) == (account, name)


def test_the_limit_is_the_services_own_unless_the_url_says_otherwise() -> None:
    assert place("sqs://eu-west-1/q").max_bytes == 1_048_576
    assert place(f"sns://eu-west-1/{ACCOUNT}/t").max_bytes == 262_144
    assert place("sqs://eu-west-1/q?max_bytes=262144").max_bytes == 262_144


@pytest.mark.parametrize(
    ("url", "topic", "words"),
    [
        ("sqs://key:hunter2@eu-west-1/q", None, "credentials do not belong in the URL"),
        ("sqs://hunter2/", None, r"names no queue; write sqs://REGION/\[ACCOUNT/\]QUEUE"),
        ("sqs:///q", None, "names no region"),
        ("sqs://eu-west-1:443/q", None, "names no region"),
        ("sqs://sqs.eu-west-1.amazonaws.com/123456789012/q", None, "names no region"),
        ("sqs://[eu-west-1/q", None, "names no region"),
        ("sqs://eu-west-1/q#hunter2", None, "has a fragment"),
        ("sqs://eu-west-1/q", "t", "named in the URL and in the topic setting"),
        ("sqs://eu-west-1/hunter2.q", None, "up to 80 of A-Z a-z 0-9 _ - and may end in .fifo"),
        ("sqs://eu-west-1/a/b", None, "no name of a queue"),
        ("sqs://eu-west-1/" + "q" * 81, None, "no name of a queue"),
        ("sqs://eu-west-1/.fifo", None, "no name of a queue"),
        ("sqs://eu-west-1/.fifo-{aggregate_type}", None, "no name of a queue"),
        ("sqs://eu-west-1", "outbox.{aggregate_type}", "no name of a queue"),
        ("sqs://eu-west-1/{hunter}", None, "knows no field"),
        ("sqs://eu-west-1/q}", None, "without its partner"),
        ("sqs://eu-west-1/q?endpoint_url=ftp://host", None, "endpoint_url is not of the form"),
        ("sqs://eu-west-1/q?endpoint_url=http://a_b", None, "of the form http://HOST:PORT"),
        ("sqs://eu-west-1/q?endpoint_url=http://a:hunter2%40host", None, "without credentials"),
        ("sqs://eu-west-1/q?endpoint_url=http://host:hunter2", None, "endpoint_url is not"),
        ("sqs://eu-west-1/q?max_bytes=1023", None, "between 1024 and 1048576"),
        ("sqs://eu-west-1/q?max_bytes=1048577", None, "between 1024 and 1048576"),
        ("sqs://eu-west-1/q?max_bytes=hunter2", None, "between 1024 and 1048576"),
        ("sqs://eu-west-1/q?region=hunter2", None, "'region' is no option"),
        ("sns://eu-west-1/orders", None, "names no account of 12 digits; write sns://REGION/ACC"),
        (f"sns://eu-west-1/arn:aws:sns:eu-west-1:{ACCOUNT}:t", None, "names no account"),
        (f"sns://eu-west-1/{ACCOUNT}/", None, "names no topic"),
        (f"sns://eu-west-1/{ACCOUNT}/" + "t" * 257, None, "up to 256"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_in_words_that_do_not_repeat_it(
    url: str, topic: str | None, words: str
) -> None:
    with pytest.raises(InvalidDestination, match=words) as caught:
        place(url, topic)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", ".", "a.b", "Zürich", "a/b", "a b", "q\n", "k" * 81, "arn:aws:sqs:x", ".fifo"]
)
def test_a_message_whose_name_aws_does_not_allow_is_refused_for_good(text: str) -> None:
    found = place("sqs://eu-west-1/{event_type}")
    with pytest.raises(PermanentError, match="makes of this message a name that no queue can have"):
        found.name_for(make_message(event_type=text))


def test_a_message_decides_whether_its_queue_is_a_fifo_queue() -> None:
    found = place("sqs://eu-west-1/{event_type}")
    assert found.name_for(make_message(event_type="q.fifo")) == "q.fifo"


@pytest.mark.parametrize(
    ("region", "partition"),
    [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")],
)
async def test_a_topics_arn_is_in_the_partition_of_its_region(region: str, partition: str) -> None:
    async def take(_: str, __: object) -> object:
        return {"Successful": [{"Id": "0", "MessageId": "m"}]}

    with standing_in(take) as client:
        publisher = await open_sns(f"sns://{region}/{ACCOUNT}/t", options=OPTIONS)
        assert list(await publisher.publish_batch([make_message()])) == [None]
    ((operation, request),) = client.requests
    assert operation == "publish_batch"
    assert request["TopicArn"] == f"arn:{partition}:sns:{region}:{ACCOUNT}:t"
