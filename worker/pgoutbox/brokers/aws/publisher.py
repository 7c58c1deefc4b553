"""What SQS and SNS have in common: requests of up to ten messages with an answer for each."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pgoutbox.brokers.aws.errors import entry_problem, is_missing, translated
from pgoutbox.brokers.aws.message import Entry, entry_for
from pgoutbox.errors import PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pgoutbox.brokers.aws.client import AwsClient
    from pgoutbox.brokers.aws.url import Place
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

MOST_ENTRIES = 10
MOST_REQUESTS = 50
"""How many requests run at once, whatever the concurrency."""
CONNECTING = 0.5
"""The part of the publish timeout that may pass before the first message is sent."""
ANSWERING = 0.9
"""The part after which we answer for all. Were we cancelled instead, at the whole of it, what is
known of the other requests of the batch would be lost, and their messages sent again."""
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

    answers: list[PublishError | None]
    connected_by: float
    answered_by: float


class AwsPublisher:
    """Sends batches, and keeps apart what became of each message."""

    def __init__(
        self, place: Place, options: PublisherOptions, client: AwsClient, sender: Sender
    ) -> None:
        self._place = place
        self._wire = options.wire
        self._timeout = options.publish_timeout
        self._client = client
        self._sender = sender
        self._slots = asyncio.Semaphore(connections(options))

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """One answer per message, at the latest shortly before the publish timeout."""
        now = asyncio.get_running_loop().time()
        batch = _Batch(
            [None] * len(messages),
            now + self._timeout * CONNECTING,
            now + self._timeout * ANSWERING,
        )
        by_name: dict[str, list[Entry]] = {}
        for position, message in enumerate(messages):
            try:
                name = self._place.name_for(message)
                entry = entry_for(position, message, self._wire.encode(message), name)
                self._check_size(entry)
            except PermanentError as error:
                batch.answers[position] = error
            else:
                by_name.setdefault(name, []).append(entry)
            if len(message.body) > LARGE:
                await asyncio.sleep(0)
        await asyncio.gather(
            *(self._deliver(name, entries, batch) for name, entries in by_name.items())
        )
        return batch.answers

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _check_size(self, entry: Entry) -> None:
        limit = self._place.max_bytes
        if entry.size > limit:
            raise PermanentError(
                f"the message has {entry.size} bytes with its attributes; at most {limit} are taken"
            )

    async def _deliver(self, name: str, entries: Sequence[Entry], batch: _Batch) -> None:
        try:
            async with asyncio.timeout_at(batch.connected_by):
                target = await self._sender.find(name)
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            problem = self._problem(error, name, sent=False)
            for entry in entries:
                batch.answers[entry.position] = problem
            return
        parts = _parts(entries, self._place.max_bytes)
        await asyncio.gather(*(self._send(name, target, part, batch) for part in parts))

    async def _send(self, name: str, target: str, part: Sequence[Entry], batch: _Batch) -> None:
        sent = False
        outcome: Sequence[PublishError | None]
        try:
            async with asyncio.timeout_at(batch.answered_by), self._slots:
                sent = True
                outcome = self._outcome(await self._sender.send(target, part), name, len(part))
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            problem = self._problem(error, name, sent=sent)
            if isinstance(problem, PermanentError) and len(part) > 1:
                # Refused as a whole for the sake of one: alone, each gets the answer that it is
                # due.
                alone = (self._send(name, target, [entry], batch) for entry in part)
                await asyncio.gather(*alone)
                return
            outcome = [problem] * len(part)
        for entry, answer in zip(part, outcome, strict=True):
            batch.answers[entry.position] = answer

    def _problem(self, error: Exception, name: str, *, sent: bool) -> PublishError:
        if is_missing(error):
            self._sender.forget(name)
        return translated(error, self._where(name), sent=sent)

    def _outcome(
        self, response: Mapping[str, Any], name: str, size: int
    ) -> Sequence[PublishError | None]:
        where = self._where(name)
        silence = RetryableError(f"{where}: the answer says nothing about this message")
        outcome: list[PublishError | None] = [silence] * size
        places = {str(place): place for place in range(size)}
        unknown = 0
        for taken in response.get("Successful", ()):
            if (place := places.get(taken.get("Id"))) is None:
                unknown += 1
            else:
                outcome[place] = None
        for failed in response.get("Failed", ()):
            if (place := places.get(failed.get("Id"))) is None:
                unknown += 1
            else:
                outcome[place] = entry_problem(failed, where)
        if unknown:
            log.warning("%s: ignored %d answers for messages that were not sent", where, unknown)
        return outcome

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
