"""Turns AReaL's boxes of statistics, printed under ``Train step 7/100 done.``, into rows."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.line_reader import LineReader, MetricLine

HEAD = re.compile(rb"\bTrain step (\d{1,9})/(\d{1,9}) done\.")
PART = re.compile(rb"\bStats \((\d{1,4})/(\d{1,4})\)")
BOTTOM = "╘".encode()
BAR = "│"
NUMBER = re.compile(r"-?\d[\d.]{0,20}(?:e[-+]?\d{1,3})?|-?inf|nan")


class ARealLines(LineReader):
    """Cells of a box are keys and values in turn; the boxes of one step make one row; a key's last value counts."""

    framework = "areal"
    marks: Sequence[bytes] = (b"Train step ",)

    def __init__(self) -> None:
        self._place: tuple[int, int] | None = None
        self._values: dict[str, float | None] = {}
        self._last = True

    @property
    def held(self) -> bool:
        """Whether more boxes of a step may follow."""
        return self._place is not None

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row that this line completes."""
        if (head := HEAD.search(line)) is not None:
            done, self._place = self.flush(), (int(head[1]), int(head[2]))
            return done
        if self._place is None:
            return ()
        if (part := PART.search(line)) is not None:
            self._last = part[1] == part[2]
        elif BOTTOM in line:
            return self.flush() if self._last else ()
        else:
            self._cells(line.decode("utf-8", "replace"))
        return ()

    def _cells(self, line: str) -> None:
        if BAR not in line:
            return
        cells = [cell.strip() for cell in line.strip().strip(BAR).split(BAR)]
        for key, value in zip(cells[::2], cells[1::2], strict=False):
            if "/" in key and NUMBER.fullmatch(value):
                self._values[key] = float(value)

    def flush(self) -> Sequence[MetricLine]:
        """The row of the boxes so far."""
        place, values = self._place, self._values
        self._place, self._values, self._last = None, {}, True
        return (MetricLine(place[0], values, max_steps=place[1]),) if place is not None and values else ()


READER = ARealLines
