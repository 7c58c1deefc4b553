"""The tables of docs/metrics.md: ``python -m pgoutbox.telemetry.catalogue.page --write``.

What stands between the two marks of a table is generated, everything else is written by hand. Run
it in the project's folder; ``--check`` writes nothing and fails when the page is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.telemetry.catalogue import EXPORTER, METRICS, OPERATOR, WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pgoutbox.telemetry.catalogue.metric import Metric

PAGE = Path("docs/metrics.md")
TABLES: dict[str, Sequence[Metric]] = {
    "worker counters": [metric for metric in WORKER if metric.type == "counter"],
    "worker histograms": [metric for metric in WORKER if metric.type == "histogram"],
    "worker gauges": [metric for metric in WORKER if metric.type in ("gauge", "info")],
    "exporter": EXPORTER,
    "operator": OPERATOR,
    "buckets": [metric for metric in METRICS if metric.type == "histogram"],
}
MARKED = re.compile(r"(<!-- table: ([a-z ]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def updated(text: str) -> str:
    """The page with its tables as they are to be. Raises KeyError for a table nobody knows."""
    return MARKED.sub(lambda found: f"{found[1]}\n{_table(found[2])}\n{found[4]}", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check docs/metrics.md below the current folder; 1 when it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m pgoutbox.telemetry.catalogue.page")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="bring the page up to date")
    action.add_argument("--check", action="store_true", help="fail when it is out of date")
    write = parser.parse_args(arguments).write
    found = PAGE.read_text(encoding="utf-8")
    wanted = updated(found)
    if found == wanted:
        return 0
    if write:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    sys.stderr.write(f"{PAGE} is out of date; run this with --write\n")
    return 1


def _table(name: str) -> str:
    if name == "buckets":
        head, row = ["Histogram", "Bounds in seconds"], _bounds
    else:
        head, row = ["Metric", "Type", "Labels", "Meaning"], _row
    rows = [_line(row(metric)) for metric in TABLES[name]]
    return "\n".join([_line(head), "|---" * len(head) + "|", *rows]) + "\n"


def _row(metric: Metric) -> Sequence[str]:
    labels = []
    for label in metric.labels:
        values = ", ".join(f"`{value}`" for value in metric.values.get(label, ()))
        labels.append(f"`{label}`: {values}" if values else f"`{label}`")
    meaning = f"{metric.help}. {metric.more}".strip(". ") + "."
    return f"`{metric.name}`", metric.type, "; ".join(labels), meaning


def _bounds(metric: Metric) -> Sequence[str]:
    return f"`{metric.name}`", ", ".join(f"{bound:g}" for bound in metric.buckets)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
