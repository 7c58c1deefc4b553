"""What one scrape found, as series for promtool: as if every scrape since had found the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.support.promtool import series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric

TARGET = {"namespace": "pgoutbox", "job": "operator", "instance": "a"}
MINUTES = 45


def held(text: str, *, alive: bool = True) -> dict[str, str]:
    """As with ``honor_labels``: what a series says itself goes before what its target is.

    Times are those before or after the scrape. ``alive``: they go on, as of one who looks again
    and again. Counters have risen once.
    """
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    return {
        series(sample.name, **TARGET | sample.labels): _values(sample.name, sample.value, alive)
        for family in parse(text)
        for sample in family.samples
        if sample.name.startswith("outbox_")
    }


def _values(name: str, value: float, alive: bool) -> str:  # noqa: FBT001 - private
    if name.endswith("_timestamp_seconds"):
        return f"{value - time.time():.0f}+{60 * alive}x{MINUTES}"
    if name.endswith("_total"):
        return f"0 {value:g}x{MINUTES}"
    return f"{value:g}x{MINUTES}"
