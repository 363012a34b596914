"""Tells apart three kinds of blind rules: not applicable to a run, not ready yet, and lacking evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from types import MappingProxyType

from grpo_watch.engine.detector import Blindness
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import (
    NEEDS,
    RuleStatus,
    RuleView,
    RunSnapshot,
    RunVerdict,
    blind_to_frozen_policy,
    judged,
)
from grpo_watch.extras import NO_PYARROW
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.report.words import say, sentence_words

GAPS = frozenset(
    {
        "logprob_gap_rollout",
        "probability_gap_rollout",
        "kl_rollout",
        "probability_error_rollout",
        "importance_ratio_rollout",
        "effective_sample_rollout",
        "chi2_rollout",
    }
)
OPTIONAL = GAPS | {
    "memory_gib",
    "prompt_truncated_ratio",
    "sample_staleness_steps",
    "tool_failure_ratio",
    "eval_score",
    "tool_calls_mean",
    "turns_mean",
    "reward_failures",
    "tool_errors",
    "step_seconds",
    "entropy",
    "kl_reference",
    "kl_policy_update",
}
"""Metrics that frameworks log only under some settings: if no setting is known, the framework does not log them. A
reference KL is missing exactly when beta is 0 (TRL 0.16, ms-swift)."""
GIVEN: Mapping[str, str] = MappingProxyType(
    {
        "num_generations is not known": "--set num_generations=N",
        "dataset_size": "--set dataset_size=N",
        "no weights are known": "--set reward_weights=W",
    }
)
"""Reasons that an option of grpo-watch resolves; all other settings are those of the launch."""
LINKED, LINK_SETTING = "allow_roots", "allow_roots (grpo-watch.yaml)"
"""Part of the reason if evidence is behind a link out of the run, and the setting that permits following it."""
SWITCHES: Mapping[str, str] = MappingProxyType({"checkpoints": "save_steps", "completions": "log_completions"})
"""Evidence, and the setting that enables it."""
FIRST_STEPS = 10
"""Steps within which a run's first completions appear."""
SHOWN = 2
"""Most settings named in one line."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a run its rules could judge.

    ``missing`` are blind rules by the setting that would let them judge (empty: none is known), most valuable first;
    ``waiting`` are those that need more steps.
    """

    judged: int
    applicable: int
    broken: int
    waiting: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]

    @property
    def blind(self) -> int:
        """The number of rules that lack evidence."""
        return sum(map(len, self.missing.values()))


def coverage(snapshot: RunSnapshot) -> Coverage:
    """How much of the run could be judged."""
    kinds: dict[Blindness, list[RuleView]] = {kind: [] for kind in Blindness}
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BLIND:
            kinds[blindness(rule, snapshot)].append(rule)
    missing: dict[str, list[RuleView]] = {}
    for rule in kinds[Blindness.MISSING]:
        missing.setdefault(setting_for(rule, snapshot), []).append(rule)
    ranked = sorted(missing.items(), key=lambda each: (not each[0], -_weight(each[1])))
    return Coverage(
        judged=sum(rule.status in {RuleStatus.OK, RuleStatus.FIRING} for rule in snapshot.rules),
        applicable=len(snapshot.rules) - len(kinds[Blindness.NOT_APPLICABLE]),
        broken=sum(rule.status is RuleStatus.BROKEN for rule in snapshot.rules),
        waiting=tuple(rule.rule for rule in kinds[Blindness.NOT_YET]),
        missing={setting: tuple(rule.rule for rule in rules) for setting, rules in ranked},
    )


def lacking(snapshot: RunSnapshot) -> tuple[str, ...]:
    """The names of the rules that lack evidence, in alphabetical order."""
    return tuple(sorted(rule for rules in coverage(snapshot).missing.values() for rule in rules))


LABELS: Mapping[str, str] = MappingProxyType(
    {
        Blindness.MISSING: "blind",
        Blindness.NOT_YET: "needs more steps",
        Blindness.NOT_APPLICABLE: "not applicable",
    }
)
"""Labels of rules without a judgement; only rules that lack evidence are called blind."""


def unjudged(snapshot: RunSnapshot) -> Iterator[tuple[str, str, list[str]]]:
    """Label, reason and names of the rules that did not judge, by kind: those that lack evidence first."""
    for kind, label in LABELS.items():
        reasons: dict[str, list[str]] = {}
        for rule in snapshot.rules:
            if rule.status is RuleStatus.BLIND and blindness(rule, snapshot) is kind:
                reasons.setdefault(rule.reason, []).append(rule.rule)
        for reason, rules in reasons.items():
            yield say(snapshot.language, label), sentence_words(snapshot.language, reason), rules


def headline(snapshot: RunSnapshot) -> str:
    """The verdict in words, ``healthy as far as judged`` if a critical rule lacks evidence.

    If no rule could see a frozen policy, the absence of findings is not called healthy.
    """
    if snapshot.verdict is RunVerdict.HEALTHY and blind_to_frozen_policy(snapshot):
        words = "no finding, {n} of {all} judged; frozen weights can't be seen"
        return say(snapshot.language, words, n=judged(snapshot), all=len(snapshot.rules))
    blind = lacking(snapshot) if snapshot.verdict is RunVerdict.HEALTHY else ()
    if any(rule.severity is Severity.CRITICAL and rule.rule in blind for rule in snapshot.rules):
        return say(snapshot.language, "healthy as far as judged")
    return verdict_words(snapshot)


def verdict_words(snapshot: RunSnapshot) -> str:
    """The verdict without reservations: ``too short``."""
    return say(snapshot.language, snapshot.verdict.value.replace("-", " "))


def coverage_line(snapshot: RunSnapshot) -> str:
    """``36 of 38 applicable rules judged · 2 blind: set log_completions=True``."""
    found = coverage(snapshot)
    return " · ".join(filter(None, (judged_words(found, snapshot), blind_words(found, snapshot))))


def judged_words(found: Coverage, snapshot: RunSnapshot) -> str:
    """``36 of 38 applicable rules judged``."""
    if not snapshot.rows:
        return say(snapshot.language, "{n} rules judged, the others had no row", n=found.judged)
    words = "{n} of {all} applicable rules judged"
    parts = [say(snapshot.language, words, n=found.judged, all=found.applicable)]
    waiting, over = len(found.waiting), snapshot.step >= (snapshot.max_steps or inf)
    words = "1 needs more steps" if waiting == 1 else "{n} need more steps"
    if over:  # no more steps will come
        words = "1 needed more steps" if waiting == 1 else "{n} needed more steps"
    parts += [say(snapshot.language, words, n=waiting)] if waiting else []
    return say(snapshot.language, ", ").join(parts)


def blind_words(found: Coverage, snapshot: RunSnapshot) -> str:
    """``2 blind: set log_completions=True``; empty if nothing is missing, or nothing was logged at all."""
    if not found.blind or not snapshot.rows:
        return ""
    fixes = [setting for setting in found.missing if setting][:SHOWN]
    passed = [fix for fix in fixes if fix in GIVEN.values()]
    parts = [fix for fix in fixes if "[parquet]" in fix]
    settings = [fix for fix in fixes if fix not in {*parts, *passed}]
    given = say(snapshot.language, " and ").join(settings)
    parts += [say(snapshot.language, "set {settings}", settings=given)] * bool(settings)
    parts += [say(snapshot.language, "pass {options}", options=" ".join(passed))] * bool(passed)
    words = say(snapshot.language, "{n} blind", n=found.blind)
    return say(snapshot.language, ": ").join([words, *filter(None, [say(snapshot.language, ", ").join(parts)])])


def blindness(rule: RuleView, snapshot: RunSnapshot) -> Blindness:
    """The kind of a blind rule, by its detector; if metrics are missing, by whether the run could have them."""
    reason = rule.reason
    if reason.startswith(NEEDS):
        if any(_comes(need, snapshot) for needs in _needs(reason) for need in needs):
            return Blindness.NOT_YET
        possible = any(all(_possible(need, snapshot) for need in needs) for needs in _needs(reason))
        return Blindness.MISSING if possible else Blindness.NOT_APPLICABLE
    return rule.blind or Blindness.MISSING


def setting_for(rule: RuleView, snapshot: RunSnapshot) -> str:
    """The setting or package that would let a blind rule judge; empty if none is known."""
    if NO_PYARROW in rule.reason:
        return rule.reason.partition(NO_PYARROW)[2]
    if LINKED in rule.reason:
        return LINK_SETTING
    if rule.reason.startswith(NEEDS):
        wanted = (need for needs in _needs(rule.reason) for need in needs)
        return next(filter(None, (_setting(need, snapshot) for need in wanted)), "")
    return next((setting for part, setting in GIVEN.items() if part in rule.reason), "")


def _weight(rules: Sequence[RuleView]) -> int:
    """The weight of rules in sorting: a critical rule outweighs any number of others."""
    return sum(100 if rule.severity is Severity.CRITICAL else 1 for rule in rules)


@lru_cache(maxsize=1_024)
def _needs(reason: str) -> tuple[tuple[str, ...], ...]:
    text = reason.removeprefix(NEEDS).partition(": ")[0]
    return tuple(tuple(alternative.split(" and ")) for alternative in text.split(", or "))


def _possible(need: str, snapshot: RunSnapshot) -> bool:
    """Whether the run could have the evidence under other settings."""
    if need in GAPS:
        use_vllm = snapshot.config.get("use_vllm")
        if use_vllm is not None and use_vllm.value is False:
            return False
        need = "logprob_gap_rollout"
    known = snapshot.framework is not None and snapshot.rows > 0
    return not (known and need in OPTIONAL) or bool(_setting(need, snapshot))


def _switched_on(need: str, snapshot: RunSnapshot) -> float:
    """The value of the setting that enables the evidence; 0 if it is off or unknown."""
    known = snapshot.config.get(SWITCHES.get(need, ""))
    value = None if known is None else known.value
    return float(value) if isinstance(value, (int, float)) and value > 0 else 0.0


def _comes(need: str, snapshot: RunSnapshot) -> bool:
    """Whether enabled evidence is not due yet: the second checkpoint, the first completions."""
    every = _switched_on(need, snapshot)
    return every > 0 and snapshot.step <= (2 * every if need == "checkpoints" else FIRST_STEPS)


def _setting(need: str, snapshot: RunSnapshot) -> str:
    if _switched_on(need, snapshot):
        return ""  # it is enabled, yet there is none: no setting would help
    known = frameworks().get(snapshot.framework or "")
    return known.reveals.get("logprob_gap_rollout" if need in GAPS else need, "") if known else ""
