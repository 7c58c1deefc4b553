"""What a dashboard is made of, and how Grafana writes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 24
SCHEMA_VERSION = 39
"""Of Grafana 10.4; later ones read it too."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["stat", "timeseries", "table"]


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard: values of a label, any number of them."""

    label: str
    selector: str
    """The series whose labels are offered."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    what: str = ""
    """What it means, where its title does not say so."""
    unit: str = "short"
    """In Grafana's words: `s`, `ops`, `percentunit`."""
    limits: tuple[float, ...] = ()
    """Yellow from the first on, red from the second on."""
    width: int = 8
    height: int = 7


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Looks(TypedDict, total=False):
    """Of a `Panel`, what may be said about it."""

    what: str
    unit: str
    limits: tuple[float, ...]
    width: int


def stat(title: str, expr: str, **looks: Unpack[Looks]) -> Panel:
    """One number for everything that is chosen."""
    return replace(Panel(title, (Query(expr),), kind="stat", width=3, height=4), **looks)


def graph(title: str, *queries: Query, **looks: Unpack[Looks]) -> Panel:
    """Lines over time."""
    return replace(Panel(title, queries), **looks)


def board(
    title: str, *, uid: str, variables: Sequence[Variable], rows: Iterable[Row]
) -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "uid": uid,
        "title": title,
        "tags": ["outbox"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_choice(), *map(_choice, variables)]},
        "panels": _laid_out(rows),
    }


def _source_choice() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _choice(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.selector}, {variable.label})"
    return {
        "name": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": variable.label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Matches as well where there is no such label: without Kubernetes, with one database.
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _laid_out(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """From left to right, a new line where a panel does not fit any more."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        placed.append({"type": "row", "title": row.title, "collapsed": False, "panels": []})
        placed[-1] |= {"id": len(placed), "gridPos": place}
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            placed.append({**_picture(panel), "id": len(placed) + 1, "gridPos": place})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _picture(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.what} if panel.what else {}),
        "datasource": SOURCE,
        "targets": [
            _target(query, chr(ord("A") + index), panel.kind)
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _target(query: Query, name: str, kind: Kind) -> dict[str, Any]:
    once = kind != "timeseries"
    return {
        "refId": name,
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": once,
        "range": not once,
        **({"format": "table"} if kind == "table" else {}),
    }


def _field(panel: Panel) -> dict[str, Any]:
    colours = ("green", "yellow", "red")
    bounds = (None, *panel.limits)
    steps = [{"color": colours[i], "value": bound} for i, bound in enumerate(bounds)]
    return {
        "unit": panel.unit,
        **({"min": 0} if panel.kind == "timeseries" else {}),
        "thresholds": {"mode": "absolute", "steps": steps},
    }


def _options(kind: Kind) -> dict[str, Any]:
    match kind:
        case "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        case "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "table":
            return {"showHeader": True}
