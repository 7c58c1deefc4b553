"""Messages arrive late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitoring.limits import HOUR, MINUTE, Limits, Pace
from monitoring.recording import BACKLOG, DELIVERIES, LATE_SHARE, LONG_WINDOWS
from monitoring.rule import PLACE, Alert, percent

if TYPE_CHECKING:
    from monitoring.rule import Severity


FASTEST = 14.4
"""How many times faster than allowed the budget is used up when somebody is woken: a fiftieth of
what a month has, in an hour."""


def alerts(limits: Limits, pace: Pace) -> tuple[Alert, ...]:
    """The oldest message first: it tells also when nothing is delivered at all."""
    burns = _Burns(limits, pace)
    return (
        _oldest_pending_age(limits),
        burns.alert("Fast", "page", FASTEST, long="1h", short="5m"),
        burns.alert("Slow", "page", 6, long="6h", short="30m"),
        burns.alert("Slow", "ticket", 1, long="3d", short="6h"),
        _backlog_growing(limits, pace),
    )


def _oldest_pending_age(limits: Limits) -> Alert:
    return Alert(
        name="OutboxOldestPendingAge",
        severity="page",
        hold=MINUTE,
        expr=f"""
            max by (namespace, database, destination) (outbox_oldest_pending_age_seconds)
            > {limits.oldest_pending_seconds:g}
        """,
        meaning="The oldest undelivered message is too late, for whatever reason.",
        summary="Messages for {{ $labels.destination }} are not delivered",
        description=(
            "The oldest undelivered message for {{ $labels.destination }}" + PLACE + " has been"
            " owed for {{ $value | humanizeDuration }}; the limit is"
            f" {limits.oldest_pending_seconds:g} seconds. Delivery has stopped, or does not keep"
            " up."
        ),
    )


class _Burns:
    """The budget of late deliveries is used up too fast: in a long window, and still so."""

    def __init__(self, limits: Limits, pace: Pace) -> None:
        self._limits = limits
        self._pace = pace

    def alert(
        self, which: str, severity: Severity, factor: float, *, long: str, short: str
    ) -> Alert:
        limits = self._limits
        share = factor * (1 - limits.delivery_objective)
        window = self._pace(LONG_WINDOWS[long])
        return Alert(
            name=f"OutboxDeliverySLO{which}Burn",
            severity=severity,
            expr=f"""
                {LATE_SHARE}{long} > {share:.6g}
                and {LATE_SHARE}{short} > {share:.6g}
                and avg_over_time({DELIVERIES}[{window}]) > {limits.delivery_rate:g}
            """,
            meaning=(
                f"More than {percent(share)} of the deliveries of the last {long} and {short} took"
                f" more than {limits.delivery_seconds:g} seconds."
            ),
            summary="Deliveries to {{ $labels.destination }} are late",
            description=(
                f"{{{{ $value | humanizePercentage }}}} of the deliveries of the last {long} to"
                " {{ $labels.destination }}" + PLACE + " took more than"
                f" {limits.delivery_seconds:g} seconds, and it goes on. That is more than"
                f" {factor:g} times what the objective of {limits.delivery_objective:.6g} leaves"
                " room for."
            ),
        )


def _backlog_growing(limits: Limits, pace: Pace) -> Alert:
    window, horizon = pace(HOUR), 4 * HOUR * pace.scale
    return Alert(
        name="OutboxBacklogGrowing",
        severity="warn",
        hold=30 * MINUTE,
        # Counts stop at the limit, and do not grow any more then.
        expr=f"""
            {BACKLOG} >= {limits.backlog_messages}
            or (
              predict_linear({BACKLOG}[{window}], {horizon:g}) > {limits.backlog_messages}
              and deriv({BACKLOG}[{window}]) > 0
            )
        """,
        meaning=(
            f"{limits.backlog_messages} messages are due and undelivered, or will be within four"
            " hours."
        ),
        summary="The backlog of {{ $labels.destination }} grows",
        description=(
            "Messages for {{ $labels.destination }}" + PLACE + " come in faster than they are"
            " delivered. How many are due by now or, at this pace, in four hours:"
            f" {{{{ $value | humanize }}}}. The limit is {limits.backlog_messages}."
        ),
    )
