"""Loads the shipped rule packs and the user's overlays into checked ``Rule`` values, or lists every problem in them.

A later file overrides an earlier rule of the same name in the keys it gives (``params`` and ``hints`` key by key),
disables it with ``enabled: false``, or adds a rule under a new name. An entry with a ``match:`` (patterns for
``framework`` and ``run``) does so only for the runs that fit, and takes precedence over all entries without ``match``.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

import grpo_watch
from grpo_watch.advisories.entries import Advisory, advisories
from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import RULE_NAME, Document, Path_, first_problem, nearest, read_document
from grpo_watch.config.schema import Settings
from grpo_watch.engine.detector import Detector, Param
from grpo_watch.engine.expression import compile_expression
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import ENGLISH, LABEL, Override, Rule
from grpo_watch.engine.sentences import FOLD, JOINTS, Sentences, sentences_of
from grpo_watch.errors import FilePlace, RuleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


_Name = Annotated[str, Meta(pattern=RULE_NAME, max_length=64)]
_Steps = Annotated[int, Meta(ge=0, le=1_000_000)]
_Text = Annotated[str, Meta(max_length=2000)]
_Pattern = Annotated[str, Meta(min_length=1)]


class RunMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The runs that an entry applies to: patterns with ``*`` and ``?``, all of which must fit."""

    framework: _Pattern | None = None
    run: _Pattern | None = None
    labels: dict[_Pattern, _Pattern] = {}


class RuleEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule as written in a file; keys that are not given keep their values."""

    name: _Name
    detector: _Text | None = None
    when: _Text | None = None
    params: dict[str, Any] = {}
    for_steps: _Steps = 0
    keep_firing_steps: _Steps = 0
    min_observations: Annotated[int, Meta(ge=1, le=100_000)] = 3
    severity: Severity = Severity.WARNING
    headline: _Text = ""
    summary: _Text = ""
    hint: _Text = ""
    hints: dict[str, _Text] = {}
    enabled: bool = True
    match: RunMatch | None = None


_TOP_KEYS = ("rules",)


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """An entry with its place in the file."""

    entry: RuleEntry
    document: Document
    path: Path_

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the entry gives, with their values."""
        return {key: getattr(self.entry, key) for key in self.document.at(self.path)}

    def place(self, *keys: str) -> FilePlace:
        """The place of one of the entry's values."""
        return self.document.place_of((*self.path, *keys))


def packs_folder() -> Path:
    """The shipped packs: ``rules/`` of a checkout, ``grpo_watch/_rules`` of an installed wheel."""
    package = Path(grpo_watch.__file__).parent
    packed = package / "_rules"
    return packed if packed.is_dir() else package.parent / "rules"


def load_rules(
    overlays: Sequence[Path] = (),
    *,
    language: str = ENGLISH,
    detectors: Mapping[str, type[Detector]] | None = None,
    packs: Path | None = None,
) -> tuple[Rule, ...]:
    """All rules in force, sorted by name, disabled ones included (``enabled`` is False).

    Args:
        overlays: the user's files, applied in this order over the shipped packs.
        language: of the shipped rules' summaries and hints; English where a rule has no other.
        detectors: the catalogue to check against; the real one by default.
        packs: the folder of shipped packs (``*.yaml``, not deeper).

    Raises:
        RuleError: naming file, line and column of the first mistake.
    """
    known = catalogue() if detectors is None else detectors
    rules: dict[str, Rule] = {}
    shipped = sorted((packs or packs_folder()).glob("*.yaml"))
    seen: set[str] = set()
    for written in (written for file in shipped for written in entries_of(file)):
        if written.entry.name in seen:
            raise RuleError(
                f"{written.entry.name} is already defined in {rules[written.entry.name].where}", written.place("name")
            )
        seen.add(written.entry.name)
        rules[written.entry.name] = apply_entry(written, rules, known)
    if language != ENGLISH:
        rules.update(_translated(rules, language))
    for written in (written for file in overlays for written in entries_of(file)):
        rules[written.entry.name] = apply_entry(written, rules, known)
    return tuple(rules[name] for name in sorted(rules))


def rules_for(settings: Settings) -> tuple[Rule, ...]:
    """The rules in force under these settings, in their language; see ``load_rules``."""
    return load_rules(settings.rules, language=settings.language)


@cache
def translations(language: str) -> Mapping[str, Mapping[str, Any]]:
    """The translations of a language.

    ``rules`` by name, ``words``, ``sentences``, ``launch`` and ``errors`` by their English, ``evidence`` by the values'
    names, ``advisories`` by id.
    """
    found: dict[str, dict[str, Any]] = read_document(packs_folder() / "languages" / f"{language}.yaml", RuleError).value
    return {part: {key: _folded(text) for key, text in texts.items()} for part, texts in found.items()}


@cache
def sentences(language: str, part: str = "sentences") -> Sentences:
    """Translated sentences of detectors and likely causes; or those of ``errors``, or of preflight (``launch``)."""
    found = translations(language)
    entries = {**found[part], **(dict(_of_advisories(language)) if part != "errors" else {})}
    return sentences_of(entries, {joint: found["words"][joint] for joint in JOINTS})


def advisory_in(language: str, advisory: Advisory) -> Advisory:
    """An advisory with title, ``wrong`` and fix translated."""
    return (
        advisory
        if language == ENGLISH
        else msgspec.structs.replace(advisory, **translations(language)["advisories"][advisory.id])
    )


def _of_advisories(language: str) -> Iterator[tuple[str, str]]:
    """Translations of the texts that ``known-bug`` and preflight derive from an advisory."""
    for advisory in advisories():
        said = advisory_in(language, advisory)
        yield advisory.fix.strip(), said.fix
        for colon in (":", ""):  # preflight omits it
            yield (
                f"{{name}} {{text}}{colon} {advisory.title} ({{text2}})",
                f"{{name}} {{text}}：{said.title}（{{text2}}）",
            )


def _folded(text: Any) -> Any:
    return FOLD.sub("", text) if isinstance(text, str) else {key: _folded(inner) for key, inner in text.items()}


def _translated(rules: Mapping[str, Rule], language: str) -> Iterator[tuple[str, Rule]]:
    words, said = translations(language)["rules"], sentences(language)
    for name in rules.keys() & words.keys():
        yield name, replace(rules[name], **{"hints": {}, **words[name]}, language=language, sentences=said)


def apply_entry(written: WrittenRule, rules: Mapping[str, Rule], known: Mapping[str, type[Detector]]) -> Rule:
    """The rule that results from applying an entry to the rules so far.

    Raises:
        RuleError: naming the place of the mistake.
    """
    base = rules.get(written.entry.name)
    if base is None and not written.given.keys() & {"detector", "when"}:
        fix = nearest(written.entry.name, rules) or "a new rule needs `detector` or `when`"
        raise RuleError(f"unknown rule {written.entry.name!r}", written.place("name"), fix)
    return _rule(written, base, known)


def entries_of(file: Path) -> Iterator[WrittenRule]:
    """The entries of a rule file, in order.

    Raises:
        RuleError: naming the first place that can't be read.
    """
    document = read_document(file, RuleError)
    names: dict[object, int | None] = {}
    for index, value in enumerate(rules_in(document)):
        yield read_entry(value, document, ("rules", index), names)


def rules_in(document: Document) -> list[Any]:
    """The values under ``rules:``; empty for an empty file.

    Raises:
        RuleError: the file is no rule file.
    """
    if document.value is None:
        return []
    if not isinstance(document.value, dict) or not isinstance(document.value.get("rules"), list):
        raise RuleError("a rule file must contain a list under the key `rules:`", document.place_of(()))
    for key in document.value:
        if key not in _TOP_KEYS:
            fix = "tests belong in a separate file" if key == "tests" else nearest(key, _TOP_KEYS)
            raise RuleError(f"unknown key {key!r}", document.place_of((key,), key=True), fix)
    found: list[Any] = document.value["rules"]
    return found


LABELS = "labels of alerts are those of their run: write `labels:` under `runs:` in grpo-watch.yaml"


def read_entry(value: Any, document: Document, path: Path_, names: dict[object, int | None]) -> WrittenRule:
    """One entry; ``names`` are those read before it in this file, with their lines.

    Raises:
        RuleError: naming the part that can't be read, or the earlier place of the same rule.
    """
    if not isinstance(value, dict):
        raise RuleError("a rule must be a mapping that starts with `- name:`", document.place_of(path))
    try:
        written = WrittenRule(msgspec.convert(value, RuleEntry), document, path)
    except msgspec.ValidationError as invalid:
        raise first_problem(invalid, document, RuleError, (RuleEntry, RunMatch), path, {"*.labels": LABELS}) from None
    entry, place = written.entry, written.place("name")
    key = (entry.name, msgspec.json.encode(entry.match, order="sorted"))
    if key in names:
        raise RuleError(f"{entry.name} is defined twice (first in line {names[key]})", place)
    names[key] = place.line
    return written


def _rule(written: WrittenRule, base: Rule | None, known: Mapping[str, type[Detector]]) -> Rule:
    entry, place = written.entry, written.place("name")
    given = {key: value for key, value in written.given.items() if key != "match"}
    where = f"{place.file}:{place.line}"
    rule = Rule(entry.name, where=where).changed(given, where) if base is None else base.changed(given, where)
    if (rule.detector is None) == (rule.when is None):
        raise RuleError(f"{rule.name} needs either `detector` or `when`, not both", place)
    if rule.when is not None:
        _check_condition(rule, written)
    else:
        rule = replace(rule, params=_checked_params(rule, written, known))
    if entry.match is None:
        return rule
    if base is None:
        base, given = replace(rule, enabled=False), {"enabled": True}
    return _for_some(written, base, rule, given)


def _for_some(written: WrittenRule, base: Rule, rule: Rule, given: Mapping[str, Any]) -> Rule:
    """The rule so far with an override for the runs that fit the entry's ``match``; a new rule is off elsewhere."""
    wanted = written.entry.match or RunMatch()
    named = {"framework": wanted.framework, "run": wanted.run}
    match = {f"{LABEL}{name}": pattern for name, pattern in sorted(wanted.labels.items())}
    match |= {name: pattern for name, pattern in named.items() if pattern is not None}
    if not match:
        raise RuleError("match needs `framework`, `run` or `labels`", written.place("match"))
    for key in ("detector", "when"):
        if key in given and given[key] != getattr(base, key):
            raise RuleError(f"`{key}` can't differ between runs", written.place(key), "define a separate rule")
    changes = {**given, **({"params": {key: rule.params[key] for key in given["params"]}} if "params" in given else {})}
    return replace(base, overrides=(*base.overrides, Override(match, changes, rule.where)))


def _check_condition(rule: Rule, written: WrittenRule) -> None:
    if rule.params:
        raise RuleError("only detectors have params; write the numbers into the condition", written.place("params"))
    compile_expression(rule.when or "", written.place("when"))


def _checked_params(rule: Rule, written: WrittenRule, known: Mapping[str, type[Detector]]) -> Mapping[str, Any]:
    name = rule.detector or ""
    if name not in known:
        raise RuleError(f"unknown detector {name!r}", written.place("detector"), nearest(name, known))
    declared = known[name].params
    return {key: _checked_param(key, value, declared, written) for key, value in rule.params.items()}


def _checked_param(name: str, value: Any, declared: Mapping[str, Param], written: WrittenRule) -> Any:
    document, path = written.document, (*written.path, "params", name)
    if name not in declared:
        fix = nearest(name, declared) or f"known parameters: {', '.join(sorted(declared)) or 'none'}"
        raise RuleError(f"unknown parameter {name!r}", document.place_of(path, key=True), fix)
    param = declared[name]
    checked = _as_type_of(param.default, value)
    if checked is None:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(type(param.default), "text")
        raise RuleError(f"{name} must be {wanted}, not {value!r}", document.place_of(path))
    for bound, beyond, word in ((param.minimum, -1, "at least"), (param.maximum, 1, "at most")):
        if bound is not None and not isinstance(checked, str) and (checked - bound) * beyond > 0:
            raise RuleError(f"{name} must be {word} {bound:g}, not {checked:g}", document.place_of(path))
    return checked


def _as_type_of(default: object, value: Any) -> float | bool | str | None:
    """The value as the parameter's type; None if it isn't one."""
    if isinstance(default, bool) or isinstance(value, bool):
        return value if isinstance(default, bool) and isinstance(value, bool) else None
    if isinstance(default, str):
        return value if isinstance(value, str) else None
    if not isinstance(value, int | float) or value != value or abs(value) == float("inf"):  # noqa: PLR0124  NaN
        return None
    if isinstance(default, int):
        return int(value) if value == int(value) else None
    return float(value)


def lint(files: Sequence[Path], frameworks: Sequence[str] = ()) -> list[RuleError]:
    """Every problem in the files, in order; each file overlays the shipped rules and the files before it.

    Args:
        files: rule files.
        frameworks: the names that a ``match`` on the framework can fit; none: any.

    Raises:
        RuleError: a shipped rule can't be used.
    """
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(detectors=detectors)}
    problems: list[RuleError] = []
    for file in files:
        try:
            document = read_document(file, RuleError)
            values = rules_in(document)
        except RuleError as problem:
            problems.append(problem)
            continue
        names: dict[object, int | None] = {}
        for index, value in enumerate(values):
            try:
                written = read_entry(value, document, ("rules", index), names)
                rule = apply_entry(written, rules, detectors)
            except RuleError as problem:
                problems.append(problem)
                continue
            rules[rule.name] = rule
            problems += _unknown_frameworks(written, frameworks)
    return problems


def _unknown_frameworks(written: WrittenRule, frameworks: Sequence[str]) -> Iterator[RuleError]:
    """Problems of a rule that loads but matches no known framework."""
    known = f"known frameworks: {', '.join(frameworks)}"
    pattern = written.entry.match.framework if written.entry.match else None
    if pattern is not None and frameworks and not fnmatch.filter(frameworks, pattern):
        fix = nearest(pattern, frameworks) or known
        yield RuleError(f"no framework matches {pattern!r}", written.place("match", "framework"), fix)
    for name in written.entry.hints:
        if frameworks and name not in frameworks:
            yield RuleError(
                f"unknown framework {name!r}", written.place("hints", name), nearest(name, frameworks) or known
            )
