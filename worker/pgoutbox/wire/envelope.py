"""What every broker carries, whatever it calls the parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage


class Envelope(NamedTuple):
    """One message in a wire format."""

    key: str
    """What the broker partitions by, where it does."""
    headers: Sequence[tuple[str, str]]
    """Any text may stand in the values; names are those of `pgoutbox.message.HEADER_NAME`."""
    content_type: str
    """Not among the headers: most brokers have a place of its own for it."""
    body: bytes
    own: int = 0
    """How many of the headers are the format's own: the first ones. No other has one's name."""


class Encode(Protocol):
    """From a message to its envelope. Raises nothing: whatever a row holds has an encoding."""

    def __call__(self, message: ClaimedMessage, /, *, prefix: str = "ce-") -> Envelope:
        """``prefix`` begins the names of CloudEvents attributes, as the protocol's binding says."""
        ...


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A format by its name in the settings."""

    name: str
    encode: Encode
