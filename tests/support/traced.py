"""Events of one worker into spans, without a worker."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from pgoutbox.events import Claimed, Finalized, Settled
from pgoutbox.outcome import Finish, Published, Retry, RetryableFailure
from pgoutbox.telemetry.tracing.attributes import of_destination
from pgoutbox.telemetry.tracing.observer import Parent, Tracing
from pgoutbox.telemetry.tracing.spans import Spans
from pgoutbox.testing import make_message
from tests.support.otlp import headers, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.events import Event, Refused
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome, Transition
    from pgoutbox.telemetry.tracing.context import Stored

LATER = RetryableFailure("no route to host"), Retry(1.0, "no route to host")
URL = "kafka://user:secret@broker:9092/topic"


def created(trace: int, span: int = 1, flags: str = "01", **fields: Any) -> ClaimedMessage:
    """A message whose producer had this context."""
    fields = {"id": 100 * trace + span, "destination": "orders"} | fields
    return make_message(**({"headers_json": headers(trace, span, flags)} | fields))


def untraced(number: int, **others: str) -> ClaimedMessage:
    """A message of no trace."""
    return make_message(id=number, destination="orders", headers_json=json.dumps(others))


class Traced:
    """An observer and what it made."""

    def __init__(
        self,
        parent: Parent = "creation",
        decide: Callable[[Stored], bool] | None = None,
        url: str = URL,
        slots: int = 50,
    ) -> None:
        self.spans: list[Span] = []
        self.now = 0.0
        """Of the clock by which it loses patience, in seconds."""
        destinations = {"orders": of_destination("orders", url)}
        made = Spans(self._add, destinations=destinations, owner="pod-1")
        self._tracing = Tracing(
            made, slots=slots, parent=parent, decide=decide, clock=lambda: self.now
        )

    def _add(self, span: bytes) -> None:
        self.spans.append(Span.FromString(span))

    def tell(self, *events: Event) -> None:
        """These happen."""
        for event in events:
            self._tracing.on_event(event)

    def claim(self, *messages: ClaimedMessage) -> None:
        """One claim brings these."""
        reclaimed = sum(message.reclaims > 0 for message in messages)
        self.tell(Claimed(messages, reclaimed, 0.01))

    def finalize(
        self,
        *messages: ClaimedMessage,
        outcome: Outcome | None = None,
        transition: Transition | None = None,
        into: str = "written",
    ) -> None:
        """They were published, or something else came of it, and that was written or not."""
        end = (outcome or Published(), transition or Finish())
        self.answer({into: [settled(message, *end) for message in messages]})

    def answer(
        self, batches: dict[str, Sequence[Settled]], refused: Sequence[Refused] = ()
    ) -> None:
        """The database has answered a finalize."""
        written, lost, already, unknown = (
            batches.get(name, []) for name in ("written", "lost", "already_written", "unknown")
        )
        self.tell(Finalized(written, lost, already, unknown, refused, 0.01))

    def deliver(self, *messages: ClaimedMessage) -> None:
        """Claimed together, and finalized together."""
        self.claim(*messages)
        self.finalize(*messages)

    def named(self, operation: str) -> list[Span]:
        """Those of one kind."""
        return [span for span in self.spans if span.name.startswith(f"{operation} ")]

    def __str__(self) -> str:
        return tree(self.spans)


def settled(message: ClaimedMessage, outcome: Outcome, transition: Transition) -> Settled:
    """Its publish took a tenth of a second and has just ended."""
    return Settled(message, outcome, transition, time.monotonic() - 0.1, 0.1)
