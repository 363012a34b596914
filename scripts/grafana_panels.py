"""Turns panels described in a line each into a Grafana dashboard (its JSON model), laid out row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

COLUMNS = 24
"""Width of Grafana's grid."""
SCHEMA = 39
"""Of Grafana 10.4; newer ones read it and bring it up to theirs."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RED, ORANGE, GREEN, BLUE = "red", "orange", "green", "blue"
TAG = "grpo-watch"
STATUS_PAGE = "http://${instance:raw}/#/run/${run:percentencode}"
LIMITS = ("min", "max")
"""Of an axis; beside what else is said of how a chart is drawn."""
JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and how its series are called: Grafana's ``{{label}}``."""

    expr: str
    legend: str = "{{run}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``unit`` is Grafana's id. ``steps`` are (from which value, colour), the first for all below."""

    kind: str
    title: str
    unit: str
    queries: Sequence[Query]
    width: int = 8
    height: int = 7
    about: str = ""
    steps: Sequence[tuple[float | None, str]] = ()
    words: Mapping[int, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[tuple[str, str]] = ()
    custom: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with the panels under it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``one_run``: the variable holds a single run, otherwise any number of them, or is not there (None)."""

    uid: str
    title: str
    about: str
    rows: Sequence[Row]
    one_run: bool | None = False


def lines(title: str, unit: str, *queries: Query | str, about: str = "", **custom: Any) -> Panel:
    """A chart over time; a query given as text is called by its run."""
    return Panel("timeseries", title, unit, _queries(queries), about=about, custom=custom)


def number(
    title: str,
    unit: str,
    expr: str,
    *steps: tuple[float | None, str],
    about: str = "",
    words: Mapping[int, str] | None = None,
) -> Panel:
    """One number, coloured by its value."""
    return Panel("stat", title, unit, (Query(expr, ""),), 4, 4, about, steps or ((None, BLUE),), words or {})


def states(title: str, query: Query, words: Mapping[int, str], *steps: tuple[float | None, str]) -> Panel:
    """A lane per series that shows when it was in which state."""
    return Panel("state-timeline", title, "none", (query,), COLUMNS, 8, steps=steps, words=words)


def table(
    title: str,
    columns: Mapping[str, tuple[str, str]],
    width: int,
    links: Sequence[tuple[str, str]] = (),
    *,
    words: Mapping[int, str] | None = None,
    steps: Sequence[tuple[float | None, str]] = (),
) -> Panel:
    """A line per set of labels; ``columns`` maps a heading to query and unit, words and colours are of the first."""
    queries = tuple(Query(expr, "") for expr, _ in columns.values())
    units = {heading: unit for heading, (_, unit) in columns.items()}
    return Panel("table", title, "none", queries, width, 9, columns=units, links=links, words=words or {}, steps=steps)


def render(dashboard: Dashboard) -> str:
    """The file's text."""
    return json.dumps(_model(dashboard), indent=1, ensure_ascii=False) + "\n"


def _queries(given: Iterable[Query | str]) -> tuple[Query, ...]:
    return tuple(Query(query) if isinstance(query, str) else query for query in given)


def _model(dashboard: Dashboard) -> JSON:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cursor over all charts
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": [] if dashboard.one_run is None else [_annotation("=" if dashboard.one_run else "=~")]},
        "links": list(_links(dashboard)),
        "panels": list(_panels(dashboard.rows)),
    }


def _variables(dashboard: Dashboard) -> Iterable[JSON]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
    several = not dashboard.one_run
    yield _variable("instance", "Watcher", "label_values(grpo_watch_build_info, instance)", several=several)
    if dashboard.one_run is not None:
        chosen = "=~" if several else "="
        runs = f'label_values(grpo_run_info{{instance{chosen}"$instance"}}, run)'
        yield _variable("run", "Run", runs, several=several)


def _variable(name: str, label: str, query: str, *, several: bool) -> JSON:
    everything = {"includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # with the time range: runs come and go
        "sort": 1,
        "multi": several,
        **(everything if several else {"includeAll": False, "current": {}}),
    }


def _annotation(chosen: str) -> JSON:
    firing = 'alertname=~"Grpo.*", alertname!="GrpoWatchAlive", alertstate="firing"'
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": RED,
        "expr": f'ALERTS{{{firing}, run{chosen}"$run"}}',
        "step": "15s",
        "titleFormat": "{{alertname}} {{rule}}",
        "textFormat": "{{run}}",
        "tagKeys": "severity",
    }


def _links(dashboard: Dashboard) -> Iterable[JSON]:
    yield {
        "title": "GRPO",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }
    if dashboard.one_run:
        yield {"title": "Status page", "type": "link", "url": STATUS_PAGE, "targetBlank": True, "icon": "external link"}


def _panels(rows: Sequence[Row]) -> Iterable[JSON]:
    numbers, top = count(1), 0
    for row in rows:
        yield _heading(row.title, next(numbers), top)
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": next(numbers), "gridPos": place, **_panel(panel)}
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _heading(title: str, number: int, top: int) -> JSON:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel) -> JSON:
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "targets": [_target(panel, n, query) for n, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        made["transformations"] = _one_table(panel)
    return made


def _target(panel: Panel, number: int, query: Query) -> JSON:
    whole = panel.kind in {"table", "stat"}
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": whole,
        "range": not whole,
        **({"format": "table"} if panel.kind == "table" else {}),
    }


def _defaults(panel: Panel) -> JSON:
    limits = {name: panel.custom[name] for name in LIMITS if name in panel.custom}
    drawn = {name: value for name, value in panel.custom.items() if name not in LIMITS}
    return {"unit": panel.unit, "custom": drawn, **limits, **({} if panel.columns else _judged(panel))}


def _judged(panel: Panel) -> dict[str, Any]:
    """Colours and words for values."""
    made: dict[str, Any] = {}
    if panel.steps:
        steps = [{"value": value, "color": color} for value, color in panel.steps]
        made |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
    if panel.words:
        words = {str(value): {"text": text, "index": n} for n, (value, text) in enumerate(panel.words.items())}
        made["mappings"] = [{"type": "value", "options": words}]
    return made


def _overrides(panel: Panel) -> Iterable[JSON]:
    judged = _judged(panel)
    for heading, unit in panel.columns.items():
        lit = {"custom.cellOptions": {"type": "color-background"}, **judged} if judged else {}
        yield _override(heading, {"unit": unit, **lit})
        judged = {}
    for heading, url in panel.links:
        yield _override(heading, {"links": [{"title": f"Open {heading}", "url": url}]})


def _override(heading: str, changes: JSON) -> JSON:
    properties = [{"id": name, "value": value} for name, value in changes.items()]
    return {"matcher": {"id": "byName", "options": heading}, "properties": properties}


def _one_table(panel: Panel) -> list[JSON]:
    """Joins the queries into one line per set of labels; a lone query's column has no number."""
    several = len(panel.queries) > 1
    names = [f"Value #{chr(ord('A') + n)}" if several else "Value" for n in range(len(panel.queries))]
    renamed = dict(zip(names, panel.columns, strict=True))
    hidden = {"Time": True, "__name__": True, "job": True}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "renameByName": renamed}},
    ]


_REDUCED = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True}
_OPTIONS: Mapping[str, JSON] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {**_REDUCED, "colorMode": "background", "graphMode": "none", "textMode": "value"},
    "state-timeline": {
        "legend": {**_LEGEND, "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}
