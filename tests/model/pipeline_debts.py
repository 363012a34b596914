"""What one receiver is owed: the news of all rows, less what it missed by the settings or by a kill on a full disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.model.contract import Absence, News, Row, history, missed, owed
from tests.model.pipeline_scene import RUNS, SEVERITIES


class Debts:
    """``away`` is when the receiver was not configured; ``late`` are news that may come in another order.

    Args:
        name: the receiver's.
        rows: each run's rows so far.
    """

    def __init__(self, name: str, rows: Mapping[str, Sequence[Row]]) -> None:
        self._rows = rows
        self._severities = SEVERITIES.get(name, frozenset({"warning", "critical"}))
        self._runs = frozenset("a") if name == "one run" else frozenset(RUNS)
        self._forgotten: list[Absence] = []
        self.away: list[Absence] = []
        self.late: set[News] = set()

    def known(self) -> set[News]:
        """All news that concern it."""
        return set(owed([each for run in self._rows for each in self._history(run)], self._severities, self._runs))

    def owed(self) -> set[News]:
        """What of them it must get."""
        lacks = (missed(self._history(absence.run), absence) for absence in self.away)
        return self.known().difference(*lacks)

    def forget(self, seen: Sequence[News], stored: Mapping[str, int]) -> None:
        """A kill while the disk is full: of each run so many rows are stored, and nothing that became of later ones.

        The next process does not know that a message was refused or dropped, nor that the receiver was away: it sends
        those messages, after later news of their run.
        """
        self._forgotten += [absence for absence in self.away if absence.until > stored.get(absence.run, 0)]
        self.away = [absence for absence in self.away if absence not in self._forgotten]
        reached = {run: max((news.step for news in seen if news.run == run), default=0) for run in RUNS}
        passed = {news for news in self.owed() if news.step < reached[news.run]}
        self.late |= passed.difference(map(self.meant, seen))

    def meant(self, news: News) -> News:
        """The event of which it has these news.

        Of an alert that ended while the receiver was away, and was pending since, it is known only that it is over.
        """
        for absence in (*self.away, *self._forgotten):
            if news.status == "resolved" and absence.holds(news):
                meanwhile = [each for each in self._history(news.run) if absence.holds(each)]
                changes = [each for each in meanwhile if each.rule == news.rule and each.step <= news.step]
                if changes and changes[-1].status == "resolved":
                    return changes[-1]
        return news

    def _history(self, run: str) -> list[News]:
        return history(run, self._rows[run])
