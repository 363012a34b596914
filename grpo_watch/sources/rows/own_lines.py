"""Reads the rows that own training loops print: ``step 10 | reward 0.3 | kl 0.01``, or lines of ``key: value``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.guessing import OF_LEARNING, OF_UPDATES, guess, names_updates
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.sources.rows.fields import PrintedField, bare_line, counted, fields_in
from grpo_watch.sources.rows.own_steps import OwnSteps

LONGEST = 2_000
"""Most characters of a line that may be a row; own loops print some ten fields."""
LEAST_FIELDS = 2
"""Fewest fields of a row beside its step."""
CONSISTENT = 3
"""Rows with the same keys and rising steps that make a log of rows; text around a model's answers has fewer."""
SURE = 3
"""Update metrics that identify a single line as a row."""
MOST_HELD = 64
MOST_KEYS = 256
WORDS = (
    *b"rew return score loss kl step entrop grad lr learn clip trunc len iter epoch updat batch episode".split(),
    *b"round rollout accura correct adv std zero frac ratio: ratio= \xef\xbc".split(),
)
"""Parts of words that name a metric or a counter, and the first bytes of full-width letters."""
SHORT = 24
"""Lines of up to this many bytes are always decoded: ``[10/500]``."""
DIGIT = re.compile(rb"\d|\b(?:nan|inf)\b", re.IGNORECASE)
EVALUATION = re.compile(
    r"(?<![a-z])(?:eval|val(?:id|(?![a-z]))|test|bench|greedy|h[eo]ld.?out|samples?(?![a-z]))", re.IGNORECASE
)
"""Words in the title above numbers of an evaluation or of single completions."""
TITLE = re.compile(
    r"\W{0,40}(?:(?:eval(?:uation)?|validation|held.?out)(?: (?:results?|metrics|scores?|summary|set|\d{1,6})){0,2}"
    r"|(?P<sample>(?:sample|completion|example) \d{1,6}))\W{0,40}",
    re.IGNORECASE,
)
"""A title alone on its line, ``=== EVALUATION RESULTS ===`` or ``Sample 3:``: the fields below it belong to no training
row, unless they show that the title heads a part of the row."""
TITLED = re.compile(rb"eval|validation|held.?out|sample|completion|example", re.IGNORECASE)
EXAMPLE = re.compile(rb"\b(?:examples?|usage|format)\b", re.IGNORECASE)
"""Words in a line ending with a colon above a quoted row."""
DECIMALS = re.compile(r"[-+]?\d+\.(\d+)")


class _Block(Struct):
    """The fields of one row, from one line or several.

    ``single``: one line alone made the row; ``sampled``: the title of a sample stands right below its step.
    """

    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    led: bool = False
    single: bool = False
    sampled: bool = False

    @classmethod
    def of_line(cls, fields: Sequence[PrintedField]) -> _Block:
        block = cls()
        block.add(fields)
        block.single = block.whole
        return block

    def repeats(self, fields: Iterable[PrintedField]) -> bool:
        """Whether one of the fields is already present."""
        return any(one.name in self.values for one in fields)

    def add(self, fields: Sequence[PrintedField]) -> None:
        """Add the fields; of several counters the finest is the step."""
        step, total, epoch = counted(fields)
        self.epoch = self.epoch if epoch is None else epoch
        if step is not None:
            self.led = not self.values
        if step is not None and (self.step is None or (total or 0) > (self.total or 0)):
            self.step, self.total = step, total
        for one in fields:
            if not (one.is_step or one.counts):
                self.values.setdefault(one.name, one.value)
                self.texts.setdefault(one.name, one.text)

    @property
    def whole(self) -> bool:
        """Whether the fields are a row: a reward, or two metrics; without a step, a reward and an update's metric."""
        known = {guess(name) for name in self.values}
        rewarded = "reward_mean" in known
        if self.step is None:
            return rewarded and bool(known & OF_UPDATES)
        return rewarded or (bool(known & OF_LEARNING) and len(known - {None}) >= LEAST_FIELDS)

    def row(self, resolution: float | None = None) -> MetricLine:
        """Return the row; ``resolution``: the smallest number that its format can show."""
        values = dict(self.values) if self.epoch is None else {**self.values, "epoch": float(self.epoch)}
        total = self.total if (self.epoch or 0) <= 1 else None
        return MetricLine(self.step, values, max_steps=total, resolution=resolution)


class KeyDecimals(Struct):
    """The decimals printed for each key, and thus which small values its zeros can hide.

    A key that has shown more decimals than its zero is printed in full, so its zero is exact. ``0.0`` is Python's float
    zero, but with one decimal for every number it may be 0.04. It counts as exact once a number of the log has shown
    full printing: another count of decimals under the same key.
    """

    most: dict[str, int] = field(default_factory=dict)
    in_full: bool = False

    def resolution(self, texts: Mapping[str, str]) -> float | None:
        """Return half a unit of the last decimal of zeros that may be small numbers; None without such zeros."""
        zeros: list[int] = []
        for name, text in texts.items():
            if (found := DECIMALS.fullmatch(text)) is None:
                continue
            decimals, most = len(found[1]), self.most.get(name)
            if float(text) != 0:
                self.in_full = self.in_full or most not in {None, decimals}
                if most is not None or len(self.most) < MOST_KEYS:
                    self.most[name] = max(decimals, most or 0)
            elif decimals >= (most or 0) and not (decimals == 1 and self.in_full):
                zeros.append(decimals)
        return 0.5 * 10.0 ** -min(zeros) if zeros else None


class OwnLines(Struct):
    """Takes a log line by line; gives rows from the third consistent one on, the first three together.

    A row is one line with a step, a reward and another number; or such fields over several lines, which end at the
    field before the first one recurs. Of several lines only possible metrics count. Of several ranks the first is read.
    ``OwnSteps`` sets the steps of the rows.

    ``names``: the log's name of a metric (or the step) → its canonical name. ``sure``: it is a log of rows.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    sure: bool = False
    _block: _Block = field(default_factory=_Block)
    _last: str = ""
    _end: str = ""
    _held: list[MetricLine] = field(default_factory=list)
    _template: list[str] = field(default_factory=list)
    _noisy: list[str] = field(default_factory=list)
    _steps: OwnSteps = field(default_factory=OwnSteps)
    _near: bool = False
    _example: bool = False
    _quoted: bool = False
    _below: list[str] | None = None
    """The fields below another part's title so far; None without such a title."""
    _begin: str | None = None
    _carried: int | None = None
    _above: list[int | None] = field(default_factory=list)
    _decimals: KeyDecimals = field(default_factory=KeyDecimals)

    @property
    def begun(self) -> bool:
        """Whether a possible row was seen."""
        return bool(self._held or self.sure or self._block.values)

    @property
    def counted(self) -> bool:
        """Whether rows were numbered because their lines have no step."""
        return self._steps.counted

    @property
    def scores_alone(self) -> bool:
        """Whether its rows lack update metrics: a job's output about a game or an answer may look like that."""
        return self.sure and not names_updates(self._template)

    def rows_of(self, data: bytes) -> Sequence[MetricLine]:
        """Return the rows completed by this line."""
        if not self.wants(data):
            self.passed(data)
            return ()
        rank, text = bare_line(data.decode("utf-8", "replace"))
        fields = fields_in(text)
        if self.names:
            fields = [one._replace(name=self.names.get(one.name, one.name)) for one in fields]
        if not fields or rank or TITLE.fullmatch(text):
            self.passed(data)
            return ()
        alone = _Block.of_line(fields)
        if self._aside(text, fields, row=alone.whole):
            return ()
        self._quoted, self._example = self._quoted or self._example, False
        return self._alone(alone, fields) if alone.whole else self._collect(fields)

    def passed(self, data: bytes) -> None:
        """Note an unrelated line: the next one is not adjacent to the fields before it."""
        self._near = False
        short = len(data) <= LONGEST
        text = bare_line(data.decode("utf-8", "replace"))[1] if short and TITLED.search(data) is not None else ""
        if (title := TITLE.fullmatch(text)) is not None:
            block = self._block
            if block.sampled and OF_UPDATES.isdisjoint(map(guess, block.values)):  # the first sample's, above a second
                self._drop(block.values.keys())
            block.sampled |= title["sample"] is not None and block.step is not None and not block.values
            self._below = [] if (block.led if block.values else block.step is None) else None
        self._example = short and data.endswith(b":") and EXAMPLE.search(data) is not None

    def _aside(self, text: str, fields: Sequence[PrintedField], *, row: bool) -> bool:
        """Whether fields stand below an evaluation's title, or between rows in a log whose rows begin with a step."""
        counts = [one for one in fields if one.is_step or one.counts]
        if not row and len(counts) == len(fields) and EVALUATION.search(text) is not None:
            self._below = []
        elif row or self._below is None or self._belongs(fields, self._below, counts=bool(counts)):
            self._below = None
        elif not counts:
            self._below = [*self._below, *(one.name for one in fields)][-MOST_HELD:]
        between = self._begin == "" and not (row or counts or self._block.values) and self._block.step is None
        if between and self._below is None:
            self._go_on(fields)
        return between or self._below is not None

    def _go_on(self, fields: Sequence[PrintedField]) -> None:
        """Extend the rows from now on if fields directly below one are metrics, or the first of an update."""
        names = self._held[-1].values if self._held else dict.fromkeys(self._template, 0.0)
        known = {guess(one.name) for one in fields}
        first = bool(known & OF_UPDATES) and OF_UPDATES.isdisjoint(map(guess, names))
        if first or (self._near and known - {None, "reward_mean"}):
            self._end, self._near = fields[-1].name, True
            names = {**{one.name: one.value for one in fields}, **names}
            self._held[-1:] = [replace(row, values=names) for row in self._held[-1:]]
            self._template = list(names)[:MOST_KEYS]

    def _belongs(self, fields: Sequence[PrintedField], below: Sequence[str], *, counts: bool) -> bool:
        """Whether fields below a title, and below other fields under it, still belong to a training row."""
        if counts:  # before the first row, an evaluation's own counter may come first
            return bool(below) or self._begin is not None
        block, names = self._block, [one.name for one in fields]
        open_row = bool(block.values) and not block.single
        lacking = open_row and any(guess(name) in OF_UPDATES and name not in block.values for name in names)
        return lacking or names[0] == self._begin or not set(names).isdisjoint(below)

    def wants(self, data: bytes) -> bool:
        """Whether a line may hold fields of a row."""
        return may_show(data) or (len(data) <= LONGEST and any(name.encode() in data for name in self.names))

    def _alone(self, alone: _Block, fields: Sequence[PrintedField]) -> Sequence[MetricLine]:
        """Take a line that is a complete row: a new row, unless it adds to the step named by the lines before it."""
        block = self._block
        if block.values and not block.single and alone.step in {None, block.step} and not block.repeats(fields):
            return self._collect(fields)
        rows = self._close()
        self._block, self._last, self._near = alone, fields[-1].name, True
        return (*rows, *self._close()) if self._last == self._end else rows

    def _collect(self, fields: Sequence[PrintedField]) -> Sequence[MetricLine]:
        counting = [one for one in fields if one.is_step or one.counts or guess(one.name) is not None]
        known = [one for one in counting if one.name not in self._noisy]
        if not known:
            return ()
        rows: Sequence[MetricLine] = ()
        block, step = self._block, counted(known)[0]
        if step is not None and all(one.is_step or one.counts for one in known):
            leads = self._carried is not None and block.single and block.step is None
            rows = self._close() if leads else ()
            block = self._block
            self._carried = self._carried if block.values else step
        starts_over = step is not None and block.step is not None and step != block.step
        if block.single and not starts_over and not (step == block.step or self._near):
            return ()
        if starts_over or block.repeats(known):
            if not starts_over and block.led and block.step is not None:
                return self._again(known)
            rows = (*rows, *self._close())
        self._block.add(known)
        self._last, self._near = known[-1].name, True
        return (*rows, *self._close()) if self._last == self._end else rows

    def _again(self, known: Sequence[PrintedField]) -> Sequence[MetricLine]:
        """Drop fields that recur below one step: they belong to single completions."""
        if not self._block.single:
            self._drop({one.name for one in known} & self._block.values.keys())
        return ()

    def _drop(self, names: Iterable[str]) -> None:
        for name in tuple(names):
            del self._block.values[name]
            self._noisy = [*self._noisy, name][-MOST_HELD:]

    def _close(self) -> Sequence[MetricLine]:
        block, self._block = self._block, _Block()
        if not block.whole:
            return ()
        self._end = self._end or self._last
        self._begin = "" if block.led else next(iter(block.values))
        return self._completed(block.row(self._decimals.resolution(block.texts)))

    def _completed(self, row: MetricLine) -> Sequence[MetricLine]:
        if self.sure:
            keys = row.values.keys()
            alike = 2 * len(keys & set(self._template)) >= min(len(keys), len(self._template))
            return self._steps.later(row, self._carried) if alike else ()
        if self._held and not any(_follows(before, row) for before in self._held[-2:]):  # one step may be a misprint
            self._held, self._above = [], []
        self._held, self._above = [*self._held, row][-MOST_HELD:], [*self._above, self._carried][-MOST_HELD:]
        if len(self._held) < CONSISTENT:
            return ()
        rows, self._held, self.sure = self._held, [], True
        self._template = list(row.values)
        return self._steps.first(rows, self._above)

    def flush(self) -> Sequence[MetricLine]:
        """Return the last row if it is complete; with fewer than three rows, the unmistakable ones."""
        if self.sure or len(self._held) == CONSISTENT - 1:
            return self._close()
        if self._quoted:
            return ()
        block, self._block = self._block, _Block()
        rows = [*self._held, *([block.row(self._decimals.resolution(block.texts))] if block.whole else [])]
        self._held = []
        return rows if rows and all(map(_plain, rows)) else ()


def _plain(row: MetricLine) -> bool:
    """Whether a row is unmistakable by itself: a step, a reward, and metrics that only updates have."""
    known = {guess(name) for name in row.values}
    return row.step is not None and "reward_mean" in known and len(known & OF_UPDATES) >= SURE


def may_show(data: bytes) -> bool:
    """Whether a line may name a metric or a counter; a byte test that dismisses most lines of other logs."""
    if len(data) > LONGEST or DIGIT.search(data) is None:
        return False
    plain = data.lower()
    named = len(data) <= SHORT or any(word in plain for word in WORDS)
    return named or plain.count(b"token") > plain.count(b"tokens/s")


def makes_row(values: Mapping[str, float]) -> bool:
    """Whether these values are a row if their step is known."""
    return _Block(dict(values), step=1).whole


def _follows(before: MetricLine, row: MetricLine) -> bool:
    """Whether two rows belong to one log: mostly equal keys, and no step back within an epoch.

    The row of a step without an update may have fewer keys.
    """
    shared = before.values.keys() & row.values.keys()
    most = min(len(before.values), len(row.values))
    later = (row.step or 0) >= (before.step or 0) or (row.values.get("epoch") or 0) > (before.values.get("epoch") or 0)
    return 2 * len(shared) >= most and (row.step is None) == (before.step is None) and later
