"""``sqs://``: messages to queues of Amazon SQS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pgoutbox.brokers.aws.client import AwsClient
from pgoutbox.brokers.aws.publisher import AwsPublisher, connections
from pgoutbox.brokers.aws.url import Place, Service, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.brokers.aws.message import Entry
    from pgoutbox.publisher import PublisherOptions

SQS = Service(
    name="sqs",
    thing="queue",
    longest_name=80,
    max_bytes=1024 * 1024,
    account_required=False,
)
MOST_URLS = 10_000
"""Queue URLs that are remembered; a template may make a queue of every aggregate."""


async def open_sqs(url: str, /, *, options: PublisherOptions) -> AwsPublisher:
    """Open ``sqs://REGION/[ACCOUNT/]QUEUE``, without connecting to it.

    The queue may be a template, or stand in the topic setting. Without an account it is the
    worker's own.
    """
    place = parse(url, SQS, options)
    client = AwsClient(place, options, connections=connections(options))
    return AwsPublisher(place, options, client, _Queues(client, place))


class _Queues:
    """Sends to queues by their URLs, which it asks for by their names."""

    def __init__(self, client: AwsClient, place: Place) -> None:
        self._client = client
        self._owner = {} if place.account is None else {"QueueOwnerAWSAccountId": place.account}
        self._urls: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[str]] = {}

    async def find(self, name: str) -> str:
        if (known := self._urls.get(name)) is not None:
            return known
        asking = self._asking.get(name)
        if asking is None:
            # One question for all who wait, in a task of its own: whoever asked may be cancelled.
            asking = self._asking[name] = asyncio.ensure_future(self._ask(name))
            asking.add_done_callback(lambda task: self._asked(name, task))
        return await asyncio.shield(asking)

    def _asked(self, name: str, task: asyncio.Task[str]) -> None:
        del self._asking[name]
        # Nobody may be left to look at its error.
        _ = task.cancelled() or task.exception()

    async def _ask(self, name: str) -> str:
        answer = await self._client.call("get_queue_url", QueueName=name, **self._owner)
        if len(self._urls) >= MOST_URLS:
            self._urls.clear()
        url = self._urls[name] = str(answer["QueueUrl"])
        return url

    def forget(self, name: str) -> None:
        self._urls.pop(name, None)

    async def send(self, target: str, entries: Sequence[Entry]) -> Mapping[str, Any]:
        return await self._client.call(
            "send_message_batch",
            QueueUrl=target,
            Entries=[
                {"Id": str(place), "MessageBody": entry.body, **entry.fields}
                for place, entry in enumerate(entries)
            ],
        )
