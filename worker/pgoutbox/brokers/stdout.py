"""``stdout://``: one line of JSON per message on standard output."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from pgoutbox.brokers.lines import LineSink, LineWriter, as_line
from pgoutbox.brokers.query import nothing_else, options_of
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

STANDARD_OUTPUT = 1


async def open_stdout(url: str, /, *, options: PublisherOptions) -> StdoutPublisher:
    """Open ``stdout://``; it has no options."""
    nothing_else(url, options.destination)
    options_of(url, options.destination, known=())
    sys.stdout.flush()
    return StdoutPublisher()


class StdoutPublisher:
    """Writes a batch of lines at once to a file descriptor, without Python's own buffer."""

    def __init__(self, fd: int = STANDARD_OUTPUT) -> None:
        self._writer = LineWriter(LineSink(fd).write)

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Write them all; either every message is taken or none is."""
        try:
            await self._writer.write(b"".join(map(as_line, messages)))
        except OSError as error:
            raise _translated(error) from error
        return [None] * len(messages)

    async def close(self) -> None:
        """End the thread. Standard output stays open."""
        await self._writer.close()


def _translated(error: OSError) -> PublishError:
    if error.errno in (errno.EPIPE, errno.EBADF):
        # The messages are fine and nobody has them: another process, or this one started again
        # with a reader, will deliver them. So they are neither buried nor is an attempt spent.
        return DestinationUnavailable("nobody reads standard output any more: the pipe is closed")
    return RetryableError(f"standard output refused the line: {error.strerror}")
