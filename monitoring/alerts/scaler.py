"""The autoscaler has reached an end, cannot do its work, or is gone.

Nothing of this exists where there is no operator.
"""

from __future__ import annotations

from monitoring.limits import HOUR, MINUTE, Limits, Pace
from monitoring.rule import PLACE, Alert

BY = "namespace, name"


def alerts(limits: Limits, pace: Pace) -> tuple[Alert, ...]:
    """At its maximum, held back, not ready, forbidden, or gone."""
    return (_at_max(limits), _limited(), _not_ready(), _forbidden(pace), _stale(pace))


def _at_max(limits: Limits) -> Alert:
    return Alert(
        name="OutboxScalerAtMax",
        severity="warn",
        hold=15 * MINUTE,
        expr=f"""
            (
              max by ({BY}) (outbox_scaler_desired_replicas)
              >= on ({BY}) max by ({BY}) (outbox_scaler_max_replicas)
              or
              max by ({BY}) (outbox_scaler_desired_replicas)
              and on ({BY})
              max by ({BY}) (outbox_scaler_limited{{reason="ConnectionBudget"}}) == 1
            )
            and on ({BY})
            max by ({BY}) (outbox_scaler_oldest_ready_age_seconds) > {limits.delivery_seconds:g}
        """,
        meaning="The autoscaler may add no more workers, and messages are late.",
        summary="{{ $labels.name }} is at its maximum, and messages are late",
        description=(
            "For 15 minutes the scaler {{ $labels.name }}" + PLACE + " has had as many replicas as"
            " it may have ({{ $value }}), by its maximum or by its connection budget, while"
            " messages that could be delivered wait for more than"
            f" {limits.delivery_seconds:g} seconds."
        ),
    )


def _limited() -> Alert:
    return Alert(
        name="OutboxScalerLimited",
        severity="warn",
        hold=30 * MINUTE,
        expr=f"""
            max by ({BY}, reason) (
              outbox_scaler_limited{{reason=~"DownstreamLimited|DatabaseBound"}}
            ) == 1
        """,
        meaning="More workers would deliver no more: the destination or the database is the limit.",
        summary="{{ $labels.name }} is limited by what is behind the workers",
        description=(
            "For 30 minutes the scaler {{ $labels.name }}" + PLACE + " has added no workers,"
            " because more of them delivered no more ({{ $labels.reason }}): with"
            " DownstreamLimited the destinations are the limit, with DatabaseBound the database is."
        ),
    )


def _not_ready() -> Alert:
    return Alert(
        name="OutboxScalerNotReady",
        severity="warn",
        hold=10 * MINUTE,
        expr=f"""
            max by ({BY}) (outbox_scaler_condition{{type="Ready", status!="True"}}) == 1
        """,
        meaning="A scaler cannot do what its spec says: the number of workers stays as it is.",
        summary="{{ $labels.name }} is not ready",
        description=(
            "For 10 minutes the scaler {{ $labels.name }}" + PLACE + " has not been ready. The"
            " number of workers stays as it is, whatever the backlog; its condition Ready tells"
            " why."
        ),
    )


def _forbidden(pace: Pace) -> Alert:
    return Alert(
        name="OutboxOperatorForbidden",
        severity="warn",
        # Every right is there at 0 from the start, and what is forbidden is asked for again.
        expr=f"""
            sum by (namespace, verb, resource) (
              increase(outbox_operator_permission_errors_total[{pace(15 * MINUTE)}])
            ) > 0
        """,
        meaning="The cluster forbids the operator something that it needs.",
        summary="The operator may not {{ $labels.verb }} {{ $labels.resource }}",
        description=(
            "The cluster forbade the operator"
            + PLACE
            + " to {{ $labels.verb }} {{ $labels.resource }}. How often in the last 15 minutes:"
            ' about {{ $value | printf "%.0f" }}. Scalers that need it do not scale.'
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
            time() - max by ({BY}) (
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
