"""The observer and the exporter behind it, from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1 import resource_pb2 as proto
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, ParentBased

from pgoutbox._version import __version__
from pgoutbox.telemetry.tracing import wire
from pgoutbox.telemetry.tracing.attributes import SCHEMA_URL, SCOPE, of_destination
from pgoutbox.telemetry.tracing.collector import collector
from pgoutbox.telemetry.tracing.export import Exporter, limits
from pgoutbox.telemetry.tracing.observer import Tracing
from pgoutbox.telemetry.tracing.samplers import VARIABLE, sampler_problem
from pgoutbox.telemetry.tracing.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.events import Event
    from pgoutbox.telemetry.tracing.attributes import Attributes
    from pgoutbox.telemetry.tracing.context import Stored
    from pgoutbox.telemetry.tracing.observer import Parent

SERVICE = "pgoutbox"
POD = {
    "k8s.pod.name": "POD_NAME",
    "k8s.pod.uid": "POD_UID",
    "k8s.namespace.name": "POD_NAMESPACE",
}
"""Attributes of the resource, and the variables that the downward API fills."""


class Pipeline:
    """Observer of events; what it makes of them is sent on."""

    def __init__(self, tracing: Tracing, exporter: Exporter) -> None:
        self._exporter = exporter
        self.counts = exporter.counts
        self.on_event: Callable[[Event], None] = tracing.on_event

    def start(self) -> None:
        """Begin to send, on the running event loop."""
        self._exporter.start()

    async def close(self, seconds: float) -> None:
        """Send what is left, for at most so long."""
        await self._exporter.close(seconds)


def open_pipeline(
    environ: Mapping[str, str],
    *,
    destinations: Mapping[str, str],
    owner: str,
    slots: int,
    parent: Parent,
) -> Pipeline:
    """As the environment says. Raises ValueError where nothing can be sent like that."""
    exporter = Exporter(collector(environ), frame(resource(environ, owner)), limits(environ))
    spans = Spans(
        exporter.add,
        destinations={name: of_destination(name, url) for name, url in destinations.items()},
        owner=owner,
    )
    tracing = Tracing(spans, slots=slots, parent=parent, decide=sampling(environ))
    return Pipeline(tracing, exporter)


def resource(environ: Mapping[str, str], owner: str) -> Resource:
    """What this process is; what `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say wins."""
    known: dict[str, str] = {
        name: value for name, variable in POD.items() if (value := environ.get(variable, ""))
    }
    pod, namespace = known.get("k8s.pod.name"), known.get("k8s.namespace.name")
    instance = f"{namespace}.{pod}.{SERVICE}" if pod and namespace else f"{owner}.{os.getpid()}"
    ours = Resource(
        {
            "service.name": SERVICE,
            "service.version": __version__,
            "service.instance.id": instance,
            **known,
        }
    )
    return Resource.create(ours.merge(OTELResourceDetector().detect()).attributes)


def frame(resource: Resource) -> Callable[[bytes], bytes]:
    """What stands around the spans of each request."""
    plain: Attributes = {
        name: value
        for name, value in resource.attributes.items()
        if isinstance(value, str | int | float)
    }
    about = wire.encoded(ResourceSpans(resource=proto.Resource(attributes=wire.key_values(plain))))
    scope = wire.encoded(
        ScopeSpans(
            scope=InstrumentationScope(name=SCOPE, version=__version__), schema_url=SCHEMA_URL
        )
    )
    scope_tag = wire.encoded(ResourceSpans(scope_spans=[ScopeSpans()]))[:1]
    resource_tag = wire.encoded(ExportTraceServiceRequest(resource_spans=[ResourceSpans()]))[:1]

    def framed(spans: bytes) -> bytes:
        return wire.delimited(resource_tag, about + wire.delimited(scope_tag, scope + spans))

    return framed


def sampling(environ: Mapping[str, str]) -> Callable[[Stored], bool] | None:
    """The sampler of `OTEL_TRACES_SAMPLER`; None where it follows the stored flag."""
    # The SDK would complain of an unknown one itself, and name no variable.
    if not environ.get(VARIABLE, "").strip() or sampler_problem(environ) is not None:
        return None
    sampler = TracerProvider(shutdown_on_exit=False).sampler
    if isinstance(sampler, ParentBased):
        return None

    def decide(stored: Stored) -> bool:
        trace_id = int.from_bytes(stored.trace_id, "big")
        decision = sampler.should_sample(None, trace_id, "publish").decision
        return decision is Decision.RECORD_AND_SAMPLE

    return decide
