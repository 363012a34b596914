"""Finds the frameworks' folders and modules, and reads their data files (``keys.yaml``) into frozen tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from grpo_watch import frameworks as package
from grpo_watch.engine.metric_names import LABELLED, METRICS, SETTINGS
from grpo_watch.frameworks.framework import Era, Facts, Framework, KeyRule, Signature, Terms, read_traces, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def folders() -> list[Path]:
    """The folder of each framework, by name."""
    found = (path for root in package.__path__ for path in Path(root).iterdir() if (path / "keys.yaml").is_file())
    return sorted(found, key=lambda path: path.name)


def contributions(module: str, attribute: str) -> Iterator[Any]:
    """``attribute`` of every module ``<folder>/<module>.py`` that has it, by folder."""
    for folder in folders():
        if (folder / f"{module}.py").is_file():
            found = import_module(f"{package.__name__}.{folder.name}.{module}")
            if hasattr(found, attribute):
                yield getattr(found, attribute)


_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PLACEHOLDER = re.compile(r"<[a-z]+>")
SEPARATORS = re.compile(r"[/@-]")
"""What table writers, databases and some trackers do not allow in a name: they write ``_`` for each."""


def shipped_yaml(text: str) -> Any:
    """What a YAML file of this package holds; files of others are read with ``plain_yaml``, which bounds them."""
    return yaml.load(text, Loader=_SAFE)  # noqa: S506  a safe one


@lru_cache(maxsize=1)
def frameworks() -> Mapping[str, Framework]:
    """Every framework by name, in the order in which they are tried for recognition."""
    texts = [(folder / "keys.yaml").read_text("utf-8") for folder in folders()]
    raw = {document["framework"]: document for document in map(shipped_yaml, texts)}
    tables = [_framework(document, raw) for document in raw.values()]
    return {table.name: table for table in sorted(tables, key=lambda table: table.order)}


def fallback() -> Framework:
    """The table for rows of an unknown framework: the names that most others copy."""
    return next(table for table in frameworks().values() if table.fallback)


def own_step_keys() -> tuple[str, ...]:
    """What frameworks alone call the optimizer step in the rows of trackers."""
    return tuple(table.step_key for table in frameworks().values() if table.step_key)


def bases_last() -> Sequence[Framework]:
    """Every framework, those that others are built on last: their traces show in the others' files."""
    bases = {table.based_on for table in frameworks().values()}
    return sorted(frameworks().values(), key=lambda table: table.name in bases)


def read_framework(text: str) -> Framework:
    """The framework of one data file that is based on no other.

    Raises:
        ValueError: a key means something that is no canonical metric or setting.
        KeyError: a part that every data file has is missing.
    """
    return _framework(yaml.safe_load(text), {})


def produced_by(name: str) -> frozenset[str] | None:
    """Every canonical metric that a framework's logs can give, of any version; None for an unknown framework."""
    framework = frameworks().get(name)
    if framework is None:
        return None
    rules = [rule for _, rule in (*framework.exact.values(), *framework.patterns)]
    spread = {"reward_group_std", "reward_batch_std"} if framework.spread_key else set()
    held_out = {"eval_score"} if framework.eval_prefixes else set()
    return frozenset({rule.metric for rule in rules if rule.metric is not None} | spread | held_out | framework.printed)


def recognise(keys: frozenset[str]) -> Framework | None:
    """The framework that a row with these keys (prefixes stripped) comes from, or None when they could be anyone's."""
    for framework in frameworks().values():
        if any(signature.matches(keys) for signature in framework.signatures):
            return framework
    return None


def _framework(document: Mapping[str, Any], raw: Mapping[str, Mapping[str, Any]]) -> Framework:
    base = raw.get(document.get("based_on", ""), {})
    merged = {**base, **document}
    rules = [*_rules(document), *_rules(base)]
    rules += [flat for rule in rules if (flat := _flat_rule(rule)) is not None]
    signatures = [_signature(entry) for entry in document["recognise"]]
    signatures += [each for signature in signatures if (each := _flat_signature(signature)) != signature]
    evaluations = merged["eval_prefixes"]
    settings = {**document.get("settings", {}), **base.get("settings", {})}
    exact: dict[str, tuple[int, KeyRule]] = {}
    for rank, rule in enumerate(rules):
        if not rule.pattern:
            exact.setdefault(rule.prefix, (rank, rule))
    return Framework(
        name=document["framework"],
        based_on=document.get("based_on"),
        order=document["order"],
        signatures=tuple(signatures),
        strip_prefixes=tuple(merged["strip_prefixes"]),
        eval_prefixes=tuple(dict.fromkeys([*evaluations, *map(flat_name, evaluations)])),
        next_learning_rate=merged["learning_rate"] == "next",
        exact=exact,
        patterns=tuple((rank, rule) for rank, rule in enumerate(rules) if rule.pattern),
        spread_key=merged["spread_key"],
        facts=Facts(document.get("reward_std", "unknown"), document.get("kl_implies_beta")),
        eras=tuple(_era(entry) for entry in merged.get("eras", ())),
        settings=tuple(_settings(settings)),
        terms={key: _terms(entry) for key, entry in settings.items() if not isinstance(entry, str)},
        next_rate_beside=frozenset({beside, flat_name(beside)} if (beside := merged.get("next_rate_beside")) else ()),
        own_validation=merged.get("validation") == "own names",
        traces=read_traces(document.get("traces", {})),
        fallback=document.get("fallback", False),
        step_key=document.get("step_key", ""),
        any_loop=document.get("any_loop", False),
        reveals=merged.get("reveals", {}),
        printed=frozenset((merged["channels"].get("console") or {}).get("gives", ())),
    )


def _settings(entries: Mapping[str, str | Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for key, entry in entries.items():
        yield key, _setting(key, entry if isinstance(entry, str) else entry["means"])


def _setting(key: str, name: str) -> str:
    if name not in SETTINGS:
        raise ValueError(f"framework data: {key} means {name}, which is not a canonical setting")
    return name


def _terms(entry: Mapping[str, Any]) -> Terms:
    allowed, positive = tuple(entry.get("is", (True,))), entry.get("convert") == "positive"
    return Terms(entry.get("when"), allowed, entry.get("otherwise"), positive, entry.get("times"))


def _rules(document: Mapping[str, Any]) -> Iterable[KeyRule]:
    for key, value in document.get("metrics", {}).items():
        entry = {"metric": value} if isinstance(value, str) else value
        yield _rule(key, entry["metric"], entry)
    for key in document.get("bookkeeping", ()):
        yield _rule(key, None, {})


def _rule(key: str, metric: str | None, entry: Mapping[str, Any]) -> KeyRule:
    if metric is not None and metric not in METRICS:
        raise ValueError(f"framework data: {key} means {metric}, which is not a canonical metric")
    parts = PLACEHOLDER.split(key)
    if metric in LABELLED and len(parts) != 2:  # noqa: PLR2004 (text before and after the one placeholder)
        raise ValueError(f"framework data: {key} needs one placeholder for the label of {metric}")
    return KeyRule(
        prefix=parts[0],
        suffix=parts[-1] if len(parts) > 1 else "",
        pattern=len(parts) > 1,
        metric=metric,
        convert=entry.get("convert", ""),
        beside=entry.get("beside"),
        zero_is_off=entry.get("zero") == "absent",
        unless=entry.get("unless"),
        not_with=_setting(key, entry["not_with"]) if "not_with" in entry else None,
    )


def flat_name(name: str) -> str:
    """A key as it stands in a table whose columns may hold no separators: ``critic_score_mean``."""
    return SEPARATORS.sub("_", name)


def _flat_rule(rule: KeyRule) -> KeyRule | None:
    """The rule for a key without its separators; None where the key has none."""
    flat = replace(
        rule,
        prefix=flat_name(rule.prefix),
        suffix=flat_name(rule.suffix),
        convert=flat_name(rule.convert),
        beside=rule.beside and flat_name(rule.beside),
        unless=rule.unless and flat_name(rule.unless),
    )
    return None if (flat.prefix, flat.suffix) == (rule.prefix, rule.suffix) else flat


def _flat_signature(signature: Signature) -> Signature:
    return Signature(frozenset(map(flat_name, signature.has)), frozenset(map(flat_name, signature.lacks)))


def _signature(entry: Mapping[str, Any]) -> Signature:
    return Signature(frozenset(entry["has"]), frozenset(entry.get("lacks", ())))


def _era(entry: Mapping[str, Any]) -> Era:
    by_keys = Facts(entry["reward_std"], entry["kl_implies_beta"])
    by_version = Facts(entry.get("version_reward_std", entry["reward_std"]), entry["kl_implies_beta"])
    since = version_key(entry["from"]) if "from" in entry else None
    return Era(since, _signature(entry) if "has" in entry else None, by_keys, by_version)
