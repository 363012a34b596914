"""Rules: a detector or a condition with parameters, distances, severity and hint; and overrides."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.engine.sentences import Sentences

ENGLISH = "en"
"""The language that rules, detectors and commands are written in."""
LABEL = "label:"
"""Prefix of the user's labels in ``Override.match``."""


@dataclass(frozen=True, slots=True)
class Override:
    """Changes to a rule for some runs only.

    ``match`` holds patterns (``*``, ``?``) for ``run``, ``framework`` and the user's labels (``label:team``), all of
    which must fit; a run whose framework is not known (yet), or without the label, fits no pattern of it. ``changes``
    are checked values of the rule's fields, with ``params`` complete.
    """

    match: Mapping[str, str]
    changes: Mapping[str, Any]
    where: str = ""

    def fits(self, run: str, framework: str | None, labels: Mapping[str, str]) -> bool:
        """Whether the override applies to the run."""
        known = {"run": run, "framework": framework, **{f"{LABEL}{name}": value for name, value in labels.items()}}
        return all(
            (said := known.get(key)) is not None and fnmatchcase(said, wanted) for key, wanted in self.match.items()
        )


_BY_KEY = frozenset({"params", "hints"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A detector (or a ``when`` expression) with parameters, distances and a severity.

    Fires when ``step - first_step >= for_steps`` and at least ``min_observations`` records breach; resolves after
    ``keep_firing_steps`` without a breach. ``where`` is ``file:line`` of its definition. ``hints`` are the fixes for
    frameworks for which ``hint`` is not right. ``headline`` is the summary in a few plain words; it may name the
    ``{step}`` at which the rule fired. If ``language`` is not that of detectors, ``sentences`` translate theirs.
    """

    name: str
    detector: str | None = None
    when: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    for_steps: int = 0
    keep_firing_steps: int = 0
    min_observations: int = 3
    severity: Severity = Severity.WARNING
    headline: str = ""
    summary: str = ""
    hint: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    enabled: bool = True
    overrides: tuple[Override, ...] = ()
    language: str = ENGLISH
    sentences: Sentences = field(default_factory=Sentences)

    @property
    def translated(self) -> bool:
        """Whether its language differs from that of detectors' messages."""
        return self.language != ENGLISH

    @property
    def anywhere(self) -> bool:
        """Whether the rule is enabled for any run at all."""
        return self.enabled or any(override.changes.get("enabled") for override in self.overrides)

    def on(self, run: str, framework: str | None, labels: Mapping[str, str] = MappingProxyType({})) -> Rule:
        """The rule with every override that fits the run applied, later ones last."""
        rule = self
        for override in self.overrides:
            if override.fits(run, framework, labels):
                rule = rule.changed(override.changes, override.where)
        return rule

    def changed(self, changes: Mapping[str, Any], where: str) -> Rule:
        """The rule with some fields changed; mappings merge by key. A new ``hint`` replaces those for frameworks."""
        before = replace(self, hints={}) if "hint" in changes else self
        merged = {key: {**getattr(before, key), **changes[key]} for key in changes.keys() & _BY_KEY}
        changes = {"hints": before.hints, **changes}
        return replace(self, **{**changes, **merged}, where=where)

    def says(self, message: str) -> str:
        """A finding's message: the detector's, or the summary; untranslated ones follow the summary in English."""
        if not (message and self.translated):
            return message or self.summary
        return self.sentences.said(message) or f"{self.summary} {message}"

    def tells(self, text: str) -> str:
        """The detector's text in the rule's language, or in English if it has no translation."""
        return (self.sentences.said(text) or text) if self.translated else text

    def headline_at(self, severity: Severity) -> str:
        """The headline; empty below the rule's own severity, for which it is worded."""
        return self.headline if severity.rank >= self.severity.rank else ""

    def advice(self, framework: str | None, own: str = "") -> str:
        """The fix: the detector's ``own`` words, else the rule's hint for the run's framework, else its general one."""
        general = self.hints.get(framework or "", self.hint)
        if not (own and self.translated):
            return own or general
        return self.sentences.said(own) or f"{general} {own}"


_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def general(hint: str) -> str:
    """The hint without a finding: each ``{key}`` is shown in capitals, as in a usage line."""
    return _PLACE.sub(lambda place: place[1].upper(), hint)


def filled(hint: str, evidence: Mapping[str, Scalar]) -> str:
    """The hint with each ``{key}`` replaced by its value in the evidence; unknown keys stay.

    Texts come from the run's folder and may end up in a command, so they are quoted for the shell.
    """

    def value(place: re.Match[str]) -> str:
        known = evidence.get(place[1])
        if known is None:
            return place[0]
        return f"{known:.6g}" if isinstance(known, float) else shlex.quote(str(known))

    return _PLACE.sub(value, hint)
