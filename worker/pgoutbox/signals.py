"""How a worker learns that it is to stop, and what ends it when it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback

import structlog

STOPPING = (signal.SIGTERM, signal.SIGINT)

HARD_EXIT_MARGIN = 1.0
"""Seconds before the platform's own kill when a drain that is stuck ends by force."""
EXPLAIN_SECONDS = 0.5
"""How long saying so may take: what blocks the worker may be the stream of its log."""


class Signals:
    """The first SIGTERM or SIGINT starts the drain's clock; further ones change nothing.

    A thread of its own waits for them: the event loop hears of nothing while a publisher blocks
    it, and Python's own handlers have no turn while it does so in native code.
    """

    def __init__(self, grace: float) -> None:
        self.received = asyncio.Event()
        self.name = ""
        self.began = 0.0
        self._hard = threading.Timer(max(grace - HARD_EXIT_MARGIN, 0.0), end_by_force)
        self._hard.daemon = True

    def install(self) -> None:
        """Take over from the command line's early handlers, for the rest of the process."""
        loop = asyncio.get_running_loop()
        # Blocked here and in every thread to come, so that they reach the one that waits. A
        # thread that was there before may still catch one, and Python hands it to the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        for number in STOPPING:
            signal.signal(number, lambda caught, _frame: self._receive(loop, caught))
        threading.Thread(target=self._watch, args=(loop,), name="signals", daemon=True).start()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._receive(loop, signal.sigwait(STOPPING))

    def _receive(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        if self.name:
            return
        self.name = signal.Signals(number).name
        self.began = time.monotonic()
        self._hard.start()
        loop.call_soon_threadsafe(self.received.set)


def end_by_force() -> None:
    """Say where the main thread hangs, and end the process, whatever else is going on in it."""
    explaining = threading.Thread(target=_explain, daemon=True)
    explaining.start()
    explaining.join(EXPLAIN_SECONDS)
    os._exit(1)


def _explain() -> None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented, in spite of its name
    structlog.get_logger().error(
        "drain stuck and ended by force",
        advice="Something blocks the event loop, most likely a publisher; the stack shows where."
        " What is in flight is delivered again when its leases expire.",
        stack="".join(traceback.format_stack(frame)),
    )
