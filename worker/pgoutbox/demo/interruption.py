"""Ctrl-C and its kin, at moments when everything that was begun can still be undone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType, TracebackType

T = TypeVar("T")

STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The first signal ends the performance; further ones do not disturb the cleaning up."""

    def __init__(self) -> None:
        self._came = False
        self._deaf = False
        self._held = False
        self._cancel: Callable[[], object] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in STOPPERS:
            # Under nohup, say, a signal is ignored from the start, and that is meant.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._came:
            # The process is about to end, and an impatient second signal is to change nothing.
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A signal that comes inside is raised at the end: no step inside is left half done."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """Let no signal disturb what follows."""
        self._deaf = True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As `asyncio.run`; a signal cancels the coroutine and becomes KeyboardInterrupt."""
        try:
            return asyncio.run(self._cancellable(coroutine))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def _cancellable(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(coroutine)
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await task
        finally:
            # What follows is the cleaning up.
            self.ignore()

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if self._came or self._deaf:
            return
        self._came = True
        if self._cancel is not None:
            self._cancel()
        elif not self._held:
            raise KeyboardInterrupt
