"""The port that every destination implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage


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
