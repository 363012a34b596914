"""A framework's data file (``keys.yaml``), and the traces by which its files are recognised."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from grpo_watch.detectors.shared.batch_plan import release


class DataStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a data file; fields without a default are required, unknown ones are refused."""


class ArgumentNames(DataStruct, frozen=True):
    """The trainer arguments that a framework writes as JSON, prints or logs, beyond transformers' own.

    Attributes:
        file: name of the file; empty if there is none.
        recognise: sets of names; arguments that have all of one set are this framework's.
        version: name of its version.
        settings: its names of canonical settings.
    """

    file: str = ""
    recognise: tuple[frozenset[str], ...] = ()
    version: str = ""
    settings: Mapping[str, str] = {}

    def fits(self, names: Mapping[str, object]) -> bool:
        """Whether these arguments are this framework's."""
        return any(names.keys() >= each for each in self.recognise)


class FileTraces(DataStruct, frozen=True):
    """Traces in a run's files that identify one framework.

    Attributes:
        log: found in its logs, in JSON lines too.
        is_console: whether ``log`` makes a text a training log before any row shows.
        mention: found in its logs next to others'; makes a text with a bar or a traceback a training log.
        row: found in its rows, on the console or as JSON; makes a text a training log.
        line: found in its rows on the console; makes a text that also mentions a trainer a training log.
        paired_step: the key of a JSON row that holds step and total as one text (``"33/80"``).
        counters: how its logs count steps (group 1), by which the parts of a rotated log are put in order.
        metrics_file: the name of its metrics file.
        shows_end: whether its metrics files show the end of a run.
        crash_summary: how the last line of its metrics file begins, after a crash too.
        pieces_file: the name of a metrics file with several lines per step, and a pattern found in it.
        notebook: columns, one of which beside transformers' own makes a notebook's table this framework's.
        card_version: found in a model card (``README.md``); group 1 is the framework's version.
        recipe: arguments, two of which make a YAML file a recipe for its scripts.
        bar: the label of its training bar.
        folders: names of folders that belong to the run above them.
        numbered: prefixes of folders that each start of a job creates with a higher number.
        arguments: the names of its trainer arguments.
    """

    log: re.Pattern[bytes] | None = None
    is_console: bool = False
    mention: str = ""
    row: re.Pattern[bytes] | None = None
    line: re.Pattern[bytes] | None = None
    paired_step: str = ""
    counters: tuple[re.Pattern[bytes], ...] = ()
    metrics_file: str = ""
    shows_end: bool = False
    crash_summary: str = ""
    pieces_file: tuple[str, re.Pattern[bytes]] | None = None
    notebook: frozenset[str] = frozenset()
    card_version: re.Pattern[str] | None = None
    recipe: frozenset[str] = frozenset()
    bar: str = ""
    folders: tuple[str, ...] = ()
    numbered: str = ""
    arguments: ArgumentNames = ArgumentNames()


class MarkKind(Enum):
    """The meaning of a mark. A line with marks of several kinds has the meaning of the first of these."""

    FINISHED = "finished"
    """The job completed."""
    RESUMED = "resumed"
    """Group 1 is the step that the job resumes from."""
    TOTAL = "total"
    """Group 1 is the number of steps planned."""
    EPOCH = "epoch"
    """Group 1 is the number of optimizer steps in an epoch."""
    COMMAND = "command"
    """The job's command line; its arguments follow."""
    VERSION = "version"
    """Group 1 is the framework's version."""
    PACKAGE = "package"
    """Group 1 is the version of the package with the framework's name."""
    NAME = "name"
    """Only shows that the line is the framework's own."""
    SIZES = "sizes"
    """Group 1 is the number of training examples, group 2 that of epochs."""
    PROCESSES = "processes"
    """Group 1 is the number of training processes."""
    PROMPTS = "prompts"
    """Group 1 is the number of prompts of a step."""
    UNFILTERED = "unfiltered"
    """Group 1 is the number of rows of a dataset, before a filter."""
    FILTERED = "filtered"
    """Group 1 is the number of rows that the filter left."""
    DATASET = "dataset"
    """A print of the training set begins; a line ``num_rows: N`` follows."""


class ConsoleMark(DataStruct, frozen=True):
    """One kind of line that a framework prints besides rows.

    ``sign``: a short expression that finds all such lines, for a single search over every line of a log; empty if
    another mark's sign is in the same line.
    """

    framework: str
    kind: MarkKind
    pattern: re.Pattern[bytes]
    sign: re.Pattern[bytes] | None = None


class DictionaryRow(DataStruct, frozen=True):
    """Rows on the console that are a dictionary after their step, on one line.

    ``mark``: found in every such line; ``line``: matches the text before the dictionary, its group is the step.
    """

    mark: str
    line: re.Pattern[bytes]


class CheckpointLayout(DataStruct, frozen=True):
    """One layout of checkpoints; those with the same ``folder`` are merged.

    Attributes:
        folder: matches a checkpoint's name, its group is the step.
        within: the folders that may hold the weights, the best first.
        markers: files in the checkpoint that are written last.
        trackers: files next to the checkpoints that name the newest step whose save was completed.
        holds: names, one of which must be in the folder, if the folder's name alone proves nothing.
        not_below: parents whose folders of this name are no checkpoints.
        unfinished: matches folders that are being written or replaced.
        configured: the marker of a checkpoint that holds the run's configuration.
    """

    folder: re.Pattern[str]
    within: tuple[str, ...] = ("",)
    markers: tuple[str, ...] = ()
    trackers: tuple[str, ...] = ()
    holds: frozenset[str] = frozenset()
    not_below: frozenset[str] = frozenset()
    unfinished: re.Pattern[str] | None = None
    configured: str = ""


class TableColumns(DataStruct, frozen=True):
    """Names in the rows of one growing ``completions.jsonl``, the best first.

    ``not_rewards`` may hold numbers but are no rewards. ``per_generation``: in rows with this key, several batches may
    share a step.
    """

    step: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    completion: tuple[str, ...] = ()
    not_rewards: tuple[str, ...] = ()
    per_generation: str = ""


class KeyRule(DataStruct, frozen=True):
    """One raw key (or ``prefix<label>suffix``) and its metric; a ``metric`` of None marks a known key without one.

    With ``infix`` the key is ``prefix<any>infix<label>suffix``; ``function`` is the label of a key without one.

    ``beside``: it means the metric only in a row that holds this key too; ``unless``: only in a row without it;
    ``not_with``: only in a run without this setting. ``convert``: the metric is the ``reciprocal`` of the value, its
    ``complement`` to 1, how far it is ``behind KEY``, another value of the row, or its share ``of_prompts`` (of a step,
    if the settings give their number). ``zero`` is ``absent`` if an exact 0 is written when the quantity is not
    measured. ``tied``: beside this key it is the share of completions as long as the longest, which is truncation only
    if many are, at a length that people set.
    """

    metric: str | None
    prefix: str = ""
    suffix: str = ""
    pattern: bool = False
    infix: str = ""
    function: str | None = None
    convert: str = ""
    beside: str | None = None
    zero: str = ""
    unless: str | None = None
    not_with: str | None = None
    tied: str | None = None

    def holds(self, names: Collection[str | None], switched_on: Collection[str] = ()) -> bool:
        """Whether the key means its metric beside these keys (prefixes stripped), with these settings of the run."""
        beside = self.beside is None or self.beside in names
        return beside and (self.unless is None or self.unless not in names) and self.not_with not in switched_on

    def label(self, key: str) -> str | None:
        """The label inside ``key`` if the pattern matches, else None."""
        inner = key[len(self.prefix) : len(key) - len(self.suffix)]
        if self.infix:
            inner = inner.partition(self.infix)[2]
        return inner if inner and key.startswith(self.prefix) and key.endswith(self.suffix) else None


class Signature(DataStruct, frozen=True):
    """A set of keys that must be in a row, and keys that must not."""

    has: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()

    def matches(self, keys: frozenset[str]) -> bool:
        """Whether a row with these keys (prefixes stripped) fits."""
        return self.has <= keys and not self.lacks & keys


class Facts(Struct, frozen=True):
    """What an era determines: the meaning of the logged spread, and whether a logged KL proves beta > 0."""

    reward_std: str = "unknown"
    kl_implies_beta: bool | None = None


class Era(Signature, frozen=True, kw_only=True, rename={"since": "from"}):
    """A span of versions with one naming. Without ``from`` only keys identify it, without ``has`` only the version.

    ``version_reward_std``: the meaning of the spread if the version is known, where that says more than the keys.
    """

    reward_std: str
    kl_implies_beta: bool
    since: str = ""
    version_reward_std: str = ""


class SettingTerms(DataStruct, frozen=True, rename={"allowed": "is"}):
    """The canonical setting of a configuration key, and how its value is read.

    ``when``: another dotted key, which must hold one of ``allowed``; if it holds something else the value is
    ``otherwise``, if it is absent there is no value. ``convert`` is ``positive`` if the setting is whether the number
    is above 0. ``times``: another dotted key with a number that this one is multiplied by; if it is absent there is no
    value.
    """

    means: str
    when: str | None = None
    allowed: tuple[Any, ...] = (True,)
    otherwise: Any = None
    convert: str = ""
    times: str | None = None

    def read(self, value: object, leaves: Mapping[str, object]) -> object:
        """The value under these terms, or None."""
        if self.when is not None and leaves.get(self.when) not in self.allowed:
            return self.otherwise if leaves.get(self.when) is not None else None
        if self.times is not None:
            factor = leaves.get(self.times)
            return value * factor if isinstance(value, int) and isinstance(factor, int) else None
        return value > 0 if self.convert == "positive" and isinstance(value, (int, float)) else value


class Framework(DataStruct, frozen=True, dict=True, rename={"name": "framework", "signatures": "recognise"}):
    """One data file. If ``based_on`` names another framework, its keys, eras and settings are included.

    ``rules`` are its keys, the preferred first. ``learning_rate`` is ``next`` if the logged rate is the next step's,
    ``next_rate_beside``: only in rows that hold one of these. ``settings`` are dotted keys of the framework's
    configuration, each with its canonical setting. ``step_key``: its own name for the optimizer step in rows of
    trackers (empty: a usual one). ``reveals`` are the framework's own settings that enable a metric or a kind of
    evidence. ``channels``: what each shows, for the documentation and for metrics that the console prints between rows.
    ``fallback``: rows of an unknown framework are read with this table. ``any_loop``: it prepares a model for any
    training loop, so its banner does not identify the rows. ``row`` describes its rows on the console, ``marks`` other
    lines; ``parquet`` matches the name of a file of completions, its group is the step; ``columns`` are those of its
    ``completions.jsonl``.
    """

    name: str
    order: int
    signatures: tuple[Signature, ...]
    strip_prefixes: tuple[str, ...]
    eval_prefixes: tuple[str, ...]
    learning_rate: str
    spread_key: str
    channels: Mapping[str, Any]
    rules: tuple[KeyRule, ...]
    based_on: str | None = None
    reward_std: str = "unknown"
    kl_implies_beta: bool | None = None
    eras: tuple[Era, ...] = ()
    settings: Mapping[str, SettingTerms] = {}
    next_rate_beside: frozenset[str] = frozenset()
    traces: FileTraces = FileTraces()
    fallback: bool = False
    step_key: str = ""
    any_loop: bool = False
    reveals: Mapping[str, str] = {}
    row: DictionaryRow | None = None
    marks: tuple[ConsoleMark, ...] = ()
    checkpoints: tuple[CheckpointLayout, ...] = ()
    parquet: re.Pattern[str] | None = None
    columns: TableColumns | None = None

    @cached_property
    def exact(self) -> Mapping[str, tuple[int, KeyRule]]:
        """Keys without a placeholder, each with its rank (lower is preferred)."""
        ranked = [(rank, rule) for rank, rule in enumerate(self.rules) if not rule.pattern]
        return {rule.prefix: (rank, rule) for rank, rule in reversed(ranked)}

    @cached_property
    def patterns(self) -> tuple[tuple[int, KeyRule], ...]:
        """Keys with a placeholder, each with its rank."""
        return tuple((rank, rule) for rank, rule in enumerate(self.rules) if rule.pattern)

    @property
    def printed(self) -> frozenset[str]:
        """Metrics counted from lines that its console prints between rows."""
        return frozenset((self.channels.get("console") or {}).get("gives", ()))

    def find(self, key: str) -> tuple[int, KeyRule, str | None] | None:
        """Rank (lower is preferred), rule and label of a key without prefixes; None for an unknown key."""
        if (hit := self.exact.get(key)) is not None:
            return hit[0], hit[1], hit[1].function
        for rank, rule in self.patterns:
            if (label := rule.label(key)) is not None:
                return rank, rule, label
        return None

    def facts_of_version(self, version: str | None) -> Facts | None:
        """The facts of a version; None if it is unknown or older than every era."""
        if version is None or not (wanted := release(version)):
            return None
        reached = [era for era in self.eras if era.since and release(era.since) <= wanted]
        if not reached:
            return None
        return Facts(reached[-1].version_reward_std or reached[-1].reward_std, reached[-1].kl_implies_beta)

    def facts_of_keys(self, keys: frozenset[str]) -> Facts | None:
        """The facts that a row's keys determine; None if they fit no era."""
        era = next((era for era in self.eras if era.has and era.matches(keys)), None)
        return None if era is None else Facts(era.reward_std, era.kl_implies_beta)
