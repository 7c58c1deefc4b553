"""The three processes of a trace: a shop, a worker, and whoever consumes what it publishes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.support.observing import eventually
from tests.support.receiver import Receiver
from tests.support.spans import Id, Span, tree
from tests.support.workers import ROOT, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from tests.support.brokers.jaeger import Jaeger

WORKER = "pgoutbox"
PATIENCE = 15.0
PATIENT = {
    "DESTINATIONS__ORDERS__PUBLISH_TIMEOUT": "4",
    "DRAIN__SOFT": "5",
    "DRAIN__GRACE": "15",
}
"""A broker that is slow on a busy machine gets no second attempt."""


def otel_environment(endpoint: str, service: str) -> dict[str, str]:
    """Of a process that sends all its spans to a collector, soon."""
    inherited = {name: "" for name in os.environ if name.startswith("OTEL_")}
    return inherited | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_SERVICE_NAME": service,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }


def order(dsn: str, jaeger: Jaeger) -> str:
    """Let the shop take an order; the id of the trace."""
    environment = os.environ | otel_environment(jaeger.otlp, "shop") | {"SHOP_DSN": dsn}
    command = [sys.executable, "-m", "tests.support.shop"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    )
    return done.stdout.strip()


class TracedWorker(WorkerProcess):
    """``pgoutbox run`` for the destination ``orders``, with an exporter of spans."""

    def __init__(self, dsn: str, endpoint: str, **settings: str) -> None:
        """``endpoint``: of the collector. ``settings``: of the destination, in capitals."""
        chosen = {f"DESTINATIONS__ORDERS__{name}": value for name, value in settings.items()}
        super().__init__(dsn, "noop://", **PATIENT, **chosen)
        self._environ |= otel_environment(endpoint, WORKER)


class Consumer:
    """A service that goes on with the traces of what it receives."""

    def __init__(self, jaeger: Jaeger) -> None:
        exporter = OTLPSpanExporter(endpoint=f"{jaeger.otlp}/v1/traces")
        self._provider = TracerProvider(resource=Resource({"service.name": "mailer"}))
        self._provider.add_span_processor(SimpleSpanProcessor(exporter))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()

    def process(self, *headers: Mapping[str, str]) -> None:
        """Make a span for each message; all have been sent when this returns."""
        tracer = self._provider.get_tracer("mailer")
        for carrier in headers:
            context = TraceContextTextMapPropagator().extract(carrier)
            tracer.start_span("process orders", context, SpanKind.CONSUMER).end()


class FarEnd(NamedTuple):
    """A broker that the worker publishes to."""

    settings: dict[str, str]
    """Of the destination."""
    received: Callable[[], list[dict[str, str]]]
    """The headers of every message that is there."""


class Webhook(Receiver):
    """An endpoint that keeps the headers of all requests that it answers well."""

    def __init__(self, *, failures: int = 0) -> None:
        """``failures``: how many of the first attempts at a message are answered with 503."""
        super().__init__()
        self.headers: list[dict[str, str]] = []
        self._failures = failures

    async def _take(self, request: web.Request) -> web.Response:
        failing = int(request.headers["outbox-attempt"]) <= self._failures
        self.status = 503 if failing else 204
        if not failing:
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await super()._take(request)


class Story:
    """One trace, and the spans of workers that it is linked with, as Jaeger knows them."""

    def __init__(self, jaeger: Jaeger, trace_id: str) -> None:
        self._jaeger = jaeger
        self.id = trace_id

    def spans(self) -> list[Span]:
        """Those of the trace itself."""
        return self._jaeger.trace(self.id)

    def others(self) -> list[Span]:
        """Those of other traces with a link to this one, or from it."""
        links = {link for span in self.spans() for link in span.links}
        return [
            span
            for span in self._jaeger.spans_of(WORKER)
            if span.id.trace != self.id and (span.id in links or self._linked(span.links))
        ]

    def until(self, expected: str, *, without: str = "") -> None:
        """Return once the trace is this tree; Jaeger learns of a span after its end.

        ``without``: the name of spans that are left out.
        """

        def found() -> str:
            kept = ([span for span in some if span.name != without] for some in self._all())
            return tree(*kept)

        try:
            eventually(lambda: found() == expected, "the trace", PATIENCE, every=0.1)
        except AssertionError:
            raise AssertionError(f"expected\n{expected}\nand found\n{found()}") from None

    def named(self, name: str) -> Span:
        """The one span of this name, whether it is in the trace or linked with it."""
        (found,) = (span for span in chain(*self._all()) if span.name == name)
        return found

    def until_there(self, name: str) -> None:
        """Return once it has a span of this name."""
        eventually(lambda: any(span.name == name for span in self.spans()), name, every=0.1)

    def _all(self) -> tuple[list[Span], list[Span]]:
        return self.spans(), self.others()

    def _linked(self, links: tuple[Id, ...]) -> bool:
        return any(link.trace == self.id for link in links)
