"""What is traced, from its claim to the end of its lease, and how some of it hang together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.telemetry.tracing import wire
from pgoutbox.telemetry.tracing.spans import REMOTE, Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.telemetry.tracing.attributes import Value
    from pgoutbox.telemetry.tracing.context import Stored

MAX_LINKS = 128
MAX_HAPPENINGS = 32
MAX_CONVERSATION = 256
CONVERSATION = ("correlation_id", "correlation-id", "x-correlation-id")
"""Headers whose value is the conversation's id, whatever their case."""


class Held:
    """A traced message from its claim to the end of its lease."""

    __slots__ = (
        "claim",
        "creation",
        "failure",
        "happened",
        "link",
        "message",
        "message_id",
        "other",
        "parent",
        "since",
        "untold",
    )

    def __init__(self, message: ClaimedMessage, stored: Stored, since: int) -> None:
        self.message = message
        self.message_id = str(message.message_id).encode()
        self.creation = Place(*stored[:3], REMOTE | stored.flags)
        self.link = self.creation.link(self.message_id)
        """From a batch to where it was created."""
        self.claim: Place | None = None
        self.parent = self.creation
        """Of its publish."""
        self.other = b""
        """The link of its publish: to what is not its parent, of claim and creation."""
        self.since = since
        """When the claim was answered."""
        self.happened: list[bytes] = []
        """Events of its publish, encoded."""
        self.untold = 0
        """How many more there were."""
        self.failure: tuple[str, int, float] | None = None
        """The kind of an unclassified exception, and when it was raised, by both clocks."""

    def add(self, name: str, at: int, attributes: Mapping[str, Value] | None = None) -> None:
        """Something that its publish's span is to tell."""
        if len(self.happened) < MAX_HAPPENINGS:
            self.happened.append(wire.event(name, at, attributes or {}))
        else:
            self.untold += 1

    def tell(self, name: str, at: int, **attributes: Value) -> bytes:
        """An event of a batch that is about this message, encoded."""
        about: dict[str, Value] = {wire.MESSAGE_ID: self.message_id.decode()}
        more = {key.replace("_", "."): value for key, value in attributes.items()}
        return wire.event(name, at, about | more)


def of_batch(batch: Sequence[Held], count: int) -> bytes:
    """What is said about ``count`` messages, some of which are traced."""
    counted = wire.number("messaging.batch.message_count", count)
    return counted + wire.message_id(batch[0].message_id) if count == 1 else counted


def one_trace(batch: Sequence[Held]) -> Place | None:
    """Where they were created, if that is one trace."""
    first = batch[0].creation
    return first if all(one.creation.trace_id == first.trace_id for one in batch) else None


def one_claim(batch: Sequence[Held]) -> Place | None:
    """The claim that brought them, if it is one."""
    first = batch[0].claim
    return first if all(one.claim is first for one in batch) else None


def links_of(batch: Sequence[Held], parent: Place | None) -> list[bytes]:
    """To where they were created, the parent left out; no more than a span may have."""
    return wire.links([one.link for one in batch if one.creation != parent], MAX_LINKS)


def conversation_of(message: ClaimedMessage) -> str:
    """The correlation id that the producer gave; empty where there is none."""
    if "orrelation" not in message.headers_json:
        return ""
    headers = message.headers
    found = [value for name, value in headers.items() if name.lower() in CONVERSATION]
    return found[0][:MAX_CONVERSATION] if found else ""
