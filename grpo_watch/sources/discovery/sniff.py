"""Recognises the content of a run's file by its name and its first and last 256 KB."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import Stamp, lacking
from grpo_watch.detectors.shared.refusals import refused
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.dump_formats import rollout_dumps, table_columns
from grpo_watch.frameworks.framework_tables import bases_last, frameworks, recognise
from grpo_watch.frameworks.guessing import OF_LEARNING, OF_STEPS, guess, names_updates
from grpo_watch.frameworks.row_numbers import flat, unwrapped
from grpo_watch.sources.completions.rollout_dumps import holds_dump
from grpo_watch.sources.console.collector_prefixes import WRAPS_TEXT
from grpo_watch.sources.console.source import lone_score, signs_of
from grpo_watch.sources.discovery.channels import TRACKERS, ChannelContent
from grpo_watch.sources.files.decompress import WINDOW, archive, ends_of, unpacked_name
from grpo_watch.sources.rows.document import MAY_HOLD_ROWS, YAML, holds_document, holds_rows, nests_rows, whole_text
from grpo_watch.sources.rows.html_tables import HTML, holds_html_table
from grpo_watch.sources.rows.jsonl import decode, in_pieces, rewards_by_step
from grpo_watch.sources.rows.layouts import NAMES_RUN, is_number, step_key
from grpo_watch.sources.rows.own_lines import EVALUATION
from grpo_watch.sources.rows.own_rows import PrintedColumns
from grpo_watch.sources.rows.pieces import OF_METRICS, holds_piece
from grpo_watch.sources.rows.tables import HEADER_NEEDED, TABLES, holds_table, proposed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class SniffedFile(Struct, frozen=True):
    """The content of a file (None: nothing of a run), and the framework that it names.

    ``bars``: a text with training bars that names no trainer; beside a console, it is the job's other stream.
    """

    what: ChannelContent | None
    framework: str | None = None
    problem: str = ""
    bars: bool = False


PROBE_NAME = re.compile(r"grpo-watch-probe-\d{1,6}\.jsonl")
COMPLETIONS = "completions.jsonl"
INNER = re.compile(rb'": ?\{')  # never in the Trainer's history: a mapping inside a row, a number with its name
SINGLE = re.compile(rb'"(?:\w{0,20}[nN]ame|metric|tag|key|variable)":\s?"')
BY_LINE = re.compile(rb"\s{0,9}\{[^\n]{2,65536}\}\r?\n\{")
"""JSON rows on lines, in a file named like a document."""
MARKED_UP = (".md", ".toml", ".ini", ".xml")  # more often documents or settings than logs
ABOUT = ("readme", "model_card", "contributing", "changelog")
LEAST_ROWS = 3
LOOKED_AT = 20
"""Lines of JSON that are inspected."""
LINES = (".jsonl", ".ndjson")
MAY_HOLD = (*LINES, ".json", ".ipynb", *MARKED_UP, *YAML, *TABLES, *HTML)
CONSOLE_NAME = re.compile(
    r".*\.(?:log|txt|out|err|stdout|stderr)|(?:stdout|stderr)[^/]*|.*\.(?:log|out|err)\.\d+|"
    r".*\.[oe]\d+(?:[.-]\d+)?|screenlog\.\d+|typescript"  # PBS and Grid Engine, screen, script
)
LOG_WORD = re.compile(r"log|console|output|train|grpo", re.IGNORECASE)
METRIC_KEYS = frozenset(
    {"loss", "reward", "rewards", "kl", "grad_norm", "reward_std", "reward_mean", "eval_loss"}
    | {"train_loss", "reward_latest", "learning_rate", "lr", "train/loss", "train/reward", "completion_length"}
)
PAIRED_STEPS = frozenset(table.traces.paired_step for table in frameworks().values()) - {""}
WEAK = re.compile(
    rb"\d{1,3}%(?:\|| {1,3}\d{1,9}/\d{1,9} \[)|Traceback \(most recent call last\)|"
    rb"\*{5} Running training \*{5}"
    + b"".join(b"|" + table.traces.line.pattern for table in frameworks().values() if table.traces.line)
)
LABELLED = re.compile(rb"^(?:\[rank\d{1,5}\]|\(\w{1,40} pid=\d)", re.MULTILINE)
"""A line of one of several processes, as printed by torch and Ray."""
OF_JOBS = re.compile(
    rb"torch|cuda|nccl|gloo|vllm|sglang|\bray\b|ray\.|raylet|raysubmit|transformers|accelerate|deepspeed|"
    rb"\btrain|trainer|grpo|ppo\b|rollout|peft|slurm|srun",
    re.IGNORECASE,
)
"""Words in the log of a training job, whatever it died of."""


UNREAD = "unread"
"""Asks why a file gives no row."""


class Sniffer:
    """Recognises files and caches the answers, so that a look every few seconds costs one ``stat`` per file."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[Stamp, SniffedFile]] = {}
        self._asked: set[str] = set()

    def sniff_alone(self, path: Path, roots: Sequence[Path]) -> SniffedFile:
        """Return the content of a file in a place without runs: also a log of a crash alone, or without an ending."""
        return self.remembered(path, "alone", lambda: _sniff_alone(path, roots))

    def sniff(self, path: Path, roots: Sequence[Path], *, named: bool = False) -> SniffedFile:
        """Return the content of a file. ``named``: the user named it, so any name is a log's, and never nothing."""
        return self.remembered(path, "named" if named else "", lambda: _sniff(path, roots, named=named))

    def remembered(self, path: Path, asked: str, sniff: Callable[[], SniffedFile]) -> SniffedFile:
        """Return the cached answer to a question, sniffed again if the file may be another now.

        A recognised file keeps its kind, whatever is written over it, until another file has its name.
        """
        try:
            info = path.stat()
        except OSError as error:
            return SniffedFile(None, problem=f"can't be read: {error.strerror or error}")
        key = f"{path}\0{asked}\0{info.st_mode} {info.st_uid} {info.st_gid}"  # other rights may make it readable
        self._asked.add(key)
        state = (info.st_ino, info.st_size, info.st_mtime_ns)
        held = self._answers.get(key)
        if held is not None and (held[0] == state or _is_settled(held, state, asked)):
            return held[1]
        answer = sniff()
        if held is not None and held[1].what is not None:
            if _only_grew(held[0], state):
                answer = SniffedFile(held[1].what, held[1].framework or answer.framework, answer.problem)
            elif answer.what is None and held[0][0] == state[0]:
                answer = held[1]
        self._answers[key] = (state, answer)
        return answer

    def forget_others(self) -> None:
        """Drop files not asked for since the last call: they are gone."""
        self._answers = {key: answer for key, answer in self._answers.items() if key in self._asked}
        self._asked = set()


def _is_settled(held: tuple[Stamp, SniffedFile], state: Stamp, asked: str) -> bool:
    """Whether the answer is final: recognised, only grown, and its beginning, which names the framework, is known.

    A small file without a framework is read again whenever its size doubles. An unreadable file that only grew keeps
    its notation.
    """
    before, answer = held
    if asked == UNREAD:
        return bool(answer.problem) and _only_grew(before, state)
    known = before[1] >= WINDOW or answer.framework is not None or (not answer.problem and state[1] < 2 * before[1])
    return answer.what is not None and _only_grew(before, state) and known


def _only_grew(before: Stamp, after: Stamp) -> bool:
    """Whether the file only grew: its kind is unchanged even if the telling lines left the window."""
    return before[0] == after[0] and before[1] <= after[1]


def _sniff(path: Path, roots: Sequence[Path], *, named: bool) -> SniffedFile:
    name = unpacked_name(path)
    if (by_name := _by_name(name)) is not None:
        return by_name
    if trackers := [each for each in TRACKERS if path.name.endswith(each[1].SUFFIXES)]:
        return SniffedFile(next((what for what, tracker in trackers if tracker.holds(path, roots)), None))
    if not (named or name.endswith(MAY_HOLD) or CONSOLE_NAME.fullmatch(name) or path.parent.name == OF_METRICS):
        return SniffedFile(None)
    try:
        if named and (how := archive(path, roots)):
            return SniffedFile(None, problem=how)
        return _by_content(path, roots, named=named)
    except (OSError, SourceError) as error:
        if lacking(error):
            raise
        return SniffedFile(None, problem=str(getattr(error, "strerror", None) or error))


def _sniff_alone(path: Path, roots: Sequence[Path]) -> SniffedFile:
    if not path.suffix and LOG_WORD.search(path.name):
        found = _sniff(path, roots, named=True)
        return found if found.framework is not None and not found.problem else SniffedFile(None)
    if not CONSOLE_NAME.fullmatch(path.name):
        return SniffedFile(None)
    try:
        dead = any(OF_JOBS.search(part) and signs_of(part).death for part in ends_of(path, roots))
    except (OSError, SourceError) as error:
        if lacking(error):
            raise
        return SniffedFile(None)
    return _sniff(path, roots, named=True) if dead else SniffedFile(None)


def _by_name(name: str) -> SniffedFile | None:
    if ".tfevents." in name:
        return SniffedFile(ChannelContent.TFEVENTS)
    if PROBE_NAME.fullmatch(name):
        return SniffedFile(ChannelContent.PROBE)
    if name.endswith(".arrivals.tsv") or name in {"requirements.txt", "meta.json", "source.json"}:
        return SniffedFile(None)
    return None


def _jsonl(path: Path, head: bytes, *, named: bool) -> SniffedFile:
    name = path.name
    dumped, whose = holds_dump(path, head)
    if dumped:
        measured = any(one.measure is not None for one in rollout_dumps() if one.framework == whose)
        return SniffedFile(ChannelContent.ROLLOUT_SUMMARIES if measured else ChannelContent.COMPLETION_DUMPS, whose)
    lines = head.splitlines()[:LOOKED_AT]
    rows = [row for line in lines if (row := decode(line)) is not None]
    if (whose := _in_pieces(name, head)) is not None or in_pieces(rows):
        return SniffedFile(ChannelContent.JSONL_PIECES, whose)
    by_name = next((table.name for table in bases_last() if table.traces.metrics_file == name), None)
    framework = by_name or _framework(head)
    for line in lines:
        if (what := _line(line, learning=named or EVALUATION.search(name) is None)) is not None:
            return SniffedFile(what, framework)
    if rewards_by_step(rows):
        return SniffedFile(ChannelContent.JSONL, framework)
    if by_name is not None or name == COMPLETIONS or named:
        what = ChannelContent.COMPLETIONS_JSONL if name == COMPLETIONS else ChannelContent.JSONL
        problem = "" if not head.strip() else "no row of metrics or completions in its first lines"
        return SniffedFile(what, framework, problem)
    wrapped = WRAPS_TEXT.search(head) is not None and signs_of(head).rows
    return SniffedFile(ChannelContent.CONSOLE if wrapped else None)


def _in_pieces(name: str, head: bytes) -> str | None:
    """Return the framework that writes several lines per step to a file with this name and head."""
    for table in bases_last():
        pieces = table.traces.pieces_file
        if pieces is not None and pieces[0] == name and pieces[1].search(head) is not None:
            return table.name
    return None


def _line(line: bytes, *, learning: bool = True) -> ChannelContent | None:
    """Return metrics, completions or None for a line; one longer than the window is judged by its visible keys.

    ``learning``: a step and two update metrics make a row, unless evaluations have both.
    """
    columns = table_columns()
    completion_keys = tuple(map(frozenset, (columns.step, columns.prompt, columns.completion)))
    row: Mapping[str, object] | None = decode(line)
    if row is None:
        seen = {key.decode() for key in re.findall(rb'"([a-z_]{1,20})": ?[\["\d]', line)} if line[:1] == b"{" else set()
        return ChannelContent.COMPLETIONS_JSONL if all(seen & keys for keys in completion_keys[:2]) else None
    if all(row.keys() & keys for keys in completion_keys):
        return ChannelContent.COMPLETIONS_JSONL
    row, wrapped = unwrapped(row)
    if wrapped:
        return ChannelContent.JSONL if any("/" in key for key in row) else None
    row = flat(row)
    numbers = {key for key, value in row.items() if is_number(value) or key in PAIRED_STEPS}
    prefixed = any(key.startswith(("rewards/", "train/", "eval_")) for key in numbers)
    known = numbers & (METRIC_KEYS | PAIRED_STEPS) or prefixed or names_updates(numbers)
    if not known and learning and step_key(numbers) is not None:
        metrics = {guess(key) for key in numbers}
        known = len(metrics & OF_LEARNING) > 1 and not metrics.isdisjoint(OF_STEPS)
    return ChannelContent.JSONL if known else None


def _table(path: Path, roots: Sequence[Path], head: bytes, *, named: bool) -> SniffedFile:
    name = unpacked_name(path)
    if holds_html_table(head) if name.endswith(HTML) else holds_table(name, head, METRIC_KEYS):
        return SniffedFile(ChannelContent.TABLE)
    if holds_document(path, roots, head):
        return SniffedFile(ChannelContent.JSON_DOCUMENT)
    found = SniffedFile(ChannelContent.TABLE, problem=HEADER_NEEDED) if named else SniffedFile(None)
    return SniffedFile(ChannelContent.CONSOLE) if name.endswith(HTML) and signs_of(head).rows else found


def _by_content(path: Path, roots: Sequence[Path], *, named: bool) -> SniffedFile:
    """Return the content of a file whose name alone is ambiguous.

    Raises:
        OSError: it can't be read.
        SourceError: it is no regular file, or lies outside.
    """
    name = unpacked_name(path)
    if name.endswith(".ipynb"):
        return _notebook(path, roots, named=named)
    head, tail = ends_of(path, roots)
    if not tail and holds_piece(path, head):
        return SniffedFile(ChannelContent.ROW_PIECES)
    if name.endswith((*LINES, ".json")):
        return _jsonl(path, head, named=named) if name.endswith(LINES) else _json(path, roots, head)
    if name.endswith((*TABLES, *HTML)):
        return _table(path, roots, head, named=named)
    return _text(path, roots, (head, tail), named=named)


def _text(path: Path, roots: Sequence[Path], ends: tuple[bytes, bytes], *, named: bool) -> SniffedFile:
    """Return the content of a text read by lines, or as a whole if its rows don't show in single lines."""
    name, head = unpacked_name(path), ends[0]
    if name.endswith(MARKED_UP) and ((log := holds_log(name, head)) or name.endswith(".md")):
        return SniffedFile(ChannelContent.CONSOLE if named or log else None)
    if holds_table(name, head, METRIC_KEYS):
        return SniffedFile(ChannelContent.TABLE)
    found = SniffedFile(None) if name.endswith((*YAML, *MARKED_UP)) else _console(path, *ends, named=named)
    document = (found.what is None or found.problem) and holds_document(path, roots, head)
    return SniffedFile(ChannelContent.JSON_DOCUMENT) if document else found


def holds_log(name: str, head: bytes) -> bool:
    """Whether a marked-up text is a log; in documents with examples and summaries only tables count."""
    if name.lower().startswith(ABOUT):
        columns = PrintedColumns()
        return sum(len(columns.rows_of(line)) for line in head.splitlines()) >= LEAST_ROWS
    signs = signs_of(head)
    return len(signs.rows) >= LEAST_ROWS or bool(signs.rows and signs.framework)


def _notebook(path: Path, roots: Sequence[Path], *, named: bool) -> SniffedFile:
    from grpo_watch.sources.console.notebook import holds_run  # noqa: PLC0415  the same

    text = whole_text(path, roots)
    if text is not None and holds_run(text):
        return SniffedFile(ChannelContent.NOTEBOOK)
    why = "no rows in the saved outputs of this notebook" if text is not None else "too large for a notebook"
    return SniffedFile(None, problem=f"{why}: it was saved without them, or no cell trained" if named else "")


def _json(path: Path, roots: Sequence[Path], head: bytes) -> SniffedFile:
    name = path.name
    listed = head.lstrip()[:1] == b"[" and b'"loss"' in head[:4096] and INNER.search(head, 0, 4096) is None
    listed = listed and SINGLE.search(head, 0, 4096) is None
    stepped = listed and b'"step"' in head[:4096] and not (nests_rows(head[:4096]) or NAMES_RUN.search(head[:4096]))
    if name == "trainer_state.json" or b'"log_history"' in head[:4096] or stepped:
        return SniffedFile(ChannelContent.TRAINER_STATE)
    if BY_LINE.match(head):
        return _jsonl(path, head, named=False)
    text = whole_text(path, roots) if listed or MAY_HOLD_ROWS.search(head) else None
    if text is not None and holds_rows(text, name):
        return SniffedFile(ChannelContent.JSON_DOCUMENT)
    wrapped = WRAPS_TEXT.search(head) is not None and signs_of(head).rows
    return SniffedFile(ChannelContent.CONSOLE if wrapped else ChannelContent.TRAINER_STATE if listed else None)


def lone_number(path: Path, head: bytes) -> str:
    """Return the tested settings for a log with a score alone on its lines; empty if it has none."""
    alone = lone_score(head) if CONSOLE_NAME.fullmatch(path.name) else ""
    return f"only single numbers stand beside a name: {proposed(path, {'reward_mean': alone})}" if alone else ""


def _console(path: Path, head: bytes, tail: bytes, *, named: bool) -> SniffedFile:
    if b"\0" in head[:64] and head[:4096].count(b"\0") > len(head[:4096]) // 10:
        return SniffedFile(ChannelContent.CONSOLE if named else None, problem="a binary file, no log")
    signs = signs_of(head)
    signs = signs if signs.rows or not tail else signs_of(tail)
    framework = signs.framework or _framework(head) or _framework(tail)
    if signs.rows:
        whose = recognise(frozenset(signs.rows[0].values))
        return SniffedFile(_text_rows(head), framework or (whose.name if whose is not None else None))
    both = head, tail
    mentioned = any(_mentions().search(part) for part in both)
    begun = signs.begun or any(WEAK.search(part) for part in both)
    died = refused(signs.death) or (signs.death and any(map(LABELLED.search, both)))
    listed = any(table.name == framework and table.traces.is_console for table in bases_last())
    if (mentioned and begun) or died or listed:
        return SniffedFile(ChannelContent.CONSOLE, framework, lone_number(path, head))
    if named:
        empty = "" if not head.strip() else lone_number(path, head) or "no training output recognised in it yet"
        return SniffedFile(ChannelContent.CONSOLE, framework, empty)
    return SniffedFile(None, bars=signs.bars)


def _text_rows(head: bytes) -> ChannelContent:
    """Return the content of a text file: metrics under another name if its first line is a JSON row."""
    first = head.lstrip().split(b"\n", 1)[0]
    return ChannelContent.JSONL if _line(first) is ChannelContent.JSONL else ChannelContent.CONSOLE


def _framework(text: bytes) -> str | None:
    traced = ((table.name, table.traces.log) for table in bases_last())
    return next((name for name, pattern in traced if pattern is not None and pattern.search(text)), None)


@cache
def _mentions() -> re.Pattern[bytes]:
    words = [table.traces.mention for table in bases_last() if table.traces.mention]
    return re.compile("|".join(["grpo", *words]).encode(), re.IGNORECASE)
