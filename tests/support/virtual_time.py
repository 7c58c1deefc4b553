"""A day in a minute: an event loop whose clock stands while anything goes on, and then jumps.

Waits cost nothing, and whatever comes over a socket takes no time at all. Unlike with a clock that
runs ahead whenever there is nothing to execute, an answer that is on its way is waited for, so that
no timeout ends what works:

* What one end of a loopback connection has sent, the other can read at once. So as long as both are
  in this loop, a selector that has nothing to say means that nobody has anything to say.
* psycopg asks the loop for its file descriptor (`add_reader`) only while it waits for the server,
  which is another process. As long as it asks, real time passes, and none of this loop's.
  Transports do not use these methods, so connections that are just open are not waited for.
* Threads that work for the loop are waited for, too.

What shall not be waited for, since it will never come, has to be excused.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from _typeshed import HasFileno

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
READING, WRITING = 1, 2
BEGIN = 1000.0
LOOKS = 3
MOMENT = 0.00005
"""Real seconds between looks: the kernel may need a moment from one end to the other."""
PATIENCE = 60.0
"""Real seconds after which what is waited for is taken for lost."""


class StandingStill(Exception):  # noqa: N818 - it tells what happened
    """Nothing will ever happen any more."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """``excused`` tells of a file descriptor whether an answer over it is not waited for."""

    def __init__(self, excused: Callable[[int], bool] = lambda _: False) -> None:
        self.excused = excused
        self.jumps = 0
        self._virtual = BEGIN
        self._asked: dict[int, int] = {}
        self._threads: set[asyncio.Future[Any]] = set()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._virtual

    def jump(self, seconds: float) -> None:
        self._virtual += seconds
        self.jumps += 1

    @property
    def waits_for_others(self) -> bool:
        """For what is neither here nor excused."""
        return bool(self._threads) or any(not self.excused(each) for each in self._asked)

    def add_reader(
        self, fd: int | HasFileno, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        super().add_reader(fd, callback, *args)
        self._ask(fd, READING)

    def add_writer(
        self, fd: int | HasFileno, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        super().add_writer(fd, callback, *args)
        self._ask(fd, WRITING)

    def remove_reader(self, fd: int | HasFileno) -> bool:
        self._ask_no_more(fd, READING)
        return super().remove_reader(fd)

    def remove_writer(self, fd: int | HasFileno) -> bool:
        self._ask_no_more(fd, WRITING)
        return super().remove_writer(fd)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return future

    def _ask(self, fd: int | HasFileno, what: int) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        self._asked[number] = self._asked.get(number, 0) | what

    def _ask_no_more(self, fd: int | HasFileno, what: int) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        left = self._asked.pop(number, 0) & ~what
        if left:
            self._asked[number] = left


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._loop.waits_for_others or timeout is None:
            ready = super().select(PATIENCE)
            if not ready:
                raise StandingStill(f"nothing has happened for {PATIENCE:g} seconds")
            return ready
        for _ in range(LOOKS):
            time.sleep(MOMENT)
            ready = super().select(0)
            if ready:
                return ready
        self._loop.jump(timeout)
        return []


def run_virtually(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """Run it to its end, and leave nothing behind, as `asyncio.run` does."""
    made = loop or VirtualLoop()
    # psycopg's own deadlines, of a cancellation say, go by this clock, too.
    with (
        mock.patch("psycopg.waiting.monotonic", made.time),
        asyncio.Runner(loop_factory=lambda: made) as runner,
    ):
        return runner.run(main)
