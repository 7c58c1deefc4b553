"""Publishers as one hopes never to meet them; the URL's host says which."""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions


class Stubborn:
    """Says on standard error when it begins, and does not let go as it should."""

    def __init__(self, manner: str) -> None:
        self._manner = manner

    async def publish(self, message: ClaimedMessage) -> None:
        """Hang, in its manner."""
        say("publishing", id=message.id)
        match self._manner:
            case "deaf":
                while True:
                    await shrug_off_one_cancellation()
            case "blocking":
                time.sleep(3600)  # noqa: ASYNC251 - the point of it
            case "native":
                block_in_native_code()
            case "clinging":
                return
            case manner:
                raise AssertionError(manner)

    async def close(self) -> None:
        """Return; only the clinging one does not."""
        if self._manner == "clinging":
            say("closing")
            while True:
                await shrug_off_one_cancellation()


async def shrug_off_one_cancellation() -> None:
    """Wait, and take a cancellation for a reason to go on."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


def block_in_native_code() -> None:
    """Wait for ever in C, where no signal handler of Python's gets its turn."""
    lock = ctypes.create_string_buffer(256)
    lock_it = ctypes.CDLL(None).pthread_mutex_lock
    lock_it(lock)
    lock_it(lock)


async def open_stubborn(url: str, /, *, options: PublisherOptions) -> Stubborn:  # noqa: ARG001
    """The factory that the entry point names. It never comes back from ``stubborn://opening``."""
    manner = url.partition("://")[2]
    if manner == "opening":
        say("opening")
        await shrug_off_one_cancellation()
        await asyncio.Event().wait()
    return Stubborn(manner)


def say(event: str, **fields: object) -> None:
    """A line that the test can wait for."""
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stderr.flush()
