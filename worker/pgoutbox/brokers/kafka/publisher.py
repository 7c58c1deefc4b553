"""``kafka://``: one record per message, by librdkafka's idempotent producer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from pgoutbox.brokers.kafka.client import NO_WORD, Client
from pgoutbox.brokers.kafka.errors import REFUSED_TOGETHER, RefusedTogether, buffer_full
from pgoutbox.brokers.kafka.renewal import RenewedClient
from pgoutbox.brokers.kafka.url import ALONE, TOPIC_NAME, patience_of, read_url, refused
from pgoutbox.errors import PermanentError, PublishError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.kafka.client import Batch
    from pgoutbox.brokers.kafka.url import KafkaUrl
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

CE_PREFIX = "ce_"
"""How CloudEvents' binding to Kafka begins the names of headers."""
ROOM = 0.01
"""Seconds until a full buffer is tried again."""
MOST_KINDS = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


async def open_kafka(url: str, /, *, options: PublisherOptions) -> KafkaPublisher:
    """Open ``kafka://[user:password@]host:port[,host:port]/[topic template]?property=value``.

    Properties are librdkafka's. It connects in the background.
    """
    target = read_url(url, options)
    try:
        return KafkaPublisher(target, options)
    except (KafkaException, TypeError, ValueError) as error:
        raise refused(error, target.given, options.destination) from None


class KafkaPublisher:
    """Hands batches to the client, and answers each message by its own delivery report."""

    def __init__(self, target: KafkaUrl, options: PublisherOptions) -> None:
        self._target = target
        self.topic = target.topic
        self._encode = options.wire.encode
        self._by_kind = {"aggregate_type", "event_type"}.issuperset(target.topic.names)
        self._topics: dict[tuple[str, str], str] = {}
        """Names that were made already, where they depend on these two only: for speed."""
        self._answer_within = options.answer_within
        self._patience = patience_of(options)
        self._make_client = partial(Client, where=target.where, fixed_topic=target.topic.fixed)
        self._client = RenewedClient(partial(self._make_client, target.config))
        self._alone: RenewedClient | None = None
        """Sends each record in a request of its own."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Send them all; each has an answer of its own."""
        if not messages:
            return []
        loop = asyncio.get_running_loop()
        latest, until = loop.time() + self._patience, loop.time() + self._answer_within
        answers = await self._send(self._client.get(), messages, until)
        if not any(answers):
            return answers
        together = [i for i, answer in enumerate(answers) if isinstance(answer, RefusedTogether)]
        if together and loop.time() < latest:
            again = await self._send_alone([messages[i] for i in together], until)
            for i, answer in zip(together, again, strict=True):
                answers[i] = answer
        return answers

    async def close(self) -> None:
        """Drop what was not sent. It takes two seconds at most."""
        clients = [self._client] if self._alone is None else [self._client, self._alone]
        await asyncio.gather(*(client.close() for client in clients))

    async def _send(
        self, client: Client, messages: Sequence[ClaimedMessage], until: float
    ) -> list[PublishError | None]:
        batch = client.begin(len(messages))
        begun = 0
        try:
            for index, message in enumerate(messages):
                begun = index
                if not self._hand_over(client, batch, index, message):
                    await self._wait_for_room(client, batch, index, message)
            begun = len(messages)
        finally:
            # Cancelled half-way. What was handed over is sent, or its time ends before ours.
            for index in range(begun, len(messages)):
                batch.refuse(index, NO_WORD)
        loop = asyncio.get_running_loop()
        await asyncio.wait([batch.done], timeout=max(until - loop.time(), 0.0))
        return batch.so_far()

    async def _wait_for_room(
        self, client: Client, batch: Batch, index: int, message: ClaimedMessage
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(ROOM)
            if self._hand_over(client, batch, index, message):
                return
            if loop.time() > batch.began + self._patience:
                batch.refuse(index, buffer_full(self._topic_of(message)))
                return

    def _hand_over(self, client: Client, batch: Batch, index: int, message: ClaimedMessage) -> bool:
        """False where there is no room in the client's buffer."""
        try:
            topic = self._topic_of(message)
        except PermanentError as error:
            batch.refuse(index, error)
            return True
        envelope = self._encode(message, prefix=CE_PREFIX)
        when = (message.created_at - EPOCH) // MILLISECOND
        return client.produce(batch, index, topic, envelope, when)

    def _topic_of(self, message: ClaimedMessage) -> str:
        kind = (message.aggregate_type, message.event_type)
        topic = self._topics.get(kind)
        if topic is not None:
            return topic
        topic = self.topic.render(message)
        if TOPIC_NAME.fullmatch(topic) is None:
            raise PermanentError(
                f"the topic {topic[:80]!r} is no name that Kafka takes: ASCII letters, digits,"
                " dots, underscores and hyphens, at most 249"
            )
        if self._by_kind and len(self._topics) < MOST_KINDS:
            self._topics[kind] = topic
        return topic

    async def _send_alone(
        self, messages: Sequence[ClaimedMessage], until: float
    ) -> Sequence[PublishError | None]:
        """What was refused together with others, each in a request of its own."""
        try:
            # Not after the end of everything.
            self._client.get()
            if self._alone is None:
                config = self._target.config | ALONE
                self._alone = RenewedClient(partial(self._make_client, config, alone=True))
            return await self._send(self._alone.get(), messages, until)
        except (KafkaException, PublishError):
            return [RefusedTogether(REFUSED_TOGETHER)] * len(messages)
