"""Spans as Jaeger tells of them, and a trace as an indented text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Id(NamedTuple):
    """Which span, of which trace; both in hexadecimal digits."""

    trace: str
    span: str


@dataclass(frozen=True)
class Span:
    """One span that has ended."""

    id: Id
    name: str
    service: str
    parent: Id | None
    links: tuple[Id, ...]
    start: int
    """Microseconds since the epoch."""
    tags: Mapping[str, Any]
    events: tuple[str, ...]
    """Their names."""
    resource: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """``server``, ``producer``, ``client``, ``consumer`` or ``internal``."""
        return str(self.tags.get("span.kind", "internal"))

    def __str__(self) -> str:
        parts = [f"{self.name} [{self.service}, {self.kind}]"]
        if (attempt := self.tags.get("outbox.attempt")) is not None:
            parts.append(f"attempt {attempt}")
        if self.tags.get("error"):
            parts.append(f"error {self.tags.get('error.type', '')}".rstrip())
        parts.extend(self.events)
        return ", ".join(parts)


def spans_in(answer: Mapping[str, Any]) -> list[Span]:
    """All spans of an answer of Jaeger's query API, the oldest first."""
    spans = [
        _span(found, trace["processes"])
        for trace in answer["data"] or []
        for found in trace["spans"]
    ]
    return sorted(spans, key=lambda span: (span.start, span.id))


def _span(found: Mapping[str, Any], processes: Mapping[str, Any]) -> Span:
    process = processes[found["processID"]]
    parents, links = (
        [Id(ref["traceID"], ref["spanID"]) for ref in found["references"] if ref["refType"] == kind]
        for kind in ("CHILD_OF", "FOLLOWS_FROM")
    )
    return Span(
        id=Id(found["traceID"], found["spanID"]),
        name=found["operationName"],
        service=process["serviceName"],
        parent=parents[0] if parents else None,
        links=tuple(links),
        start=found["startTime"],
        tags=_values(found["tags"]),
        events=tuple(str(_values(log["fields"]).get("event")) for log in found["logs"] or []),
        resource=_values(process["tags"]),
    )


def _values(pairs: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    return {pair["key"]: pair["value"] for pair in pairs or []}


def tree(trace: Iterable[Span], others: Iterable[Span] = ()) -> str:
    """The trace, a line for each span, indented below its parent.

    Below a span stand, after ``->``, the spans that it links to, and after ``<-`` those of
    ``others`` that link to it. A parent that is missing is told as such.
    """
    spans, strangers = list(trace), list(others)
    known = {span.id: span for span in [*spans, *strangers]}
    children: dict[Id | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)

    def lines(parent: Id | None, depth: int) -> Iterable[str]:
        for span in children.get(parent, []):
            indent = "  " * depth
            yield f"{indent}{span}"
            for link in span.links:
                yield f"{indent}  -> {known.get(link, 'an unknown span')}"
            for other in strangers:
                if span.id in other.links:
                    yield f"{indent}  <- {other}"
            yield from lines(span.id, depth + 1)

    text = list(lines(None, 0))
    for missing in children.keys() - known.keys() - {None}:
        text += ["(a parent that is missing)", *lines(missing, 1)]
    return "\n".join(text)
