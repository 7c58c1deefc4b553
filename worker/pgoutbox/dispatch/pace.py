"""When something that may become dear is due again. Pure: the clock comes from outside."""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 20
"""It takes one part in so many of the time, at most."""
LONGEST_PAUSE = 60.0


@dataclass(slots=True)
class Pace:
    """Every so many seconds; less often where it takes long, and less and less where it fails."""

    every: float
    _due_at: float = float("-inf")
    _allowed_at: float = float("-inf")
    _sent_at: float | None = None
    _pause: float = 0.0

    def due(self, now: float) -> bool:
        """Whether it is to be done now. If so, it counts as sent."""
        if not self.is_due(now):
            return False
        self._sent_at = now
        self._pause = min(max(self._pause * 2, self.every), LONGEST_PAUSE)
        self._due_at = now + self._pause
        return True

    def is_due(self, now: float) -> bool:
        """Whether `due` would say so."""
        return now >= self._due_at

    def answered(self, now: float) -> None:
        """What was sent has worked. Without anything sent it means nothing."""
        if self._sent_at is None:
            return
        self._allowed_at = now + min(SHARE * (now - self._sent_at), LONGEST_PAUSE)
        self._due_at = max(self._sent_at + self.every, self._allowed_at)
        self._sent_at, self._pause = None, 0.0

    def failed(self, *, slow: bool) -> None:
        """What was sent has not worked: because it is dear, or for some other reason."""
        self._sent_at = None
        if not slow:
            self._pause, self._due_at = 0.0, self._allowed_at

    def hasten(self) -> None:
        """There is a reason to do it before its time, if its cost allows."""
        self._due_at = min(self._due_at, self._allowed_at)
