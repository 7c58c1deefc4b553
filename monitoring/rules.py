"""All the rules, as plain data: for a file of rules, or for a PrometheusRule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitoring import recording
from monitoring.alerts import database, dead_letters, delivery, scaler, workers
from monitoring.limits import Limits, Pace
from monitoring.rule import RUNBOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitoring.rule import Alert

DEFAULT_LIMITS = Limits()
DEFAULT_PACE = Pace()


def alert_groups(
    limits: Limits = DEFAULT_LIMITS, pace: Pace = DEFAULT_PACE
) -> Mapping[str, tuple[Alert, ...]]:
    """The alerts by the name of their group."""
    return {
        "outbox-delivery": delivery.alerts(limits, pace),
        "outbox-dead-letters": dead_letters.alerts(limits, pace),
        "outbox-workers": workers.alerts(pace),
        "outbox-scaler": scaler.alerts(limits, pace),
        "outbox-database": database.alerts(limits, pace),
    }


def groups(
    limits: Limits = DEFAULT_LIMITS, pace: Pace = DEFAULT_PACE, *, runbooks: str = RUNBOOKS
) -> list[dict[str, Any]]:
    """What stands below ``groups`` in a file of rules, and in the ``spec`` of a PrometheusRule.

    ``limits``: thresholds. ``pace``: shortens all windows and durations alike, for tests.
    ``runbooks``: folder or URL of docs/runbooks, for the annotation ``runbook_url``.
    """
    recorded = [record.plain() for record in recording.records(limits, pace)]
    return [
        {"name": "outbox-recorded", "rules": recorded},
        *(
            {"name": name, "rules": [alert.plain(pace, runbooks=runbooks) for alert in alerts]}
            for name, alerts in alert_groups(limits, pace).items()
        ),
    ]
