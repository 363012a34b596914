"""What a Grafana dashboard is made of: panels, described in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COLUMNS = 24
"""Width of Grafana's grid."""
RED, ORANGE, GREEN, BLUE = "red", "orange", "green", "blue"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and how its series are called: Grafana's ``{{label}}``."""

    expr: str
    legend: str = "{{run}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``unit`` is Grafana's id. ``steps`` are (from which value, colour), the first for all below.

    ``first`` is the column of a table whose largest values come first.
    """

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
    first: str = ""
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
    """A line per set of labels; ``columns`` maps a heading to query and unit, words and colours are of the first.

    Values without a heading are not shown. Where it has colours its worst lines come first.
    """
    queries = tuple(Query(expr, "") for expr, _ in columns.values())
    units = {heading: unit for heading, (_, unit) in columns.items()}
    return Panel(
        "table",
        title,
        "none",
        queries,
        width,
        9,
        columns=units,
        links=links,
        words=words or {},
        steps=steps,
        first=next(iter(columns)) if steps else "",
    )


def _queries(given: Iterable[Query | str]) -> tuple[Query, ...]:
    return tuple(Query(query) if isinstance(query, str) else query for query in given)
