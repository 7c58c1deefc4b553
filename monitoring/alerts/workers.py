"""Workers are missing, die, or do not get on."""

from __future__ import annotations

from monitoring.limits import HOUR, MINUTE, Pace
from monitoring.rise import risen
from monitoring.rule import PLACE, Alert


def alerts(pace: Pace) -> tuple[Alert, ...]:
    """Nobody works, somebody died, something is wrong with what they do."""
    return (
        _workers_missing(),
        _destination_unserved(pace),
        _worker_killed(pace),
        _leases_lost(pace),
        _expired_leases(),
        _leases_reclaimed(pace),
        _breaker_open(pace),
        _publisher_failures(pace),
        _finalize_refused(pace),
    )


def _workers_missing() -> Alert:
    return Alert(
        name="OutboxWorkersMissing",
        severity="page",
        hold=5 * MINUTE,
        expr="""
            sum by (namespace, database) (
              max by (namespace, database, destination) (outbox_pending_messages{state="ready"})
            ) > 0
            and on (namespace, database)
            max by (namespace, database) (outbox_workers{state="running"}) == 0
        """,
        meaning="Messages wait, and no worker has a heartbeat.",
        summary="No worker runs",
        description=(
            "No worker" + PLACE + " is running, and messages are ready to be delivered:"
            " {{ $value | humanize }}. With an autoscaler that starts at zero: it did not start"
            " any."
        ),
    )


def _destination_unserved(pace: Pace) -> Alert:
    # Workers export a counter for each destination that they serve, from the start. With more than
    # fifty some share `_other`, and nobody can tell.
    seen = pace(5 * MINUTE)
    return Alert(
        name="OutboxDestinationUnserved",
        severity="warn",
        hold=10 * MINUTE,
        expr=f"""
            max by (namespace, database, destination) (
              outbox_pending_messages{{state="ready", destination!="_other"}}
            ) > 0
            unless on (namespace, destination) last_over_time(outbox_messages_claimed_total[{seen}])
            unless on (namespace) outbox_messages_claimed_total{{destination="_other"}}
            and on (namespace) outbox_worker_slots
        """,
        meaning="Messages wait for a destination that no worker serves.",
        summary="No worker serves {{ $labels.destination }}",
        description=(
            "None of the workers that run" + PLACE + " is configured for the destination"
            " {{ $labels.destination }}. How many messages wait for it: {{ $value | humanize }}."
            " Unless one is, they wait for ever; or the producer named the wrong destination."
        ),
    )


def _worker_killed(pace: Pace) -> Alert:
    return Alert(
        name="OutboxWorkerKilled",
        severity="warn",
        # The code stays until the next end of the container, so only a restart makes it news.
        expr=f"""
            max by (namespace, pod, container) (kube_pod_container_status_last_terminated_exitcode)
            == 137
            and on (namespace, pod, container)
            max by (namespace, pod, container) (
              increase(kube_pod_container_status_restarts_total[{pace(15 * MINUTE)}])
            ) > 0
            and on (namespace, pod) last_over_time(outbox_worker_slots[{pace(HOUR)}])
        """,
        meaning="A worker was killed (exit code 137): out of memory, or its drain took too long.",
        summary="The worker {{ $labels.pod }} was killed",
        description=(
            "The container {{ $labels.container }} of the worker {{ $labels.pod }}" + PLACE + " was"
            " killed and started again. What it held is delivered again when its leases expire;"
            " consumers may see it twice."
        ),
    )


def _leases_lost(pace: Pace) -> Alert:
    return Alert(
        name="OutboxLeasesLost",
        severity="warn",
        hold=15 * MINUTE,
        expr=f"sum by (namespace) (rate(outbox_leases_lost_total[{pace(15 * MINUTE)}])) > 0",
        meaning="Workers keep losing leases before they are done: messages are delivered twice.",
        summary="Workers lose their leases",
        description=(
            "For 15 minutes workers" + PLACE + " have been losing leases: others took their"
            " messages over before they were done, and those are published twice. Per second that"
            " is {{ $value | humanize }}."
        ),
    )


def _expired_leases() -> Alert:
    return Alert(
        name="OutboxExpiredLeases",
        severity="warn",
        hold=10 * MINUTE,
        labels=(("source", "database"),),
        expr="max by (namespace, database, destination) (outbox_expired_leases) > 0",
        meaning="Expired leases that nobody takes over, for 10 minutes.",
        summary="Expired leases of {{ $labels.destination }} are not taken over",
        description=(
            "For 10 minutes there have been messages for {{ $labels.destination }}"
            + PLACE
            + " whose"
            " lease ran out; now: {{ $value | humanize }}. Workers die while they publish, or"
            " nobody is left who serves this destination."
        ),
    )


def _leases_reclaimed(pace: Pace) -> Alert:
    return Alert(
        name="OutboxExpiredLeases",
        severity="warn",
        hold=30 * MINUTE,
        labels=(("source", "worker"),),
        expr=risen("outbox_leases_reclaimed_total", by="namespace", pace=pace),
        meaning="Leases keep expiring, for half an hour, although they are taken over.",
        summary="Leases keep expiring",
        description=(
            "For half an hour workers"
            + PLACE
            + " have been taking over messages with expired leases; in the last 15 minutes about"
            ' {{ $value | printf "%.0f" }}. Workers keep dying, or the lease is too short for what'
            " they publish."
        ),
    )


def _breaker_open(pace: Pace) -> Alert:
    lately = pace(5 * MINUTE)
    return Alert(
        name="OutboxBreakerOpen",
        severity="warn",
        hold=10 * MINUTE,
        # A new pod starts with a closed breaker, and needs a moment to find out. So what was open
        # lately still counts, unless it is there and has closed.
        expr=f"""
            max by (namespace, destination) (outbox_breaker_open) == 1
            or
            max by (namespace, destination) (max_over_time(outbox_breaker_open[{lately}])) == 1
            unless max by (namespace, destination) (
              max_over_time(outbox_breaker_open[{lately}]) and outbox_breaker_open == 0
            ) == 1
        """,
        meaning="A destination fails for all messages.",
        summary="{{ $labels.destination }} fails for all messages",
        description=(
            "For 10 minutes the destination {{ $labels.destination }}" + PLACE + " has failed for"
            " all messages, for one worker at least. Nothing is lost and no attempts are spent, but"
            " nothing is delivered there until it works again."
        ),
    )


def _publisher_failures(pace: Pace) -> Alert:
    return Alert(
        name="OutboxPublisherFailures",
        severity="warn",
        expr=risen("outbox_publisher_failures_total", by="namespace, destination", pace=pace),
        meaning="A publisher raised what it must not raise: a bug, which stops a worker.",
        summary="The publisher of {{ $labels.destination }} has a bug",
        description=(
            "The publisher of {{ $labels.destination }}"
            + PLACE
            + " raised what it did not classify. How often in the last 15 minutes: about"
            ' {{ $value | printf "%.0f" }}. Unless configured otherwise, the worker stops serving'
            " that destination."
        ),
    )


def _finalize_refused(pace: Pace) -> Alert:
    return Alert(
        name="OutboxFinalizeRefused",
        severity="warn",
        expr=risen("outbox_finalize_refused_total", by="namespace, destination", pace=pace),
        meaning="The database refuses to record results: those messages are published again.",
        summary="Results for {{ $labels.destination }} are not recorded",
        description=(
            "Results for {{ $labels.destination }}"
            + PLACE
            + " that the database refused to record in the last 15 minutes: about"
            ' {{ $value | printf "%.0f" }}. A message whose result is refused is published again'
            " and again, until its attempts are used up."
        ),
    )
