"""The answers to a batch: each begins as "no answer", and only the broker's word makes it a yes."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pgoutbox.errors import PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pgoutbox.message import ClaimedMessage

T = TypeVar("T")
Row: TypeAlias = tuple[type[BaseException], type[PublishError], str]
"""What a client raises, what that means for a message, and in which words."""

log = logging.getLogger(__name__)


class Refused(RetryableError):  # noqa: N818 - reads better where it is caught
    """A whole request was refused, for a message in it or for where it was sent: it is not said.

    So the message is retried, until `Answers.settle` knows better.
    """


class Answers:
    """One for each message of a batch, by its place."""

    def __init__(self, size: int, silence: PublishError | None = None) -> None:
        """``silence`` is the answer of those that nothing is said about."""
        no_answer = silence or RetryableError("there was no answer about this message")
        self._answers: list[PublishError | None] = [no_answer] * size
        self._open = set(range(size))

    def taken(self, place: int) -> None:
        """The broker has said that it has the message."""
        self._answers[place] = None
        self._open.discard(place)

    def failed(self, place: int, error: PublishError) -> None:
        """The broker has said no, or there is no use in asking it."""
        self._answers[place] = error
        self._open.discard(place)

    def rest(self, error: PublishError) -> None:
        """The same for all that nothing was said about."""
        for place in list(self._open):
            self.failed(place, error)

    def settle(self, places: Collection[int], words: str) -> None:
        """Bury those that were `Refused` where others of the ``places``, sent alike, were taken.

        Beside one that was taken, a message is refused for what it is itself.
        """
        if any(self._answers[place] is None for place in places):
            for place in places:
                if isinstance(self._answers[place], Refused):
                    self.failed(place, PermanentError(words))

    @property
    def open(self) -> list[int]:
        """The places that nothing was said about, in order."""
        return sorted(self._open)

    def whole(self) -> list[PublishError | None]:
        """As `pgoutbox.publisher.BatchPublisher.publish_batch` returns them."""
        return list(self._answers)


def prepared(
    messages: Sequence[ClaimedMessage], make: Callable[[ClaimedMessage], T], answers: Answers
) -> dict[int, T]:
    """What ``make`` makes of each message, by place; one that it refuses has its answer by that."""
    ready = {}
    for place, message in enumerate(messages):
        try:
            ready[place] = make(message)
        except PermanentError as error:
            answers.failed(place, error)
    return ready


def translated(error: BaseException, table: Sequence[Row], where: str) -> PublishError:
    """The first row of ``table`` that fits. ``where`` begins the words, as in ``host:port``.

    Never the client's own words: they may hold the broker's, a payload's or a password. What only
    the row for `Exception` fits is a bug, of the client or of ours: it is logged with where it came
    from, once for each kind.
    """
    for kind, meaning, words in table:
        if isinstance(error, kind):
            if kind is Exception:
                _tell_once(error, where)
            return meaning(f"{where}: {words}")
    raise error


_told: set[tuple[type[BaseException], str]] = set()


def _tell_once(error: BaseException, where: str) -> None:
    if (type(error), where) not in _told:
        _told.add((type(error), where))
        # Not its words: they may quote the message.
        trace = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s: unexpected %s\n%s", where, type(error).__name__, trace)
