"""A worker outlives the outages of its brokers: it loses nothing, and says nothing untrue."""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support import broker_ends as ends
from tests.support.brokers import aws
from tests.support.brokers.ladder import Address, locked
from tests.support.observing import count, eventually
from tests.support.receiver import Receiver
from tests.support.tcp_proxy import TcpProxy
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.broker_ends import End
    from tests.support.observing import Conn

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

OUTAGE = 60.0
RESUMED = 35.0
"""Seconds after which a broker that is back gets its messages: no pause is longer than 30."""
SETTINGS = {"LEASE__DURATION": "15", "LEASE__RENEW": "5", "DRAIN__SOFT": "5", "DRAIN__GRACE": "15"}
PUBLISH_TIMEOUT = 4.0


class Site:
    """All brokers, each behind a proxy."""

    def __init__(self, conn: Conn, all_ends: Sequence[End], proxies: Sequence[TcpProxy]) -> None:
        self.ends = all_ends
        self.names = [end.name for end in all_ends]
        self._conn = conn
        self._proxies = proxies

    def worker(self, dsn: str) -> WorkerProcess:
        """A worker with one destination for each."""
        settings = dict(SETTINGS)
        for end, proxy in zip(self.ends, self._proxies, strict=True):
            prefix = f"DESTINATIONS__{end.name.upper()}__"
            chosen = end.settings(Address("127.0.0.1", proxy.port))
            chosen = {**chosen, "PUBLISH_TIMEOUT": f"{PUBLISH_TIMEOUT:g}"}
            settings |= {prefix + name: value for name, value in chosen.items()}
        return WorkerProcess(dsn, "noop://", **settings)

    def down(self) -> None:
        for proxy in self._proxies:
            proxy.down()

    def up(self) -> None:
        for proxy in self._proxies:
            proxy.up()

    def freeze(self) -> None:
        for proxy in self._proxies:
            proxy.freeze()

    def hold_answers(self) -> None:
        for proxy in self._proxies:
            proxy.hold_answers()

    def answer_again(self) -> None:
        """On new connections; what was held back is never heard."""
        for proxy in self._proxies:
            proxy.cut()
            proxy.thaw()

    def enqueue(self, number: int) -> None:
        enqueue(self._conn, self.names, number)

    def each(self, condition: str) -> dict[str, int]:
        """How many messages of each destination satisfy it."""
        return {
            name: count(self._conn, f"destination = '{name}' AND ({condition})")
            for name in self.names
        }

    def until_tried_again(self) -> None:
        """Return once something was claimed for each broker after this call."""
        before = self._claims()
        eventually(
            lambda: all(now > before[name] for name, now in self._claims().items()),
            "another try at every broker",
        )

    def _claims(self) -> dict[str, int]:
        query = "SELECT destination, sum(lease_version) FROM outbox GROUP BY destination"
        return dict(self._conn.execute(query).fetchall())

    def ids(self, name: str, condition: str = "true") -> set[str]:
        """The ids of a destination's messages that satisfy it."""
        query = f"SELECT message_id::text FROM outbox WHERE destination = %s AND ({condition})"  # noqa: S608 - the test's own text
        return {row[0] for row in self._conn.execute(query.encode(), [name])}

    def missing(self) -> dict[str, set[str]]:
        """What was finalized as delivered and is not at the broker."""
        lost = {
            end.name: self.ids(end.name, "status = 'done'") - end.arrived() for end in self.ends
        }
        return {name: ids for name, ids in lost.items() if ids}

    def unanswered(self, end: End) -> set[str]:
        """What a consumer has already found, although the broker's word has not come."""
        return end.arrived() - self.ids(end.name, "status = 'done'")

    def until_done(self, patience: float) -> dict[str, float]:
        """Seconds after which each broker's messages were all done, of those that were in time."""
        return self._timed(lambda: self.each("status <> 'done'"), patience)

    def until_more_than(self, done: dict[str, int], patience: float) -> dict[str, float]:
        """Seconds after which each broker had got more than these, of those that were in time."""

        def stuck() -> dict[str, int]:
            now = self.each("status = 'done'")
            return {name: now[name] == before for name, before in done.items()}

        return self._timed(stuck, patience)

    def _timed(self, left: Callable[[], dict[str, int]], patience: float) -> dict[str, float]:
        began, took = time.monotonic(), dict[str, float]()
        while len(took) < len(self.names) and time.monotonic() - began < patience:
            ready = [name for name, number in left().items() if not number and name not in took]
            took |= dict.fromkeys(ready, time.monotonic() - began)
            time.sleep(0.1)
        return took


def enqueue(conn: Conn, names: Sequence[str], number: int) -> None:
    """So many messages for each destination, with their ids in their payloads."""
    rows = [
        (name, "order", "1", "paid", message_id, Jsonb({"id": str(message_id)}))
        for name in names
        for message_id in (uuid.uuid4() for _ in range(number))
    ]
    statement = (
        "INSERT INTO outbox"
        " (destination, aggregate_type, aggregate_id, event_type, message_id, payload)"
        " VALUES (%s, %s, %s, %s, %s, %s)"
    )
    with conn.cursor() as cursor:
        cursor.executemany(statement, rows)


@contextmanager
def producing(dsn: str, names: Sequence[str]) -> Iterator[None]:
    """Two messages a second for each, from a producer of its own: what fakes of AWS can follow."""
    ended = threading.Event()

    def produce() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not ended.wait(0.5):
                enqueue(conn, names, 1)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiving:
        yield receiving


@pytest.fixture
def all_ends(request: pytest.FixtureRequest, receiver: Receiver) -> Iterator[list[End]]:
    """A place at every broker."""
    brokers = [make(request.getfixturevalue(f"{name}_url")) for name, make in ENDS.items()]
    yield [ends.HttpEnd(receiver), *brokers]
    for broker in brokers:
        broker.close()


def kafka_end(url: str) -> ends.KafkaEnd:
    return ends.KafkaEnd(url, *kafka_behind_a_proxy())


def kafka_behind_a_proxy() -> tuple[str, str]:
    """The listener that advertises another address than its own, and that address."""
    behind, proxy = (os.environ.get(f"PGOUTBOX_TEST_KAFKA_{name}") for name in ("BEHIND", "PROXY"))
    if behind is None or proxy is None:
        pytest.fail(
            "Kafka's clients follow the address that a listener advertises. Give the broker a"
            " second listener that advertises a free port, set PGOUTBOX_TEST_KAFKA_BEHIND to where"
            " it listens and PGOUTBOX_TEST_KAFKA_PROXY to what it advertises.",
            pytrace=False,
        )
    return behind, proxy


ENDS: dict[str, Callable[[str], End]] = {
    "kafka": kafka_end,
    "rabbitmq": ends.RabbitmqEnd,
    "nats": ends.NatsEnd,
    "redis": ends.RedisEnd,
    "sqs": ends.SqsEnd,
    "sns": ends.SnsEnd,
    "pubsub": ends.PubsubEnd,
}


@pytest.fixture
def site(conn: Conn, all_ends: Sequence[End], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    aws.use_credentials(monkeypatch)
    with ExitStack() as stack:
        stack.enter_context(locked("kafka-proxy"))
        proxies = [
            stack.enter_context(TcpProxy(end.server, listen_on=end.listen_on)) for end in all_ends
        ]
        yield Site(conn, all_ends, proxies)


def test_brokers_that_are_down_when_the_worker_starts_cost_no_attempts_and_then_get_everything(
    site: Site, dsn: str
) -> None:
    nothing, all_of_them = dict.fromkeys(site.names, 0), dict.fromkeys(site.names, 30)
    site.down()
    site.enqueue(30)
    with site.worker(dsn).started() as worker:
        for name in site.names:
            worker.wait_for("publish failed", destination=name)
        site.until_tried_again()
        assert site.each("status IN ('done', 'dead')") == nothing
        assert site.each("status = 'pending' AND attempts > 0") == nothing
        site.up()
        took = site.until_done(RESUMED)
        assert took.keys() == set(site.names)
        assert site.each("status = 'done'") == all_of_them
        assert worker.stop().code == 0

    assert site.each("attempts <> 1") == nothing
    assert site.missing() == {}
    assert worker.events("lease lost") == []


def test_an_outage_of_a_minute_loses_nothing_and_ends_without_a_restart(
    site: Site, dsn: str
) -> None:
    nothing = dict.fromkeys(site.names, 0)
    with site.worker(dsn).started() as worker:
        with producing(dsn, site.names):
            eventually(lambda: min(site.each("status = 'done'").values()) >= 5, "a flow")
            site.down()
            ends_at = time.monotonic() + OUTAGE
            # What had its broker's word before is written by then.
            time.sleep(PUBLISH_TIMEOUT)
            done = site.each("status = 'done'")
            while time.monotonic() < ends_at:
                assert site.each("status = 'done'") == done
                time.sleep(0.5)
            waiting = site.each("status <> 'done'")
            site.up()
            resumed = site.until_more_than(done, RESUMED)
        assert resumed.keys() == set(site.names)
        assert min(waiting.values()) > OUTAGE  # seconds, at two a second
        assert site.until_done(RESUMED).keys() == set(site.names)
        assert worker.stop().code == 0

    assert site.each("status <> 'done'") == nothing
    assert site.missing() == {}
    assert (worker.events("lease lost"), worker.events("dead letters")) == ([], [])


@pytest.mark.parametrize("connected", [True, False])
def test_brokers_that_never_answer_hold_neither_messages_nor_leases_nor_the_drain(
    site: Site, dsn: str, *, connected: bool
) -> None:
    nothing = dict.fromkeys(site.names, 0)
    with site.worker(dsn).started() as worker:
        if connected:
            site.enqueue(1)
            assert site.until_done(RESUMED).keys() == set(site.names)
        site.freeze()
        site.enqueue(5)
        began = time.monotonic()
        for name in site.names:
            worker.wait_for("publish failed", destination=name)
        assert time.monotonic() - began < 2 * PUBLISH_TIMEOUT
        site.until_tried_again()
        code, seconds = worker.stop()

    assert code == 0
    assert seconds < float(SETTINGS["DRAIN__SOFT"]) + 3.0
    assert site.each("status = 'pending'") == dict.fromkeys(site.names, 5)
    assert site.each("reclaims > 0") == nothing
    assert worker.events("lease lost") == worker.events("lease unconfirmed") == []


def test_what_arrived_while_its_answer_was_lost_is_not_done_until_it_is_sent_again(
    site: Site, dsn: str
) -> None:
    with site.worker(dsn).started() as worker:
        site.enqueue(1)
        assert site.until_done(RESUMED).keys() == set(site.names)
        site.hold_answers()
        site.enqueue(5)
        for name in site.names:
            worker.wait_for("publish failed", destination=name)
        assert site.each("status = 'done'") == dict.fromkeys(site.names, 1)
        assert {end.name for end in site.ends if not site.unanswered(end)} == set()
        site.answer_again()
        assert site.until_done(RESUMED).keys() == set(site.names)
        assert worker.stop().code == 0

    assert site.missing() == {}
    assert worker.events("lease lost") == []
