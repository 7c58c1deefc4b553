"""One librdkafka producer, served by the event loop.

Delivery reports run inside `poll`. A thread for it would fight the event loop for the interpreter
lock, report by report; so the event loop polls, every millisecond while something is on its way.
"""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from pgoutbox.brokers import answers
from pgoutbox.brokers.kafka.errors import (
    NO_TROUBLE,
    PRODUCE_ERRORS,
    REFUSED_TOGETHER,
    SILENCE,
    TOGETHER,
    RefusedTogether,
    hint,
    is_fatal,
    translated,
    trouble,
)
from pgoutbox.brokers.kafka.log import LOGGER, Words
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from pgoutbox.brokers.kafka.url import Config
    from pgoutbox.wire.envelope import Envelope

QUICK = 0.001
"""Seconds between two polls while reports come in."""
SLOW = 0.05
"""Seconds between two polls while reports are awaited and none comes."""
IDLE = 1.0
"""Seconds between two polls while nothing is on its way."""
PURGING = 0.5
"""Seconds that reports of what was purged may take."""
CLOSING = 1.0
"""Seconds that the client's threads may take to end."""

SILENT = 60.0
"""Seconds for which the log does not repeat what an answer told."""

NO_WORD = RetryableError("the client was closed before the answer")
LATE = RetryableError("no answer in time")

_PRODUCE_REQUESTS = re.compile(r'"Produce": ?(\d+)')


class Batch:
    """The answers to some records, as their delivery reports come in."""

    __slots__ = ("_answers", "_client", "began", "delivered", "done", "left")

    def __init__(self, client: Client, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self._answers = answers.Answers(size, NO_WORD)
        self.began = loop.time()
        self.left = size
        self.delivered = False
        """Whether one of them was taken."""
        self.done: asyncio.Future[None] = loop.create_future()
        self._client = client

    def report(self, index: int, error: KafkaError | None, message: Message) -> None:
        """Called from inside `poll`, where nothing may be raised."""
        if error is None:
            self.delivered = True
            self._answers.taken(index)
            self._count()
        else:
            self._client.failed(self, index, error, message.topic() or "")

    def refuse(self, index: int, answer: PublishError) -> None:
        """It was not taken, or not even handed over."""
        self._answers.failed(index, answer)
        self._count()

    def so_far(self) -> list[PublishError | None]:
        """What is known by now; reports that come later change nothing in it."""
        if not self.done.done():
            self._answers.rest(LATE)
        return self._answers.whole()

    def end(self) -> None:
        """Wake whoever waits; what has no report keeps the answer that it began with."""
        self._client.ended(self)
        # Whoever waited may have been cancelled.
        if not self.done.done():
            self.done.set_result(None)

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.end()


class Client:
    """Hands records over and counts their reports. Raises what librdkafka does not take."""

    def __init__(
        self, config: Config, *, where: str, fixed_topic: bool, alone: bool = False
    ) -> None:
        self.fatal: str | None = None
        """The name of the error after which nothing will be taken any more."""
        self.delivered = False
        """Whether it ever worked."""
        self._where = where
        self._fixed_topic = fixed_topic
        self._alone = alone
        """Each request holds one record, so that an answer to it is about that record."""
        self._loop = asyncio.get_running_loop()
        self._open: set[Batch] = set()
        self._doubtful: list[tuple[Batch, int, PublishError]] = []
        """Records that ended without a word, until it is known whether a request left."""
        self._trouble = NO_TROUBLE
        self._told_at = -SILENT
        """When an answer told of it last."""
        self._requests = 0
        self._quiet_since = self._loop.time()
        self._delay = QUICK
        callbacks = {"error_cb": self._on_error, "stats_cb": self._on_statistics}
        words = Words(told=self._is_told, heard=self._heard)
        self._producer: Producer | None = Producer({**config, **callbacks}, logger=words)
        self._timer = self._loop.call_later(IDLE, self._tick)

    def begin(self, size: int) -> Batch:
        """The answers to ``size`` records, at least one, that are handed over next."""
        batch = Batch(self, size, self._loop)
        self._open.add(batch)
        if len(self._open) == 1 or self._delay > QUICK:
            self._hurry()
        return batch

    def produce(self, batch: Batch, index: int, topic: str, envelope: Envelope, when: int) -> bool:
        """Hand one record over; False where the client's buffer is full. Never blocks."""
        if self._producer is None:
            batch.refuse(index, DestinationUnavailable("the publisher is closed"))
            return True
        try:
            self._producer.produce(
                topic,
                envelope.body,
                envelope.key,
                on_delivery=partial(batch.report, index),
                timestamp=when,
                headers=[*envelope.headers, ("content-type", envelope.content_type)],
            )
        except BufferError:
            return False
        except KafkaException as exception:
            error = exception.args[0]
            if is_fatal(error):
                self._die(error)
            batch.refuse(index, translated(error, topic, fixed=self._fixed_topic))
        except Exception as error:  # noqa: BLE001 - it is answered for, and logged
            batch.refuse(index, answers.translated(error, PRODUCE_ERRORS, f"topic {topic!r}"))
        return True

    def failed(self, batch: Batch, index: int, error: KafkaError, topic: str) -> None:
        """Answer for a record by what its delivery report says."""
        if is_fatal(error):
            self._die(error)
        answer = translated(error, topic, fixed=self._fixed_topic)
        if error.code() in SILENCE and self._quiet_since <= batch.began:
            # The requests were counted last before it ended. The next count tells.
            self._doubtful.append((batch, index, answer))
        elif error.code() in TOGETHER and not self._alone:
            batch.refuse(index, RefusedTogether(REFUSED_TOGETHER))
        else:
            batch.refuse(index, answer)

    def ended(self, batch: Batch) -> None:
        """No more reports are awaited for it."""
        self._open.discard(batch)
        if batch.delivered:
            self.delivered = True
            self._trouble = NO_TROUBLE

    async def close(self) -> None:
        """Send nothing more, answer what is open, and let the client's threads end."""
        if self._producer is None:
            return
        self._producer.purge(blocking=False)
        if waiting := [batch.done for batch in self._open]:
            self._hurry()
            await asyncio.wait(waiting, timeout=PURGING)
        self._timer.cancel()
        for batch in list(self._open):
            batch.end()
        await self._destroy()

    async def _destroy(self) -> None:
        """It joins threads that may be looking up a name: in a daemon, abandoned if need be."""
        if self._producer is None:
            return
        ended = self._loop.create_future()
        box = [self._producer]
        self._producer = None

        def destroy() -> None:
            box.clear()
            with suppress(RuntimeError):  # the loop has ended before
                self._loop.call_soon_threadsafe(ended.cancel)

        threading.Thread(target=destroy, name="pgoutbox-kafka-end", daemon=True).start()
        await asyncio.wait([ended], timeout=CLOSING)

    def _hurry(self) -> None:
        self._delay = QUICK
        self._timer.cancel()
        self._timer = self._loop.call_later(QUICK, self._tick)

    def _tick(self) -> None:
        if self._producer is None:
            return
        served = 0
        try:
            served = self._producer.poll(0)
        except KafkaException as exception:
            # How a fatal error is told, whatever the callback for errors says.
            self._on_error(exception.args[0])
        finally:
            # Whatever happens: without a next time nothing would ever be answered again.
            self._delay = QUICK if served else min(self._delay * 1.5, SLOW)
            delay = self._delay if self._open else IDLE
            self._timer = self._loop.call_later(delay, self._tick)

    def _on_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._die(error)
        else:
            self._trouble = trouble(error) or self._trouble

    def _heard(self, words: str) -> None:
        """Some causes are nowhere but in the client's log."""
        self._trouble = hint(words) or self._trouble

    def _is_told(self) -> bool:
        """Whether answers tell why there is no connection, or did so a moment ago."""
        recently = self._loop.time() - self._told_at < SILENT
        return not self.delivered and (recently or bool(self._open))

    def _on_statistics(self, text: str) -> None:
        """Note since when no request with records has left: what came later was never sent."""
        # The brokers come first; what follows may be a megabyte about partitions.
        brokers, _, _ = text.partition('"topics":')
        requests = sum(map(int, _PRODUCE_REQUESTS.findall(brokers)))
        if requests != self._requests:
            self._requests = requests
            self._quiet_since = self._loop.time()
        words = f"{self._where}: {self._trouble}; nothing was sent"
        doubtful, self._doubtful = self._doubtful, []
        if doubtful:
            self._told_at = self._loop.time()
        for batch, index, answer in doubtful:
            unsent = self._quiet_since <= batch.began
            batch.refuse(index, DestinationUnavailable(words) if unsent else answer)

    def _die(self, error: KafkaError) -> None:
        if self.fatal is None:
            self.fatal = error.name()
            LOGGER.error("the client for %s has ended: %s", self._where, self.fatal)
            # What it still holds is answered now, and not when its time is over.
            if self._producer is not None:
                self._producer.purge(blocking=False)
