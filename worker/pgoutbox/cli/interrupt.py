"""Ctrl-C for work that is done piece by piece."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator


@contextlib.contextmanager
def until_interrupted(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C sets ``stop``, to end after the piece under way; the second ends at once."""

    def interrupted(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
