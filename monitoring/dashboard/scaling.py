"""How many workers there are, and why. Empty where there is no operator, but for the first."""

from __future__ import annotations

from monitoring.dashboard.chosen import NAMESPACE, TABLE_FOR, WINDOW, WORKERS, held
from monitoring.dashboard.grafana import Panel, Query, Row, graph

BY = "namespace, name"
NAMED = "{{namespace}} {{name}}"
GOOD = "Ready|MetricsAvailable|ScalingActive|Permitted"
"""Conditions that are True where all is well."""


def row() -> Row:
    """Load, replicas, decisions, and what is in their way."""
    return Row("Scaling", (_load(), *_replicas(), *_decisions(), *_troubles()))


def _load() -> Panel:
    return graph(
        "Load",
        Query(
            f"sum by (namespace) (outbox_worker_busy_slots{{{WORKERS}}})"
            f" / sum by (namespace) (outbox_worker_slots{{{WORKERS}}})",
            "busy slots {{namespace}}",
        ),
        what="The share of the workers' slots that is in use.",
        unit="percentunit",
    )


def _replicas() -> tuple[Panel, ...]:
    return (
        graph(
            "Replicas",
            *(
                Query(
                    f"max by ({BY}) (outbox_scaler_{which}_replicas{{{NAMESPACE}}})",
                    f"{which} {NAMED}",
                )
                for which in ("current", "desired", "max")
            ),
        ),
        graph(
            "What they are for",
            Query(
                held("outbox_oldest_ready_age_seconds", "namespace, database", TABLE_FOR),
                "oldest claimable message {{namespace}} {{database}}",
            ),
            Query(
                f"max by ({BY}) (outbox_scaler_oldest_ready_age_seconds{{{NAMESPACE}}})",
                f"as the scaler sees it {NAMED}",
            ),
            unit="s",
        ),
    )


def _decisions() -> tuple[Panel, ...]:
    return (
        graph(
            "Limits",
            Query(
                f"max by ({BY}, reason) (outbox_scaler_limited{{{NAMESPACE}}})",
                f"{{{{reason}}}} {NAMED}",
            ),
        ),
        graph(
            "Changes",
            Query(
                f"sum by (direction) (increase(outbox_scaler_scale_actions_total{{{NAMESPACE}}}"
                f"[{WINDOW}]))",
                "{{direction}}",
            ),
        ),
        graph(
            "Rate of one replica",
            Query(f"max by ({BY}) (outbox_scaler_rate_per_replica{{{NAMESPACE}}})", NAMED),
            what="As the operator measured it.",
            unit="ops",
        ),
        graph(
            "Since the last reconcile",
            Query(
                "time() - max by"
                f" ({BY}) (outbox_scaler_last_reconcile_timestamp_seconds{{{NAMESPACE}}})",
                NAMED,
            ),
            unit="s",
        ),
    )


def _troubles() -> tuple[Panel, ...]:
    return (
        graph(
            "Conditions that do not hold",
            Query(
                f"max by ({BY}, type) (outbox_scaler_condition{{{NAMESPACE},"
                f' type=~"{GOOD}", status!="True"}})',
                f"{{{{type}}}} {NAMED}",
            ),
            what="`kubectl describe` tells why.",
        ),
        graph(
            "Forbidden by the cluster",
            # Of operators, wherever they run: the chosen namespaces are those of outboxes.
            Query(
                "sum by (verb, resource) (increase(outbox_operator_permission_errors_total"
                f"[{WINDOW}]))",
                "{{verb}} {{resource}}",
            ),
        ),
    )
