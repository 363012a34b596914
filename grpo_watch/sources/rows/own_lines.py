"""Reads the rows that own training loops print: ``step 10 | reward 0.3 | kl 0.01``, or lines of ``key: value``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from grpo_watch.frameworks.guessing import OF_LEARNING, OF_UPDATES, guess
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.sources.rows.fields import PrintedField, bare_line, counted, fields_of

LONGEST = 2_000
"""Characters of a line that may be a row; own loops print some ten fields."""
LEAST_FIELDS = 2
"""Fields of a row beside its step."""
CONSISTENT = 3
"""This many rows with the same keys and rising steps make a log of rows; text around a model's answers has no such."""
SURE = 3
"""Metrics of an update that make a single row one."""
MOST_HELD = 64
MOST_KEYS = 256
WORDS = (
    *b"rew return score loss kl step entrop grad lr learn clip trunc len iter epoch updat batch episode".split(),
    *b"round rollout accura correct adv std zero frac ratio: ratio= \xef\xbc".split(),
)
"""Parts of the words that name a metric or a counter, and what full-width letters begin with."""
SHORT = 24
"""Bytes of a line that is decoded whatever is in it: ``[10/500]``."""
DIGIT = re.compile(rb"\d|\b(?:nan|inf)\b", re.IGNORECASE)
EVALUATION = re.compile(
    r"(?<![a-z])(?:eval|val(?:id|(?![a-z]))|test|bench|greedy|h[eo]ld.?out|samples?(?![a-z]))", re.IGNORECASE
)
"""What the title above the numbers of an evaluation or of single completions says."""
TITLE = re.compile(
    rb"(?!\s)\W{0,40}(?:(?:eval(?:uation)?|validation|held.?out)"
    rb"(?: (?:results?|metrics|scores?|summary|set|\d{1,6})){0,2}"
    rb"|(?P<sample>(?:sample|completion|example) \d{1,6}))\W{0,40}",
    re.IGNORECASE,
)
"""A title by itself, ``=== EVALUATION RESULTS ===`` or ``Sample 3:``: the fields right below it belong to no row of
training. One that is indented, or names no single sample, may be the heading of a part of the row."""
EXAMPLE = re.compile(rb"\b(?:examples?|usage|format)\b", re.IGNORECASE)
"""What a line that ends with a colon says above a row that is quoted."""
DECIMALS = re.compile(r"[-+]?\d+\.(\d+)")


@dataclass(slots=True)
class _Block:
    """The fields that make one row, of one line or of several; ``single``: one line alone made it a row."""

    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    led: bool = False
    single: bool = False

    @classmethod
    def of_line(cls, fields: Sequence[PrintedField]) -> _Block:
        """A line by itself."""
        block = cls()
        block.add(fields)
        block.single = block.whole
        return block

    def repeats(self, fields: Iterable[PrintedField]) -> bool:
        """Whether one of the fields is in it already."""
        return any(one.name in self.values for one in fields)

    def add(self, fields: Sequence[PrintedField]) -> None:
        """Take the fields over; of several counters the finest is the step."""
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
        """Whether it is a row: a reward, or two metrics; without a step a reward and an update's."""
        known = {guess(name) for name in self.values}
        rewarded = "reward_mean" in known
        if self.step is None:
            return rewarded and bool(known & OF_UPDATES)
        return rewarded or (bool(known & OF_LEARNING) and len(known - {None}) >= LEAST_FIELDS)

    def row(self, resolution: float | None = None) -> MetricLine:
        """The row; ``resolution``: the smallest number that it can show."""
        values = dict(self.values) if self.epoch is None else {**self.values, "epoch": float(self.epoch)}
        total = self.total if (self.epoch or 0) <= 1 else None
        return MetricLine(self.step, values, max_steps=total, resolution=resolution)


class KeyDecimals:
    """The decimals that each key was printed with, and so what its zeros can hide.

    A key that has shown more decimals than its zero is printed in full, and the zero is one. ``0.0`` is how Python
    prints a float that is zero; with one decimal for every number it may be 0.04. So it counts as zero as soon as a
    number of the log has shown that numbers are printed in full: another count of decimals under the same key.
    """

    def __init__(self, most: Mapping[str, int] | None = None, *, in_full: bool = False) -> None:
        self.most = dict(most or {})
        self.in_full = in_full

    def resolution(self, texts: Mapping[str, str]) -> float | None:
        """Half a unit of the last decimal of the zeros of a row that may be small numbers; None: there are none."""
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


class OwnLines:
    """Takes a log line by line; gives rows from the third consistent one on, the first three together.

    A row is one line with a step, a reward and another number; or such fields over several lines, which end with the
    field that stood last before the first one came again. Of several lines only fields that may be a metric count.
    Rows without a step have that of the newest counter above them, if it rises from row to row (``Iteration 12``, then
    the numbers); else they are counted from 1. A step that begins again with each epoch goes on from the last one; one
    that comes again with other values counts something coarser than rows, and the rows are counted. Of several ranks
    the first is read.

    Args:
        state: what ``state`` gave before a restart.
        names: what the log calls a metric (or the step) → its canonical name.
    """

    def __init__(self, state: str = "", names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names, self._asked_for = names, tuple(name.encode() for name in names)
        self._block = _Block()
        self._last = self._end = ""
        self._held: list[MetricLine] = []
        self._template: list[str] = []
        self._noisy: list[str] = []
        self._rows = self._offset = 0
        self._near = self._coarse = self._leads = self.sure = self.counted = False
        self._evaluation = self._example = self._quoted = self._sampled = False
        self._titled: list[str] | None = None
        self._begin: str | None = None
        self._carried: int | None = None
        self._above: list[int | None] = []
        self._before: tuple[int, int] | None = None
        self._decimals = KeyDecimals()
        if state:
            self._restore(json.loads(state))

    def state(self) -> str:
        """All that later lines need, as text; empty while nothing that looks like a row was seen."""
        held = [(row.step, row.values, row.max_steps, row.resolution) for row in self._held]
        block = self._block
        if not (held or self.sure or block.values):
            return ""
        parts = (block.values, block.texts, block.step, block.total, block.epoch, block.led, block.single)
        flags = (self.sure, self._near, self._coarse, self._leads)
        around = (self._evaluation, self._example, self._quoted, self._titled, self._sampled, self._begin)
        places = (self._rows, self._offset, self._before, self._carried, self._above)
        decimals = (self._decimals.most, self._decimals.in_full)
        return json.dumps(
            [(*flags, *around), places, self._end, self._last, held, parts, self._template, self._noisy, decimals]
        )

    def _restore(self, state: list[Any]) -> None:
        flags, places, self._end, self._last, held, block, self._template, self._noisy, decimals = state
        self.sure, self._near, self._coarse, self._leads = flags[:4]
        self._evaluation, self._example, self._quoted, self._titled, self._sampled, self._begin = flags[4:]
        self._rows, self._offset, before, self._carried, self._above = places
        self._before = tuple(before) if before is not None else None
        self._held = [MetricLine(s, v, max_steps=m, resolution=r) for s, v, m, r in held]
        self._block = _Block(*block)
        self._decimals = KeyDecimals(decimals[0], in_full=decimals[1])

    def feed(self, data: bytes) -> Sequence[MetricLine]:
        """The rows that this line completes."""
        if not self.wants(data):
            self.passed(data)
            return ()
        line = data.decode("utf-8", "replace")
        fields = fields_of(line)
        if self._names:
            fields = [one._replace(name=self._names.get(one.name, one.name)) for one in fields]
        if not fields or bare_line(line)[0] or TITLE.fullmatch(data):
            self.passed(data)
            return ()
        alone = _Block.of_line(fields)
        if self._of_evaluation(line, fields, row=alone.whole):
            return ()
        self._quoted, self._example = self._quoted or self._example, False
        rows = self._alone(alone, fields) if alone.whole else self._collect(fields)
        self._near = bool(fields)
        return rows

    def passed(self, data: bytes) -> None:
        """A line of something else: the next one is not near the fields before it."""
        self._near = self._evaluation = False
        self._titled = None if self._titled else self._titled
        if len(data) <= LONGEST and (title := TITLE.fullmatch(data)) is not None:
            self._sampled = title["sample"] is not None
            self._titled = [] if self._may_be_titled() else None
        self._example = data.endswith(b":") and len(data) <= LONGEST and EXAMPLE.search(data) is not None

    def _of_evaluation(self, line: str, fields: Sequence[PrintedField], *, row: bool) -> bool:
        """Whether fields stand below the title of an evaluation."""
        counts = [one for one in fields if one.is_step or one.counts]
        if len(counts) == len(fields):
            self._evaluation = EVALUATION.search(bare_line(line)[1]) is not None
        elif counts or row:
            self._evaluation = False
        if row or self._titled is None or self._belongs(fields, self._titled, counts=bool(counts)):
            self._titled = None
        elif not counts:
            self._titled = [*self._titled, *(one.name for one in fields)][-MOST_HELD:]
        return self._evaluation or self._titled is not None

    def _may_be_titled(self) -> bool:
        """Whether a title here can stand above something else than the rest, or the whole, of a row."""
        block = self._block
        if not block.values:  # a sample: where each row begins with its step
            return block.step is None and (not self._sampled or self._begin == "")
        return block.led and not self._noisy if self._sampled else not self._end

    def _belongs(self, fields: Sequence[PrintedField], titled: Sequence[str], *, counts: bool) -> bool:
        """Whether fields below a title, and below the fields ``titled`` under it, belong to training all the same."""
        if counts:  # an evaluation's own counter may stand first
            return bool(titled) or self._sampled or self._begin == ""
        block, names = self._block, [one.name for one in fields]
        begin = self._begin if block.led or not block.values else next(iter(block.values))
        lacking = any(guess(name) in OF_UPDATES and name not in block.values for name in names)
        unlike = self._sampled and not titled and not block.repeats(fields)
        return names[0] == begin or not set(names).isdisjoint(titled) or (bool(block.values) and (lacking or unlike))

    def wants(self, data: bytes) -> bool:
        """Whether a line may hold fields of a row."""
        return may_show(data) or (len(data) <= LONGEST and any(name in data for name in self._asked_for))

    def _alone(self, alone: _Block, fields: Sequence[PrintedField]) -> Sequence[MetricLine]:
        """A line that is a row by itself: a new one, unless it adds to the step that the lines before it name."""
        block = self._block
        if block.values and not block.single and alone.step in {None, block.step} and not block.repeats(fields):
            return self._collect(fields)
        rows = self._close()
        self._block, self._last = alone, fields[-1].name
        return (*rows, *self._close()) if self._last == self._end else rows

    def _collect(self, fields: Sequence[PrintedField]) -> Sequence[MetricLine]:
        known = [one for one in fields if one.name not in self._noisy and _may_count(one)]
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
        self._last = known[-1].name
        return (*rows, *self._close()) if self._last == self._end else rows

    def _again(self, known: Sequence[PrintedField]) -> Sequence[MetricLine]:
        """Fields that come several times below one step are of single completions: they count no more."""
        if not self._block.single:
            for name in {one.name for one in known} & self._block.values.keys():
                del self._block.values[name]
                self._noisy = [*self._noisy, name][-MOST_HELD:]
        return ()

    def _close(self) -> Sequence[MetricLine]:
        block, self._block = self._block, _Block()
        if not block.whole:
            return ()
        self._end = self._end or self._last
        self._begin = "" if block.led else next(iter(block.values))
        return self._take(block.row(self._decimals.resolution(block.texts)))

    def _take(self, row: MetricLine) -> Sequence[MetricLine]:
        if self.sure:
            if self._leads and row.step is None and (self._carried or 0) > (self._before or (-1, 0))[0]:
                row = replace(row, step=self._carried)
            keys = row.values.keys()
            alike = 2 * len(keys & set(self._template)) >= min(len(keys), len(self._template))
            part = row.step is None and self._before is not None  # of a step: an attempt at it, a single group
            return tuple(self._placed([row])) if alike and not part else ()
        if self._held and not any(_follows(before, row) for before in self._held[-2:]):  # one step may be a misprint
            self._held, self._above = [], []
        self._held, self._above = [*self._held, row][-MOST_HELD:], [*self._above, self._carried][-MOST_HELD:]
        if len(self._held) < CONSISTENT:
            return ()
        rows, self._held, self.sure = self._held, [], True
        self._template = list(row.values)
        above = [step for step in self._above if step is not None]
        self._leads = len(above) == len(rows) and rows[0].step is None and above == sorted(set(above))
        if self._leads:
            rows = [replace(one, step=step) for one, step in zip(rows, above, strict=True)]
        self._coarse = len({one.step for one in rows}) == 1
        return tuple(self._placed(rows))

    def _placed(self, rows: Iterable[MetricLine]) -> Iterable[MetricLine]:
        """The rows at steps that rise within an attempt."""
        for row in rows:
            self._rows += 1
            if self._coarse or row.step is None:
                self.counted = True
                yield MetricLine(self._rows, row.values, max_steps=None, resolution=row.resolution)
                continue
            epoch, before = int(row.values.get("epoch") or 0), self._before
            if before is not None and row.step + self._offset <= before[0] and epoch > before[1]:
                self._offset = before[0] + (1 if row.step == 0 else 0)
            elif before is not None and epoch < before[1]:
                self._offset = 0
            step = row.step + self._offset
            self._before = (step, epoch)
            yield MetricLine(step, row.values, max_steps=row.max_steps, resolution=row.resolution)

    def flush(self) -> Sequence[MetricLine]:
        """The last row, if it is complete; of a log that has fewer than three those that show what they are."""
        if self.sure or len(self._held) == CONSISTENT - 1:
            return self._close()
        if self._quoted:
            return ()
        block, self._block = self._block, _Block()
        rows = [*self._held, *([block.row(self._decimals.resolution(block.texts))] if block.whole else [])]
        self._held = []
        return rows if rows and all(map(_plain, rows)) else ()


def _plain(row: MetricLine) -> bool:
    """Whether a row shows by itself that it is one: a step, a reward, and metrics that only updates have."""
    known = {guess(name) for name in row.values}
    return row.step is not None and "reward_mean" in known and len(known & OF_UPDATES) >= SURE


UNQUOTED = re.compile(rb"\{\s{0,9}[A-Za-z_][\w./]{0,60}\s?[:=]\s{0,4}[-\d][^{]*\}")
"""A row in braces whose keys have no quotes: ``{ step: 1, loss: 0.1 }``."""


def may_show(data: bytes) -> bool:
    """Whether a line may name a metric or count; a byte test, for the lines of others that most logs consist of."""
    if len(data) > LONGEST or DIGIT.search(data) is None:
        return False
    plain = data.lower()
    named = len(data) <= SHORT or any(word in plain for word in WORDS)
    return named or plain.count(b"token") > plain.count(b"tokens/s")


def row_of(step: int, values: Mapping[str, float]) -> MetricLine | None:
    """The row of these values at a step; None where they make none."""
    block = _Block(dict(values), step=step)
    return block.row() if block.whole else None


def begins_own_row(data: bytes) -> bool:
    """Whether a metric stands before the first brace of a line: the dictionary behind it is a part of the row."""
    brace = data.find(b"{")
    if brace >= 0 and len(data) <= LONGEST and UNQUOTED.match(data, brace):
        return True
    if brace <= 0 or len(data) > LONGEST or DIGIT.search(data, 0, brace) is None:
        return False
    fields = fields_of(data.decode("utf-8", "replace"))
    return bool(fields) and any(guess(one.name) is not None for one in fields[:1] if not (one.is_step or one.counts))


def _may_count(one: PrintedField) -> bool:
    return one.is_step or bool(one.counts) or guess(one.name) is not None


def _follows(before: MetricLine, row: MetricLine) -> bool:
    """Whether two rows are of one log: most keys are the same, and the step does not go back within an epoch.

    The row of a step without an update may have fewer keys than the others.
    """
    shared = before.values.keys() & row.values.keys()
    most = min(len(before.values), len(row.values))
    later = (row.step or 0) >= (before.step or 0) or (row.values.get("epoch") or 0) > (before.values.get("epoch") or 0)
    return 2 * len(shared) >= most and (row.step is None) == (before.step is None) and later
