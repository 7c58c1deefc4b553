"""Lines of JSON for files and pipes: what a line holds, and the thread that writes it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import threading
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING

from pgoutbox.errors import DestinationUnavailable
from pgoutbox.wire.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.message import ClaimedMessage

NEWLINE = ord("\n")


def as_line(message: ClaimedMessage) -> bytes:
    """One JSON object and a line feed.

    A JSON payload stands under ``payload`` exactly as the producer wrote it: it is never parsed
    into numbers, so none is rounded. Any other payload stands under ``payload_base64``.
    """
    head = json.dumps(
        {
            "message_id": str(message.message_id),
            "destination": message.destination,
            "aggregate_type": message.aggregate_type,
            "aggregate_id": message.aggregate_id,
            "event_type": message.event_type,
            "ordering_key": message.ordering_key,
            "created_at": message.created_at.isoformat(),
            "attempt": message.attempts,
            "content_type": message.content_type,
            "headers": message.headers,
        }
    ).encode("ascii")
    text = json_text(message)
    if text is None:
        return b'%b, "payload_base64": "%b"}\n' % (head[:-1], b64encode(message.body))
    # In valid JSON a raw line break stands between tokens only, where a space is the same.
    line = text.replace(b"\r", b" ").replace(b"\n", b" ")
    return b'%b, "payload": %b}\n' % (head[:-1], line)


class LineSink:
    """A file descriptor that holds whole lines, also after a write that broke off."""

    def __init__(self, fd: int, *, torn: bool = False) -> None:
        self.fd = fd
        self._torn = torn
        """What the file ends with is a piece of a line."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``, or raise `OSError` and begin on a new line the next time."""
        view = memoryview(b"\n" + data if self._torn else data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self.fd, view[written:])
        finally:
            if written:
                self._torn = view[written - 1] != NEWLINE


class LineWriter:
    """Runs one blocking write after the other in a thread of its own.

    A full pipe or a slow disk must not stop the event loop, which renews leases. The thread is
    a daemon, and no executor, because the interpreter waits for an executor's threads at exit:
    a reader that has stopped reading would keep the process from ending.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pgoutbox-lines", daemon=True)
        self._thread.start()

    async def write(self, data: bytes) -> None:
        """Return once ``data`` is written; raises the `OSError` that prevented it.

        Raises `DestinationUnavailable` after `close`.
        Cancelled, it stops waiting. What the thread has begun cannot be taken back, and what
        it has not begun is dropped.
        """
        if self._closed:
            raise DestinationUnavailable("the publisher is closed")
        done = self._loop.create_future()
        self._jobs.put((data, done))
        await done

    async def close(self, patience: float = 1.0) -> bool:
        """Let the thread end. False where it still hangs in a write after ``patience`` seconds."""
        self._closed = True
        self._jobs.put(None)
        try:
            async with asyncio.timeout(patience):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            data, done = job
            if done.cancelled():
                continue
            error: Exception | None = None
            try:
                self._write(data)
            except Exception as problem:  # noqa: BLE001 - raised where the write is awaited
                error = problem
            self._tell(partial(_settle, done, error))
        self._tell(self._ended.set)

    def _tell(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop was closed while this thread was writing; nobody waits any more.
            return


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
