"""What the rules compare with, and how long they look: parameters of `monitoring.rules.groups`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from pgoutbox.database.horizon import LATE_SECONDS, LATE_TRANSACTIONS, LATE_UNDATED_TRANSACTIONS
from pgoutbox.database.statistics import DEFAULT_CAP
from pgoutbox.telemetry.tally import DELIVERY_SECONDS

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def _limit(default: Any, what: str) -> Any:  # noqa: ANN401 - as `dataclasses.field` itself
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds. Raises ValueError where no metric can be compared with them."""

    delivery_seconds: float = _limit(
        30.0, "How late a delivery may be: the objective, and a bound of the latency's buckets"
    )
    delivery_objective: float = _limit(0.999, "Which share of the deliveries keeps within that")
    delivery_rate: float = _limit(
        0.02, "Deliveries per second up to which that share says nothing: one may be late"
    )
    oldest_pending_seconds: float = _limit(
        300.0, "How late the oldest undelivered message may be, backoff and outages included"
    )
    dead_share: float = _limit(
        0.01, "Dead messages among all attempts of 15 minutes, beyond which somebody is woken"
    )
    dead_messages: int = _limit(20, "And beyond how many of them")
    backlog_messages: int = _limit(
        DEFAULT_CAP, "Messages that are due and undelivered; the exporter counts no further"
    )
    xmin_seconds: float = _limit(LATE_SECONDS, "The xmin horizon is held if it is as old as this,")
    xmin_transactions: int = _limit(LATE_TRANSACTIONS, "and holds back as many transactions;")
    xmin_undated_transactions: int = _limit(
        LATE_UNDATED_TRANSACTIONS, "or as many as this, where nobody knows since when"
    )

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

    def options(self) -> list[tuple[str, str, str]]:
        """Name as an option, value and meaning of each."""
        return [
            (f.name.replace("_", "-"), f"{getattr(self, f.name):.9g}", f.metadata["what"])
            for f in fields(self)
        ]


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
