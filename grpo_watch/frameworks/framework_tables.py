"""Finds the frameworks' folders and modules, and reads their data files (``keys.yaml``) into frozen tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from grpo_watch import frameworks as package
from grpo_watch.frameworks.framework import CheckpointLayout, Framework, KeyRule
from grpo_watch.shipped_yaml import shipped_yaml


def folders() -> list[Path]:
    """The folder of each framework, by name."""
    found = (path for root in package.__path__ for path in Path(root).iterdir() if (path / "keys.yaml").is_file())
    return sorted(found, key=lambda path: path.name)


def contributions(module: str, attribute: str) -> Iterator[Any]:
    """``attribute`` of every module ``<folder>/<module>.py``, by folder."""
    for folder in folders():
        if (folder / f"{module}.py").is_file():
            yield getattr(import_module(f"{package.__name__}.{folder.name}.{module}"), attribute)


PLACEHOLDER = re.compile(r"<[a-z]+>")
SEPARATORS = re.compile(r"[/@-]")
"""Characters that table writers, databases and some trackers don't allow in a name, and replace by ``_``."""
INHERITED = frozenset(
    {"strip_prefixes", "eval_prefixes", "learning_rate", "next_rate_beside", "spread_key", "eras"}
    | {"reveals", "channels"}
)
"""Fields that a data file inherits from the one it is based on, besides keys and settings."""


@lru_cache(maxsize=1)
def frameworks() -> Mapping[str, Framework]:
    """Every framework by name, in the order in which they are tried for recognition."""
    documents = [shipped_yaml(folder / "keys.yaml") for folder in folders()]
    raw = {document["framework"]: document for document in documents}
    tables = [_framework(document, raw.get(document.get("based_on"), {})) for document in documents]
    return {table.name: table for table in sorted(tables, key=lambda table: table.order)}


def fallback() -> Framework:
    """The table for rows of an unknown framework: the names that most others copy."""
    return next(table for table in frameworks().values() if table.fallback)


def own_step_keys() -> tuple[str, ...]:
    """Names of the optimizer step in the rows of trackers that only one framework uses."""
    return tuple(table.step_key for table in frameworks().values() if table.step_key)


def bases_last() -> Sequence[Framework]:
    """Every framework, with those that others build on last: their traces show in the others' files."""
    bases = {table.based_on for table in frameworks().values()}
    return sorted(frameworks().values(), key=lambda table: table.name in bases)


def read_framework(text: str) -> Framework:
    """The framework of one data file that is based on no other.

    Raises:
        msgspec.ValidationError: a required part is missing, or a part is unknown.
    """
    return _framework(shipped_yaml(text), {})


def produced_by(name: str) -> frozenset[str] | None:
    """Every canonical metric that a framework's logs can give, in any version; None for an unknown framework."""
    framework = frameworks().get(name)
    if framework is None:
        return None
    spread = {"reward_group_std", "reward_batch_std"} if framework.spread_key else set()
    held_out = {"eval_score"} if framework.eval_prefixes else set()
    rules = (*framework.exact.values(), *framework.patterns)
    named = {rule.metric for _, rule in rules if rule.metric is not None}
    return frozenset(named | spread | held_out | framework.printed)


def recognise(keys: frozenset[str]) -> Framework | None:
    """The framework of a row with these keys (prefixes stripped); None if several could have written it."""
    for framework in frameworks().values():
        if any(signature.matches(keys) for signature in framework.signatures):
            return framework
    return None


def _framework(document: Mapping[str, Any], base: Mapping[str, Any]) -> Framework:
    whole = {**{name: base[name] for name in INHERITED & base.keys()}, **document}
    rules = [*_rules(document), *_rules(base)]
    rules += [flat for rule in rules if (flat := _flat_rule(rule)) != rule]
    signatures = [{name: [*keys] for name, keys in each.items()} for each in document["recognise"]]
    spelled = ({name: [*map(flat_name, keys)] for name, keys in each.items()} for each in signatures)
    settings = {**document.get("settings", {}), **base.get("settings", {})}
    return msgspec.convert(
        {
            **{name: value for name, value in whole.items() if name not in {"metrics", "bookkeeping"}},
            "rules": rules,
            "recognise": [*signatures, *(each for each in spelled if each not in signatures)],
            "eval_prefixes": [*dict.fromkeys([*whole["eval_prefixes"], *map(flat_name, whole["eval_prefixes"])])],
            "settings": {key: {"means": each} if isinstance(each, str) else each for key, each in settings.items()},
            "marks": [{"framework": document["framework"], **each} for each in document.get("marks", ())],
        },
        Framework,
        dec_hook=_pattern,
    )


def _pattern(kind: Any, text: str) -> re.Pattern[str] | re.Pattern[bytes]:
    return re.compile(text.encode()) if kind == re.Pattern[bytes] else re.compile(text)


def _rules(document: Mapping[str, Any]) -> Iterator[KeyRule]:
    known = {key: {"metric": None} for key in document.get("bookkeeping", ())}
    for key, entry in (*document.get("metrics", {}).items(), *known.items()):
        before, *after = PLACEHOLDER.split(key)
        parts = {"prefix": before, "infix": "".join(after[:-1]), "suffix": "".join(after[-1:]), "pattern": bool(after)}
        yield msgspec.convert(parts | ({"metric": entry} if isinstance(entry, str) else entry), KeyRule)


def flat_name(name: str) -> str:
    """A key in a table whose columns may hold no separators: ``critic_score_mean``."""
    return SEPARATORS.sub("_", name)


def _flat_rule(rule: KeyRule) -> KeyRule:
    keys = {name: getattr(rule, name) for name in ("prefix", "infix", "suffix")}
    flat = {name: flat_name(key) for name, key in keys.items()}
    if flat == keys:
        return rule
    others = {name: getattr(rule, name) for name in ("convert", "beside", "unless", "tied")}
    return msgspec.structs.replace(rule, **flat, **{name: key and flat_name(key) for name, key in others.items()})


STATE = "trainer_state.json"
"""transformers 4.51 to 5.23 write it last; it must be complete JSON to count."""

LIBRARIES = (
    CheckpointLayout(folder=re.compile(r"checkpoint-(\d{1,12})"), markers=(STATE,), configured=STATE),  # transformers
    CheckpointLayout(folder=re.compile(r"global_step(\d{1,12})"), trackers=("latest",)),  # DeepSpeed
    CheckpointLayout(folder=re.compile(r"iter_(\d{7})"), trackers=("latest_checkpointed_iteration.txt",)),  # Megatron
)
"""Checkpoint layouts of libraries that any framework may use."""
LISTS = ("within", "markers", "trackers")


@cache
def layouts() -> tuple[CheckpointLayout, ...]:
    """Every layout, one per form of a folder's name."""
    by_name: dict[str, list[CheckpointLayout]] = {}
    for layout in (*LIBRARIES, *(layout for table in frameworks().values() for layout in table.checkpoints)):
        by_name.setdefault(layout.folder.pattern, []).append(layout)
    return tuple(_joined(same) for same in by_name.values())


def layout_of(name: str) -> tuple[CheckpointLayout, int] | None:
    """The layout in which a checkpoint has this name, and its step."""
    for layout in layouts():
        if match := layout.folder.fullmatch(name):
            return layout, int(match[1])
    return None


def _joined(same: Sequence[CheckpointLayout]) -> CheckpointLayout:
    lists = {name: tuple(dict.fromkeys(each for one in same for each in getattr(one, name))) for name in LISTS}
    return CheckpointLayout(
        folder=same[0].folder,
        holds=frozenset().union(*(one.holds for one in same)),
        not_below=frozenset().union(*(one.not_below for one in same)),
        unfinished=next(filter(None, (one.unfinished for one in same)), None),
        configured=next(filter(None, (one.configured for one in same)), ""),
        **lists,
    )
