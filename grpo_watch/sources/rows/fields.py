"""Extracts named numbers from a line printed by an own training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import number
from grpo_watch.sources.rows.plain_text import FIELD, NAME, NUMBER, SIGN, in_words, is_statistic, plain
from grpo_watch.sources.rows.tables import FULL_WIDTH

COVERED = 0.6
"""Share of a line that its fields must cover; the rest is text of loggers or people."""
MOST_PREFIXES = 6
COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")
BULLET = re.compile(r"^\s{0,20}(?:[-*+\u2022\u25aa\u2013]|\d{1,2}[.)])\s{1,4}(?=[A-Za-z*`\"'])")
DECORATION = re.compile(r"[^\w\[({'\".+-]+")
"""Symbols and pictures that people print before a line."""
RULERS = "=*#~_- \t\r\n\x0b\x0c\u2500\u2501\u2550\u256e\u256f\u2510\u2518\u2557\u255d"
RULER = re.compile(r"^[\s=*#~>_-]{2,}(?=[\w\[(])")
SOURCE = re.compile(r"(?<!\s)\s{2,}[\w./]{1,60}\.py:\d{1,6}\s*$")
"""Suffix with which ``rich`` shows the line of code."""
STAMP = re.compile(
    r"\[?(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[-/]\d\d?(?:[-/]\d{2,4})?)[ T_]\d\d?:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
    r"(?:\s?Z|\s?[+-]\d\d:?\d\d)?(?:\s?[AP]M)?\]?\s*(?:(?:[-|:]|>>)\s+)?|"
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\s*(?:[-|:]\s+)?"
)
LEVEL = re.compile(
    r"[\[(<]?(?:DEBUG|INFO|WARNING|WARN|ERROR|SUCCESS|METRICS?|NOTICE|LOG)(?:\|[\w.]{1,60}:\d{1,6})?[\])>]?\s*(?::(?:[\w.]+:)?|[-|])?\s*"
)
GLOG = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{1,6}\s+\d{1,9} [\w./]{1,80}:\d{1,6}\]\s*")
MODULE = re.compile(
    r"(?:\[[A-Za-z_][\w./: -]{0,60}\]|\([A-Za-z_][\w./: -]{0,60}\)|<[A-Za-z_][\w.: -]{0,60}>|"
    r"[A-Za-z_][\w.]{0,60}(?::[\w<>]{1,60}){0,2})"
    r"(?:\s+[-|:>]\s+|:\s+|(?<=[\])>])\s*[-|:]?\s*)|[\w./]{1,80}\.py:\d{1,6}\s+(?:[-|:>]\s+)?"
)
"""The logger's module after a time or a level: ``train:run:120 - ``, ``[trainer.py:53] ``, ``run.py:77 ``."""
TAG = re.compile(
    r"\[(?!\s?(?:global|train|step|iter|epoch|update|batch|episode|round|rollout))[A-Za-z][\w .:-]{0,24}\]\s*[:|-]?\s*",
    re.IGNORECASE,
)
"""``[GRPO] `` before a line."""
RANK = re.compile(r"(?:\[?rank[ _:=]?(\d{1,5})\]?|(\d{1,4}):(?=\s))\s*[:|-]?\s*", re.IGNORECASE)
"""``[rank 1] ``, and ``1: `` of ``srun --label``."""
SPLIT = re.compile(
    r"\s*[|;\t\u2502\u2503\u2022\u00b7]\s*|,\s+|\s{2,}|\s+[-\u2013\u2014]\s+|\s*(?:->|=>|\u2192)\s*(?=[A-Za-z])"
)
GROUPED = re.compile(
    rf"(?P<group>{NAME})(?![\w./@-])\s{{0,2}}[:=]?\s{{0,2}}[\[({{]?\s{{0,2}}(?P<name>mean|avg|average|std|min|max|median)\s?[:=]?\s?(?P<value>{NUMBER})[\])}}]?",
    re.IGNORECASE,
)
"""``Reward: mean=0.5``; further statistics on the line belong to the same group."""
PAIR = re.compile(rf"(?P<name>[A-Za-z_][\w./@-]{{0,40}})\s?[=:]{{1,2}}\s?(?P<value>{NUMBER})%?", re.IGNORECASE)
LOOSE = re.compile(rf"(?P<name>[A-Za-z_][\w./@-]{{0,40}})\s(?P<value>{NUMBER})(?=\s|$)", re.IGNORECASE)
OF_EPOCH = re.compile(
    r"Epoch\s?:?\s?\[?(\d{1,6})(?:/\d{1,6})?\]?\s?[:,]?\s?[(\[](\d{1,9})/(\d{1,9})[)\]]", re.IGNORECASE
)
"""``Epoch:[1/2](30/9751)``: the step within the epoch."""
COUNTER = (
    r"(?:global[ _]|train(?:ing)?[ _]|opt(?:imizer)?[ _])?"
    r"(?:step|iter|iteration|update|batch|episode|round|rollout|epoch|it)s?"
)
HEAD = re.compile(
    rf"(?:(?:at|after|finished|completed)\s)?[\[(]?(?P<name>{COUNTER})\s{{0,8}}[#:=]{{0,2}}\s{{0,8}}\[?(?P<value>\d{{1,9}})(?:\s?(?:/|of)\s?(?P<total>\d{{1,9}}))?[\])]{{0,2}}"
    r"(?:\s?[:,|;>-]+\s*|\s+|$)",
    re.IGNORECASE,
)
"""``[step 10/500] ``, ``Epoch 1, ``: counters at the beginning of a line."""
TITLE = re.compile(
    rf"[A-Za-z][A-Za-z ]{{0,40}}\b(?:at|for|after|of)\s(?P<name>{COUNTER})\s(?P<value>\d{{1,9}})"
    r"(?:\s?/\s?(?P<total>\d{1,9}))?:",
    re.IGNORECASE,
)
"""``Metrics at step 12:``, above the lines of a row."""
BEHIND = re.compile(r"[A-Za-z][^:=]{0,60}\s(?:@|at|#|step)?\s?\d{1,9}:\s+(.+)")
BARE_HEAD = re.compile(
    r"[\[(](?P<value>\d{1,9})(?:\s?/\s?(?P<total>\d{1,9}))?[\])]\s*[:|-]?\s*|(?P<of>\d{1,9})/(?P<all>\d{1,9})\s*[:|]\s*"
)
"""``[10/500] ``: a counter without a name."""
STEPS = frozenset(
    {"step", "steps", "global step", "global_step", "iter", "iteration", "it", "update", "train step"}
    | {"train/step", "train/global_step", "training/step", "training/global_step"}
)
COARSE = ("update", "batch", "episode", "round", "rollout", "epoch")
"""Counters that serve as the step if there is no finer one, finest first."""
NOT_METRICS = (".py", ".json", ".txt")


class PrintedField(NamedTuple):
    """A name and its number as printed; ``total``: the number after a slash (``step 10/500``)."""

    name: str
    text: str
    value: float
    total: int | None = None

    @property
    def is_step(self) -> bool:
        """Whether the field is a step counter."""
        name = self.name.lower().strip()
        return (name in STEPS or name.endswith((" step", " iter", " iteration"))) and self.value >= 0 == self.value % 1

    @property
    def counts(self) -> str:
        """The name of the counter if it may serve as a step; else empty."""
        name = self.name.lower().strip().rstrip("s")
        return name if name in COARSE and self.value >= 0 == self.value % 1 else ""


def fields_of(line: str) -> list[PrintedField]:
    """Return the named numbers of a line; empty if the line is mostly other text."""
    return fields_in(bare_line(line)[1])


def fields_in(text: str) -> list[PrintedField]:
    """Return the named numbers of a text without a logger's prefix."""
    found, rest = _heads(text)
    covered, whole = len(text) - len(rest), max(1, len(text.replace(" ", "")))
    group, bare, cells = "", "", False
    for segment in filter(None, SPLIT.split(rest)):
        cell = _behind(DECORATION, segment.strip())
        taken = list(_segment(cell, group))
        if not taken and not found and (behind := BEHIND.fullmatch(cell)) is not None:  # `log @ 12: loss 0.1`
            taken = list(_segment(behind[1], group))
        if not taken and bare and (value := number(cell)) is not None:
            taken = [PrintedField(bare, cell, value)]
            covered, cells = covered + len(bare.replace(" ", "")), True
        bare = cell if not taken and re.fullmatch(NAME, cell) else ""
        group = _group(cell) or (group if taken and taken[0].name.startswith(f"{group} ") else "")
        found += taken
        covered += len(cell.replace(" ", "")) if taken else 0
    named = not rest or cells or len(found) > 1 or SIGN.search(text) is not None
    return found if named and covered >= COVERED * whole else []


def bare_line(line: str) -> tuple[int, str]:
    """Return the rank that a line names (0: none), and its text without prefixes of loggers or people."""
    text = line if line.isascii() else line.translate(FULL_WIDTH)
    text = COLOUR.sub("", text) if "\x1b" in text else text
    text = _undecorated(_behind(RULER, _behind(BULLET, text)))
    text = (SOURCE.sub("", text) if ".py:" in text else text).strip()
    rank, logged = 0, False
    for _ in range(MOST_PREFIXES):
        before = text
        if (found := RANK.match(text)) is not None and found.end() < len(text):
            rank, text = int(found[1] or found[2]), text[found.end() :]
        for pattern in (GLOG, STAMP, LEVEL):
            if (found := pattern.match(text)) is not None and found.end():
                text, logged = text[found.end() :], True
        if (
            logged
            and HEAD.match(text) is None
            and (found := MODULE.match(text)) is not None
            and not _is_field(text, found)
        ):
            text = text[found.end() :]
        if (found := TAG.match(text)) is not None and found.end() < len(text):
            text = text[found.end() :]
        text = _behind(BULLET, _undecorated(text))
        if text == before:
            break
    return rank, plain(in_words(text)).strip()


def _behind(pattern: re.Pattern[str], text: str) -> str:
    return text[found.end() :] if (found := pattern.match(text)) is not None else text


def _undecorated(text: str) -> str:
    """Strip symbols and pictures before the text, and a ruler after it."""
    text = _behind(DECORATION, text)
    bare = text.rstrip(RULERS)
    return bare if len(text) - len(bare) > 1 else text


def _is_field(text: str, found: re.Match[str]) -> bool:
    return re.match(NUMBER, text[found.end() :]) is not None and found[0].rstrip().endswith((":", "="))


def _heads(text: str) -> tuple[list[PrintedField], str]:
    if (epoch := OF_EPOCH.search(text)) is not None:
        step = (int(epoch[1]) - 1) * int(epoch[3]) + int(epoch[2])
        found = [PrintedField("step", epoch[2], step, int(epoch[3]) if epoch[1] == "1" else None)]
        return found, text[: epoch.start()] + text[epoch.end() :].lstrip(", ")
    if (title := TITLE.fullmatch(text)) is not None:
        return [_counter(title["name"], title["value"], title["total"])], ""
    heads: list[PrintedField] = []
    while (head := HEAD.match(text)) is not None:
        heads.append(_counter(head["name"], head["value"], head["total"]))
        text = text[head.end() :]
    if not heads and (head := BARE_HEAD.match(text)) is not None:
        heads.append(_counter("step", head["value"] or head["of"], head["total"] or head["all"]))
        text = text[head.end() :]
    return heads, text


def _counter(name: str, value: str, total: str | None) -> PrintedField:
    return PrintedField(name.lower(), value, int(value), int(total) if total else None)


def _group(segment: str) -> str:
    found = GROUPED.match(segment)
    return found["group"].strip() if found is not None else ""


def _segment(segment: str, group: str) -> Iterator[PrintedField]:
    grouped = GROUPED.fullmatch(segment)
    if grouped is not None and guess(f"{grouped['group']} {grouped['name']}") is not None:
        yield from _field(f"{grouped['group']} {grouped['name']}", grouped["value"], None)
        return
    whole = FIELD.fullmatch(segment)
    if whole is not None and not whole["name"].endswith(NOT_METRICS):
        yield from _field(_in_group(group, whole), whole["value"], whole["total"], percent=whole["unit"] == "%")
        return
    group = head["group"].strip() if (head := GROUPED.match(segment)) is not None else group
    for pattern in (PAIR, LOOSE):
        pairs = list(pattern.finditer(segment))
        if len(pairs) > 1 and sum(len(pair[0]) + 1 for pair in pairs) >= COVERED * len(segment):
            for pair in pairs:
                yield from _field(_in_group(group, pair), pair["value"], None, percent=pair[0].endswith("%"))
            return


def _in_group(group: str, field: re.Match[str]) -> str:
    return f"{group} {field['name']}" if group and is_statistic(field) else field["name"]


def _field(name: str, text: str, total: str | None, *, percent: bool = False) -> Iterator[PrintedField]:
    value = number(text)
    if value is not None:
        if percent:
            value, text = value / 100, f"{value / 100:.{len(text.partition('.')[2]) + 2}f}"
        yield PrintedField(name.strip(), text, value, int(total) if total else None)


def step_before(text: str) -> tuple[int | None, int | None]:
    """Return the step and the total if they alone precede a dictionary on its line (``Step 10/500: {…}``)."""
    heads, rest = _heads(bare_line(text)[1])
    step, total, _ = counted(heads)
    return (step, total) if not rest.strip(" :-|>=") else (None, None)


def counted(fields: Sequence[PrintedField]) -> tuple[int | None, int | None, int | None]:
    """Return step, total and epoch by a line's counters (the finest, or the one with the largest total)."""
    epoch = next((int(one.value) for one in fields if one.counts == "epoch"), None)
    episodes = any(one.counts == "episode" for one in fields)
    steps = [one for one in fields if one.is_step and not (episodes and one.name.lower() == "steps")]
    if not steps:
        coarse = [one for name in COARSE for one in fields if one.counts == name]
        steps = coarse[:1]
        epoch = None if steps and steps[0].counts == "epoch" else epoch
    if not steps:
        return None, None, epoch
    best = max(steps, key=lambda one: one.total or 0)
    return int(best.value), best.total, epoch
