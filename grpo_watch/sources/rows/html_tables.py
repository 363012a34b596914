"""Finds tables of training metrics in HTML, as notebooks save them."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser

from msgspec import Struct

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.rows.layouts import step_key
from grpo_watch.sources.rows.tables import MAX_COLUMNS

HTML = (".html", ".htm")
BAR = re.compile(r"\[\s*(\d{1,9})/(\d{1,9})[ <,]")
"""``[100/100 2:43:09, Epoch 0/1]`` above a table."""
STEP = re.compile(rb"<t[hd][^>]{0,80}>\s{0,20}(?:Step|step|global_step)\s{0,20}</t[hd]>")


class HtmlTable(Struct, frozen=True):
    """One table under a ``Step`` header; ``done`` and ``total``: the bar above it."""

    header: list[str]
    lines: list[list[str]]
    done: int
    total: int | None


def holds_html_table(head: bytes) -> bool:
    """Whether HTML that begins with ``head`` is a notebook's output with a table of metrics."""
    return STEP.search(head) is not None or bool(TableParser(head.decode("utf-8", "replace"), frames=True).tables)


class TableParser(HTMLParser):
    """Collects the header and the complete lines of each table that has a ``Step`` column, with the bar before it.

    An unfinished table counts up to its last complete line. ``frames``: tables of pandas whose header names a step and
    a reward count too.
    """

    def __init__(self, html: str, *, frames: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self._frames = frames
        self.tables: list[HtmlTable] = []
        self._header: list[str] = []
        self._lines: list[list[str]] = []
        self._before = ""
        self._cells: list[str] = []
        self._cell: str | None = None
        self.feed(html)
        self._ended()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle the start of a line or a cell."""
        del attrs
        if tag == "tr":
            self._cells = []
        elif tag in {"td", "th"}:
            self._cell = ""

    def handle_data(self, data: str) -> None:
        """Handle text inside or between cells."""
        if self._cell is not None:
            self._cell += data
        elif not self._header:
            self._before = (self._before + data)[-10_000:]

    def handle_endtag(self, tag: str) -> None:
        """Handle the end of a cell, a line or the table."""
        if tag in {"td", "th"} and self._cell is not None:
            self._cells += [self._cell.strip()] if len(self._cells) < MAX_COLUMNS else []
            self._cell = None
        elif tag == "tr":
            self._line()
        elif tag == "table":
            self._ended()

    def _line(self) -> None:
        if not self._header:
            self._header = self._cells if "Step" in self._cells or (self._frames and _of_frame(self._cells)) else []
        elif len(self._cells) == len(self._header):
            self._lines.append(self._cells)

    def _ended(self) -> None:
        if self._lines:
            bars = BAR.findall(self._before)
            done, total = (int(bars[-1][0]), int(bars[-1][1])) if bars else (0, None)
            self.tables.append(HtmlTable(self._header, self._lines, done, total))
        if self._header:
            self._header, self._lines, self._before = [], [], ""


def _of_frame(cells: Sequence[str]) -> bool:
    """Whether a pandas table's header names training metrics: its index has no name."""
    rewarded = any(guess(cell) == "reward_mean" for cell in cells)
    return rewarded and step_key([cell for cell in cells if cell]) is not None
