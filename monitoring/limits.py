"""What the rules compare with, and how long they look: parameters of `monitoring.rules.groups`."""

from __future__ import annotations

from dataclasses import dataclass

from pgoutbox.database.horizon import LATE_SECONDS, LATE_TRANSACTIONS, LATE_UNDATED_TRANSACTIONS
from pgoutbox.database.statistics import DEFAULT_CAP
from pgoutbox.telemetry.tally import DELIVERY_SECONDS

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds. Raises ValueError where no metric can be compared with them."""

    delivery_seconds: float = 30.0
    """The objective's limit: how late a delivery may be. A bound of the latency's buckets."""
    delivery_objective: float = 0.999
    """Which share of the deliveries keeps within that."""
    delivery_rate: float = 0.02
    """Deliveries per second below which shares say nothing. One late among as few is no alert."""
    oldest_pending_seconds: float = 300.0
    """How late the oldest undelivered message may be, backoff and outages included."""
    dead_share: float = 0.01
    """Dead messages among all attempts, from which on somebody is woken."""
    dead_messages: int = 20
    """How many they have to be for that."""
    backlog_messages: int = DEFAULT_CAP
    """Messages that are due and undelivered. Not more than the exporter counts."""
    xmin_seconds: float = LATE_SECONDS
    xmin_transactions: int = LATE_TRANSACTIONS
    """The horizon is held when it is older than both."""
    xmin_undated_transactions: int = LATE_UNDATED_TRANSACTIONS
    """Or older than this, where nobody knows since when."""

    def __post_init__(self) -> None:
        if self.delivery_seconds not in DELIVERY_SECONDS:
            bounds = ", ".join(f"{bound:g}" for bound in DELIVERY_SECONDS)
            raise ValueError(
                f"delivery_seconds is {self.delivery_seconds:g}; "
                f"deliveries are counted up to {bounds} seconds: take one of these"
            )
        if not 0 < self.delivery_objective < 1:
            raise ValueError(
                f"delivery_objective is {self.delivery_objective:g}; it is a share, such as 0.999"
            )
        if self.backlog_messages > DEFAULT_CAP:
            raise ValueError(
                f"backlog_messages is {self.backlog_messages}; "
                f"the exporter counts up to {DEFAULT_CAP}: take no more"
            )


@dataclass(frozen=True, slots=True)
class Pace:
    """How time passes in the rules. A test has no hours: ``Pace(1 / 60)`` makes them minutes."""

    scale: float = 1.0

    def __call__(self, seconds: float) -> str:
        """As Prometheus writes durations: `5m`."""
        milliseconds = round(seconds * self.scale * 1000)
        for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", 1)):
            if milliseconds and milliseconds % (length * 1000) == 0:
                return f"{milliseconds // (length * 1000)}{unit}"
        return f"{milliseconds}ms"
