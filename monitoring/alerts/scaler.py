"""The autoscaler has reached an end. Nothing of this exists where there is no operator."""

from __future__ import annotations

from monitoring.limits import HOUR, MINUTE, Limits, Pace
from monitoring.rule import PLACE, Alert


def alerts(limits: Limits, pace: Pace) -> tuple[Alert, ...]:
    """At its maximum, held back, or gone."""
    return (_at_max(limits), _limited(), _stale(pace))


def _at_max(limits: Limits) -> Alert:
    return Alert(
        name="OutboxScalerAtMax",
        severity="warn",
        hold=15 * MINUTE,
        expr=f"""
            max by (namespace, name) (outbox_scaler_desired_replicas)
            >= on (namespace, name) max by (namespace, name) (outbox_scaler_max_replicas)
            and on (namespace)
            max by (namespace) (outbox_oldest_ready_age_seconds) > {limits.delivery_seconds:g}
        """,
        meaning="The autoscaler wants no fewer than its maximum, and messages are late.",
        summary="{{ $labels.name }} is at its maximum, and messages are late",
        description=(
            "For 15 minutes the scaler {{ $labels.name }}" + PLACE + " has wanted its maximum of"
            " replicas ({{ $value }}), while messages that could be delivered wait for more than"
            f" {limits.delivery_seconds:g} seconds."
        ),
    )


def _limited() -> Alert:
    return Alert(
        name="OutboxScalerLimited",
        severity="warn",
        hold=30 * MINUTE,
        expr="""
            max by (namespace, name, reason) (outbox_scaler_limited{reason="DownstreamLimited"})
            == 1
        """,
        meaning="More workers would deliver no more: the destination or the database is the limit.",
        summary="{{ $labels.name }} is limited by what is behind the workers",
        description=(
            "For 30 minutes the scaler {{ $labels.name }}" + PLACE + " has added no workers,"
            " because more of them delivered no more. The destination or the database is the limit."
        ),
    )


def _stale(pace: Pace) -> Alert:
    limit = 5 * MINUTE * pace.scale
    return Alert(
        name="OutboxScalerStale",
        severity="warn",
        hold=MINUTE,
        # Remembered for an hour, so that an operator that is gone is noticed too.
        expr=f"""
            time() - max by (namespace, name) (
              last_over_time(outbox_scaler_last_reconcile_timestamp_seconds[{pace(HOUR)}])
            ) > {limit:g}
        """,
        meaning="The operator does not look after a scaler any more.",
        summary="Nobody scales {{ $labels.name }}",
        description=(
            "The operator looked at the scaler {{ $labels.name }}"
            + PLACE
            + " {{ $value | humanizeDuration }} ago for the last time. The number of workers stays"
            " as it is, whatever the backlog."
        ),
    )
