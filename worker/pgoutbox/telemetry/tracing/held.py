"""What is traced, from its claim to the end of its lease, and how some of it hang together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.telemetry.tracing.spans import MAX_LINKS, MESSAGE_ID, Happening, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.telemetry.tracing.attributes import Attributes

MAX_HAPPENINGS = 32
MAX_CONVERSATION = 256
CONVERSATION = ("correlation_id", "correlation-id", "x-correlation-id")
"""Headers whose value is the conversation's id, whatever their case."""


class Held:
    """A traced message from its claim to the end of its lease."""

    __slots__ = ("claim", "creation", "failure", "happened", "message", "message_id", "since")

    def __init__(self, message: ClaimedMessage, creation: Place, since: int) -> None:
        self.message = message
        self.message_id = str(message.message_id)
        self.creation = creation
        self.claim: Place | None = None
        self.since = since
        """When the claim was answered."""
        self.happened: list[Happening] = []
        self.failure: tuple[str, int] | None = None
        """The kind of an unclassified exception, and when it was raised."""

    def add(self, name: str, at: int, attributes: Attributes | None = None) -> None:
        """Something that its publish's span is to tell."""
        if len(self.happened) < MAX_HAPPENINGS:
            self.happened.append(Happening(name, at, attributes or {}))


def of_batch(batch: Sequence[Held], count: int) -> Attributes:
    """What is said about ``count`` messages, some of which are traced."""
    attributes: Attributes = {"messaging.batch.message_count": count}
    return attributes | ({MESSAGE_ID: batch[0].message_id} if count == 1 else {})


def loss_of(one: Held, at: int) -> Happening:
    """What the span of a finalize that came too late tells."""
    return Happening("lease lost", at, {MESSAGE_ID: one.message_id})


def one_trace(batch: Sequence[Held]) -> Place | None:
    """Where they were created, if that is one trace."""
    first = batch[0].creation
    return first if all(one.creation.trace_id == first.trace_id for one in batch) else None


def one_claim(batch: Sequence[Held]) -> Place | None:
    """The claim that brought them, if it is one."""
    first = batch[0].claim
    return first if all(one.claim == first for one in batch) else None


def links_of(batch: Sequence[Held], parent: Place | None) -> list[tuple[Place, str]]:
    """Where they were created, the parent left out; no more than a span may have."""
    return [(one.creation, one.message_id) for one in batch[:MAX_LINKS] if one.creation != parent]


def conversation_of(message: ClaimedMessage) -> str:
    """The correlation id that the producer gave; empty where there is none."""
    if "orrelation" not in message.headers_json:
        return ""
    headers = message.headers
    found = [value for name, value in headers.items() if name.lower() in CONVERSATION]
    return found[0][:MAX_CONVERSATION] if found else ""
