"""What is known of a framework: the frozen tables that its data file becomes, and how files show that it wrote them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ArgumentNames:
    """The trainer arguments that a framework writes as JSON, prints or logs, beyond transformers' own.

    Attributes:
        file: the name of the file; empty where there is none.
        recognise: sets of names; arguments that have all of one set are this framework's.
        version: the name of its version.
        settings: its names of canonical settings.
    """

    file: str = ""
    recognise: tuple[frozenset[str], ...] = ()
    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def fits(self, names: Mapping[str, object]) -> bool:
        """Whether these arguments are this framework's."""
        return any(names.keys() >= each for each in self.recognise)


@dataclass(frozen=True, slots=True)
class FileTraces:
    """What in a run's files is one framework's.

    Attributes:
        log: found in its logs, in JSON lines too.
        is_console: whether ``log`` makes a text a training log before any row shows.
        mention: found in its logs next to others'; makes a text with a bar or a traceback a training log.
        row: found in its rows, on the console or as JSON; makes a text a training log.
        line: found in its rows on the console; makes a text that also mentions a trainer a training log.
        paired_step: the key of a JSON row that holds step and total as one text (``"33/80"``).
        counters: how its logs count steps (group 1), by which the parts of a rotated log are put in order.
        metrics_file: the name of its metrics file.
        shows_end: whether the end of a run shows in its metrics files.
        crash_summary: how the line begins that its metrics file ends with after a crash too.
        pieces_file: the name of a metrics file with several lines per step, and what is found in it.
        notebook: columns of which one makes a notebook's table, beside transformers' own columns, this framework's.
        card_version: found in a model card (``README.md``); group 1 is the framework's version.
        recipe: arguments of which two make a YAML file a recipe for its scripts.
        bar: the label of its training bar.
        folders: names of folders that belong to the run above them.
        numbered: how the names of folders begin of which each start of a job makes another, with a higher number.
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
    arguments: ArgumentNames = field(default_factory=ArgumentNames)


def read_traces(entry: Mapping[str, Any]) -> FileTraces:
    """The traces in a data file; all parts may be missing."""
    pieces, given = entry.get("pieces_file"), entry.get("arguments", {})
    return FileTraces(
        log=re.compile(entry["log"].encode(), re.MULTILINE) if "log" in entry else None,
        is_console=entry.get("is_console", False),
        mention=entry.get("mention", ""),
        row=re.compile(entry["row"].encode()) if "row" in entry else None,
        line=re.compile(entry["line"].encode()) if "line" in entry else None,
        paired_step=entry.get("paired_step", ""),
        counters=tuple(re.compile(each.encode()) for each in entry.get("counters", ())),
        metrics_file=entry.get("metrics_file", ""),
        shows_end=entry.get("shows_end", False),
        crash_summary=entry.get("crash_summary", ""),
        pieces_file=(pieces["name"], re.compile(pieces["holds"].encode())) if pieces else None,
        notebook=frozenset(entry.get("notebook", ())),
        card_version=re.compile(entry["card_version"], re.MULTILINE) if "card_version" in entry else None,
        recipe=frozenset(entry.get("recipe", ())),
        bar=entry.get("bar", ""),
        folders=tuple(entry.get("folders", ())),
        numbered=entry.get("numbered", ""),
        arguments=ArgumentNames(
            file=given.get("file", ""),
            recognise=tuple(frozenset(names) for names in given.get("recognise", ())),
            version=given.get("version", ""),
            settings=given.get("settings", {}),
        ),
    )


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One raw key (or ``prefix<label>suffix``) and the metric it means; ``metric`` None: known, but no metric.

    ``beside``: it means the metric only in a row that holds this key too; ``unless``: only in a row without it;
    ``not_with``: only in a run without this setting.
    ``convert``: the metric is the ``reciprocal`` of the value, its ``complement`` to 1, how far it is ``behind KEY``,
    another value of the row, or its share ``of_prompts`` (of a step, where the settings know their number).
    ``zero_is_off``: an exact 0 is written where the quantity is not measured, and counts as absent.
    """

    prefix: str
    suffix: str
    pattern: bool
    metric: str | None
    convert: str = ""
    beside: str | None = None
    zero_is_off: bool = False
    unless: str | None = None
    not_with: str | None = None

    def holds(self, names: Collection[str | None], switched_on: Collection[str] = ()) -> bool:
        """Whether the key means its metric beside these keys (prefixes stripped), with these settings of the run."""
        beside = self.beside is None or self.beside in names
        return beside and (self.unless is None or self.unless not in names) and self.not_with not in switched_on

    def label(self, key: str) -> str | None:
        """The label inside ``key`` when the pattern matches, else None."""
        inner = key[len(self.prefix) : len(key) - len(self.suffix)]
        return inner if inner and key.startswith(self.prefix) and key.endswith(self.suffix) else None


@dataclass(frozen=True, slots=True)
class Signature:
    """A set of keys that must be in a row, and keys that must not."""

    has: frozenset[str]
    lacks: frozenset[str] = frozenset()

    def matches(self, keys: frozenset[str]) -> bool:
        """Whether a row with these keys (prefixes stripped) fits."""
        return self.has <= keys and not self.lacks & keys


@dataclass(frozen=True, slots=True)
class Facts:
    """What an era settles: the meaning of the logged spread, and whether a logged KL proves beta > 0."""

    reward_std: str = "unknown"
    kl_implies_beta: bool | None = None


@dataclass(frozen=True, slots=True)
class Era:
    """A span of versions with one naming. ``since`` None: known by keys only; ``signature`` None: by version only."""

    since: tuple[int, ...] | None
    signature: Signature | None
    by_keys: Facts
    by_version: Facts


@dataclass(frozen=True, slots=True)
class Terms:
    """How a value of a configuration is read where it does not stand for itself.

    ``when``: another dotted key, which must hold one of ``allowed``; where it holds something else the value is
    ``otherwise``, where it is absent there is no value. ``positive``: the setting is whether the number is above 0.
    ``times``: another dotted key with a number that this one is multiplied with; where it is absent there is no value.
    """

    when: str | None = None
    allowed: tuple[object, ...] = (True,)
    otherwise: object = None
    positive: bool = False
    times: str | None = None

    def read(self, value: object, leaves: Mapping[str, object]) -> object:
        """The value under these terms; None: there is none."""
        if self.when is not None and leaves.get(self.when) not in self.allowed:
            return self.otherwise if leaves.get(self.when) is not None else None
        if self.times is not None:
            factor = leaves.get(self.times)
            return value * factor if isinstance(value, int) and isinstance(factor, int) else None
        return value > 0 if self.positive and isinstance(value, (int, float)) else value


@dataclass(frozen=True, slots=True)
class Framework:
    """One data file. Where ``based_on`` names another framework, its keys, eras and settings are included.

    ``settings`` are pairs of a dotted key of the framework's configuration and the canonical setting it means, with
    ``terms`` for some. ``next_rate_beside``: the logged rate is the next step's only in rows that hold one of them.
    ``own_validation``: the names of evaluation metrics are the datasets' own, none of them is reported as unknown.
    ``step_key``: its own name for the optimizer step in rows of trackers (empty: a usual one).
    ``reveals`` are the framework's own settings that give a metric or a kind of evidence.
    ``printed`` are metrics counted from lines that its console prints between rows.
    ``fallback``: rows of a framework that is not known are read with this table. ``any_loop``: it prepares a model for
    whatever loop trains it; its banner says nothing of the rows.
    """

    name: str
    based_on: str | None
    order: int
    signatures: tuple[Signature, ...]
    strip_prefixes: tuple[str, ...]
    eval_prefixes: tuple[str, ...]
    next_learning_rate: bool
    exact: Mapping[str, tuple[int, KeyRule]]
    patterns: tuple[tuple[int, KeyRule], ...]
    spread_key: str
    facts: Facts
    eras: tuple[Era, ...]
    settings: tuple[tuple[str, str], ...] = ()
    terms: Mapping[str, Terms] = field(default_factory=dict)
    next_rate_beside: frozenset[str] = frozenset()
    own_validation: bool = False
    traces: FileTraces = field(default_factory=FileTraces)
    fallback: bool = False
    step_key: str = ""
    any_loop: bool = False
    reveals: Mapping[str, str] = field(default_factory=dict)
    printed: frozenset[str] = frozenset()

    def find(self, key: str) -> tuple[int, KeyRule, str | None] | None:
        """Rank (lower is preferred), rule and label of a key whose prefixes are stripped; None for an unknown key."""
        if (hit := self.exact.get(key)) is not None:
            return hit[0], hit[1], None
        for rank, rule in self.patterns:
            if (label := rule.label(key)) is not None:
                return rank, rule, label
        return None

    def facts_of_version(self, version: str | None) -> Facts | None:
        """What the version settles, or None when it is unknown or older than every era."""
        if version is None or (wanted := version_key(version)) is None:
            return None
        reached = [era for era in self.eras if era.since is not None and era.since <= wanted]
        return reached[-1].by_version if reached else None

    def facts_of_keys(self, keys: frozenset[str]) -> Facts | None:
        """What a row's keys settle, or None when they fit no era."""
        for era in self.eras:
            if era.signature is not None and era.signature.matches(keys):
                return era.by_keys
        return None


def version_key(version: str) -> tuple[int, ...] | None:
    """``"0.22.1.dev0"`` → ``(0, 22, 1)``; None for a text that begins with no number."""
    found = re.match(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", version.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else None
