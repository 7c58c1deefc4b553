"""Messages died, or are about to."""

from __future__ import annotations

from monitoring.limits import MINUTE, Limits, Pace
from monitoring.recording import ATTEMPTS, DEAD
from monitoring.rule import PLACE, Alert, percent


def alerts(limits: Limits, pace: Pace) -> tuple[Alert, ...]:
    """The table first: the counters of a worker are gone when its pod is."""
    return (
        _growth_in_the_table(pace),
        _growth_by_workers(),
        _spike(limits),
        _lanes_blocked(),
    )


def _growth_in_the_table(pace: Pace) -> Alert:
    return Alert(
        name="OutboxDeadLetterGrowth",
        severity="warn",
        labels=(("source", "database"),),
        expr=_more_dead(pace),
        meaning="Messages died within the last 15 minutes, as the table shows.",
        summary="Messages for {{ $labels.destination }} died",
        description=(
            "Messages for {{ $labels.destination }}" + PLACE + " that died in the last 15 minutes:"
            " {{ $value | humanize }}. Each waits until a person requeues it; with an ordering key"
            " it may hold up those behind it."
        ),
    )


def _more_dead(pace: Pace) -> str:
    """By how much the gauge rose within 15 minutes, where it did.

    A new destination has no series, so its first dead message may give birth to one: what was not
    there although somebody looked was 0. After a gap nobody knows.
    """
    window, bridge = pace(15 * MINUTE), pace(5 * MINUTE)
    return f"""
        (
          max by (namespace, database, destination) (outbox_dead_letter_messages)
          unless max by (namespace, database, destination) (
            last_over_time(outbox_dead_letter_messages[{bridge}] offset {window})
          )
          and on (namespace, database) max by (namespace, database) (
            max_over_time(outbox_collector_up[{bridge}] offset {window})
          ) == 1
        ) > 0
        or
        (
          max by (namespace, database, destination) (outbox_dead_letter_messages)
          - min by (namespace, database, destination) (
            min_over_time(outbox_dead_letter_messages[{window}])
          )
        ) > 0
    """


def _growth_by_workers() -> Alert:
    return Alert(
        name="OutboxDeadLetterGrowth",
        severity="warn",
        labels=(("source", "worker"),),
        expr=f"{DEAD} > 0",
        meaning="The same, as workers tell, in case no exporter runs.",
        summary="Messages for {{ $labels.destination }} died",
        description=(
            "Messages for {{ $labels.destination }}"
            + PLACE
            + ' that workers buried in the last 15 minutes: about {{ $value | printf "%.0f" }}.'
            " Each waits until a person requeues it; with an ordering key it may hold up those"
            " behind it."
        ),
    )


def _spike(limits: Limits) -> Alert:
    return Alert(
        name="OutboxDeadLetterSpike",
        severity="page",
        expr=f"""
            {DEAD}
            / {ATTEMPTS} > {limits.dead_share:g}
            and {DEAD} > {limits.dead_messages}
        """,
        meaning=(
            f"More than {limits.dead_messages} messages died within 15 minutes, and more than"
            f" {percent(limits.dead_share)} of the attempts."
        ),
        summary="Many messages for {{ $labels.destination }} die",
        description=(
            "{{ $value | humanizePercentage }} of the attempts of the last 15 minutes for"
            " {{ $labels.destination }}" + PLACE + " ended with a dead message, more than"
            f" {limits.dead_messages} of them. Messages of one kind are refused, or the destination"
            " refuses what it should take."
        ),
    )


def _lanes_blocked() -> Alert:
    return Alert(
        name="OutboxLanesBlocked",
        severity="warn",
        hold=5 * MINUTE,
        expr="max by (namespace, database, destination) (outbox_blocked_lanes) > 0",
        meaning="Dead messages block their lanes: what waits behind them is not delivered.",
        summary="Lanes of {{ $labels.destination }} are blocked",
        description=(
            "Lanes of {{ $labels.destination }}" + PLACE + " that a dead message blocks:"
            " {{ $value | humanize }}. Nothing of such a lane is delivered until a person requeues"
            " or skips the message."
        ),
    )
