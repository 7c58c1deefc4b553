"""Whether it was us who were cancelled, or only something in a client that we waited for."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether somebody cancelled the task that runs now: then a `CancelledError` must go on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
