"""What SQS and SNS have in common: requests of up to ten messages with an answer for each."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pgoutbox.brokers.answers import Answers, Refused
from pgoutbox.brokers.aws.errors import NOT_VALID, entry_problem, is_missing, translated
from pgoutbox.brokers.aws.message import Entry, entry_for
from pgoutbox.errors import PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pgoutbox.brokers.aws.client import AwsClient
    from pgoutbox.brokers.aws.url import Place
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

MOST_ENTRIES = 10
MOST_REQUESTS = 10
"""How many requests run at once, whatever the concurrency. Of ten messages each, at AWS's usual
10 to 20 ms they carry thousands a second; more of them only overrun an endpoint that is slow."""
LARGE = 64 * 1024
"""Bytes of a payload after which the event loop gets a turn."""

log = logging.getLogger(__name__)


def connections(options: PublisherOptions) -> int:
    """How many requests this destination may run at once."""
    return max(1, min(options.concurrency, MOST_REQUESTS))


class Sender(Protocol):
    """One service's way to address and to send. Raises what the client raises."""

    async def find(self, name: str) -> str:
        """What requests call the queue or topic of this name. Sends no message."""
        ...

    def forget(self, name: str) -> None:
        """It was not there: look again next time."""
        ...

    async def send(self, target: str, entries: Sequence[Entry]) -> Mapping[str, Any]:
        """One request; the ids of its entries are their places in ``entries``."""
        ...


class _Batch(NamedTuple):
    """A batch that is under way, with the moments of the loop's clock that limit it."""

    answers: Answers
    began: float
    connected_by: float
    answered_by: float


class AwsPublisher:
    """Sends batches, and keeps apart what became of each message."""

    def __init__(
        self, place: Place, options: PublisherOptions, client: AwsClient, sender: Sender
    ) -> None:
        self._place = place
        self.topic = place.name
        self._wire = options.wire
        self._connect_within = options.connect_within
        self._answer_within = options.answer_within
        self._client = client
        self._sender = sender
        self._slots = asyncio.Semaphore(connections(options))
        self._answered = 0.0
        """When there was last an answer, by the loop's clock."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """One answer per message, at the latest shortly before the publish timeout."""
        now = asyncio.get_running_loop().time()
        answers = Answers(len(messages))
        batch = _Batch(answers, now, now + self._connect_within, now + self._answer_within)
        by_name: dict[str, list[Entry]] = {}
        for position, message in enumerate(messages):
            try:
                name, entry = self._prepared(position, message)
            except PermanentError as error:
                answers.failed(position, error)
            else:
                by_name.setdefault(name, []).append(entry)
            if len(message.body) > LARGE:
                await asyncio.sleep(0)
        await asyncio.gather(
            *(self._deliver(name, entries, batch) for name, entries in by_name.items())
        )
        return answers.whole()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _prepared(self, position: int, message: ClaimedMessage) -> tuple[str, Entry]:
        name = self._place.name_for(message)
        entry = entry_for(position, message, self._wire.encode(message), name)
        limit = self._place.max_bytes
        if entry.size > limit:
            raise PermanentError(
                f"the message has {entry.size} bytes with its attributes; at most {limit} are taken"
            )
        return name, entry

    async def _deliver(self, name: str, entries: Sequence[Entry], batch: _Batch) -> None:
        try:
            async with asyncio.timeout_at(batch.connected_by):
                target = await self._sender.find(name)
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            problem = self._problem(error, name, sent=False)
            for entry in entries:
                batch.answers.failed(entry.position, problem)
            return
        parts = _parts(entries, self._place.max_bytes)
        await asyncio.gather(*(self._send(name, target, part, batch) for part in parts))
        batch.answers.settle(
            [each.position for each in entries], f"{self._where(name)}: {NOT_VALID}"
        )

    async def _send(self, name: str, target: str, part: Sequence[Entry], batch: _Batch) -> None:
        sent = False
        try:
            async with asyncio.timeout_at(batch.answered_by), self._slots:
                sent = True
                response = await self._sender.send(target, part)
                self._answered = asyncio.get_running_loop().time()
                self._read(response, name, part, batch.answers)
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            problem = self._problem(error, name, sent=sent)
            if isinstance(problem, (PermanentError, Refused)) and len(part) > 1:
                # Refused as a whole, perhaps for the sake of one: alone, each gets the answer that
                # it is due.
                alone = (self._send(name, target, [entry], batch) for entry in part)
                await asyncio.gather(*alone)
                return
            if not sent and self._answered > batch.began:
                words = "it is slower than it is sent messages; nothing was sent"
                problem = RetryableError(f"{self._where(name)}: {words}", throttled=True)
            for entry in part:
                batch.answers.failed(entry.position, problem)

    def _problem(self, error: Exception, name: str, *, sent: bool) -> PublishError:
        if is_missing(error):
            self._sender.forget(name)
        return translated(error, self._where(name), sent=sent)

    def _read(
        self, response: Mapping[str, Any], name: str, part: Sequence[Entry], answers: Answers
    ) -> None:
        where = self._where(name)
        positions = {str(place): entry.position for place, entry in enumerate(part)}
        for position in positions.values():
            silence = RetryableError(f"{where}: the answer says nothing about this message")
            answers.failed(position, silence)
        unknown = 0
        for taken in response.get("Successful", ()):
            if (place := positions.get(taken.get("Id"))) is None:
                unknown += 1
            elif taken.get("MessageId"):
                answers.taken(place)
        for failed in response.get("Failed", ()):
            if (place := positions.get(failed.get("Id"))) is None:
                unknown += 1
            else:
                answers.failed(place, entry_problem(failed, where))
        if unknown:
            log.warning("%s: ignored %d answers for messages that were not sent", where, unknown)

    def _where(self, name: str) -> str:
        return f"{self._place.service.thing} {name} in {self._place.region}"


def _parts(entries: Iterable[Entry], max_bytes: int) -> Iterator[Sequence[Entry]]:
    """Split by what one request may hold. None of the entries is too large for one."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and (len(part) == MOST_ENTRIES or size + entry.size > max_bytes):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part
