"""One worker's pod: its slots, its breakers, and the counters of its heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling import Worker

if TYPE_CHECKING:
    from pgoutbox.destinations.breaker import Breaker


@dataclass(slots=True, eq=False)
class Pod:
    """Created, ready after its startup, draining, gone."""

    number: int
    created: float
    slots: int
    breakers: list[Breaker]
    publishing: list[int]
    """To each destination."""
    ready: bool = False
    draining: bool = False
    gone: bool = False
    started: float = 0.0
    busy: int = 0
    turn: int = 0
    """Whose destination's it is."""
    finished: int = 0
    attempts: int = 0
    failed: int = 0
    busy_before: float = 0.0
    """Slot-seconds up to now, less ``busy`` times now: so it changes only with ``busy``."""
    told: Worker | None = None
    """The last heartbeat, as of ``told_at``."""
    told_at: float = 0.0

    def beat(self, now: float) -> None:
        """Write the heartbeat."""
        self.told_at = now
        opened = [str(n) for n, breaker in enumerate(self.breakers) if breaker.is_open]
        self.told = Worker(
            incarnation=str(self.number),
            seen_age=0.0,
            uptime=now - self.started,
            slots=self.slots,
            running=not self.draining,
            finished=self.finished,
            attempts=self.attempts,
            failed=self.failed,
            busy_seconds=(self.busy_before + self.busy * now) / self.slots,
            serves=frozenset(str(n) for n in range(len(self.breakers))),
            opened=frozenset(opened),
        )
