"""Every exception that this package raises or understands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class PgOutboxError(Exception):
    """The base of all of them."""


class InvalidMessage(PgOutboxError, ValueError):  # noqa: N818 - reads better where it is caught
    """A message was refused before any SQL ran, so the caller's transaction is still usable.

    ``path`` names the value, as in ``payload.items[3].price`` or ``headers['trace']``.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class NotInTransaction(PgOutboxError):  # noqa: N818
    """The connection is in autocommit mode and outside a transaction block."""


class MigrationError(PgOutboxError):
    """The database's schema and the migrations of this version do not fit together."""


class InvalidDestination(PgOutboxError, ValueError):  # noqa: N818
    """A destination's URL cannot be turned into a publisher. Raised at start, never later."""

    def __init__(self, destination: str, problem: str) -> None:
        super().__init__(f"destination {destination!r}: {problem}")
        self.destination = destination
        self.problem = problem


class PublishError(PgOutboxError):
    """The base of the four answers that a publisher may give instead of success."""


class RetryableError(PublishError):
    """It may work later: a timeout, 429, 5xx, a connection lost after something was sent.

    The attempt is spent. ``retry_after``: seconds to wait before the backoff begins, where the
    destination said how long. ``throttled``: the destination has nothing against the message, it
    only wants fewer of them: fewer are sent at once, and the message does not die of its attempts.
    """

    def __init__(
        self, reason: str, *, retry_after: float | None = None, throttled: bool = False
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.throttled = throttled


class PermanentError(PublishError):
    """It will never work: the message goes to ``dead`` at once, for a person to look at."""


class DestinationGone(PermanentError):  # noqa: N818
    """As `PermanentError`, and the destination said that nothing is wanted there any more.

    It is left alone for an hour, so that the messages behind this one do not end like it.
    """


class Defer(PublishError):  # noqa: N818
    """Not yet: try again after ``delay`` without spending an attempt."""

    def __init__(self, delay: timedelta, reason: str) -> None:
        super().__init__(reason)
        self.delay = delay


class DestinationUnavailable(PublishError):  # noqa: N818
    """Nothing was sent: no connection came about, or the client says that the broker is down.

    Spends no attempt while the destination fails for others too.
    """
