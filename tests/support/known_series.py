"""Which series and labels a query may ask for."""

from __future__ import annotations

from monitoring.rules import groups
from pgoutbox.telemetry.catalogue import METRICS

SERIES = {name: metric for metric in METRICS for name in metric.series}
SCRAPED = {"namespace", "job", "instance", "pod"}
"""Labels that Prometheus adds to what it scrapes."""
RECORDED = {
    rule["record"]: set(rule["record"].split(":")[0].split("_"))
    for group in groups()
    for rule in group["rules"]
    if "record" in rule
}
FOREIGN = {
    "ALERTS": {"alertname", "alertstate", "severity", "database", "destination"},
    "process_start_time_seconds": set(),
    "kube_pod_container_status_last_terminated_exitcode": {"container"},
    "kube_pod_container_status_restarts_total": {"container"},
}
LABELS = {
    **{name: set(metric.allowed_labels) for name, metric in SERIES.items()},
    **RECORDED,
    **FOREIGN,
}
