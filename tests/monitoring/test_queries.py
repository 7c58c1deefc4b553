"""Rules and dashboard ask for metrics and labels that exist, in a way that fits their type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from monitoring.dashboard import VARIABLES, rows
from monitoring.rules import alert_groups, groups
from pgoutbox.telemetry.catalogue import METRICS
from tests.support.known_series import LABELS, RECORDED, SCRAPED, SERIES
from tests.support.promql import called_with, grouped, selectors

if TYPE_CHECKING:
    from monitoring.dashboard.grafana import Variable
    from monitoring.rule import Alert

RULES = {
    f"{rule.get('alert') or rule['record']} {number}": rule["expr"]
    for group in groups()
    for number, rule in enumerate(group["rules"])
}
PANELS = {
    f"{row.title}: {panel.title} {number}": query
    for row in rows()
    for panel in row.panels
    for number, query in enumerate(panel.queries)
}
CHOSEN = {"$__rate_interval": "5m", "$namespace": ".*", "$database": ".*", "$destination": ".*"}


def filled(expression: str) -> str:
    """As Grafana sends it when everything is chosen."""
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


EXPRESSIONS = {**RULES, **{title: filled(query.expr) for title, query in PANELS.items()}}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
class TestExpressions:
    def test_every_metric_exists(self, expression: str) -> None:
        assert {each.name for each in selectors(expression)} <= LABELS.keys()

    def test_every_label_that_is_matched_exists(self, expression: str) -> None:
        for each in selectors(expression):
            assert each.labels <= LABELS[each.name] | SCRAPED, each.name

    def test_every_value_that_is_matched_can_occur(self, expression: str) -> None:
        for each in selectors(expression):
            metric = SERIES.get(each.name)
            for label, value in each.equal:
                known = metric.values.get(label) if metric else None
                assert known is None or value in known
                if label == "le" and metric:
                    assert float(value) in metric.buckets

    def test_every_label_that_is_grouped_by_exists(self, expression: str) -> None:
        known = set[str]().union(*(LABELS[each.name] for each in selectors(expression)))
        assert grouped(expression) <= known | SCRAPED

    def test_rates_are_those_of_counters_and_slopes_those_of_gauges(self, expression: str) -> None:
        for function, name in called_with(expression):
            metric = SERIES.get(name)
            counts = name.endswith(("_total", "_count", "_sum", "_bucket"))
            assert metric is None or counts == (metric.type != "gauge")
            if function in ("rate", "increase"):
                assert counts, name
            if function in ("deriv", "predict_linear", "delta"):
                assert not counts, name


@pytest.mark.parametrize("title", PANELS)
def test_every_legend_names_labels_that_its_query_keeps(title: str) -> None:
    query = PANELS[title]
    expression = filled(query.expr)
    kept = grouped(expression).union(*(RECORDED.get(s.name, ()) for s in selectors(expression)))
    assert set(re.findall(r"{{(\w+)}}", query.legend)) <= kept


@pytest.mark.parametrize(
    "alert",
    [alert for alerts in alert_groups().values() for alert in alerts],
    ids=lambda alert: alert.name,
)
def test_every_annotation_names_labels_that_its_alert_has(alert: Alert) -> None:
    expression, texts = alert.expr, alert.summary + alert.description
    kept = grouped(expression).union(*(RECORDED.get(s.name, ()) for s in selectors(expression)))
    optional = {"namespace", "database"}
    assert set(re.findall(r"\$labels\.(\w+)", texts)) - optional <= kept


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.label)
def test_every_choice_offers_values_of_a_label_that_exists(variable: Variable) -> None:
    for each in selectors(filled(variable.selector)):
        names = re.findall(r"outbox_\w+", variable.selector) if not each.name else [each.name]
        for name in names:
            assert variable.label in LABELS[name] | SCRAPED


def test_the_dashboard_shows_every_metric_of_trouble_and_of_load() -> None:
    shown = {each.name for query in PANELS.values() for each in selectors(filled(query.expr))}
    unseen = {metric.name for metric in METRICS if not shown.intersection(metric.series)}
    assert unseen == {
        "outbox_build_info",
        "outbox_messages_claimed_total",
        "outbox_oldest_pending_timestamp_seconds",
    }
