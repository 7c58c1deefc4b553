"""The list of alerts in docs/monitoring.md; what stands around it is written by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from monitoring.limits import DAY, HOUR, MINUTE
from monitoring.rules import DEFAULT_LIMITS, alert_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitoring.rule import Alert

MARKED = re.compile(r"(<!-- (alerts|limits) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def updated(text: str) -> str:
    """The page with its tables as they are to be."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[4]}", text)


def _alerts() -> str:
    rows = [_row(alert) for alerts in alert_groups().values() for alert in alerts]
    return _table(("Alert", "Severity", "For", "Meaning"), rows)


def _row(alert: Alert) -> tuple[str, ...]:
    name = f"[{alert.name}](runbooks/{alert.name}.md)"
    return name, alert.severity, _told(alert.hold), alert.meaning


def _told(seconds: float) -> str:
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return ""


def _limits() -> str:
    rows = [(f"`--{option}`", default, what) for option, default, what in DEFAULT_LIMITS.options()]
    return _table(("Option", "Default", "Meaning"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


TABLES = {"alerts": _alerts, "limits": _limits}
