"""Turns the pieces of a console log into rows, progress and signs of trouble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.refusals import refused
from grpo_watch.engine.records import EventKind, Item, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.guessing import guess, names_updates
from grpo_watch.frameworks.line_reader import FrameworkLines, FrameworkRows, MetricLine
from grpo_watch.frameworks.python_literal import dictionaries
from grpo_watch.frameworks.setting_names import canonical_settings, framework_of_settings
from grpo_watch.sources.base import Skip, SourceStats, recalled, remembered
from grpo_watch.sources.completions.completion_table import PrintedTables
from grpo_watch.sources.console.collector_prefixes import Envelope
from grpo_watch.sources.console.markers import (
    TRACEBACK,
    find_markers,
    readable,
)
from grpo_watch.sources.console.older_state import older_state
from grpo_watch.sources.console.rows import ConsoleRows
from grpo_watch.sources.console.tracebacks import Sign, Tracebacks
from grpo_watch.sources.rows.bars import percent_of_bar, title_step, training_bar
from grpo_watch.sources.rows.fields import step_before
from grpo_watch.sources.rows.own_rows import OwnRows, begins_own_row, shows_metric
from grpo_watch.sources.rows.plain_text import scores_alone
from grpo_watch.sources.settings.config_files import trainer_arguments
from grpo_watch.sources.settings.printed_config import PRINTED, PrintedArguments, PrintedConfig

WIPE = 16
"""tqdm wipes a bar with as many spaces as the bar is long; the shortest bar has more than 16 characters."""
TABLE = b"\xe2\x94"
"""How the lines of TRL's completion table begin (box drawing); they contain model text."""
FRAGMENT = re.compile(rb"\{\s{0,4}['\"]([\w./-]{1,60})['\"]:")
"""The first key of a row without its end: printed over several lines, or cut by a bar."""
OTHER_BEGINNINGS = frozenset({"loss", "train_runtime", "eval_loss"})
LONGEST_FRAGMENT = 64 << 10
LONGEST_TITLE = 200
"""Bytes before a dictionary that are searched for its step."""
MOST_JOBS = 64
"""Other jobs whose names are remembered; each row of further jobs counts as another job's."""
STRANGE = 80
"""Characters reported of a line that resembles a framework's row."""

LEFT_OUT = "journalctl wrote null for a line of more than 4096 bytes: write the log with `journalctl --all -o json`"


class ConsoleParser(ConsoleRows):
    """Parses the pieces of a console log into items."""

    def __init__(
        self,
        name: str,
        segment: int,
        stats: SourceStats,
        state: Mapping[str, Scalar],
        tables: PrintedTables | None = None,
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        state = older_state(state)
        super().__init__(name, segment, state)
        self._tables = tables
        self.stats = stats
        self._envelope = Envelope(page=bool(state.get("page")))
        self._lines, self._config = FrameworkLines(state), PrintedConfig()
        self._arguments = PrintedArguments()
        self._names = {column: name for name, column in columns.items()}
        self._own, self._gave_way = OwnRows(state, self._names), state.get("gave way") is True
        self._fragment, self._job = b"", str(state.get("job") or "")
        self._others: set[str] = set()
        self._errors, self._strange = recalled(Tracebacks, state.get("errors")), ""

    def state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart; valid only while idle."""
        return {
            **super().state(),
            **self._lines.state(),
            "errors": remembered(self._errors),
            **self._own.state(),
            **(self._tables.state() if self._tables is not None else {}),
            **({"page": True} if self._envelope.page else {}),
            **({"gave way": True} if self._gave_way else {}),
            **({"job": self._job} if self._job else {}),
        }

    def feed(self, data: bytes, seen: float | None) -> list[Item]:
        """Return the items of one piece (the text between two carriage returns or line ends)."""
        self._out, self._seen, self._savable, self._fed = [], seen, self.idle, data
        left_out = self._envelope.left_out
        pieces = self._envelope.unwrap(data)
        if self._envelope.left_out > left_out:
            self.stats.skip(Skip.LOST, LEFT_OUT)
        if len(pieces) != 1:
            self._save()
        for piece in pieces:
            if self._tables is not None:
                summary = self._tables.read(piece, self.stats, self._seen)
                self._out += [summary] if summary is not None else []
                if self._tables.open:
                    self._save()
            if not (self._envelope.job and self._of_other_job(piece)):
                self._piece(piece)
        self._settle()
        return self._out

    def _of_other_job(self, piece: bytes) -> bool:
        """Whether another job than the first one with metrics printed the piece, and prints metrics too.

        The steps of two jobs don't form one run.
        """
        job = self._envelope.job
        if job in self._others:
            return True
        if job == self._job or not (self._own.wants(piece) and shows_metric(piece, or_step=bool(self._job))):
            return False
        if self._job:
            self._others |= {job} if len(self._others) < MOST_JOBS else set()
            how = f"grep -F '({job}, pid=' LOG | grpo-watch check -"
            self.stats.skip(Skip.NOT_A_ROW, f"several jobs write to this log, {self._job} is read; others: {how}")
            return True
        self._job = job
        return False

    def went_on(self) -> None:
        """Note that a row came: no earlier failure ended the job."""
        self._errors.clear()
        self.reported.clear()

    def _settle(self) -> None:
        waits = self._held or self._fragment or self._errors.open
        waits = waits or (self._tables is not None and self._tables.open)
        self.idle = not (waits or self._lines.held or self._envelope.open or self._printing or self._sizes.open)

    def _piece(self, data: bytes) -> None:
        if self._sizes.open:
            self._sized(self._sizes.feed(data))
        if not data or self._configured(data) or self._of_framework(data):
            return
        data = self._join(data) if self._fragment else row_numbers.opened(data)
        if b"{" in data and data[:2] != TABLE:
            if not (self._may_be_own and begins_own_row(data) and self._of_own_loop(data)):  # one with a dictionary
                self._with_rows(data)
        elif percent_of_bar(data) >= 0:
            self._own_rows(data, self._own.rows_of_bar)
            self._bar_and_text(data)
        elif data.isspace():
            self.steps.wiped = self.steps.wiped or len(data) >= WIPE
        elif not self._of_own_loop(data):
            if not (self.steps.rows or self._held) and row_numbers.headless(data):
                self.stats.skip(Skip.TRUNCATED, "the log begins inside a row, which is not read")
            self._text(data)

    @property
    def _printing(self) -> bool:
        return self._config.open or self._arguments.open

    def _configured(self, data: bytes) -> bool:
        """Whether the piece is part of the printed settings of the job."""
        if data[:1] != b"{" and data[-1:] != b"(" and not self._printing:
            return False
        printed = next((each for each in (self._arguments, self._config) if each.open or each.begins(data)), None)
        if printed is None:
            return False
        self._save()
        own, given = printed.feed(data)
        if given is None:
            return own
        if printed is self._arguments:
            found = trainer_arguments(given, PRINTED)
            if found.settings:
                self._configure(found.framework, found.version, found.settings, given)
        elif (whose := framework_of_settings(given)) is not None:
            self.framework = self.framework or whose
            self._configure(whose, None, canonical_settings(given, whose, PRINTED), given)
        return own

    def _of_framework(self, data: bytes) -> bool:
        """Whether the piece is part of a framework's own row format (a bar may precede it)."""
        held, lines = self._lines.held, self._lines
        if not held and (data[:2] == TABLE or not lines.may_begin(data)):
            return False
        taken = lines.read_line(data)
        if taken is None:
            if not self._errors.inside:  # code quoted by a traceback is no row
                self._strange = self._strange or readable(data)[:STRANGE]
            return False
        self._save()
        if (bar := training_bar(data)[0]) is not None:
            self._bar(bar)
        elif held and TRACEBACK in data:
            self._text(data)
        self._taken(taken)
        if self._lines.held:  # a title that own loops may print as well
            self._own_rows(data, self._own.rows_of)
        return True

    @property
    def _may_be_own(self) -> bool:
        """Whether own loops' rows may come now: not in a known framework's log, nor inside a traceback."""
        table = frameworks().get(self.framework)
        printed = self.steps.rows + len(self._held)
        if (table is not None and not table.any_loop) or (printed > 1 and not self._own.sure):
            return False
        return not (self._errors.inside or self._gave_way)

    def _of_own_loop(self, data: bytes) -> bool:
        return self._may_be_own and self._own.wants(data) and self._own_rows(data, self._own.rows_of)

    def _own_rows(self, data: bytes, read: Callable[[bytes], Sequence[MetricLine]]) -> bool:
        if not self._may_be_own:
            return False
        before = self.state() if self._savable else {}
        rows = read(data)
        if self.steps.bar is not None and self._own.counted:  # a trainer's log: its reward functions print lists
            rows = [row for row in rows if not scores_alone(row.values)]
        if rows and self._savable:
            self.saved, self._savable = before, False
        if rows and self._own.counted:
            self._count()
        for row in rows:
            self.went_on()
            self._line(row)
        return bool(rows)

    def _taken(self, taken: FrameworkRows) -> None:
        for line in taken.rows:
            self._name_framework(taken.framework)
            self.went_on()
            self._line(line)

    def _line(self, line: MetricLine) -> None:
        if line.lost:
            self.stats.skip(Skip.TRUNCATED, f"step {line.step}: the row breaks off inside a value, which is not read")
        held = self._pending(line.values, line.stream, line.max_steps, line.resolution)
        if line.step is not None:
            self._named(line.step, held)
        else:
            self._unnamed(held)

    def flush(self, seen: float | None) -> list[Item]:
        """Return the items held back, as if nothing more could show their step."""
        self._out, self._seen = [], seen
        for piece in self._envelope.flush():
            self._piece(piece)
        if (taken := self._lines.flush()) is not None:
            self._taken(taken)
        for row in self._own.flush():
            self._line(row)
        self._release()
        for printed in (self._config, self._arguments, self._sizes):
            printed.drop()
        if self._strange and not (self.framework or self.steps.rows):
            self.stats.skip(
                Skip.NOT_A_ROW, f"no row could be read; the first line that looks like one: {self._strange}"
            )
            self._strange = ""
        if self._fragment:
            self.stats.skip(Skip.TRUNCATED, "the log ends inside a row")
        sign = self._errors.flush()
        if not (self._errors.implied and self.reported):
            self._sign(sign)
        self._fragment, self.idle = b"", True
        return self._out

    def _with_rows(self, data: bytes) -> None:
        """Parse text with at least one brace: rows, with bars or text around them."""
        self._save()
        behind = 0
        for found in dictionaries(data):
            if found.row is None:
                if _begins_row(data, found.start):
                    self._before(data[behind : found.start])
                    self._fragment = data[found.start :][:LONGEST_FRAGMENT]
                    return
                break
            row = {self._names.get(key, key): value for key, value in found.row.items()} if self._names else found.row
            values = row_numbers.numbers(row)
            if not row_numbers.is_printed_row(row, values):  # its metrics may be nested
                row = dict(row_numbers.flat(row))
                values = row_numbers.numbers(row)
            if row_numbers.is_printed_row(row, values) or "train_runtime" in values:
                named = self._step_before(data[behind : found.start])
                self._row(row if named is None else {**row, **named}, values)
                behind = found.end
        if rest := data[behind:]:
            self._before(rest)

    def _step_before(self, data: bytes) -> dict[str, int] | None:
        """Return the step printed before a dictionary on its line, under the dictionary's key."""
        if 0 < len(data) <= LONGEST_TITLE and percent_of_bar(data) < 0:
            step, total = step_before(data.decode("utf-8", "replace"))
            if step is not None:
                return {"step": step} if total is None else {"step": step, "max_steps": total}
        self._before(data)
        return None

    def _before(self, data: bytes) -> None:
        """Parse a bar or text that shares its line with a row."""
        if percent_of_bar(data) >= 0:
            self._bar_and_text(data)
        elif data and not data.isspace():
            self._text(data)

    def _join(self, data: bytes) -> bytes:
        """Append this piece to the cut row (without a bar between them)."""
        bar, behind = training_bar(data)
        if bar is not None:
            self._bar(bar)
        joined, self._fragment = self._fragment + data[behind:], b""
        if len(joined) >= LONGEST_FRAGMENT:
            self.stats.skip(Skip.NOT_A_ROW, "a row without an end")
            return data[behind:]
        return joined

    def _row(self, row: dict[str, Any], values: dict[str, float | None]) -> None:
        self.went_on()
        place = row_numbers.place(row)
        if "train_runtime" in values:
            self._release()
            self.steps.wiped, self.steps.over = False, True
            step = place.step if place.step is not None else self.steps.bar or self.steps.last
            self._event(EventKind.FINISHED, step=step)
            return
        if self._own.scores_alone and names_updates(values):  # the supposed rows were text of the job's answers
            self._own, self._gave_way = OwnRows({}, self._names), True
            self._another()
        held = self._pending(values, row_numbers.stream_of(row, values), place.max_steps, place.resolution)
        if place.step is not None:
            self._named(place.step, held)
        else:
            self._unnamed(held)

    def _bar_and_text(self, data: bytes) -> None:
        bar, behind = training_bar(data)
        rest = data[behind:].strip() if behind < len(data) else b""
        if rest:
            self._save()
        if bar is not None:
            self._bar(bar)
        if rest:
            self._text(rest)

    def _text(self, data: bytes) -> None:
        traced, taken = self._errors.inside, self._errors.open
        if taken and (sign := self._errors.sign_of(data, self._envelope.rank)) is not None:
            self._sign(sign)
            return
        if not traced and self._held and not self.steps.wiped and title_step(data) is None:
            self._release()
        found = find_markers(data) if data[:2] != TABLE else None
        if found is None:
            self._errors.passed()
            return
        if found.title is not None:
            self._titled(found.title)
        elif found.traceback:
            self._save()
            self._own_rows(b"", lambda _: self._own.flush())  # held-back rows don't show that the job continued
            self._errors.begin(data)
        elif found.trouble:
            if not taken:
                self._save()
                self._sign(self._errors.sign_of(data, self._envelope.rank))
        elif found.event is EventKind.FINISHED:
            self._event(found.event)
        elif found.event is not None:
            self._once(found.event, found.text)
        else:
            self._announced(data, found)

    def _sign(self, sign: Sign | None) -> None:
        if sign is not None and self._errors.whose and not (self.framework or self.steps.rows):
            self._out.append(RunConfig(self._errors.whose, None, {}, self.name, self.segment))
        if sign is not None and self._once(sign.kind, sign.text) and refused(sign.text):
            self._event(EventKind.CONFIG_ERROR, sign.text)


def _begins_row(data: bytes, start: int) -> bool:
    """Whether a dictionary that continues past its line begins like a row."""
    key = FRAGMENT.match(data, start)
    name = key[1].decode() if key is not None else ""
    return name in OTHER_BEGINNINGS or name in row_numbers.STEP_KEYS or guess(name) is not None
