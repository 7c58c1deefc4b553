"""Background work that has a name, and whose unexpected end does not go unnoticed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Background:
    """The tasks that run beside the walk until they are cancelled."""

    def __init__(self, on_end: Callable[[str, BaseException | None], None]) -> None:
        self._on_end = on_end
        """Called with a task's name and error when it ends without having been cancelled."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run it from now on."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(self._ended)

    def start_claiming(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what ends by itself and must never be cancelled; only its failure is unexpected."""
        task = asyncio.get_running_loop().create_task(work, name="claim")
        task.add_done_callback(self._failed)
        return task

    async def cancel(self, *names: str, seconds: float) -> None:
        """Cancel these (all without names) and wait for them, but not longer than so."""
        chosen = names or tuple(self._tasks)
        tasks = {self._tasks.pop(name) for name in chosen if name in self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._on_end(task.get_name(), task.exception())

    def _failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_end(task.get_name(), task.exception())
