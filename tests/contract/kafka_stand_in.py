"""What stands in for librdkafka's producer where a test decides what becomes of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from pgoutbox.brokers.kafka import client as kafka_client

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

TOPIC = "orders"


class Reported:
    """A delivery report's message, as far as it is looked at."""

    def topic(self) -> str:
        return TOPIC


class StandIn:
    """Answers each record as it was told to, at the next poll."""

    def __init__(self, config: dict[str, Any], *, logger: Any) -> None:
        self.config = config
        self._logger = logger
        self.produced: list[dict[str, Any]] = []
        self.answer: KafkaError | None = None
        self.raises: Exception | None = None
        """What `produce` raises."""
        self.fatal: KafkaError | None = None
        """What `poll` raises, once."""
        self.sends = True
        """Requests leave, as the statistics tell."""
        self.counts = True
        """Statistics come, before the reports of the same poll."""
        self.silent = False
        """No report comes, unless by a purge."""
        self.answers_purges = True
        self._purged = False
        self._requests = 0
        self._reports: list[Callable[..., None]] = []

    def produce(self, topic: str, *_: Any, on_delivery: Callable[..., None], **record: Any) -> None:
        if self.raises is not None:
            raise self.raises
        self.produced.append({"topic": topic, **record})
        self._reports.append(on_delivery)

    def poll(self, _: float) -> int:
        self._requests += self.sends
        if self.counts:
            self.config["stats_cb"](f'{{"req": {{"Produce": {self._requests}}}}}')
        if self.fatal is not None:
            error, self.fatal = self.fatal, None
            raise KafkaException(error)
        if self.silent and not self._purged:
            return 0
        reports, self._reports = self._reports, []
        for report in reports:
            report(self.answer, Reported())
        return len(reports)

    def log(self, *words: object) -> None:
        """As librdkafka does from inside `poll`."""
        self._logger.log(*words)

    def purge(self, **_: Any) -> None:
        self._purged = self.answers_purges


def instead_of_producers(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[StandIn], None] = lambda _: None
) -> list[StandIn]:
    """Stand-ins from now on, each as ``prepare`` leaves it; the list of those that were made."""
    made: list[StandIn] = []

    def make(config: dict[str, Any], **rest: Any) -> StandIn:
        stand_in = StandIn(config, **rest)
        prepare(stand_in)
        made.append(stand_in)
        return stand_in

    monkeypatch.setattr(kafka_client, "Producer", make)
    return made
