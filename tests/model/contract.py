"""What the delivery promises, computed from a run's rows alone: no code of the program is used here.

Four rules over four columns. A column that a row lacks tells nothing, so the rule stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, float]
"""What a row holds, by the log's own names; its place in the log is its step, from 1."""


@dataclass(frozen=True)
class Wanted:
    """A rule: ``column`` above ``limit`` for ``patience`` steps fires; as long without ends it."""

    name: str
    column: str
    limit: float
    patience: int
    severity: str


RULES = (
    Wanted("high", "reward", 0.5, 0, "warning"),
    Wanted("grave", "kl", 0.5, 0, "critical"),
    Wanted("long", "completions/mean_length", 100.0, 2, "warning"),
    Wanted("faint", "grad_norm", 5.0, 0, "info"),
)
BY_NAME = {rule.name: rule for rule in RULES}


@dataclass(frozen=True)
class News:
    """One message that somebody is owed; equal for the same event."""

    run: str
    rule: str
    status: str
    step: int


def history(run: str, rows: Sequence[Row]) -> list[News]:
    """What these rows say, in the order of their steps."""
    found = [news for rule in RULES for news in _history(run, rule, rows)]
    return sorted(found, key=lambda news: news.step)


def _history(run: str, rule: Wanted, rows: Sequence[Row]) -> Iterator[News]:
    first = last = None
    firing = False
    for step, row in enumerate(rows, 1):
        if rule.column not in row:
            continue
        if row[rule.column] > rule.limit:
            first = step if first is None else first
            last = step
            if not firing and step - first >= rule.patience:
                firing = True
                yield News(run, rule.name, "firing", step)
        elif not firing:
            first = None
        elif last is not None and step - last >= rule.patience:
            firing, first = False, None
            yield News(run, rule.name, "resolved", step)


@dataclass(frozen=True)
class Absence:
    """A receiver was not configured while the rows of a run after ``after`` and up to ``until`` were read."""

    run: str
    after: int
    until: int

    def holds(self, news: News) -> bool:
        """Whether this happened meanwhile."""
        return news.run == self.run and self.after < news.step <= self.until


def missed(news: Sequence[News], absence: Absence) -> set[News]:
    """What of a run's news a receiver does not get because it was not configured: what came and went meanwhile.

    What changed in all it gets: an alert that fires and did not before, or one that fired before and is over.
    """
    found: set[News] = set()
    for rule in RULES:
        changes = [each for each in news if each.rule == rule.name and absence.holds(each)]
        found.update(changes[:-1] if len(changes) % 2 else changes)
    return found


def owed(news: Sequence[News], severities: frozenset[str], runs: frozenset[str]) -> list[News]:
    """What of it concerns a receiver of these severities and runs."""
    return [each for each in news if BY_NAME[each.rule].severity in severities and each.run in runs]


def in_order(news: Sequence[News]) -> bool:
    """Whether each run's news are in the order of their steps."""
    lines: dict[str, list[int]] = {}
    for each in news:
        lines.setdefault(each.run, []).append(each.step)
    return all(steps == sorted(steps) for steps in lines.values())


def alternates(statuses: Sequence[str], *, ended: bool) -> bool:
    """Whether each episode fires once and then ends once; ``ended``: the last one too."""
    reported = list(statuses) == [("firing", "resolved")[place % 2] for place in range(len(statuses))]
    return reported and not (ended and len(statuses) % 2)
