"""What is chosen at the top of the dashboard, as matchers, and what many panels ask alike."""

from __future__ import annotations

NAMESPACE = 'namespace=~"$namespace"'
WORKERS = NAMESPACE
WORKERS_TO = f'{NAMESPACE}, destination=~"$destination"'
"""What workers did for the chosen destinations."""
TABLE = f'{NAMESPACE}, database=~"$database"'
TABLE_FOR = f'{TABLE}, destination=~"$destination"'
"""What the table holds for the chosen destinations."""
WINDOW = "$__rate_interval"

NAMED = "{{namespace}} {{database}} {{destination}}"
"""Legend of what the table holds, by destination. Labels that are not there leave no trace."""


def rate(counter: str, by: str, matchers: str) -> str:
    """How fast a counter of workers rises, in all of them together."""
    return f"sum by ({by}) (rate({counter}{{{matchers}}}[{WINDOW}]))"


def quantile(share: float, histogram: str, by: str, matchers: str) -> str:
    """What a share of the observations of all workers stayed below."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', f'{by}, le', matchers)})"


def held(gauge: str, by: str, matchers: str, *, function: str = "max") -> str:
    """What the table holds, not twice where an exporter hands over to another."""
    return f"{function} by ({by}) ({gauge}{{{matchers}}})"
