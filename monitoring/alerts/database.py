"""The numbers are missing, or the database has trouble that slows everything down."""

from __future__ import annotations

from monitoring.limits import HOUR, MINUTE, Limits, Pace
from monitoring.rule import PLACE, Alert


def alerts(limits: Limits, pace: Pace) -> tuple[Alert, ...]:
    """Without the first two, the alerts about the table are blind."""
    return (_metrics_absent(pace), _collector_down(), _horizon_held(limits))


def _metrics_absent(pace: Pace) -> Alert:
    return Alert(
        name="OutboxMetricsAbsent",
        severity="warn",
        hold=10 * MINUTE,
        # An outbox without messages has no series but this. What vanished is told with its labels,
        # for as long as it is remembered; that nothing is there at all, without.
        expr=f"""
            max by (namespace, database) (last_over_time(outbox_collector_up[{pace(6 * HOUR)}]))
            unless max by (namespace, database) (outbox_collector_up)
            or on () absent(outbox_collector_up)
        """,
        meaning="No exporter is scraped, so alerts about the table cannot fire.",
        summary="Nobody tells what the outbox holds",
        description=(
            "For 10 minutes no exporter has been scraped" + PLACE + ". Until one is, no alert about"
            " ages, dead messages or missing workers can fire."
        ),
    )


def _collector_down() -> Alert:
    return Alert(
        name="OutboxCollectorDown",
        severity="warn",
        hold=5 * MINUTE,
        expr="min by (namespace, database) (outbox_collector_up) == 0",
        meaning="The exporter cannot look at the database, so alerts about the table cannot fire.",
        summary="The exporter cannot look at the outbox",
        description=(
            "For 5 minutes an exporter" + PLACE + " could not ask the database, or got no answer in"
            " time. Until it can, no alert about ages, dead messages or missing workers can fire."
        ),
    )


def _horizon_held(limits: Limits) -> Alert:
    return Alert(
        name="OutboxXminHorizonHeld",
        severity="warn",
        hold=5 * MINUTE,
        # A standby in use holds back a little always, and what holds back nothing does no harm.
        expr=f"""
            max by (namespace, database) (outbox_xmin_age_transactions)
            >= {limits.xmin_transactions}
            and max by (namespace, database) (outbox_xmin_age_seconds) >= {limits.xmin_seconds:g}
            or max by (namespace, database) (outbox_xmin_age_transactions)
            >= {limits.xmin_undated_transactions}
        """,
        meaning="An old transaction keeps vacuum from removing dead rows, and claims slow down.",
        summary="Vacuum of the outbox is held back",
        description=(
            "Something" + PLACE + " holds back the xmin horizon, so that vacuum cannot remove the"
            " rows of delivered messages. How many transactions back it is:"
            " {{ $value | humanize }}. Claims become slower the longer it lasts."
        ),
    )
