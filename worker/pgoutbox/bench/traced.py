"""A scenario: what spans cost a worker, by how many of its messages are traced."""

from __future__ import annotations

import contextlib
import os
import socketserver
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.bench.figures import Found
from pgoutbox.bench.seeds import TRACED, sow
from pgoutbox.bench.unordered import scaled
from pgoutbox.bench.workers import IN_FLIGHT, result, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.bench.place import Place

COUNT = 100_000
ROUNDS = 5
MICRO = 1e6
BY = "one worker process with noop://, which sends its spans to a collector that reads them"
EMPTY = b"TRUNCATE outbox"
NO_SDK = 'raise ModuleNotFoundError("it is hidden", name="opentelemetry")\n'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Variant(NamedTuple):
    """``every``: so many messages make one that is sampled, 0 none."""

    every: int = 0
    asked: bool = True
    """The environment names a collector."""
    sdk: bool = True
    """OpenTelemetry's SDK is there."""


VARIANTS = {
    "none": Variant(asked=False),
    "absent": Variant(every=10, sdk=False),
    "off": Variant(),
    "one_percent": Variant(every=100),
    "ten_percent": Variant(every=10),
}


def tracing(place: Place, scale: float) -> Found:
    """100,000 messages with a trace context: no spans, none sampled, 1 % and 10 % of them."""
    count = scaled(COUNT, scale)
    rounds = ROUNDS if scale >= 1 else 1
    speed: dict[str, list[float]] = {name: [] for name in VARIANTS}
    cpu: dict[str, list[float]] = {name: [] for name in VARIANTS}
    names = list(VARIANTS)
    with _collector() as collector, _without_sdk() as hidden:
        for turn in range(rounds):
            # Each is the first one once: a machine is seldom as fast at the end as it was before.
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                measured = _measure(place, count, VARIANTS[name], collector, hidden)
                speed[name].append(measured[0])
                cpu[name].append(measured[1])
    more: dict[str, float | None] = {}
    for name in names:
        more[f"{name}_msgs_per_s"] = median(speed[name])
        more[f"{name}_cpu_us_per_msg"] = median(cpu[name])
        if name != "none":
            more[f"{name}_to_none"] = _ratio(speed[name], speed["none"])
            more[f"{name}_cpu_to_none"] = _ratio(cpu[name], cpu["none"])
    return Found(
        claim_ms_per_100=None,
        msgs_per_s=more["ten_percent_msgs_per_s"],
        by=BY,
        finished=count,
        of=count,
        more=more,
    )


def _ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' own ones: what slows a whole round down is in both."""
    return median(value / other for value, other in zip(values, others, strict=True))


def _measure(
    place: Place, count: int, variant: Variant, collector: _Collector, hidden: str
) -> tuple[float, float]:
    """Messages per second, and microseconds of CPU for one."""
    with place.connect() as conn:
        conn.execute(EMPTY)
    sow(place, (TRACED, {"count": count, "every": variant.every}))
    environ = dict(IN_FLIGHT)
    if variant.asked:
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    if not variant.sdk:
        environ["PYTHONPATH"] = os.pathsep.join([hidden, os.environ.get("PYTHONPATH", "")])
    before = collector.taken
    measured = result(start(place, "noop://", count, environ))
    if measured["finished"] != count:
        raise RuntimeError(f"the worker finished {measured['finished']} of {count} messages")
    sent = variant.every > 0 and variant.sdk and count >= variant.every
    if sent != (collector.taken > before):
        raise RuntimeError(f"{collector.taken - before} bytes of spans came with {variant}")
    return count / measured["seconds"], measured["cpu_seconds"] / count * MICRO


class _Handler(socketserver.StreamRequestHandler):
    """Reads requests and does nothing with them: its own work is not what is measured."""

    server: _Collector

    def handle(self) -> None:
        while self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            self.rfile.read(length)
            self.server.taken += length
            self.wfile.write(ANSWER)


class _Collector(socketserver.ThreadingTCPServer):
    daemon_threads = True
    taken = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def _collector() -> Iterator[_Collector]:
    with _Collector(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@contextlib.contextmanager
def _without_sdk() -> Iterator[str]:
    """A folder for PYTHONPATH in which OpenTelemetry cannot be imported."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "opentelemetry.py").write_text(NO_SDK)
        yield folder
