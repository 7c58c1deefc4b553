"""``jsonl:///path/file.jsonl``: one line of JSON per message, appended to a file."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pgoutbox.brokers.lines import NEWLINE, LineSink, LineWriter, as_line
from pgoutbox.brokers.query import options_of, split_hosts, switch
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

# Payloads may be confidential; whoever runs the worker may read them.
MODE = 0o600


async def open_jsonl(url: str, /, *, options: PublisherOptions) -> JsonlPublisher:
    """Open ``jsonl:///path/file.jsonl``; ``?fsync=0`` trades safety from power cuts for speed."""
    given = options_of(url, options.destination, known=("fsync",))
    fsync = switch(given, "fsync", options.destination, default=True)
    parts = split_hosts(url, options.destination)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute():
        raise InvalidDestination(
            options.destination,
            "a jsonl URL holds an absolute path after three slashes: jsonl:///var/out.jsonl",
        )
    file = AppendedFile(path, fsync=fsync)
    try:
        await asyncio.to_thread(file.ensure_open)
    except OSError as error:
        raise InvalidDestination(
            options.destination,
            f"{path} cannot be opened for appending: {error.strerror}",
        ) from error
    return JsonlPublisher(file)


class CannotOpen(OSError):  # noqa: N818 - an error of its own only to tell it from a failed write
    """The file is gone and cannot be created again; nothing was written."""


class AppendedFile:
    """A file that is only ever appended to, and followed when somebody rotates it away."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._path = path
        self._fsync = fsync
        self._sink: LineSink | None = None

    def ensure_open(self) -> LineSink:
        """The file that the path names now; raises `OSError`."""
        if self._sink is not None and self._still_there(self._sink.fd):
            return self._sink
        self.close()
        # Readable too, to see what the file ends with. Opening a pipe would wait for its reader.
        if self._path.is_fifo():
            raise OSError(errno.ESPIPE, "it is a pipe; redirect stdout:// to it instead")
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        self._sink = LineSink(fd, torn=_ends_in_mid_line(fd))
        return self._sink

    def append(self, data: bytes) -> None:
        """Write ``data``, and have it on the disk on return; raises `OSError`."""
        try:
            sink = self.ensure_open()
        except OSError as error:
            raise CannotOpen(error.errno, error.strerror) from error
        sink.write(data)
        if self._fsync and _is_regular(sink.fd):
            os.fsync(sink.fd)

    def close(self) -> None:
        """Close it; it opens again at the next use."""
        if self._sink is not None:
            os.close(self._sink.fd)
            self._sink = None

    def _still_there(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False


def _ends_in_mid_line(fd: int) -> bool:
    """A process that died while it wrote leaves a piece of a line."""
    size = os.fstat(fd).st_size
    return _is_regular(fd) and size > 0 and os.pread(fd, 1, size - 1)[0] != NEWLINE


def _is_regular(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)


class JsonlPublisher:
    """Appends a batch of lines in one write, and answers when the disk has them."""

    def __init__(self, file: AppendedFile) -> None:
        self._file = file
        self._writer = LineWriter(file.append)

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Write them all; where that fails, all are retried and some may stand there twice."""
        try:
            await self._writer.write(b"".join(map(as_line, messages)))
        except CannotOpen as error:
            raise DestinationUnavailable(f"the file cannot be opened: {error.strerror}") from error
        except OSError as error:
            raise RetryableError(f"the file could not be written: {error.strerror}") from error
        return [None] * len(messages)

    async def close(self) -> None:
        """Close the file, unless the disk still hangs in a write."""
        if await self._writer.close():
            self._file.close()
