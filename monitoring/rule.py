"""What a rule is, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitoring.limits import Pace

Severity = Literal["page", "ticket", "warn"]
"""``page``: somebody has to act now. ``ticket``: within days. ``warn``: look today."""
RUNBOOKS = "docs/runbooks"

PLACE = (
    "{{ with $labels.namespace }} in namespace {{ . }}{{ end }}"
    "{{ with $labels.database }} of database {{ . }}{{ end }}"
)
"""Where it is, as far as labels tell; for the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alerting rule. Several may share a name, and then a runbook; their labels differ."""

    name: str
    severity: Severity
    expr: str
    hold: float = 0
    """For how many seconds it has to be so."""
    meaning: str
    """One sentence in Markdown, for the list of alerts."""
    summary: str
    description: str
    labels: tuple[tuple[str, str], ...] = ()

    def plain(self, pace: Pace, *, runbooks: str = RUNBOOKS) -> dict[str, Any]:
        """As in a file of rules. ``runbooks``: folder or URL that holds them."""
        hold = {"for": pace(self.hold)} if self.hold else {}
        return {
            "alert": self.name,
            "expr": tidy(self.expr),
            **hold,
            "labels": {"severity": self.severity, **dict(self.labels)},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks.rstrip('/')}/{self.name}.md",
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One recording rule."""

    name: str
    expr: str

    def plain(self) -> Mapping[str, Any]:
        """As in a file of rules."""
        return {"record": self.name, "expr": tidy(self.expr)}


def percent(share: float) -> str:
    """For people: `1.44%`."""
    return f"{100 * share:.6g}%"


def tidy(expr: str) -> str:
    """The expression without the margin that it has in the source."""
    return dedent(expr).strip()
