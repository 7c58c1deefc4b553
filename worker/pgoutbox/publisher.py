"""The port that every destination implements, and what opens one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pgoutbox.wire.plain import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.wire.envelope import WireFormat
    from pgoutbox.wire.template import Template


def no_secrets() -> Sequence[str]:
    """Of a destination that signs nothing."""
    return ()


class Publisher(Protocol):
    """Hands one message at a time to a destination and waits for its word.

    A publisher raises nothing but the four children of `pgoutbox.errors.PublishError`: it
    turns its client's errors into them. Anything else is taken for a bug and stops the
    destination. It may be called concurrently, and it must let a cancellation through.
    """

    async def publish(self, message: ClaimedMessage) -> None:
        """Return once the destination has taken responsibility for the message."""
        ...

    async def close(self) -> None:
        """Release connections. Called once, after the last publish has ended."""
        ...


@runtime_checkable
class BatchPublisher(Protocol):
    """A publisher whose destination takes several messages in one request."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """One answer per message, in order: ``None`` for taken, else what went wrong.

        Raising instead of returning gives every message of the batch that error.
        """
        ...

    async def close(self) -> None:
        """As for `Publisher`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """What a publisher may want to know of the destination that it is opened for."""

    destination: str
    """The destination's name, for messages to people."""
    publish_timeout: float = 10.0
    """Seconds after which the worker cancels a publish."""
    concurrency: int = 50
    """How many publishes the worker runs at once, at most."""
    longest_retry: float = 300.0
    """Seconds that may pass between two attempts at a message, by the settings."""
    topic: Template | None = None
    """Where in the broker messages go, if the settings say so: its topic, subject, routing key,
    stream or queue."""
    wire: WireFormat = PLAIN
    """What messages look like there."""
    signing_secrets: Callable[[], Sequence[str]] = no_secrets
    """The secrets to sign with as they are now, the newest first; they may change at any time.

    Raises OSError or ValueError where they cannot be read.
    """
    allowed_hosts: tuple[str, ...] = ()
    """The only hosts that a URL may lead to; private ones as well. Empty: all public ones."""

    @property
    def connect_within(self) -> float:
        """Seconds for a connection: half of the timeout.

        Whoever has none by then can still report that nothing was sent, which costs no attempt.
        """
        return self.publish_timeout / 2

    @property
    def answer_within(self) -> float:
        """Seconds for the answers to a batch: what is left of the timeout is for reporting them.

        Cancelled at the whole of it, what is known of single messages would be lost.
        """
        return self.publish_timeout * 0.9


class PublisherFactory(Protocol):
    """What an entry point of the group ``pgoutbox.publishers`` names: it opens one URL.

    The entry point's name is the URL scheme. A URL that it cannot serve is
    `pgoutbox.errors.InvalidDestination`. It need not reach the destination: a worker starts
    while its destinations are down. Credentials in the URL appear in no error.
    """

    async def __call__(
        self, url: str, /, *, options: PublisherOptions
    ) -> Publisher | BatchPublisher:
        """Return a publisher that is ready for its first message."""
        ...
