"""Jaeger for tests: where spans are sent to, and what its API tells of them."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import pytest

from tests.support.brokers.ladder import (
    Address,
    container_of,
    free_port,
    from_environment,
    listening,
    nothing,
    program,
    start_process,
    until_listening,
)
from tests.support.spans import Span, spans_in

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "jaegertracing/all-in-one:1.76.0"
QUERY, OTLP = 16686, 4318
SERVERS = (
    "query.http-server",
    "collector.otlp.http",
    "admin.http",
    "query.grpc-server",
    "collector.otlp.grpc",
    "collector.grpc-server",
    "collector.http-server",
)
"""What it opens a port for, each."""
PATIENCE = 60.0
KNOWN = (
    "Set PGOUTBOX_TEST_JAEGER_URL to the query API of one that tests may use, and"
    " PGOUTBOX_TEST_OTLP_URL to where it takes OTLP over HTTP"
)


class Jaeger(NamedTuple):
    """A server that is shared: every trace has an id of its own."""

    url: str
    """Its query API."""
    otlp: str
    """For OTEL_EXPORTER_OTLP_ENDPOINT."""

    def trace(self, trace_id: str) -> list[Span]:
        """All spans of one trace that have arrived so far."""
        try:
            return spans_in(self._get(f"/api/traces/{trace_id}"))
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:
                    raise
            return []

    def spans_of(self, service: str) -> list[Span]:
        """The spans of a service's last traces, whole traces each."""
        asked = urlencode({"service": service, "limit": 500, "lookback": "1h"})
        return spans_in(self._get(f"/api/traces?{asked}"))

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:  # noqa: S310 - ours
            found: dict[str, Any] = json.load(answer)
            return found


@pytest.fixture(scope="session")
def jaeger() -> Iterator[Jaeger]:
    """The server that the environment names, else an own one: installed, or from Docker."""
    given, otlp = from_environment("JAEGER"), from_environment("OTLP")
    if given and otlp:
        yield Jaeger(given, otlp)
    elif (binary := program("jaeger-all-in-one")) is not None:
        with _own(binary) as jaeger:
            yield jaeger
    else:
        with _in_docker() as found:
            if found is None:
                nothing("JAEGER", "put jaeger-all-in-one into your PATH", known=KNOWN)
            yield found


@contextlib.contextmanager
def _own(binary: str) -> Iterator[Jaeger]:
    ports = [free_port() for _ in SERVERS]
    servers = zip(SERVERS, ports, strict=True)
    argv = [binary, *(f"--{name}.host-port=127.0.0.1:{port}" for name, port in servers)]
    query, otlp = (Address("127.0.0.1", port) for port in ports[:2])
    with start_process(argv, lambda: listening(query) and listening(otlp)):
        yield Jaeger(f"http://{query}", f"http://{otlp}")


@contextlib.contextmanager
def _in_docker() -> Iterator[Jaeger | None]:
    with container_of(IMAGE, ports=[QUERY, OTLP]) as container:
        if container is None:
            yield None
            return
        addresses = [
            Address("127.0.0.1", int(container.get_exposed_port(port))) for port in (QUERY, OTLP)
        ]
        for address in addresses:
            until_listening(IMAGE, address, time.monotonic() + PATIENCE)
        query, otlp = addresses
        yield Jaeger(f"http://{query}", f"http://{otlp}")
