"""`OTEL_*` alone decides whether there are spans, and whose they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgoutbox.telemetry.tracing.context import Stored
from pgoutbox.telemetry.tracing.pipeline import Pipeline, resource, sampling
from pgoutbox.telemetry.tracing.setup import NoTraces, Traces, open_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _no_otel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("OTEL_", "POD_")):
            monkeypatch.delenv(name)


def opened(environ: dict[str, str]) -> tuple[Traces, list[Any]]:
    with capture_logs() as logs:
        return open_tracing(environ, destinations={"a": "noop://"}, owner="me", slots=1), logs


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        ENDPOINT | {"OTEL_SDK_DISABLED": "True"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        ENDPOINT | {"OTEL_TRACES_SAMPLER": "always_off"},
    ],
)
def test_unless_somebody_asks_for_spans_there_are_none_and_nothing_is_said(
    environ: dict[str, str],
) -> None:
    traces, logs = opened(environ)
    assert isinstance(traces, NoTraces)
    assert logs == []


@pytest.mark.parametrize(
    "environ",
    [
        ENDPOINT,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_SDK_DISABLED": "false"},
    ],
)
def test_an_endpoint_or_an_exporter_asks_for_spans(environ: dict[str, str]) -> None:
    traces, logs = opened(environ)
    assert isinstance(traces, Pipeline)
    assert logs == []


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_what_cannot_be_done_is_said_once_and_stops_no_worker(
    environ: dict[str, str], word: str
) -> None:
    traces, [line] = opened(environ)
    assert isinstance(traces, NoTraces)
    assert line["log_level"] == "warning"
    assert word in line["reason"]


@pytest.mark.parametrize("sampler", ["sometimes", "Always_on_", "jaeger_remote"])
def test_a_sampler_that_nobody_knows_is_named_once_and_the_stored_flag_decides(
    sampler: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    traces, [line] = opened(ENDPOINT | dict(os.environ))
    assert isinstance(traces, Pipeline)
    assert line["log_level"] == "warning"
    for word in ("OTEL_TRACES_SAMPLER", sampler, "parentbased_traceidratio"):
        assert word in line["problem"]
    assert sampling(os.environ) is None
    assert caplog.records == []


@pytest.mark.parametrize("sampler", ["always_on", "Always_On", "traceidratio"])
def test_nothing_is_said_of_a_sampler_that_there_is(
    sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    assert opened(ENDPOINT | dict(os.environ))[1] == []


def test_without_the_sdk_one_warning_says_what_to_install() -> None:
    # In a process of its own: others have imported the SDK here.
    program = (
        "import os, sys; sys.modules['opentelemetry'] = None;"
        "from pgoutbox.telemetry.logs_setup import configure; configure('json');"
        "from pgoutbox.telemetry.tracing.setup import NoTraces, open_tracing;"
        "traces = open_tracing(os.environ, destinations={}, owner='me', slots=1);"
        "sys.exit(type(traces) is not NoTraces)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | ENDPOINT,
        check=True,
        text=True,
        stderr=subprocess.PIPE,
    )
    [line] = map(json.loads, done.stderr.splitlines())
    assert line["level"] == "warning"
    assert "opentelemetry is not installed" in line["reason"]
    assert "pgoutbox[otel]" in line["remedy"]


async def test_a_worker_without_spans_has_their_counters_at_zero() -> None:
    traces, _ = opened({})
    traces.start()
    await traces.close(1.0)
    assert (traces.counts.exported, sum(traces.counts.dropped.values())) == (0, 0)


def test_a_process_outside_kubernetes_is_named_by_its_owner() -> None:
    said = resource({}, "me").attributes
    assert said["service.name"] == "pgoutbox"
    assert said["service.instance.id"] == f"me.{os.getpid()}"
    assert not any(name.startswith("k8s.") for name in said)


def test_a_pod_is_named_by_what_the_downward_api_says() -> None:
    pod = {"POD_NAME": "w-0", "POD_UID": "u-1", "POD_NAMESPACE": "shop"}
    assert (
        resource(pod, "me").attributes.items()
        >= {
            "k8s.pod.name": "w-0",
            "k8s.pod.uid": "u-1",
            "k8s.namespace.name": "shop",
            "service.instance.id": "shop.w-0.pgoutbox",
        }.items()
    )


def test_what_the_variables_of_opentelemetry_say_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=theirs,team=a")
    said = resource({"POD_NAME": "w-0", "POD_UID": "u-1"}, "me").attributes
    assert (
        said.items()
        >= {
            "service.name": "mine",
            "k8s.pod.name": "theirs",
            "k8s.pod.uid": "u-1",
            "team": "a",
        }.items()
    )


@pytest.mark.parametrize("sampler", ["", "parentbased_always_on", "parentbased_traceidratio"])
def test_a_sampler_that_follows_the_parent_needs_the_flag_alone(
    sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.1")
    assert sampling(os.environ) is None


def test_a_ratio_without_parents_decides_by_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    decide = sampling(os.environ)
    assert decide is not None
    low, high = bytes(15) + b"\1", b"\xff" * 16
    assert [decide(Stored(trace, bytes(8))) for trace in (low, high)] == [True, False]
