"""Reads the settings that a trainer prints on its console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.framework import MarkKind
from grpo_watch.frameworks.line_reader import marks
from grpo_watch.sources.settings.documents import typed

PRINTED = "printed in the log"
EXAMPLES = re.compile(rb"\bNum examples = (\d[\d,]{0,20})\s*$")
"""transformers' line before training and before each evaluation; the number of epochs follows only the former."""
EPOCHS = re.compile(rb"\bNum Epochs = (\d[\d,]{0,25})\s*$")
ROWS = re.compile(rb"^\s{0,8}num_rows: (\d{1,15})\s*$")
COUNTS: Mapping[MarkKind, str] = MappingProxyType(
    {
        MarkKind.PROCESSES: "world_size",
        MarkKind.PROMPTS: "prompts_per_step",
        MarkKind.UNFILTERED: "rows_before_filter",
        MarkKind.FILTERED: "rows_after_filter",
    }
)
"""Marks whose number is a setting; one line may hold two of them."""
ENDLESS = 1 << 31
"""Epochs from which the dataset is a stream, its size derived from max_steps (transformers: ``sys.maxsize``)."""
WAIT = 5
"""Lines of other processes and features allowed between the first and the last line of one print."""


class PrintedSizes:
    """Collects a print over several lines; gives up after a few unrelated lines."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._left = 0

    @property
    def open(self) -> bool:
        """Whether more lines of a print are expected."""
        return self._left > 0

    def begin(self, line: bytes) -> None:
        """Take the first line of a print, if it begins one."""
        if begins(line):
            examples = EXAMPLES.search(line)
            self._rows, self._left = (_whole(examples[1]) if examples is not None else None), WAIT

    def feed(self, line: bytes) -> dict[str, Setting] | None:
        """Return the settings of a print completed by this line; None otherwise."""
        self._left -= 1
        found = (ROWS if self._rows is None else EPOCHS).search(line)
        if found is None:
            return None
        number, rows = _whole(found[1]), self._rows
        self.drop()
        return _sized(number) if rows is None else _trained(rows, number)

    def drop(self) -> None:
        """Drop the unfinished print."""
        self._rows, self._left = None, 0


def printed_sizes(line: bytes) -> Mapping[str, Setting] | None:
    """Return the settings of a complete line: a banner, a number of processes or prompts.

    The meanings of the numbers were derived from logs with known total steps. The dataset's rows are prompts: a GRPO
    trainer repeats them in its sampler, not in the dataset.
    """
    for mark in marks(MarkKind.SIZES):
        if (found := mark.pattern.search(line)) is not None:
            return _trained(_whole(found[1]), _whole(found[2]))
    counted = {
        name: Setting(int(found[1]), PRINTED)
        for kind, name in COUNTS.items()
        for mark in marks(kind)
        if (found := mark.pattern.search(line)) is not None
    }
    return {name: setting for name, setting in counted.items() if setting.value} or None


def begins(line: bytes) -> bool:
    """Whether a print over several lines begins here."""
    return EXAMPLES.search(line) is not None or any(
        mark.pattern.search(line) is not None for mark in marks(MarkKind.DATASET)
    )


def _trained(rows: int, epochs: int) -> dict[str, Setting] | None:
    return _sized(rows) if epochs < ENDLESS else None


def _sized(rows: int) -> dict[str, Setting] | None:
    return {"dataset_size": Setting(rows, PRINTED)} if rows else None


def _whole(digits: bytes) -> int:
    return int(digits.replace(b",", b""))


ARGUMENTS_BEGIN = re.compile(rb"\b(?:GRPOConfig|GRPOTrainingArguments)\($")
ARGUMENT = re.compile(r"([A-Za-z_]\w{0,80})=(.*),$")
ARGUMENTS_END = b")"
MOST_ARGUMENTS = 1_000
"""Most arguments of one configuration; TRL's has 200."""
LONGEST_VALUE = 300
BEGIN = re.compile(rb"\{\s{0,4}['\"]\w[^'\"\r\n]{0,200}['\"]: ?\{")
"""A dictionary whose first value is a dictionary: configurations are nested, rows of metrics are flat."""
LONGEST = 1 << 20
"""Most bytes of a printed configuration (verl's takes 40 KB)."""
MOST_FOREIGN = 200
"""Most lines of other processes between its lines."""
DEEPEST = 30
TOKEN = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([{}\[\](),:])|([^\s{}\[\](),:'\"]+)")
ESCAPED = re.compile(r"\\(['\"\\])")
OPENING, CLOSING = "{[(", "}])"


class PrintedConfig:
    """Collects the lines of a printed dictionary. Its own lines are indented, those of other processes are not."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = self._depth = self._foreign = 0

    @property
    def open(self) -> bool:
        """Whether the end of the dictionary is awaited."""
        return bool(self._lines)

    def begins(self, line: bytes) -> bool:
        """Whether a configuration begins in this line."""
        return BEGIN.match(line) is not None

    def feed(self, line: bytes) -> tuple[bool, dict[str, object] | None]:
        """Return whether the line is part of it, and all leaves once it is complete (see ``leaves``)."""
        if self._lines and line[:1] not in b" \t":
            self._foreign += 1
            if self._foreign > MOST_FOREIGN:
                self.drop()
            return False, None
        text = line.decode("utf-8", "replace")
        self._lines.append(text)
        self._size += len(text)
        self._depth += _balance(text)
        if self._depth > 0 and self._size < LONGEST:
            return True, None
        found = dict(leaves("\n".join(self._lines))) if self._depth <= 0 else None
        self.drop()
        return True, found

    def drop(self) -> None:
        """Drop the collected lines."""
        self._lines.clear()
        self._size = self._depth = self._foreign = 0


def leaves(text: str) -> Iterator[tuple[str, object]]:
    """Yield each leaf of a printed dictionary with its dotted path, without lists, tuples and calls.

    Adjacent texts are joined as in Python. Values nested deeper than 30 levels are skipped.
    """
    path: list[str | None] = []
    key: str | None = None
    value: object = None
    for token in TOKEN.finditer(text):
        mark = token[3]
        if mark is None:
            value = _joined(value, token)
        elif mark == ":":
            key, value = (value if isinstance(value, str) else None), None
        elif mark in OPENING:
            path.append(key if mark == "{" else None)
            key = value = None
        elif path:
            if key is not None and value is not None and None not in path[1:] and len(path) <= DEEPEST:
                yield ".".join([*filter(None, path), key]), value
            key = value = None
            if mark in CLOSING:
                path.pop()


def _joined(value: object, token: re.Match[str]) -> object:
    """Return the value with one more token: adjacent texts are one text."""
    if token[4] is not None:
        return typed(token[4])
    text = ESCAPED.sub(r"\1", token[1] if token[1] is not None else token[2])
    return value + text if isinstance(value, str) else text


def _balance(text: str) -> int:
    """Return the number of opening minus closing brackets outside of texts."""
    marks = [token[3] for token in TOKEN.finditer(text) if token[3] is not None]
    return sum((mark in OPENING) - (mark in CLOSING) for mark in marks)


class PrintedArguments:
    """Turns ``GRPOConfig(``, one ``key=value,`` per line and ``)`` into a mapping.

    Collects the lines from the opening to the closing bracket; any other line ends it without a result.
    """

    def __init__(self) -> None:
        self._found: dict[str, object] | None = None

    @property
    def open(self) -> bool:
        """Whether the closing bracket is awaited."""
        return self._found is not None

    def begins(self, line: bytes) -> bool:
        """Whether arguments begin after this line."""
        return line.endswith(b"(") and ARGUMENTS_BEGIN.search(line) is not None

    def feed(self, line: bytes) -> tuple[bool, dict[str, object] | None]:
        """Return whether the line is part of it, and all arguments once they are complete."""
        if self._found is None:
            self._found = {}
            return True, None
        if line.strip() == ARGUMENTS_END:
            found, self._found = self._found, None
            return True, found
        argument = ARGUMENT.fullmatch(line.decode("utf-8", "replace").strip())
        if argument is None or len(self._found) >= MOST_ARGUMENTS:
            self._found = None
            return False, None
        if len(argument[2]) <= LONGEST_VALUE:
            scheduler = argument[2].removeprefix("SchedulerType.")
            self._found[argument[1]] = typed(argument[2]) if scheduler == argument[2] else scheduler.lower()
        return True, None

    def drop(self) -> None:
        """Drop the collected lines."""
        self._found = None
