"""By how much a counter rose, also if that was the first that was ever seen of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitoring.limits import MINUTE

if TYPE_CHECKING:
    from monitoring.limits import Pace


def rise(counter: str, *, by: str, pace: Pace) -> str:
    """An expression: by how much a counter of workers rose in 15 minutes.

    `increase` does not see a counter that is scraped for the first time at 1. All of it is new if
    its process is, or if the same worker was scraped 15 minutes ago without it. Otherwise it was
    just not scraped, and is not taken for news.
    """
    window, seconds = pace(15 * MINUTE), 15 * MINUTE * pace.scale
    return f"""
        sum by ({by}) (
          (
            {counter}
            unless {counter} offset {window}
            and on (namespace, job, instance) (
              time() - process_start_time_seconds < {seconds:g}
              or outbox_worker_slots offset {window}
            )
          )
          or increase({counter}[{window}])
        )
    """


def risen(counter: str, *, by: str, pace: Pace) -> str:
    """As `rise`, where it did."""
    return f"{rise(counter, by=by, pace=pace).rstrip()} > 0"
