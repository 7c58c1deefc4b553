"""``sns://``: messages to topics of Amazon SNS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgoutbox.brokers.aws.client import AwsClient
from pgoutbox.brokers.aws.publisher import AwsPublisher, connections
from pgoutbox.brokers.aws.url import Place, Service, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.brokers.aws.message import Entry
    from pgoutbox.publisher import PublisherOptions

SNS = Service(
    name="sns",
    thing="topic",
    longest_name=256,
    max_bytes=256 * 1024,
    account_required=True,
)
PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""By how a region begins; all others are in ``aws``."""


async def open_sns(url: str, /, *, options: PublisherOptions) -> AwsPublisher:
    """Open ``sns://REGION/ACCOUNT/TOPIC``, without connecting to it.

    The topic may be a template, or stand in the topic setting.
    """
    place = parse(url, SNS, options)
    client = AwsClient(place, options, connections=connections(options))
    return AwsPublisher(place, options, client, _Topics(client, place))


class _Topics:
    """Publishes to topics by their ARNs, which region, account and name make up."""

    def __init__(self, client: AwsClient, place: Place) -> None:
        self._client = client
        partition = next(
            (name for start, name in PARTITIONS.items() if place.region.startswith(start)), "aws"
        )
        self._prefix = f"arn:{partition}:sns:{place.region}:{place.account}:"

    async def find(self, name: str) -> str:
        await self._client.ready()
        return self._prefix + name

    def forget(self, name: str) -> None:
        """Nothing is remembered."""

    async def send(self, target: str, entries: Sequence[Entry]) -> Mapping[str, Any]:
        return await self._client.call(
            "publish_batch",
            TopicArn=target,
            PublishBatchRequestEntries=[
                {"Id": str(place), "Message": entry.body, **entry.fields}
                for place, entry in enumerate(entries)
            ],
        )
