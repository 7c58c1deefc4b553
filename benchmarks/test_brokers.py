"""One worker and a real broker on this machine: `make bench-brokers`.

Each broker's client alone, and a worker that publishes by it, take turns; the ratios are of the
medians. What brokers are faster at than PostgreSQL is compared with the SQL floor instead.
"""

# ruff: noqa: INP001, D103, S101, S603, T201 - a test: its name says it, and it prints a table

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import aiormq
import nats
import pytest

from pgoutbox.bench.floor import floor
from pgoutbox.bench.place import Place, place
from pgoutbox.bench.workers import result, start
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.brokers.kafka import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("PGOUTBOX_TEST_BENCH_ROUNDS", "3"))
SCALE = float(os.environ.get("PGOUTBOX_TEST_BENCH_SCALE", "1"))
SIZE = 500
PATIENCE = 240.0


class Case(NamedTuple):
    """A broker, how many messages, and how many may be on their way."""

    broker: str
    messages: int
    in_flight: int
    against: str
    """``bare``: the client alone. ``floor``: claim and finalize without a publish."""
    at_least: float


CASES = (
    Case("http", 10_000, 50, "bare", 0.7),
    Case("rabbitmq", 20_000, 200, "bare", 0.7),
    Case("nats", 30_000, 200, "bare", 0.7),
    Case("kafka", 100_000, 1500, "floor", 0.6),
    Case("redis", 100_000, 1500, "floor", 0.5),
)


class Target(NamedTuple):
    """Where one broker's messages go."""

    url: str
    topic: str


@pytest.fixture
def target(request: pytest.FixtureRequest, case: Case) -> Iterator[Target]:
    if case.broker == "http":
        with _sink() as where:
            yield Target(where, "")
        return
    url: str = request.getfixturevalue(f"{case.broker}_url")
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    if case.broker == "kafka":
        create_topic(url, topic)
    else:
        asyncio.run(_prepare(case, Target(url, topic)))
    yield Target(url, topic)


@contextlib.contextmanager
def _sink() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def somewhere() -> Iterator[Place]:
    server = EmbeddedServer()
    try:
        server.start()
        with place(server.dsn) as found:
            yield found
    finally:
        server.remove()


async def _prepare(case: Case, target: Target) -> None:
    match case.broker:
        case "rabbitmq":
            connection = await aiormq.connect(target.url)
            channel = await connection.channel()
            await channel.queue_declare(target.topic, durable=True)
            await connection.close()
        case "nats":
            client = await nats.connect(target.url)
            await client.jetstream().add_stream(name=target.topic, subjects=[target.topic])
            await client.close()


@pytest.mark.parametrize("case", CASES, ids=[case.broker for case in CASES])
def test_a_worker_is_as_fast_as_it_has_to_be(case: Case, target: Target, somewhere: Place) -> None:
    count = max(int(case.messages * SCALE), 2000)
    figures: dict[str, list[float]] = {"bare": [], "worker": [], "floor": [], "cpu_us": []}
    for _ in range(ROUNDS):
        figures["bare"].append(_bare(case, target, count))
        somewhere.seed(count, SIZE)
        figures["floor"].append(floor(somewhere, count))
        somewhere.seed(count, SIZE)
        worker = _worker(case, target, somewhere, count)
        assert worker["finished"] == count
        figures["worker"].append(worker["finished"] / worker["seconds"])
        figures["cpu_us"].append(worker["cpu_seconds"] / worker["finished"] * 1e6)
    found = {name: median(values) for name, values in figures.items()}
    ratio = found["worker"] / found[case.against]
    print(
        f"\n{case.broker:<9} worker {found['worker']:>8,.0f}/s"
        f"  client alone {found['bare']:>8,.0f}/s"
        f"  floor {found['floor']:>8,.0f}/s  CPU {found['cpu_us']:>4.0f} us"
        f"  {ratio:.2f} of {case.against} (>= {case.at_least:g})"
        f"  rounds {[round(value) for value in figures['worker']]}"
    )
    assert ratio >= case.at_least


def _bare(case: Case, target: Target, count: int) -> float:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.bare"),
            *(case.broker, target.url, target.topic, str(count), str(case.in_flight)),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return float(ended.stdout)


def _worker(case: Case, target: Target, somewhere: Place, count: int) -> dict[str, Any]:
    settings = {
        # Beside what is published, what is claimed and what is finalized: some milliseconds' worth.
        "PGOUTBOX_MAX_IN_FLIGHT": str(max(3 * case.in_flight, 400)),
        "PGOUTBOX_DESTINATIONS__DEFAULT__CONCURRENCY": str(case.in_flight),
    }
    if target.topic:
        settings["PGOUTBOX_DESTINATIONS__DEFAULT__TOPIC"] = target.topic
    return result(start(somewhere, target.url, count, settings))
