"""Whether spans are made and sent: `OTEL_*` decides, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import structlog

from pgoutbox.telemetry.tracing.counts import SpanCounts
from pgoutbox.telemetry.tracing.samplers import sampler_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.events import Event
    from pgoutbox.problem import Problem

REMEDY = "pip install 'pgoutbox[otel]', or in a clone of it: pip install '.[otel]'"


class Traces(Protocol):
    """An observer of events that sends what it makes of them."""

    counts: SpanCounts

    def on_event(self, event: Event) -> None:
        """Take note of the event."""
        ...

    def start(self) -> None:
        """Begin to send, on the running event loop."""
        ...

    async def close(self, seconds: float) -> None:
        """Send what is left, for at most so long."""
        ...


class NoTraces:
    """None are wanted, or none can be sent."""

    def __init__(self) -> None:
        self.counts = SpanCounts()

    def on_event(self, event: Event) -> None:
        """Nothing to make."""

    def start(self) -> None:
        """Nothing to begin."""

    async def close(self, seconds: float) -> None:
        """Nothing to send."""


def open_tracing(
    environ: Mapping[str, str],
    *,
    destinations: Mapping[str, str],
    owner: str,
    slots: int,
    parent: Literal["creation", "batch"] = "creation",
) -> Traces:
    """What makes the spans and sends them, if any are wanted.

    ``destinations``: their URLs by name. ``slots``: how many messages are held at once.

    A warning says what is in the way of what is wanted. Nothing that is wrong here keeps messages
    from being delivered.
    """
    seen = outlook(environ)
    _warn(seen)
    if not seen.where:
        return NoTraces()
    from pgoutbox.telemetry.tracing.pipeline import open_pipeline  # noqa: PLC0415 - optional

    try:
        return open_pipeline(
            environ, destinations=destinations, owner=owner, slots=slots, parent=parent
        )
    except ValueError as error:
        _warn(Outlook(reason=str(error)))
        return NoTraces()


class Outlook(NamedTuple):
    """Where spans would go; else why not. Nothing of it where none are wanted."""

    where: str = ""
    reason: str = ""
    remedy: str = ""
    sampler: Problem | None = None
    """The one that is named is not known, which keeps no span from its way."""


def outlook(environ: Mapping[str, str]) -> Outlook:
    """What the environment asks for, and whether it can be done. Asks no collector."""
    if not wanted(environ):
        return Outlook()
    if problem := _problem(environ):
        return Outlook(reason=problem)
    try:
        import pgoutbox.telemetry.tracing.pipeline  # noqa: F401, PLC0415 - optional
        from pgoutbox.telemetry.tracing.collector import collector  # noqa: PLC0415
        from pgoutbox.telemetry.tracing.export import limits  # noqa: PLC0415
    except ImportError as error:
        missing = (error.name or "a module").partition(".")[0]
        reason = f"the environment asks for it, and the package {missing} is not installed"
        return Outlook(reason=reason, remedy=REMEDY)
    try:
        limits(environ)
        return Outlook(where=collector(environ).where, sampler=sampler_problem(environ))
    except ValueError as error:
        return Outlook(reason=str(error))


def _warn(seen: Outlook) -> None:
    log = structlog.get_logger()
    if seen.reason:
        remedy = {"remedy": seen.remedy} if seen.remedy else {}
        log.warning("tracing is off", reason=seen.reason, **remedy)
    if seen.sampler is not None:
        log.warning("the sampler of spans is not known", problem=str(seen.sampler))


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether somebody says where spans are to go. Unasked nothing looks for a collector."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = _exporters(environ)
    if "none" in exporters or environ.get("OTEL_TRACES_SAMPLER", "").strip() == "always_off":
        return False
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(exporters) or any(environ.get(name, "").strip() for name in names)


def _exporters(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")
    return [name.strip() for name in named if name.strip()]


def _problem(environ: Mapping[str, str]) -> str:
    exporters = _exporters(environ)
    if exporters and exporters != ["otlp"]:
        return "OTEL_TRACES_EXPORTER may be 'otlp' or 'none' here"
    protocol = (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "").strip()
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
        or "http/protobuf"
    )
    if protocol != "http/protobuf":
        return (
            "OTEL_EXPORTER_OTLP_PROTOCOL may be 'http/protobuf' here; collectors listen for it"
            " at port 4318"
        )
    return ""
